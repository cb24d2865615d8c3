import fcntl
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.core import replace_file
from lapwing.journal._append import LineWriter, append_line, append_text
from lapwing.journal._errors import JournalError


def write_lines(path: Path, *lines: str) -> None:
    writer = LineWriter(path)
    writer.write(lines)
    writer.close()


def test_lines_are_in_the_file_before_the_writer_is_closed(tmp_path: Path):
    writer = LineWriter(tmp_path / "lines")
    writer.write(["a", "b"])
    assert (tmp_path / "lines").read_text() == "a\nb\n"
    writer.close()


@given(
    lines=st.lists(st.text("ab{}:1", max_size=8), max_size=5),
    torn=st.text("ab{}:1", max_size=8),
    long=st.booleans(),
)
def test_a_torn_line_is_cut_off_and_whole_ones_are_kept(tmp_path_factory, lines, torn, long):
    path = tmp_path_factory.mktemp("torn") / "lines"
    whole = "".join(line + "\n" for line in lines)
    path.write_text(whole + torn * (20_000 if long else 1))
    write_lines(path, "new")
    assert path.read_text() == whole + "new\n"
    path.write_text(whole + torn)
    append_line(path, "new")
    assert path.read_text() == whole + "new\n"


def test_text_for_people_keeps_what_a_person_typed_without_a_line_end(tmp_path: Path):
    path = tmp_path / "journal.md"
    path.write_text("my own thought")
    append_text(path, "- more\n")
    assert path.read_text() == "my own thought\n- more\n"


FULL_DISK = """
import resource, sys
from pathlib import Path
from lapwing.journal._append import LineWriter, append_line
path = Path(sys.argv[1])
writer = LineWriter(path)
writer.write(["0123456789"] * 5)
resource.setrlimit(resource.RLIMIT_FSIZE, (60, resource.RLIM_INFINITY))
for write in (lambda: writer.write(["x" * 20]), lambda: append_line(path, "y" * 20)):
    try:
        write()
    except OSError as error:
        print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.write(["space again"])
"""


def test_a_write_that_does_not_fit_is_taken_back(tmp_path: Path):
    """The limit lets the first 5 bytes of the line through, as a disk that fills up does."""
    path = tmp_path / "lines"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "File too large\n" * 2
    assert path.read_text() == "0123456789\n" * 5 + "space again\n"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_replacing_a_file_leaves_the_old_one_when_it_fails(tmp_path: Path):
    path = tmp_path / "laps.json"
    replace_file(path, "old")
    os.mkdir(tmp_path / f".laps.json.{os.getpid()}")
    try:
        replace_file(path, "new")
    except OSError:
        assert path.read_text() == "old"
    else:
        raise AssertionError("a folder in the place of the draft should have failed")


def test_an_append_waits_until_another_one_is_done(tmp_path: Path):
    """Taking back a failed write would otherwise cut off what came in between."""
    path = tmp_path / "events"
    path.write_text("")
    with open(path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        appending = threading.Thread(target=append_line, args=(path, "late"))
        appending.start()
        time.sleep(0.05)
        assert path.read_text() == ""
    appending.join()
    assert path.read_text() == "late\n"


def test_many_processes_append_to_one_file_without_mixing(tmp_path: Path):
    path = tmp_path / "events"
    code = "import sys; from pathlib import Path; from lapwing.journal._append import append_line\n"
    code += "for i in range(300): append_line(Path(sys.argv[1]), sys.argv[2] * 200)"
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), letter]) for letter in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    lines = path.read_text().splitlines()
    assert sorted(lines) == ["a" * 200] * 300 + ["b" * 200] * 300 + ["c" * 200] * 300


def test_a_line_written_while_the_file_is_looked_at_is_no_loss(tmp_path: Path, monkeypatch):
    """Metrics are written by a thread; another one asks whether they are still there."""
    writer, stat = LineWriter(tmp_path / "lines"), os.stat

    def slow_stat(path):
        before = stat(path)
        writer.write(["one more"])
        return before

    with monkeypatch.context() as slow:
        slow.setattr(os, "stat", slow_stat)
        lost = writer.lost()
    assert lost is None
    writer.close()


def test_a_file_that_ends_in_a_hole_is_refused_at_once_and_stays_as_it_is(tmp_path: Path):
    path = tmp_path / "lines"
    path.write_text("whole\n")
    os.truncate(path, 1 << 40)
    for write in (LineWriter, lambda path: append_line(path, "more")):
        with pytest.raises(JournalError, match="it ends in more than 8388608 bytes without a line"):
            write(path)
    assert path.stat().st_size == 1 << 40
