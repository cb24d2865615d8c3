import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from lapwing.journal import Run
from lapwing.train import FitConfig, fit

from .tasks import line


def test_lines_where_there_is_no_terminal(capsys, tmp_path: Path):
    with Run.create("line", runs_dir=tmp_path) as run:
        fit(line(), FitConfig(steps=250, learning_rate=0.1), run)
    out = capsys.readouterr().out
    first = out.splitlines()[0]
    number = r"[\d.e-]+"  # A slow machine has ended a window, and knows a best loss, before it shows a line.
    best = rf"( \(best {number}\))?"
    assert re.fullmatch(
        rf"step \d+/250  loss {number}{best}  effective_learning_rate 0.1  gradient_norm {number}.*", first
    )
    assert re.search(r"^step 250/250  loss \S+ \(best \S+\)  .* \d+ steps/s$", out, re.MULTILINE)
    assert re.search(r"^forward +\d", out, re.MULTILINE)
    assert "fused, as it runs" in out
    assert re.search(r"^finished: 250 steps in .* loss .* → .* \(lowest .*\)$", out, re.MULTILINE)
    assert out.endswith(f"run folder: {run.folder}\n")


def test_quiet_prints_nothing(capsys, tmp_path: Path):
    with Run.create("line", runs_dir=tmp_path) as run:
        fit(line(), FitConfig(steps=5), run, quiet=True)
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal():
    """A pseudo-terminal, since the bar is for nobody else."""
    code = "from lapwing.train import FitConfig, fit\nfrom train.tasks import line\n"
    code += "fit(line(), FitConfig(steps=300, learning_rate=0.1, laps_every=0))"
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "TERM": "xterm",
        "COLUMNS": "120",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    shown = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, env=environment)
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 4096):
            said += chunk
    except OSError:
        pass  # How Linux says that the other end is closed.
    os.close(ours)
    assert shown.wait() == 0
    text = said.decode()
    assert "━" in text
    assert "300/300" in text
    assert "loss" in text
