import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lapwing.cli import main
from lapwing.journal import Run
from tests.slow import some

from .report.runs import ask, falling, started


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_running_run_is_drawn_without_disturbing_it(capsys):
    run = started(Path("runs"), falling(100))
    status, out, err = ask(capsys, "report", "latest")
    assert (status, err) == (0, "")
    made = ["pictures/loss.png", "pictures/learning_rate.png", "pictures/gradient.png", "report.html"]
    assert out.splitlines() == [f"{run.folder}/{name}" for name in made]
    assert (run.folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in run.pictures] == ["gradient.png", "learning_rate.png", "loss.png"]
    assert [event["event"] for event in run.events()] == ["started"]
    run.log({"step": 101, "loss": 0.5})
    run.end("finished", "")
    assert ask(capsys, "report", "latest")[0] == 0


def files_of(run: Run) -> list[Path]:
    """Those that do not depend on the time: a thread samples the machine into one."""
    return sorted(path for path in run.folder.rglob("*") if path.name != "system.jsonl")


@pytest.mark.slow
def test_a_page_elsewhere_leaves_the_run_as_it_is(capsys, workplace: Path):
    run = started(Path("runs"), falling(100))
    before = files_of(run)
    status, out, _ = ask(capsys, "report", run.name, "--out", "page.html", "--json")
    assert status == 0
    assert json.loads(out) == {"run": run.name, "page": "page.html", "pictures": []}
    assert "data:image/png" in (workplace / "page.html").read_text(encoding="utf-8")
    assert files_of(run) == before
    assert ask(capsys, "report", run.name, "--out", "no/page.html") == (
        2,
        "",
        "lapwing: cannot write the page to 'no/page.html': No such file or directory; name another file\n",
    )


# By relative paths and without rights above, as root may write anywhere.
READ_ONLY = """
import os, sys
from lapwing.cli import main
main(["report", "latest", "--out", os.devnull])  # Python itself may lie where only root can read.
for folder in (".", "runs", sys.argv[1]):
    os.chmod(folder, 0o555)
if os.geteuid() == 0:
    os.seteuid(65534)
sys.exit(main(["report", "latest"]))
"""


def test_a_folder_that_cannot_be_written_gets_one_sentence(workplace: Path):
    with Run.create("adding") as run:
        run.note("nothing to draw")
    command = [sys.executable, "-c", READ_ONLY, run.folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    os.chmod(workplace, 0o755)
    assert done.returncode == 2
    assert done.stderr == (
        f"lapwing: cannot write to {run.folder}: Permission denied; make it writable, or choose another runs folder; "
        "or write the page elsewhere with --out FILE\n"
    )


DAMAGE = {
    "metrics.jsonl": ["\0", "5", '{"event": []}', '{"step": "x", "time": {}, "loss": 1}'],
    "events.jsonl": ["\0", "5", '{"event": [], "time": "x"}', '{"event": "resumed", "step": "NaN"}'],
    "laps.json": ["\0", "5", "{}"],
    "environment.json": ["x", "5"],
    "journal.md": ["\0"],
}


@pytest.mark.parametrize("file", some(DAMAGE, 0, 3, 4))
def test_whatever_is_in_a_file_of_a_run_there_is_no_traceback(capsys, file: str):
    with Run.create("adding") as run:
        run.log({"step": 1, "learning_rate": 0.5})
    for content in DAMAGE[file]:
        (run.folder / file).write_text(content + "\n")
        status, out, err = ask(capsys, "report", "latest", "--out", "page.html")
        assert (status, err) == (0, "") or (status, out, err.count("\n")) == (2, "", 1)


@pytest.mark.slow
def test_a_million_steps_are_reported_in_a_few_seconds():
    run = Run.create("adding")
    numbers = '"loss": 0.123456, "gradient_norm": 1.2345, "clipped_norm": 1.0, "learning_rate": 0.1'
    line = f'{{{{"step": {{}}, {numbers}, "time": {{}}}}}}\n'
    with (run.folder / "metrics.jsonl").open("w") as file:
        file.writelines(line.format(step, step) for step in range(1_000_000))
    start = time.process_time()
    assert main(["report", run.name]) == 0
    took = time.process_time() - start
    assert took < 12, f"it took {took:.1f} s"


def test_an_unknown_run_is_said(capsys):
    status, out, err = ask(capsys, "report", "nothing")
    assert (status, out) == (2, "")
    assert re.fullmatch(r"lapwing: there is no run 'nothing' in 'runs'; .*\n", err)


def test_runs_and_show_tell_what_a_person_asks_first(capsys):
    plain = started(Path("runs"), falling(100))
    assert "rollbacks" not in ask(capsys, "runs")[1]
    run = started(Path("runs"), falling(100))
    run.event("rollback", step=99, to=50)
    run.log({"step": 100, "loss": 3.0, "skipped": 1.0, "time": run.created + 100})
    words = [line.split() for line in ask(capsys, "runs")[1].splitlines()]
    lowest = f"{falling(100).min():.6g}"
    assert words[0] == ["run", "state", "step", "loss", "best", "loss", "rollbacks", "age"]
    assert [run.name, "running", "100", "3", lowest, "1", "0", "s"] in words
    assert [plain.name, "running", "99", f"{falling(100)[99]:.6g}", lowest, "0", "s"] in words
    found = json.loads(ask(capsys, "runs", "--json")[1])
    assert {each["run"]: each["rollbacks"] for each in found} == {plain.name: 0, run.name: 1}

    shown = [line.split() for line in ask(capsys, "show", run.name)[1].splitlines()]
    best = falling(100)
    for row in (
        ["step", "100"],
        ["loss", "3"],
        ["lowest", "loss", f"{best.min():.6g}", "at", "step", str(best.argmin())],
        ["speed", "1", "steps/s"],
        ["rollbacks", "1"],
        ["skipped", "updates", "1"],
        ["device", "cpu"],
    ):
        assert row in shown
    seen = json.loads(ask(capsys, "show", run.name, "--json")[1])["glance"]
    assert (seen["best"], seen["rollbacks"], seen["restarts"]) == (best.min(), 1, 0)
