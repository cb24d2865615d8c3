"""`lapwing dmm live` and `lapwing dmm replay` as a person starts them."""

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing import dmm
from lapwing._commands.dmm_live import _free, _saved_as
from lapwing.cli import main
from lapwing.live import Session


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "detector.json"
    dmm.duplicate_detector().save(path)
    return path


def post(port: int, message: dict) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/api/steer", json.dumps(message), {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    return status


@contextlib.contextmanager
def started(folder: Path, *words: str):
    """The command as a process, and the port that it serves."""
    command = [sys.executable, "-m", "lapwing", "dmm", "live", *words, "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.fullmatch(r"The machine is at http://127\.0\.0\.1:(\d+)/ until Ctrl-C\.\n", said)
        assert found, said
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


def test_live_then_ctrl_c_then_replay(file: Path, capsys):
    with started(file.parent, file.name, "--text", "aab.", "--play", "--speed", "500") as (process, port):
        before = file.read_bytes()
        edit = {"edit": "weight", "to": "norm.dict", "from": "accum.dict", "weight": 0.25}
        assert post(port, {"do": "edit", "edit": edit}) == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    end = re.fullmatch(
        r"The machine has stopped at cycle (\d+); lapwing dmm replay detector\.live\.jsonl runs it again\.\n",
        out,
    )
    assert end, out
    assert (process.returncode, err) == (0, "")
    assert file.read_bytes() == before  # Ctrl-C saves nothing.
    assert main(["dmm", "replay", str(file.with_name("detector.live.jsonl")), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (len(again["cycles"]), again["compared"]) == (int(end[1]), 2)
    assert [each["edit"] for each in again["edits"]] == ["norm.dict ← 0.25 accum.dict"]
    assert Path(again["plot"]).exists()


@pytest.mark.slow
def test_a_machine_of_the_library_reads_its_example_and_is_saved_here(tmp_path: Path):
    with started(tmp_path, "parity") as (process, port):
        assert post(port, {"do": "step"}) == 200
        assert post(port, {"do": "save", "file": "parity.json"}) == 200
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == (
            "The machine has stopped at cycle 1; nothing was edited.\n",
            "",
        )
    assert [path.name for path in tmp_path.iterdir()] == ["parity.json"]
    assert dmm.Machine.load(tmp_path / "parity.json").links() == dmm.Machine.load("parity").links()


def write_journal(file: Path) -> Path:
    journal = file.with_name("j.jsonl")
    session = Session(dmm.duplicate_detector(), text="aab", journal=journal)
    session.run(12)
    session.apply({"edit": "remove", "to": "norm.dict", "from": "accum.dict"})
    session.run(3)
    session.close()
    return journal


def test_replay_prints_each_edit(file: Path, capsys):
    journal = write_journal(file)
    assert main(["dmm", "replay", str(journal), "--cycles", "20"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"12 +remove norm\.dict ← accum\.dict +0 +0\n", out)
    assert re.search(r"20 +end +0 +0\n", out)
    assert "20 cycles, 1 edit; all 2 states that the journal has are the same here, to the last bit" in out
    assert journal.with_suffix(".answers.png").read_bytes().startswith(b"\x89PNG")


def test_a_machine_without_an_output_is_replayed_too(tmp_path: Path, capsys):
    session = Session(dmm.wave_machine(), journal=tmp_path / "j.jsonl")
    session.run(2)
    session.apply({"edit": "restart"})
    session.close()
    assert main(["dmm", "replay", str(tmp_path / "j.jsonl"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["answers"], again["cycles"], again["plot"]) == ({}, [1, 2], None)
    assert main(["dmm", "replay", str(tmp_path / "j.jsonl")]) == 0


def test_a_damaged_journal_is_one_sentence(file: Path, capsys):
    assert main(["dmm", "replay", str(file)]) == 2
    assert "is not the journal of a session" in capsys.readouterr().err
    assert main(["dmm", "live", str(file.with_name("none.json"))]) == 2
    assert "there is no such file" in capsys.readouterr().err
    assert main(["dmm", "live", str(file), "--speed", "0"]) == 2
    assert "the speed is from 0.1 to 1000 cycles a second, but got 0.0" in capsys.readouterr().err
    assert sorted(path.name for path in file.parent.iterdir()) == ["detector.json"]


def test_a_journal_gets_a_name_that_is_free(tmp_path: Path):
    first = tmp_path / "detector.live.jsonl"
    assert _free(first) == first
    first.touch()
    assert _free(first).name == "detector.live-2.jsonl"
    _free(first).touch()
    assert _free(first).name == "detector.live-3.jsonl"


def test_a_machine_without_a_file_is_saved_here():
    assert _saved_as(Path("parity")) == Path("parity.json")
    assert _saved_as(Path("a/b.json")) == Path("a/b.json")
