"""The commands of the page are run as it says: one training in the background, the others beside it."""

import re
import shlex
from pathlib import Path

import pytest

from lapwing.cli import main
from tests.docs import DOCS, run_page
from tests.slow import some
from tests.training import start_training

PAGE = DOCS / "steering.md"
OTHER_PAGE = DOCS / "many-devices.md"
CHECKPOINTS_PAGE = DOCS / "checkpoints.md"
OPTIMIZERS_PAGE = DOCS / "optimizers.md"
RULES_PAGE = DOCS / "rules.md"
WATCHERS_PAGE = DOCS / "watchers.md"
LONGER = [pytest.param(page, marks=pytest.mark.slow) for page in (OTHER_PAGE, OPTIMIZERS_PAGE, WATCHERS_PAGE)]
PYTHON_PAGES = [PAGE, CHECKPOINTS_PAGE, RULES_PAGE, *LONGER]


def commands() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    first, *others = commands()
    assert first[0] == "train"
    training, _ = start_training(tmp_path, *first[1:], "--quiet", "--laps-every", "0", after=250)
    try:
        for words in others:
            # A run that the page starts by the way is not what its next command is about.
            aside = ["--runs", "aside"] if words[0] in ("train", "compare") else []
            assert main([*words, *aside]) == 0, words
            if words[0] == "stop":
                assert training.wait(60) == 130
    finally:
        training.kill()
        training.communicate()
    assert "They first differ at step 0, in clipped_norm: " in capfd.readouterr().out


@pytest.mark.parametrize("page", some(PYTHON_PAGES, 1), ids=lambda page: page.stem)
def test_the_python_of_the_page(page: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in run_page(page, {}):
        assert block.printed == block.shown


@pytest.mark.slow
def test_the_command_of_the_page_on_rules(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"```sh\nlapwing (.*?)\n```", RULES_PAGE.read_text(encoding="utf-8"))
    assert main([*shlex.split(command), "--width", "4", "--length", "5", "--laps-every", "0"]) == 0
    assert "best eval_loss" in capsys.readouterr().out
