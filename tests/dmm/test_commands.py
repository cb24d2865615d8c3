"""`lapwing dmm` on the command line."""

import contextlib
import json
from types import SimpleNamespace

import pytest

from lapwing import dmm, trees
from lapwing.cli import main
from lapwing.dmm import Machine


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "machine.json"
    dmm.readable_detector().save(path)
    return path


@pytest.fixture
def lapwing(capsys):
    def call(*words) -> str:
        assert main(["dmm", *map(str, words)]) == 0
        return capsys.readouterr().out

    return call


def test_show_prints_the_listing_and_draws_next_to_the_file(lapwing, file):
    text = lapwing("show", file)
    assert text == f"{dmm.listing(dmm.readable_detector(), 8)}\npicture: {file.with_suffix('.png')}\n"
    assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_show_draws_to_the_given_file(lapwing, file, tmp_path):
    lapwing("show", file, "--picture", tmp_path / "other.svg")
    assert (tmp_path / "other.svg").exists()
    assert not file.with_suffix(".png").exists()


def test_show_as_json(lapwing, file):
    content = json.loads(lapwing("show", file, "--json"))
    assert (content["links"], content["soft"], content["dead"]) == (22, 19, 0)
    assert content["weights"][0] == {
        "to": "accum-1-2",
        "to_field": "dict-1",
        "source": "accum-1-2",
        "source_field": "dict",
        "weight": 1.0,
        "hard": True,
        "dead": False,
        "key": [],
    }


def test_show_reads_a_published_matrix(lapwing, tmp_path):
    file = tmp_path / "matrix.json"
    file.write_text('{"norm-1": {"dict": {"accum-1": {"dict": 0.5, "true": 0.25}}}}')
    assert "dict ← 0.5 accum-1.dict, 0.25✗ accum-1.true" in lapwing("show", file)


def test_run_prints_the_answers_when_something_changes(lapwing, file):
    lines = lapwing("run", file, "--text", "test string.", "--cycles", 140).splitlines()
    words = [line.split() for line in lines]
    assert words[0] == ["cycle", "read", "dict-1", "dict-2"]
    assert words[2] == ["1", "'t'", "0", "0"]
    assert ["35", "1.0012", "0"] in words
    assert words[-2] == ["140", "1.998", "2.999"]
    assert lines[-1] == f"plot: {file.with_suffix('.answers.png')}"
    assert file.with_suffix(".answers.png").read_bytes().startswith(b"\x89PNG")
    assert len(lines) < 40


def test_run_as_json_has_every_cycle(lapwing, file):
    content = json.loads(lapwing("run", file, "--cycles", 40, "--text", "aa", "--governor", 0.25, "--json"))
    assert content["answers"] == dmm.interpret(Machine.load(file), 40, text="aa", governor=0.25).answers


