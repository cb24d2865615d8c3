import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.journal import JournalError, Run
from lapwing.journal._inbox import Command, Inbox, Malformed
from tests.speed import quiet_seconds


@pytest.fixture
def run(tmp_path: Path):
    with Run.create("demo", runs_dir=tmp_path) as run:
        yield run


def test_a_command_arrives_once_and_whole(tmp_path: Path):
    inbox = Inbox(tmp_path)
    assert inbox.poll() == []
    posted = Inbox(tmp_path).post("set", {"lr": 0.01, "clip": math.inf})
    assert inbox.poll() == [Command(posted, "set", {"lr": 0.01, "clip": math.inf})]
    assert inbox.poll() == []


def test_commands_are_taken_in_the_order_posted(tmp_path: Path):
    inbox, poster = Inbox(tmp_path), Inbox(tmp_path)
    # A clock that was once ahead must not put later commands first.
    (tmp_path / f"{time.time_ns() + 10**15:020d}-x.json").write_text('{"command": "first"}')
    for word in ["second", "third", "fourth"]:
        poster.post(word, {})
    assert [command.name for command in inbox.poll() if isinstance(command, Command)] == [
        "first",
        "second",
        "third",
        "fourth",
    ]


def test_commands_that_come_within_one_tick_of_the_file_system_are_all_seen(tmp_path: Path):
    """On many kernels a folder's time of change moves in steps of milliseconds; here it is made to."""
    inbox, tick = Inbox(tmp_path), time.time_ns()
    for i in range(50):
        (tmp_path / f"{i:020d}.json").write_text(json.dumps({"command": "set", "arguments": {"i": i}}))
        os.utime(tmp_path, ns=(tick, tick))
        (command,) = inbox.poll()
        assert isinstance(command, Command)
        assert command.arguments == {"i": i}
        inbox.drop(command)
        os.utime(tmp_path, ns=(tick, tick))


def test_looking_into_an_empty_inbox_takes_under_five_microseconds(tmp_path: Path):
    inbox = Inbox(tmp_path)
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        inbox.poll()
    best = quiet_seconds(inbox.poll)
    assert best < 5e-6, f"one look took {best * 1e6:.1f} µs"


def test_what_is_being_written_is_not_seen(tmp_path: Path):
    (tmp_path / ".draft.json.123").write_text('{"comm')
    assert Inbox(tmp_path).poll() == []


POSTER = """
import sys
from pathlib import Path
from lapwing.journal._inbox import Inbox
for i in range(300):
    Inbox(Path(sys.argv[1])).post("set", {"i": i, "text": "x" * 1000})
"""


def test_a_command_is_seen_whole_or_not_at_all(tmp_path: Path):
    """Somebody posts as fast as they can while we look all the time."""
    inbox, found = Inbox(tmp_path), []
    poster = subprocess.Popen([sys.executable, "-c", POSTER, str(tmp_path)])
    deadline = time.monotonic() + 120
    while len(found) < 300 and time.monotonic() < deadline:
        for each in inbox.poll():
            found.append(each)
            inbox.drop(each)
    assert poster.wait() == 0
    assert [each for each in found if isinstance(each, Malformed)] == []
    assert [each.arguments["i"] for each in found] == list(range(300))


def test_an_inbox_that_was_deleted_stops_nothing(tmp_path: Path):
    inbox = Inbox(tmp_path / "control")
    assert inbox.poll() == []


