import dataclasses
import json
import math
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lapwing as lw
from lapwing.journal import JournalError, Run, RunWriter, run_folders
from tests.speed import quiet_seconds


@dataclasses.dataclass(frozen=True)
class Config:
    learning_rate: float = math.inf
    word: str = "NaN"


def test_a_run_is_a_folder_that_needs_no_lapwing_to_read(tmp_path: Path):
    with Run.create("dmm-lite", Config(), runs_dir=tmp_path, device="cpu") as run:
        run.log({"step": 1, "loss": 0.5})
        run.event("picture taken", value=math.nan)
    assert re.fullmatch(r"\d{8}-\d{6}-dmm-lite-[a-z0-9]{4}", run.name)
    assert sorted(os.listdir(run.folder)) == [
        "checkpoints",
        "config.json",
        "control",
        "environment.json",
        "events.jsonl",
        "journal.md",
        "lock",
        "metrics.jsonl",
    ]
    config = json.loads((run.folder / "config.json").read_text())
    assert config["config"] == {"learning_rate": "Infinity", "word": "\\NaN"}
    assert config["experiment"] == "dmm-lite"
    assert json.loads((run.folder / "environment.json").read_text())["device"] == "cpu"
    metrics = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [(m["step"], m["loss"], abs(m["time"] - time.time()) < 60) for m in metrics] == [(1, 0.5, True)]
    events = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["started", "picture taken", "finished"]
    assert events[1]["value"] == "NaN"


def test_it_reads_back_as_it_was(tmp_path: Path):
    with lw.Run.create("a", Config(), runs_dir=tmp_path) as writer:
        writer.log({"step": 1, "loss": math.nan, "time": 5.0}, {"step": 2, "loss": np.float32(-math.inf)})
        writer.save_laps({"attack": [0.5, math.inf]})
    run = lw.Run.open(writer.folder)
    assert run.config == {"learning_rate": math.inf, "word": "NaN"}
    np.testing.assert_equal(np.asarray(run.columns()["loss"]), [math.nan, -math.inf])
    assert run.columns()["time"][0] == 5.0
    assert run.latest()["loss"] == -math.inf
    assert run.laps == {"attack": [0.5, math.inf]}
    assert run.damaged == 0
    assert abs(run.created - time.time()) < 60


def test_names_are_safe_and_distinct(tmp_path: Path):
    names = {Run.create("../<Script> É/x", runs_dir=tmp_path).name for _ in range(5)}
    assert len(names) == 5
    assert all(re.fullmatch(r"\d{8}-\d{6}-script-x-[a-z0-9]{4}", name) for name in names)
    assert "-run-" in Run.create("…", runs_dir=tmp_path).name
    assert len(run_folders(tmp_path)) == 6


@pytest.mark.slow
def test_nobody_sees_half_a_run(tmp_path: Path):
    code = "import sys, lapwing\nfor _ in range(30): lapwing.Run.create('a', runs_dir=sys.argv[1])"
    maker = subprocess.Popen([sys.executable, "-c", code, tmp_path])
    seen = set()
    while maker.poll() is None:
        for folder in set(run_folders(tmp_path)) - seen:
            run = Run.open(folder)
            assert run.environment["python"]
            assert run.story.startswith(f"# {run.name}")
            seen.add(folder)
    assert maker.returncode == 0
    assert len(seen) > 10


def test_settings_that_cannot_be_stored_leave_no_folder(tmp_path: Path):
    with pytest.raises(TypeError, match=r"^model is a object, which JSON cannot hold"):
        Run.create("a", {"model": object()}, runs_dir=tmp_path)
    assert os.listdir(tmp_path) == []


def state_of(run: Run) -> str:
    return Run.open(run.folder).state


