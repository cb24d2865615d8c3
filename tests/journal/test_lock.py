import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lapwing.journal import JournalError, Run, _lock
from lapwing.journal._lock import Lock, LockedError, LostLockError, Owner, is_held, read_owner

HOLD = "import sys, time; from pathlib import Path; from lapwing.journal._lock import Lock\n"
HOLD += "lock = Lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"


def hold_in_another_process(folder: Path) -> subprocess.Popen:
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert other.stdout
    assert other.stdout.readline() == "held\n"
    other.stdout.close()
    return other


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path):
    other = hold_in_another_process(tmp_path)
    try:
        expected = rf"is being written by process {other.pid} on {socket.gethostname()}; stop it first"
        with pytest.raises(JournalError, match=expected):
            Lock(tmp_path)
        assert is_held(tmp_path)
    finally:
        other.kill()
        other.wait()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path):
    other = hold_in_another_process(tmp_path)
    other.kill()
    other.wait()
    assert not is_held(tmp_path)
    owner = read_owner(tmp_path)
    assert owner
    assert owner.pid == other.pid
    lock = Lock(tmp_path)
    assert read_owner(tmp_path) == type(owner)(os.getpid(), socket.gethostname())
    lock.release()


def test_a_living_process_with_the_dead_owners_pid_does_not_count(tmp_path: Path):
    """Pids are used again; the kernel's lock is what counts."""
    (tmp_path / "lock").write_text(json.dumps({"pid": 1, "host": socket.gethostname()}))
    Lock(tmp_path).release()


def test_the_same_process_cannot_hold_it_twice(tmp_path: Path):
    lock = Lock(tmp_path)
    with pytest.raises(JournalError, match="is being written by"):
        Lock(tmp_path)
    lock.release()
    assert not is_held(tmp_path)
    assert read_owner(tmp_path) is None
    Lock(tmp_path).release()


def left_by_another_host(folder: Path, age_s: float = 0.0) -> Path:
    path = folder / "lock"
    path.write_text(json.dumps({"pid": 7, "host": "elsewhere"}))
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


@pytest.fixture
def shared_file_system(monkeypatch):
    """As if other hosts could write the folder, and this one would not see their locks."""
    monkeypatch.setattr(_lock, "is_on_one_machine", lambda folder: False)
    monkeypatch.setattr(_lock, "_LOOK_EVERY_S", 0.01)


def test_a_run_that_was_moved_to_another_host_is_taken_over_at_once(tmp_path: Path):
    left_by_another_host(tmp_path)
    lock = Lock(tmp_path)
    assert read_owner(tmp_path) == Owner(os.getpid(), socket.gethostname())
    lock.release()


@pytest.mark.usefixtures("shared_file_system")
def test_a_lock_of_another_host_is_taken_over_when_it_is_silent(tmp_path: Path, monkeypatch):
    left_by_another_host(tmp_path, age_s=_lock.SILENT_S + 1)
    start = time.monotonic()
    Lock(tmp_path).release()
    assert time.monotonic() - start < _lock.SILENT_S / 2
    left_by_another_host(tmp_path)
    monkeypatch.setattr(_lock, "SILENT_S", 0.2)
    Lock(tmp_path).release()
    assert time.monotonic() - start >= 0.2
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


@pytest.mark.usefixtures("shared_file_system")
def test_a_lock_of_another_host_that_is_touched_is_respected(tmp_path: Path):
    path = left_by_another_host(tmp_path)
    beat = threading.Timer(0.1, path.touch)
    beat.start()
    with pytest.raises(
        LockedError, match="is being written by process 7 on elsewhere; stop it first"
    ) as refused:
        Lock(tmp_path)
    assert refused.value.owner == Owner(7, "elsewhere")
    assert json.loads(path.read_text())["host"] == "elsewhere"
    beat.join()