MALFORMED = {
    "empty": (b"", "it is not JSON: Expecting value"),
    "half": (b'{"command": "se', "it is not JSON"),
    "binary": (b"\xff\xfe\x00\xd8\x00", "it is not"),
    "list": (b"[1]", 'it names no command; write {"command": "set"'),
    "no word": (b'{"command": ""}', "it names no command"),
    "number": (b'{"command": 5}', "it names no command"),
    "arguments": (b'{"command": "set", "arguments": 5}', "its arguments are 5; they should be a dict"),
    "huge": (b" " * 70_000, "it has 70000 bytes, and a command has at most 65536"),
    "deep": (b"[" * 60_000, "it is nested more than 100 levels deep"),
    "digits": (
        b'{"command": "set", "arguments": {"lr": %s}}' % (b"9" * 5000),
        "it is not JSON: Exceeds the limit",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_refused_with_its_reason_and_the_next_command_goes_through(run, case: str):
    content, reason = MALFORMED[case]
    path = run.folder / "control" / "0.json"
    path.write_bytes(content)
    posted = run.post("stop")
    assert [command.id for command in run.poll()] == [posted]
    event = run.events()[-1]
    assert (event["event"], event["file"]) == ("refused", "0.json")
    assert event["reason"].startswith(reason)
    assert not path.exists()
    assert f"refused the file 0.json in control/: {reason.splitlines()[0]}" in run.story


def test_things_that_are_no_files_are_refused_once(run, tmp_path: Path):
    control = run.folder / "control"
    os.mkfifo(control / "a-pipe.json")
    (control / "b-folder.json").mkdir()
    (tmp_path / "outside.json").write_text('{"command": "stop"}')
    (control / "c-link.json").symlink_to(tmp_path / "outside.json")
    (control / "d-text.txt").write_text('{"command": "stop"}')
    assert run.poll() == []
    refused = {event["file"]: event["reason"] for event in run.events() if event["event"] == "refused"}
    assert refused == {
        "a-pipe.json": "it is not a plain file",
        "b-folder.json": "it is not a plain file",
        "c-link.json": "it cannot be read: Too many levels of symbolic links",
        "d-text.txt": "its name does not end in .json",
    }
    assert run.poll() == []
    assert len([event for event in run.events() if event["event"] == "refused"]) == 4
    assert (tmp_path / "outside.json").exists()


def a_file(control: Path, outside: Path):
    control.rmdir()
    control.write_text("not a folder")


def a_link(control: Path, outside: Path):
    control.rmdir()
    control.symlink_to(outside)


@pytest.mark.parametrize("put", [a_file, a_link])
def test_an_inbox_that_is_no_folder_any_more_is_refused_once_and_nothing_outside_is_touched(
    run, tmp_path: Path, put
):
    control, outside = run.folder / "control", tmp_path / "outside"
    outside.mkdir()
    (outside / "0.json").write_text('{"command": "stop"}')
    (outside / "letter.txt").write_text("not a command")
    put(control, outside)
    assert run.poll() == []
    assert run.poll() == []
    refused = [(event["file"], event["reason"]) for event in run.events() if event["event"] == "refused"]
    assert refused == [
        ("control", "it is not a folder any more; make it one, and the run takes commands again")
    ]
    assert "refused control/: it is not a folder any more" in run.story
    assert sorted(path.name for path in outside.iterdir()) == ["0.json", "letter.txt"]
    with pytest.raises(JournalError, match=r"cannot write to |is not inside the run"):
        Run.open(run.folder).post("stop")
    control.unlink()
    control.mkdir()
    posted = Run.open(run.folder).post("stop")
    assert [command.id for command in run.poll()] == [posted]


@given(st.binary(max_size=80) | st.text(max_size=40).map(str.encode), st.text(st.characters(codec="ascii")))
def test_no_content_and_no_name_raises(tmp_path_factory, content: bytes, name: str):
    folder = tmp_path_factory.mktemp("inbox")
    name = "".join(letter for letter in name if letter not in "/\0").lstrip(".")[:50] or "x"
    (folder / name).write_bytes(content)
    inbox = Inbox(folder)
    for found in inbox.poll():
        assert isinstance(found, Malformed | Command)
        inbox.drop(found)
    assert os.listdir(folder) == []
    Inbox(folder).post("stop", {})


def test_each_command_is_answered_by_an_event_and_in_the_story(run):
    rate, pause = run.post("set", lr=0.01), run.post("pause")
    assert run.answer(rate) is None
    first, second = run.poll()
    run.applied(first, "learning_rate 0.1 → 0.01")
    run.refused(second, "it is paused already")
    answer = run.answer(rate)
    assert {
        "event": "applied",
        "command": "set",
        "arguments": {"learning_rate": 0.01},
    }.items() <= answer.items()
    assert run.answer(pause)["reason"] == "it is paused already"
    assert "`set learning_rate=0.01` applied: learning_rate 0.1 → 0.01\n" in run.story
    assert "`pause` refused: it is paused already\n" in run.story
    assert os.listdir(run.folder / "control") == []


def test_another_process_posts_and_waits_for_its_answer(run):
    code = "import sys, lapwing\nrun = lapwing.Run.open(sys.argv[1])\n"
    code += "print(run.answer(run.post('set', lr=0.5), timeout_s=120)['outcome'])"
    other = subprocess.Popen([sys.executable, "-c", code, str(run.folder)], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (commands := run.poll()) and time.monotonic() < deadline:
        time.sleep(0.001)
    run.applied(commands[0], json.dumps(dict(commands[0].arguments)))
    assert other.communicate()[0] == '{"learning_rate": 0.5}\n'