def test_the_state_tells_what_became_of_a_run(tmp_path: Path):
    run = Run.create("a", runs_dir=tmp_path)
    assert state_of(run) == "running"
    run.event("paused")
    assert state_of(run) == "paused"
    run.event("unpaused")
    assert state_of(run) == "running"
    run.end("finished", "loss 0.1")
    assert state_of(run) == "finished"
    run.note("a later thought")
    assert state_of(run) == "finished"
    with pytest.raises(ZeroDivisionError), Run.reopen(run.folder):
        _ = 1 / 0
    assert state_of(run) == "failed"
    assert run.events()[-1]["outcome"] == "ZeroDivisionError: division by zero"
    with pytest.raises(KeyboardInterrupt), Run.reopen(run.folder):
        raise KeyboardInterrupt
    assert state_of(run) == "stopped"


def test_a_run_whose_process_dies_is_lost_and_can_be_taken_up_again(tmp_path: Path):
    code = "import os, sys, lapwing\nrun = lapwing.Run.create('a', runs_dir=sys.argv[1])\n"
    code += "run.log({'step': 1}); print(run.folder, flush=True); os.kill(os.getpid(), 9)"
    died = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    folder = Path(died.stdout.strip())
    assert Run.open(folder).state == "lost"
    with Run.reopen(folder) as run:
        run.log({"step": 2})
    assert list(run.columns()["step"]) == [1, 2]
    assert Run.open(folder).state == "finished"


def test_a_writer_on_another_host_counts_as_running_until_it_is_silent_for_long(tmp_path: Path):
    run = Run.create("a", runs_dir=tmp_path)
    run.end("finished", "done")
    (run.folder / "events.jsonl").write_text('{"event": "started"}\n')
    (run.folder / "lock").write_text('{"pid": 1, "host": "elsewhere"}')
    assert state_of(run) == "running"
    for name in ("lock", "events.jsonl", "metrics.jsonl"):
        os.utime(run.folder / name, (0, time.time() - 700))
    assert state_of(run) == "lost"


def test_a_second_writer_gets_a_clear_error(tmp_path: Path):
    run = Run.create("a", runs_dir=tmp_path)
    whom = f"process {os.getpid()} on {socket.gethostname()}"
    with pytest.raises(JournalError, match=f"the run {run.name} is being written by {whom}; stop it first"):
        Run.reopen(run.folder)
    run.log({"step": 1})
    run.end("finished", "")
    with pytest.raises(JournalError, match=r"has ended; Run\.reopen\('.*'\) continues it"):
        run.log({"step": 2})
    assert list(run.columns()["step"]) == [1]


def test_reopening_repairs_and_refuses_what_waited(tmp_path: Path):
    run = Run.create("a", runs_dir=tmp_path)
    run.log({"step": 1})
    posted = run.post("stop")
    run.end("finished", "")
    for name in ("metrics.jsonl", "events.jsonl"):
        with open(run.folder / name, "a") as file:
            file.write('{"step": 2, "lo')
    assert list(Run.open(run.folder).columns()["step"]) == [1]
    with Run.reopen(run.folder, device="another") as again:
        again.log({"step": 3})
        assert again.poll() == []
    answer = again.answer(posted)
    assert answer
    assert answer["reason"] == "it was posted while the run was not running"
    reader = Run.open(run.folder)
    assert list(reader.columns()["step"]) == [1, 3]
    words = [event["event"] for event in reader.events()]
    assert words == ["started", "finished", "refused", "restarted", "finished"]
    assert reader.events()[3]["changed"] == {"device": [None, "another"]}
    assert "**restarted**\n  device: None → another\n" in reader.story
    assert reader.damaged == 0


def test_only_a_running_run_takes_commands(tmp_path: Path):
    run = Run.create("a", runs_dir=tmp_path)
    run.end("stopped", "")
    with pytest.raises(JournalError, match=f"{run.name} is stopped, and only a running one takes commands"):
        run.post("pause")


