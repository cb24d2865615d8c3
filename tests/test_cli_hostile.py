"""Files that anybody may have written, on the command line: no traceback, no escape sequence, no other run hidden."""

import json
import os
from pathlib import Path

import pytest

from lapwing.journal import Run, RunWriter
from tests.slow import some

from .report.runs import ask, timed_laps

CODES = "\x1b[2J\x1b]0;owned\x07"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(name: str, **metrics: float) -> RunWriter:
    with Run.create("adding", {"learning_rate": 0.1}, name=name) as run:
        run.log(*({"step": step, "loss": 1 / (1 + step), **metrics} for step in range(4)))
    return run


POISON = {
    "config.json": '{"format": 2, "created": 1.0, "config": [1]}',
    "lock": '{"pid": 1e999, "host": "elsewhere"}',
    "events.jsonl": '{"event": ["a"]}\n{"event": "rollback", "time": 1e300}\n',
    "metrics.jsonl": '{"step": 1e999, "loss": 1}\n' + "[" * 10_000 + "\n",
    "environment.json": '{"host": "\\ud800", "versions": ' + "[" * 500 + "]" * 500 + "}",
    "laps.json": '{"format": "lapwing laps 1", "step": 5, "series": 7}',
}


@pytest.mark.parametrize("file", some(POISON, 0, 1, 3))
def test_one_poisoned_folder_hides_no_other_run(
    capsys: pytest.CaptureFixture[str], workplace: Path, file: str
):
    good, bad = made("good"), made("bad")
    (bad.folder / file).write_text(POISON[file])
    status, out, _ = ask(capsys, "runs", "--json")
    states = {run["run"]: run["state"] for run in json.loads(out)}
    assert (status, states[good.name]) == (0, "finished")
    assert (states["bad"] == "unreadable") == (file == "config.json")
    commands = [["runs"], ["show", "bad"], ["compare", "bad", "good"]]
    if file in ("environment.json", "laps.json"):  # Pictures take long; the fuzzer draws the others.
        commands.append(["report", "bad", "--out", "page.html"])
    for words in commands:
        status, out, error = ask(capsys, *words)
        assert status in (0, 2), error
        assert error.count("\n") <= 1


def test_the_list_says_why_a_run_is_unreadable(capsys: pytest.CaptureFixture[str], workplace: Path):
    made("good")
    (made("bad").folder / "config.json").write_text("[" * 2000)
    _, out, _ = ask(capsys, "runs")
    assert (
        "bad is unreadable: cannot read runs/bad/config.json: it is nested more than 100 levels deep" in out
    )


def test_a_pipe_in_a_run_blocks_nobody(capsys: pytest.CaptureFixture[str], workplace: Path):
    made("good")
    run = made("bad")
    (run.folder / "metrics.jsonl").unlink()
    os.mkfifo(run.folder / "metrics.jsonl")
    _, out, _ = ask(capsys, "runs", "--json")
    assert {each["run"]: each["state"] for each in json.loads(out)} == {
        "good": "finished",
        "bad": "unreadable",
    }
    assert ask(capsys, "show", "bad")[0] == 2


def test_what_was_left_out_is_said(capsys: pytest.CaptureFixture[str], workplace: Path):
    run = made("torn")
    (run.folder / "environment.json").write_text('{"host": ')
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write("half a li\n")
    _, out, _ = ask(capsys, "show", "torn")
    assert "1 damaged lines were skipped." in out
    assert "environment.json: it is not JSON" in out
    ask(capsys, "report", "torn", "--out", "page.html")
    page = Path("page.html").read_text()
    assert "1 damaged lines were skipped." in page
    assert "environment.json: it is not JSON" in page


def test_no_escape_sequence_reaches_the_terminal(capsys: pytest.CaptureFixture[str], workplace: Path):
    run = made("codes", **{f"m{CODES}": 1.0})
    header = json.loads((run.folder / "config.json").read_text())
    header |= {"experiment": f"e{CODES}", "config": {"best": f"m{CODES}", f"o{CODES}": CODES}}
    (run.folder / "config.json").write_text(json.dumps(header))
    environment = json.loads((run.folder / "environment.json").read_text())
    (run.folder / "environment.json").write_text(json.dumps({**environment, "device": CODES}))
    laps = json.dumps(timed_laps()).replace("forward", "f" + json.dumps(CODES)[1:-1])
    (run.folder / "laps.json").write_text(laps)
    with open(run.folder / "events.jsonl", "a") as file:
        file.write(json.dumps({"event": "tagged", "add": [CODES]}) + "\n")
    with open(run.folder / "journal.md", "a") as file:
        file.write(f"- {CODES}\n")
    for words in (["runs"], ["show", "codes"], ["tag", "codes"], ["compare", "codes", made("other").name]):
        status, out, error = ask(capsys, *words)
        assert (status, error) == (0, "")
        assert "�" in out
        assert not {letter for letter in out if not letter.isprintable()} - set("\n\t")
    (run.folder / "config.json").write_text(json.dumps({**header, "created": CODES}))
    _, _, error = ask(capsys, "show", "codes")
    assert "\x1b" not in error


def test_names_are_neither_markup_nor_formulas(capsys: pytest.CaptureFixture[str], workplace: Path):
    run = made("names", **{"[/red]": 1.0, "cost in $ and $\\frac{": 2.0, "[bold]:smile:": 3.0})
    run.put("laps.json", json.dumps(timed_laps()).replace("forward", "$x_[/red]$"))
    status, out, error = ask(capsys, "show", "names")
    assert (status, error) == (0, "")
    assert all(name in out for name in ("[/red]", "cost in $ and $\\frac{", "[bold]:smile:", "$x_[/red]$"))
    assert ask(capsys, "report", "names", "--out", "page.html")[0] == 0


def test_half_a_character_does_not_break_the_page(capsys: pytest.CaptureFixture[str], workplace: Path):
    run = made("latin", **{"caf\udce9": 1.0})
    run.note(os.fsdecode(b"caf\xe9"))  # As a terminal of Latin-1 types it.
    assert ask(capsys, "report", "latin")[0] == 0
    assert "note: caf?" in (run.folder / "report.html").read_text(encoding="utf-8")


def test_a_picture_is_no_machine(capsys: pytest.CaptureFixture[str], workplace: Path):
    Path("machine.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    status, _, error = ask(capsys, "dmm", "show", "machine.png")
    assert (status, error.count("\n")) == (2, 1)
    assert "but it is not text; name a .json file" in error
    os.mkfifo("pipe.json")
    status, _, error = ask(capsys, "dmm", "show", "pipe.json")
    assert (status, "it is not a regular file" in error) == (2, True)
