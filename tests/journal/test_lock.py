import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lapwing.journal import JournalError
from lapwing.journal._lock import Lock, is_held, read_owner

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


def test_a_lock_of_another_host_is_never_taken_over_silently(tmp_path: Path):
    (tmp_path / "lock").write_text(json.dumps({"pid": 7, "host": "elsewhere"}))
    with pytest.raises(JournalError, match=r"process 7 on elsewhere, .* if it has ended, delete .*lock and"):
        Lock(tmp_path)
    (tmp_path / "lock").unlink()
    Lock(tmp_path).release()


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
    code = "import sys, time; from pathlib import Path; from lapwing.journal import JournalError\n"
    code += "from lapwing.journal._lock import Lock\n"
    code += "while time.time() < float(sys.argv[2]): pass\n"
    code += "try:\n    lock = Lock(Path(sys.argv[1])); print('mine'); time.sleep(1)\n"
    code += "except JournalError: print('theirs')"
    start = str(time.time() + 0.8)
    arguments = [sys.executable, "-c", code, str(tmp_path), start]
    racers = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    said = sorted(racer.communicate()[0].strip() for racer in racers)
    assert said == ["mine", "theirs", "theirs", "theirs", "theirs"]