def test_notes_reach_a_run_that_another_process_writes(tmp_path: Path):
    writer = Run.create("a", runs_dir=tmp_path)
    Run.open(writer.folder).note("the loss looks odd\nsince step 5")
    writer.event("checkpoint", "saved", step=5)
    writer.end("finished", "loss 0.1")
    assert [event["event"] for event in writer.events()] == ["started", "note", "checkpoint", "finished"]
    said = re.sub(r"\d\d:\d\d:\d\d", "*", writer.story.split("## What happened\n\n")[1])
    day = time.strftime("%Y-%m-%d", time.gmtime(writer.created))
    assert said == (
        f"- {day} * started\n- {day} * note: the loss looks odd\n  since step 5\n"
        f"- {day} * saved\n- {day} * **finished**: loss 0.1\n"
    )
    with pytest.raises(JournalError, match="the note is empty"):
        writer.note(" \n")


def test_a_picture_is_kept_and_shown(tmp_path: Path):
    (tmp_path / "plot.png").write_bytes(b"drawn")
    with Run.create("a", runs_dir=tmp_path / "runs") as run:
        run.add_picture(tmp_path / "plot.png", "loss.png", "Loss over steps")
        run.add_picture(b"other", "rate.png", "Rate")
        with pytest.raises(JournalError, match="is not inside"):
            run.add_picture(b"x", "../config.json", "no")
    assert [path.read_bytes() for path in run.pictures] == [b"drawn", b"other"]
    assert "\n  ![Loss over steps](pictures/loss.png)\n" in run.story


def test_following_while_it_is_written(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        reader = Run.open(run.folder)
        tail = reader.follow()
        for step in range(5):
            run.log({"step": step, "time": 0.0})
            assert tail.read() == [{"step": step, "time": 0.0}]
            assert list(reader.columns()["step"]) == list(range(step + 1))
            assert reader.latest() == {"step": step, "time": 0.0}


def test_a_record_needs_its_step(tmp_path: Path):
    run = Run.create("a", runs_dir=tmp_path)
    with pytest.raises(
        JournalError, match="a metrics record needs a 'step', but one has only loss, learning_rate"
    ):
        run.log({"loss": 1.0, "learning_rate": 2.0})
    assert run.columns() == {}


def test_a_damaged_file_is_named(tmp_path: Path):
    run = Run.create("a", runs_dir=tmp_path)
    (run.folder / "config.json").write_text("{")
    with pytest.raises(JournalError, match=r"cannot read .*config\.json: "):
        Run.open(run.folder)
    (run.folder / "config.json").write_text('{"model": "of another program"}')
    with pytest.raises(
        JournalError, match=r"config\.json does not belong to a run: Lapwing writes a number 'format'"
    ):
        Run.open(run.folder)
    (run.folder / "config.json").write_text('{"format": 1, "created": "yesterday"}')
    with pytest.raises(
        JournalError, match=r"damaged: 'created' should be seconds since 1970, but is 'yester"
    ):
        Run.open(run.folder)
    (run.folder / "config.json").write_text('{"format": 99}')
    with pytest.raises(JournalError, match="was written by a newer Lapwing; update this one"):
        Run.open(run.folder)


def test_logging_is_cheap(tmp_path: Path):
    run = Run.create("a", runs_dir=tmp_path)
    rows = [{"step": i, "loss": 0.1234567, "norm": 1.2345678, "learning_rate": 0.001} for i in range(100)]
    best = quiet_seconds(lambda: run.log(*rows), calls=1) / 100
    assert best < 2e-5, f"one record took {best * 1e6:.1f} µs"


# In the folder itself and by relative paths, so that only the rights of these files count and not those above.
NO_RIGHTS = """
import os
from lapwing.journal import JournalError, Run, RunWriter, run_folders
secret, run = (Run.create("a") for _ in range(2))
secret.end("finished", "")
run.end("finished", "")
for path, rights in {
    ".": 0o755, "runs": 0o555, secret.folder: 0, run.folder / "events.jsonl": 0o444, run.folder / "metrics.jsonl": 0
}.items():
    os.chmod(path, rights)
if os.geteuid() == 0:
    os.seteuid(65534)
assert run_folders() == [run.folder]
for act in (lambda: Run.create("b"), lambda: run.note("hm"), run.columns, run.latest):
    try:
        act()
    except JournalError as error:
        print(error)
"""


def test_what_nobody_lets_us_write_or_read_is_named(tmp_path: Path):
    command = [sys.executable, "-c", NO_RIGHTS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    advice = "Permission denied; make it writable, or choose another runs folder"
    first, second, *reading = done.stdout.splitlines()
    assert first == f"cannot write to runs: {advice}"
    assert re.fullmatch(rf"cannot write to runs/\S+: {advice}", second)
    assert len(reading) == 2
    assert all(
        re.fullmatch(r"cannot read runs/\S+/metrics\.jsonl: Permission denied", line) for line in reading
    )


def test_a_runs_folder_below_a_file_gets_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    message = f"cannot write to {tmp_path}/file/runs: Not a directory; choose another runs folder"
    with pytest.raises(JournalError, match=re.escape(message)):
        Run.create("a", runs_dir=tmp_path / "file" / "runs")


def test_a_full_disk_says_so_and_loses_no_line(tmp_path: Path):
    code = "import resource, sys\nfrom lapwing.journal import JournalError, Run\n"
    code += "run = Run.create('a', runs_dir=sys.argv[1]); print(run.folder)\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, -1))\n"
    code += "try:\n    for step in range(1000): run.log({'step': step})\n"
    code += "except JournalError as error: print(error)\n"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    folder, message = done.stdout.splitlines()
    assert message == f"cannot write to {folder}: File too large; choose another runs folder"
    text = (Path(folder) / "metrics.jsonl").read_text()
    steps = [json.loads(line)["step"] for line in text.splitlines()]
    assert steps == list(range(len(steps)))
    assert text.endswith("}\n")
    assert len(steps) > 20


def test_a_run_can_be_given_a_name_that_is_free(tmp_path: Path):
    with Run.create("adding", runs_dir=tmp_path, name="learning_rate=0.1,seed=0") as run:
        assert run.folder == tmp_path / "learning_rate=0.1,seed=0"
    with pytest.raises(
        JournalError,
        match=r"there is a run 'learning_rate=0.1,seed=0' in .* already; choose another name, or continue it with",
    ):
        Run.create("adding", runs_dir=tmp_path, name="learning_rate=0.1,seed=0")
    assert os.listdir(tmp_path) == ["learning_rate=0.1,seed=0"]


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".a", "/a", ".."])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str):
    with pytest.raises(
        JournalError, match="a run's name should be one word without slashes or a leading dot"
    ):
        Run.create("adding", runs_dir=tmp_path, name=name)
    assert os.listdir(tmp_path) == []


