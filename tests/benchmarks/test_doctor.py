"""The benchmark of the doctor: what counts as found and named, what is written, and a handful of its programs."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import pytest

from benchmarks.clean_programs import CLEAN
from benchmarks.silent_bugs import BUGS
from lapwing.bench import doctor as bench
from lapwing.bench.measure import BenchError
from lapwing.check import run_all

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def promotion():
    """Users add a bias to a batch without reshaping it."""
    with jax.numpy_rank_promotion("allow"):
        yield


def failed(made: Any, only: list[str]) -> list[str]:
    given = made if isinstance(made, tuple) else (made,)
    return [each.detail for each in run_all(*given, only=only) if each.result == "failed"]


def test_there_are_enough_programs_and_a_third_was_held_out_at_first():
    assert len(BUGS) >= 30
    assert len(CLEAN) == 60
    for programs in (BUGS, CLEAN):
        at_first = [each.held_out or getattr(each, "seen_later", False) for each in programs.values()]
        share = sum(at_first) / len(programs)
        assert 0.3 <= share <= 0.36
    assert all(re.match(r"https://\S+$", each.source) and each.build.__doc__ for each in BUGS.values())
    assert len({each.source for each in BUGS.values()}) == len(BUGS)


# A check for each of some bugs of every file; all checks of all programs are slow.
SOME = {
    "jax_17496": "gradients",
    "accelerate_2665": "dead_parameters",
    "stackoverflow_67180955": "fresh_data",
    "ums_ressel_3": "optimizer",
    "transformers_33844": "modes",
    "xland_minigrid_42": "keys",
    "lightning_bolts_654": "numbers",
}


@pytest.mark.parametrize(
    "name",
    [name if at == 6 else pytest.param(name, marks=pytest.mark.slow) for at, name in enumerate(SOME)],
)
def test_some_bugs_are_named_and_their_twins_pass(name: str):
    bug, only = BUGS[name], [SOME[name]]
    assert any(bench.is_named(bug.cause, detail) for detail in failed(bug.build(True), only))
    assert failed(bug.build(False), only) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_as_the_results_say(name: str):
    rows = {
        row["name"]: row
        for row in json.loads((ROOT / "benchmarks/results/doctor-cpu.json").read_text())["bugs"]
    }
    row = bench._bug_row(BUGS[name], bench.Config())
    assert (row["found"], row["named"]) == (rows[name]["found"], rows[name]["named"])
    assert (row["bug"]["crash"], row["twin"]["crash"]) == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_a_correct_program_is_as_the_results_say(name: str):
    rows = {
        row["name"]: row
        for row in json.loads((ROOT / "benchmarks/results/doctor-cpu.json").read_text())["clean"]
    }
    row = bench._clean_row(CLEAN[name], bench.Config())
    assert [each["check"] for each in row["failed"]] == [each["check"] for each in rows[name]["failed"]]
    assert row["crash"] == ""


PROGRAMS = """
    import jax
    import jax.numpy as jnp

    from lapwing.bench.doctor import bug, bugs_in, clean, clean_in
    from lapwing.task import Task


    def task(same=False):
        return Task(
            init=lambda key: jnp.zeros(3),
            data=lambda key, step: jax.random.normal(jax.random.key(0) if same else key, (8, 3)),
            loss=lambda w, x: (jnp.mean((x @ (w - 1)) ** 2), {}),
        )


    @bug("https://example.org/1", cause="same as batch")
    def again(wrong):
        return task(same=wrong)


    @clean(held_out=True)
    def crashing():
        raise RuntimeError("as planned")
"""


@pytest.fixture
def own_programs(tmp_path, monkeypatch) -> Path:
    for package, names in (("silent_bugs", "BUGS = bugs_in"), ("clean_programs", "CLEAN = clean_in")):
        folder = tmp_path / "my_programs" / package
        folder.mkdir(parents=True)
        (folder / "programs.py").write_text(textwrap.dedent(PROGRAMS))
        source = f"from lapwing.bench.doctor import bugs_in, clean_in\n\nfrom . import programs\n\n{names}(programs)\n"
        (folder / "__init__.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "my_programs"


@pytest.mark.slow
def test_programs_of_a_folder_are_examined_written_and_shown(own_programs, tmp_path, capsys, monkeypatch):
    config = bench.Config(folder=str(own_programs), out=str(tmp_path / "out"), name="mine", budget=20.0)
    results = bench.run(config)
    (row,), (crashed,) = results["bugs"], results["clean"]
    assert (row["found"], row["named"], row["twin"]["failed"]) == (True, True, [])
    assert "RuntimeError: as planned" in crashed["crash"]
    counts = results["summary"]
    assert (counts["all"]["crashes"], counts["open"]["crashes"], counts["held_out"]["clean"]) == (1, 0, 1)
    assert json.loads((tmp_path / "out" / "mine-cpu.json").read_text()) == results
    bench.show(results)
    assert re.search(r"again +named", capsys.readouterr().out)
    monkeypatch.setattr(bench, "examine", lambda *_: pytest.fail("it is done"))
    assert bench.run(bench.Config(**{**vars(config), "resume": True})) == results


@pytest.mark.slow
def test_workers_examine_them_without_the_packages_of_the_command_line(own_programs, tmp_path):
    """Also that the workers, which are processes of their own, do without them."""
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "tyro.py").write_text("raise ImportError('as if it were not installed')")
    options = ["--folder", str(own_programs), "--out", str(tmp_path / "out"), "--workers", "2"]
    subprocess.run(
        [sys.executable, "-m", "lapwing.bench.doctor", *options],
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'blocked'}:{ROOT / 'src'}"},
        check=True,
    )
    results = json.loads((tmp_path / "out" / "doctor-cpu.json").read_text())
    assert [(row["name"], row["named"]) for row in results["bugs"]] == [("again", True)]
    assert [row["name"] for row in results["clean"]] == ["crashing"]


def test_a_cause_is_named_by_what_is_wrong_or_by_the_first_thing_to_look_at():
    detail = "the loss is 3. Look at the mask: its sign, and the data"
    assert bench.is_named("LOSS", detail)
    assert bench.is_named("mask", detail)
    assert not bench.is_named("sign", detail)
    assert not bench.is_named("data", detail)


def test_wrong_options_are_refused(tmp_path):
    with pytest.raises(
        BenchError, match=r"only should be names of programs in .*benchmarks, and 'nobody' is none of"
    ):
        bench.run(bench.Config(folder=str(ROOT / "benchmarks"), only=("nobody",)))
    with pytest.raises(
        BenchError, match=r"folder should contain the package silent_bugs, but .* does not; run this in"
    ):
        bench.run(bench.Config(folder=str(tmp_path)))
    with pytest.raises(BenchError, match="part should be all, open or held_out, but is half"):
        bench.run(bench.Config(part="half"))
    with pytest.raises(BenchError, match="workers should be at least 1, but is 0"):
        bench.run(bench.Config(workers=0))