@pytest.mark.usefixtures("shared_file_system")
def test_a_writer_on_a_shared_file_system_touches_its_lock(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(_lock, "BEAT_S", 0.01)
    lock, path = Lock(tmp_path), tmp_path / "lock"
    os.utime(path, (0, 0))
    deadline = time.monotonic() + 60
    while path.stat().st_mtime < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert path.stat().st_mtime > 1
    lock.release()
    os.utime(path, (0, 0))
    time.sleep(0.05)
    assert path.stat().st_mtime == 0


@pytest.mark.usefixtures("shared_file_system")
def test_a_file_system_without_locks(tmp_path: Path, monkeypatch, capsys):
    def flock(file: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(_lock.fcntl, "flock", flock)
    monkeypatch.setattr(_lock, "BEAT_S", 0.02)
    with Run.create("demo", runs_dir=tmp_path) as run:
        assert run.state == "running"
        with pytest.raises(LockedError, match=f"by process {os.getpid()} on "):
            Run.reopen(run.folder)
        assert "lapwing: waiting to see whether process" in capsys.readouterr().err
    assert run.state == "finished"
    (run.folder / "lock").write_text(json.dumps({"pid": 2**40, "host": socket.gethostname()}))
    assert not is_held(run.folder)
    Run.reopen(run.folder).end("finished", "")


def test_a_writer_whose_lock_is_deleted_stops_and_leaves_the_run_to_the_other(tmp_path: Path):
    first = Run.create("demo", runs_dir=tmp_path)
    first.log({"step": 0, "loss": 1.0})
    (first.folder / "lock").unlink()
    with Run.reopen(first.folder) as second:
        second.log({"step": 1, "loss": 0.5})
        time.sleep(0.03)
        with (
            pytest.raises(
                LostLockError, match=r"the lock of .* was deleted or replaced while .*; this one stops"
            ),
            first,
        ):
            first.poll()
    assert Run.open(first.folder).columns()["step"].tolist() == [0, 1]
    assert [event["event"] for event in first.events()] == ["started", "restarted", "finished"]
    with pytest.raises(JournalError, match="has ended"):
        first.log({"step": 2, "loss": 0.1})


@pytest.mark.usefixtures("shared_file_system")
def test_a_writer_whose_lock_was_taken_over_while_it_slept_stops(tmp_path: Path):
    lock = Lock(tmp_path)
    left_by_another_host(tmp_path)
    with pytest.raises(LostLockError, match="was taken over by process 7 on elsewhere while"):
        lock.check(tmp_path)
    lock.release()
    assert read_owner(tmp_path) == Owner(7, "elsewhere"), "it removed the name of the other one"


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path):
    with Run.create("demo", runs_dir=tmp_path) as run:
        pass
    (tmp_path / "mine").write_text("precious")
    (run.folder / "lock").unlink()
    (run.folder / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(JournalError):
        Run.reopen(run.folder)
    with pytest.raises(OSError, match="symbolic links"):
        Lock(run.folder)
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_lock_that_is_replaced_while_it_is_taken(tmp_path: Path, monkeypatch):
    """The file that was opened is not the file that is there when it is locked."""
    path, flock = tmp_path / "lock", fcntl.flock

    def replacing(file: int, kind: int) -> None:
        monkeypatch.undo()
        path.unlink()
        path.touch()
        flock(file, kind)

    monkeypatch.setattr(_lock.fcntl, "flock", replacing)
    lock = Lock(tmp_path)
    lock.check(tmp_path)
    assert is_held(tmp_path)
    lock.release()


@pytest.mark.parametrize("content", ["", "x", "[]", "{}", '{"pid": "a", "host": 1}', '{"pid": null}'])
def test_a_lock_file_that_says_nothing_stops_nobody(tmp_path: Path, content: str):
    (tmp_path / "lock").write_text(content)
    assert read_owner(tmp_path) is None
    Lock(tmp_path).release()


def test_readers_that_look_all_the_time_do_not_keep_a_writer_out(tmp_path: Path):
    stop = threading.Event()

    def look():
        while not stop.is_set():
            is_held(tmp_path)

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(50):
            Lock(tmp_path).release()
    finally:
        stop.set()
        for reader in readers:
            reader.join()


def test_of_many_that_start_together_one_gets_it(tmp_path: Path):
    code = "import sys; from pathlib import Path; from lapwing.journal import JournalError\n"
    code += "from lapwing.journal._lock import Lock\n"
    code += "print('ready', flush=True); sys.stdin.readline()\n"
    code += "try:\n    lock = Lock(Path(sys.argv[1])); print('mine', flush=True); sys.stdin.readline()\n"
    code += "except JournalError: print('theirs', flush=True)"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for _ in range(5)
    ]
    pipes = [(racer.stdin, racer.stdout) for racer in racers if racer.stdin and racer.stdout]
    assert [answers.readline() for _, answers in pipes] == ["ready\n"] * 5
    for start, _ in pipes:
        start.write("\n")
    said = sorted(answers.readline().strip() for _, answers in pipes)
    for racer in racers:
        racer.communicate()
    assert said == ["mine", "theirs", "theirs", "theirs", "theirs"]