def refuse(run: RunWriter, action: Callable[[RunWriter], object]) -> None:
    """What a `with` block does in which a Lapwing error follows the action."""
    with run:
        action(run)
        raise JournalError("no")


def test_a_refusal_before_anything_is_recorded_leaves_nothing(tmp_path: Path):
    with pytest.raises(JournalError, match="no"):
        refuse(Run.create("a", runs_dir=tmp_path), lambda run: run.announce_controls({"learning_rate": 0.1}))
    assert list(tmp_path.iterdir()) == []
    run = Run.create("a", runs_dir=tmp_path)
    with pytest.raises(JournalError, match="no"):
        refuse(run, lambda run: run.log({"step": 1}))
    assert state_of(run) == "failed"


def test_a_refusal_leaves_a_reopened_run_as_it_was(tmp_path: Path):
    def widen(run: RunWriter, width: int = 2) -> None:
        run.when_begun(lambda: run.reconfigure({"width": width}))

    with Run.create("a", {"width": 1}, runs_dir=tmp_path) as run:
        run.log({"step": 1})
    (run.folder / "control" / "1.json").write_text('{"command": "stop"}')
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    with pytest.raises(JournalError, match="no"):
        refuse(Run.reopen(run.folder), widen)
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before
    with Run.reopen(run.folder) as again:
        widen(again)
        again.log({"step": 2})
        assert Run.open(run.folder).config == {"width": 2}
        widen(again, 3)
    assert [event["event"] for event in Run.open(run.folder).events()][-2:] == ["restarted", "finished"]
    assert Run.open(run.folder).config == {"width": 3}
