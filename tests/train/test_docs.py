"""The commands of the page are run as it says: one training in the background, the others beside it."""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from lapwing.cli import main
from lapwing.journal import Run, run_folders
from tests.docs import DOCS, run_page

PAGE = DOCS / "steering.md"


def commands() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    first, *others = commands()
    assert first[0] == "train"
    training = subprocess.Popen([sys.executable, "-m", "lapwing", *first, "--quiet", "--laps-every", "0"])
    try:
        _wait_for_windows(tmp_path)
        for words in others:
            # A run that the page starts by the way is not what its next command is about.
            aside = ["--runs", "aside"] if words[0] in ("train", "compare") else []
            assert main([*words, *aside]) == 0, words
            if words[0] == "stop":
                assert training.wait(60) == 130
    finally:
        training.kill()
        training.wait()
    assert "They part at step 0, in clipped_norm: " in capfd.readouterr().out


def _wait_for_windows(tmp_path: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if any(Run.open(folder).latest().get("step", 0) > 250 for folder in run_folders(tmp_path / "runs")):
            return
        time.sleep(0.05)
    raise AssertionError("it did not begin to train")


def test_the_python_of_the_page(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in run_page(PAGE, {}):
        assert block.printed == block.shown