def test_test_prints_the_published_errors_and_draws_the_worst_text(lapwing, file):
    words = [
        line.split()
        for line in lapwing(
            "test", file, "--text", "test string.", "tets string.", "--governor", 4
        ).splitlines()
    ]
    assert words[0] == ["text", "cycles", "error", "worst", "cycle", "worst", "error"]
    assert words[2] == ["'test", "string.'", "140", "0.0016101", "4", "0.022946"]
    assert words[3][3] == "0.0014383"
    assert words[-1][-1] == str(file.with_suffix(".test.png"))
    assert file.with_suffix(".test.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_test_with_a_teacher_and_with_examples_from_a_file(lapwing, file, tmp_path):
    teacher = tmp_path / "teacher.json"
    dmm.readable_detector().save(teacher)
    alike = json.loads(lapwing("test", file, "--text", "aa.", "--teacher", teacher, "--cycles", 40, "--json"))
    assert [row["error"] for row in alike["tests"]] == [0.0]
    examples = tmp_path / "examples.json"
    examples.write_text(json.dumps([{"text": "a", "targets": {"dict-1": [0, 0, 0], "dict-2": [0, 3, 0]}}]))
    (row,) = json.loads(lapwing("test", file, "--examples", examples, "--json"))["tests"]
    assert (row["error"], row["worst_cycle"], row["cycles"]) == (9.0, 2, 3)


def test_prune_writes_a_machine(lapwing, file):
    words = [line.split() for line in lapwing("prune", file, "--below", 0.5).splitlines()]
    target = file.with_suffix(".pruned.json")
    assert words[2:] == [
        ["links", "22", "16"],
        ["soft", "19", "13"],
        ["dead", "0", "0"],
        ["machine:", str(target)],
    ]
    assert len(Machine.load(target).soft()) == 13


def test_prune_as_json(lapwing, file, tmp_path):
    content = json.loads(lapwing("prune", file, "--below", 0.5, "--out", tmp_path / "out.json", "--json"))
    assert content["after"] == {"links": 16, "soft": 13, "dead": 0}
    assert Machine.load(content["file"]).hard == dmm.readable_detector().hard


def test_list_shows_the_library(lapwing):
    lines = lapwing("list").splitlines()
    assert lines[0].split() == ["name", "links", "reads", "answers"]
    assert next(line for line in lines if line.startswith("parity")).split()[:3] == ["parity", "7", "01"]
    rows = {row["name"]: row for row in json.loads(lapwing("list", "--json"))}
    assert list(rows) == list(dmm.library())
    assert rows["wave"]["examples"][0]["targets"]["dict-1"] == [1, 2, 3, 1, 2, 3, 1, 2]


@pytest.mark.slow
def test_a_machine_of_the_library_by_its_name(lapwing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = json.loads(lapwing("run", "parity", "--json"))
    (text, example), *_ = dmm.from_library("parity").examples.items()
    assert content["cycles"] == 3 + len(text)
    assert content["answers"] == dmm.from_library("parity").targets()[0]["targets"], example
    assert json.loads(lapwing("run", "parity", "--text", "1011", "--json"))["cycles"] == 7
    lapwing("show", "parity")
    assert (tmp_path / "parity.png").exists()
    (row,) = json.loads(lapwing("test", "wave", "--examples", "wave", "--json"))["tests"]
    assert row["error"] == 0


def test_repair_writes_the_machine_and_says_what_it_changed(lapwing, tmp_path, capsys):
    file = tmp_path / "broken.json"
    whole = dmm.from_library("parity").build()
    links = trees.paths(whole.values)
    del links["matrix", "output", "dict-1", "parity", "norm"]
    whole.with_values(trees.from_paths(links)).save(file)
    text = lapwing("repair", file, "--examples", "parity", "--rows", 24)
    assert "output.dict-1 ← parity.norm" in text
    assert f"machine: {file.with_suffix('.repaired.json')}" in text
    repaired = Machine.load(file.with_suffix(".repaired.json"))
    answers = dmm.interpret(repaired, 23, text="01110100101101001011").answers["dict-1"]
    expected = dmm.interpret(whole, 23, text="01110100101101001011").answers["dict-1"]
    assert answers == pytest.approx(expected, abs=1e-3)
    content = json.loads(
        lapwing("repair", "parity", "--examples", "parity", "--out", tmp_path / "x", "--json")
    )
    assert content == {"error": 0.0, "attempts": 0, "changes": [], "file": str(tmp_path / "x")}
    text = lapwing("repair", "parity", "--examples", "parity", "--out", tmp_path / "x")
    assert text.startswith("nothing is broken: the machine is right as it is\n")


def test_a_file_that_holds_no_machine_is_named(tmp_path):
    file = tmp_path / "odd.json"
    file.write_text('{"norm": NaN}')
    with pytest.raises(dmm.MachineError, match=r"odd.json': JSON has only finite numbers, but 'norm' is nan"):
        Machine.load(file)
    file.write_text("[1, 2]")
    with pytest.raises(dmm.MachineError, match=r"odd.json': expected the JSON object of a machine"):
        Machine.load(file)


@pytest.mark.slow
def test_a_repair_that_fails_or_is_stopped_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    call = ["dmm", "repair", "parity", "--examples", "edges", "--rows", "2", "--attempts"]
    assert main([*call, "1"]) == 2
    assert capsys.readouterr().err == (
        "attempt 1: still wrong\nlapwing: no start in 1 attempts became right, and the machine is wrong by 1; "
        "give more --attempts, more --rows or another --seed\n"
    )

    @contextlib.contextmanager
    def interrupted():
        yield SimpleNamespace(reason="Ctrl-C")

    monkeypatch.setattr("lapwing._commands.dmm_repair.interrupts", interrupted)
    assert main([*call, "5"]) == 2
    assert (
        "Ctrl-C ended the repair in attempt 1; the machine is still wrong by 1\n" in capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected an action; there are list, show, run, test, repair, prune"),
        (["shwo"], "'shwo' is not an action; did you mean show?"),
        (
            ["show", "nothing.json"],
            "expected a machine in the file 'nothing.json', but there is no such file",
        ),
        (
            ["run", "FILE"],
            "the input neuron has no text to read; pass one to the run, like text='test string.'",
        ),
        (
            ["show", "FILE", "--picture", "x.doc"],
            "cannot draw to 'x.doc': write a file that ends in .png or .svg or .pdf",
        ),
        (["show", "FILE", "--picture", "no/x.png"], "cannot draw to 'no/x.png': No such file or directory"),
        (["prune", "FILE", "--below", "1", "--out", "no/x.json"], "cannot write the machine to 'no/x.json'"),
        (["prune", "FILE"], "--below"),
        (
            ["run", "FILE", "--cycles", "x"],
            "--cycles takes an integer, not 'x'; see `lapwing dmm run --help`",
        ),
        (["prune", "FILE", "--below", "-1"], "--below takes a |weight|, a number that is not negative"),
        (["prune", "FILE", "--below", "nan"], "--below takes a |weight|, a number that is not negative"),
        (["test", "FILE"], "expected texts to test with: --text 'test string.' 'aab.', or --examples FILE"),
        (["repair", "FILE"], "--examples"),
        (
            ["repair", "parity", "--examples", "nothing.json"],
            "expected in 'nothing.json' a JSON list of examples",
        ),
        (
            ["repair", "parity", "--examples", "parity", "--rows", "0"],
            "expected rows of at least 1, but got 0",
        ),
        (["show", "BROKEN"], "expected the JSON text of a machine, but it is not JSON: Expecting"),
    ],
)
def test_a_wrong_call_gets_one_sentence(capsys, file, tmp_path, words, message):
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    given = [{"FILE": str(file), "BROKEN": str(broken)}.get(word, word) for word in words]
    assert main(["dmm", *given]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("lapwing: ")
    assert said.err.count("\n") == 1
    assert message in said.err
