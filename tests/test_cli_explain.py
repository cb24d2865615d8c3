"""`lapwing explain` on files that work and on files that do not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.bench._function import report
from lapwing.cli import main

NETWORK = """
from dataclasses import dataclass

import jax
import jax.numpy as jnp

import sizes


@dataclass
class Size:
    width: int


def loss(w, xs, activation):
    def step(h, x):
        return activation(h @ w + x), None

    return jnp.sum(jax.lax.scan(step, jnp.zeros(w.shape[0]), xs)[0])


def example():
    size = Size(sizes.WIDTH)
    return loss, (jnp.eye(size.width), jnp.ones((5, size.width)), jnp.tanh)


def nothing():
    pass


def alone():
    return loss, jnp.eye(3)


def whole_numbers():
    return loss, (jnp.arange(3), 5)


def breaks():
    return 1 / 0


def wrong_shapes():
    return loss, (jnp.eye(3), jnp.ones((5, 2)), jnp.tanh)


def picky(size):
    return loss, ()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "net.py").write_text(NETWORK)
    (tmp_path / "sizes.py").write_text("WIDTH = 3\n")
    return tmp_path


def refusal(capsys, *words: str) -> str:
    status = main(["explain", *words])
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert said.err.count("\n") == 1
    return said.err.removeprefix("lapwing: ").rstrip("\n")


def test_the_table_and_the_picture(capsys):
    assert main(["explain", "net.py:example", "--rewrite", "always", "--picture", "loop.png"]) == 0
    out = capsys.readouterr().out
    assert "net.py:17:26  gradient of the weight" in out
    assert "one product over all steps" in out
    assert "peak temporary memory" in out
    assert out.endswith("picture: loop.png\n")
    assert Path("loop.png").read_bytes().startswith(b"\x89PNG")


def test_json_and_options(capsys):
    assert main(["explain", "net.py:example", "--json", "--no-compiled", "--rewrite", "never"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["memory"] is None
    assert found["loop_products"]["after"] == found["loop_products"]["before"]
    assert [(row["processor"], row["place"], row["why"]) for row in found["loops"]] == [
        ("CPU", "forward loop", "it has 5 steps only"),
        ("CPU", "backward loop", "it has 5 steps only"),
        ("Hopper GPU", "forward loop", "it runs exactly as it was written"),
        ("Hopper GPU", "backward loop", "it runs exactly as it was written"),
    ]
    assert main(["explain", "net.py:example", "--json", "--no-compiled", "--rewrite", "always"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loop_products"]["after"]["in the backward loop"] == 1


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (
            "net.py",
            "net.py should have build(config) that returns a lapwing.task.Task, or a task that is one; ",
        ),
        ("nett.py:example", "there is no file 'nett.py'; `lapwing new nett.py` writes one"),
        ("net.py:exmaple", "there is no function 'exmaple' in net.py; did you mean example?"),
        ("net.py:jnp", "there is no function 'jnp' in net.py; there are Size, loss, example, nothing"),
        ("net.py:nothing", "expected net.py:nothing to return (fn, args), a function and the tuple of its"),
        (
            "net.py:whole_numbers",
            "expected a floating-point array among the arguments that net.py:whole_numbe",
        ),
        ("net.py:breaks", "net.py:breaks raised ZeroDivisionError in line 40: division by zero"),
        ("net.py:wrong_shapes", "net.py:wrong_shapes raised TypeError in line 17: add got incompatible"),
        ("net.py:picky", "build in net.py:picky should return a lapwing.task.Task, not a tuple"),
    ],
)
def test_a_wrong_target_gets_one_sentence(capsys, target: str, sentence: str):
    assert refusal(capsys, target).startswith(sentence)


@pytest.mark.parametrize(("function", "found"), [("nothing", "None"), ("alone", "(function, ArrayImpl)")])
def test_what_was_returned_instead_is_named(capsys, function: str, found: str):
    end = f"found {found}; write for example: return loss, (params, batch)"
    assert refusal(capsys, f"net.py:{function}").endswith(end)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("x = 1\nraise ValueError('no\\nmore')", "bad.py raised ValueError in line 2: no"),
        ("x = = 1", "bad.py raised SyntaxError: invalid syntax (bad.py, line 1)"),
        ("import not_there", "bad.py raised ModuleNotFoundError in line 1: No module named 'not_there'"),
        ("import sys\nsys.exit()", "bad.py raised SystemExit in line 2"),
    ],
)
def test_a_file_that_raises_is_told_in_a_sentence(capsys, folder: Path, code: str, sentence: str):
    (folder / "bad.py").write_text(code)
    assert refusal(capsys, "bad.py:example") == sentence


@pytest.mark.parametrize("picture", ["loop.xyz", "no/folder/loop.png"])
def test_a_picture_that_cannot_be_written_is_said(capsys, picture: str):
    sentence = refusal(capsys, "net.py:example", "--no-compiled", "--picture", picture)
    assert sentence.startswith(f"cannot draw the picture {picture!r}: ")


@pytest.mark.slow
def test_a_file_may_have_the_name_of_a_module(folder: Path):
    (folder / "jax.py").write_text("def example():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lapwing", "explain", "jax.py:example"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("lapwing: expected jax.py:example to return (fn, args)")


@pytest.mark.slow
def test_measured_times_in_words(capsys):
    assert main(["explain", "net.py:example", "--time", "--no-compiled"]) == 0
    said = capsys.readouterr().out
    assert "\ngradient: " in said
    assert "\nvalue: " in said
    assert " ms" in said


@pytest.mark.slow
def test_measured_times(capsys):
    assert main(["explain", "net.py:example", "--time", "--no-compiled", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["time"]
    assert found["value"]["agrees"]
    assert len(found["gradient"]["ms"]) == len(found["gradient"]["temporary_bytes"]) == 2


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"same_program": True}, "2 ms, as written: nothing in its loops is worth changing"),
        ({"ratio": 2.0}, "2 ms as written, 1 ms accelerated, 2.00 times faster (±0.5%)"),
        ({"ratio": 0.5}, "2 ms as written, 1 ms accelerated, 2.00 times slower (±0.5%)"),
        ({"ratio": 1.004}, "2 ms as written, 1 ms accelerated, no difference (±0.5%)"),
        ({"ratio": 1.3, "uncertainty": 0.4}, "2 ms as written, 1 ms accelerated, no difference (±40.0%)"),
    ],
)
def test_the_verdict_in_words(row, said):
    plain = {"ms": [2.0, 1.0], "uncertainty": 0.005, "same_program": False, "error": 0.1, "agrees": False}
    text = report({"gradient": {**plain, "temporary_bytes": [1000, 2000], **row}})
    assert f"gradient: {said}; temporary memory 1 kB as written, 2 kB accelerated" in text
    assert text.endswith("differ by 1.0e-01, more than rounding; please report this")
