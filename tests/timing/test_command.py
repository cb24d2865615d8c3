import os
import pty
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lapwing.timing import CommandStartError, Laps, time_command
from lapwing.timing._command import _LineLaps

# What the command line will do: pass the output through, then the table to standard error.
DRIVER = """
import sys
from lapwing.timing import time_command
timing = time_command([sys.executable, "-c", sys.argv[1]])
print(timing, file=sys.stderr)
sys.exit(timing.status)
"""

# Goes on for a while after the first interrupt, so that a second one would be seen.
COUNTS_INTERRUPTS = """
import signal, time
interrupts = 0
def count(*_):
    global interrupts
    interrupts += 1
signal.signal(signal.SIGINT, count)
print("ready")
while not interrupts:
    time.sleep(0.01)
end = time.monotonic() + 0.5
while time.monotonic() < end:
    time.sleep(0.01)
print("interrupts:", interrupts)
"""


@pytest.fixture(autouse=True)
def as_usual(monkeypatch):
    """Python collects what it writes into a pipe, whatever the environment of the tests says."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def drive(code: str, **pipes) -> subprocess.Popen[bytes]:
    """The driver in a process and a session of its own, away from the terminal of whoever runs the tests."""
    return subprocess.Popen(
        [*python(DRIVER), code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **pipes,
    )


def test_lines_are_laps_and_the_first_is_kept_apart(capfd):
    timing = time_command(python("import time\nfor i in range(4): print(i); time.sleep(0.05)"))
    assert capfd.readouterr().out == "0\n1\n2\n3\n"
    step = timing.summary.step
    assert (timing.status, step.count) == (0, 3)
    assert step.total > 0.1  # three times 0.05, less what the first line may have come late
    assert step.first > 0
    assert timing.wall >= step.first + step.total + 0.045
    assert timing.to_json()["laps"]["step"]["count"] == 3
    assert "after the last lap" in str(timing)


def test_only_lines_with_the_marker_are_laps(capfd):
    timing = time_command(python("for i in range(4): print('step', i); print('noise')"), marker="step")
    assert timing.summary.step.count == 3
    assert capfd.readouterr().out.count("noise") == 4


def test_output_passes_through_byte_for_byte(capfdbinary):
    code = "import os; os.write(1, bytes(range(256)) + b'\\r\\nno end'); os.write(2, b'to stderr')"
    timing = time_command(python(code))
    captured = capfdbinary.readouterr()
    assert captured.out == bytes(range(256)) + b"\r\nno end"
    assert captured.err == b"to stderr"
    assert timing.summary.step.count + timing.summary.apart == 3


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(3)", 3), ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 128 + 15)],
)
def test_the_exit_status_is_that_of_the_command(code, status):
    assert time_command(python(code)).status == status


def test_processor_time_is_that_of_the_command():
    timing = time_command(python("import time\nwhile time.process_time() < 0.2: pass\ntime.sleep(0.2)"))
    assert timing.cpu >= 0.15
    assert timing.wall >= timing.cpu + 0.1


def test_a_prompt_without_a_newline_is_seen_before_it_is_answered():
    with drive("print('name?', end='', flush=True); print(input())", stdin=subprocess.PIPE) as process:
        assert select.select([process.stdout], [], [], 60)[0], "the prompt did not come through"
        assert os.read(process.stdout.fileno(), 100) == b"name?"
        out, _ = process.communicate(b"lapwing\n", timeout=60)
    assert out == b"lapwing\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_and_the_table_is_still_shown(number):
    with drive("import time; print('ready'); print('go'); time.sleep(300)") as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"ended with status {128 + number}" in err.decode()


def test_an_interrupt_sent_to_us_alone_reaches_the_command_once():
    with drive(COUNTS_INTERRUPTS) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert out == b"interrupts: 1\n"


def test_ctrl_c_in_a_terminal_reaches_the_command_once():
    ours, theirs = pty.openpty()
    take_terminal = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    with subprocess.Popen(
        [*python(take_terminal + DRIVER), COUNTS_INTERRUPTS],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == b"ready\n"
        os.write(ours, b"\x03")
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert out == b"interrupts: 1\n"


def test_a_reader_that_leaves_ends_the_command_quietly():
    code = "import time; print('first'); input()\nwhile True: print('again'); time.sleep(0.01)"
    with drive(code, stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.wait(timeout=60)
        after_the_table = process.stderr.read().decode().split("ended with status")[1]
    assert "BrokenPipeError" not in after_the_table


def test_a_command_is_timed_from_another_thread_too(capfd):
    timings = []
    thread = threading.Thread(target=lambda: timings.append(time_command(python("print(1); print(2)"))))
    thread.start()
    thread.join()
    assert timings[0].summary.step.count == 1


def test_no_command_is_refused():
    with pytest.raises(
        CommandStartError, match="expected a command to time, found none; write: lapwing time -- "
    ):
        time_command([])


def test_an_unknown_command_is_refused():
    with pytest.raises(
        CommandStartError, match=r"found 'pyhton train.py' \(No such file.*check the spelling"
    ):
        time_command(["pyhton train.py"])


def test_a_file_that_is_no_program_is_refused(tmp_path: Path):
    (tmp_path / "data.txt").write_text("x")
    with pytest.raises(CommandStartError, match=r"data.txt' \(Permission denied\)"):
        time_command([str(tmp_path / "data.txt")])


@given(st.lists(st.text("ab\n", max_size=6), max_size=8), st.sampled_from([None, "a", "ab", "abab"]))
def test_laps_do_not_depend_on_where_the_output_is_cut(pieces, marker):
    laps = Laps()
    laps.step()
    lines = _LineLaps(laps, marker)
    for piece in pieces:
        lines.feed(piece.encode())
    lines.end_output()
    expected = [line for line in "".join(pieces).split("\n") if (marker or "") in line]
    if marker is None and "".join(pieces).split("\n")[-1] == "":
        expected.pop()
    summary = laps.summary()
    assert summary.step.count + summary.apart == len(expected)


def test_a_marker_cut_in_two_is_found():
    laps = Laps()
    laps.step()
    lines = _LineLaps(laps, "step")
    for piece in (b"loss st", b"e", b"p 1\nst", b"\nep\n"):
        lines.feed(piece)
    assert laps.summary().apart == 1
    assert laps.summary().step.count == 0


def test_a_line_without_end_does_not_fill_the_memory():
    lines = _LineLaps(Laps(), "marker")
    for _ in range(100):
        lines.feed(b"m" * 1000)
    assert len(lines._tail) == len("marker") - 1
