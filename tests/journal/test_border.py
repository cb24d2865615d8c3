"""What is not what a run writes is refused: files of another kind, of no end, of no depth, of other types."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from lapwing.journal import JournalError, Run, run_folders
from lapwing.journal._border import LONGEST_LINE
from lapwing.journal._lock import read_owner
from lapwing.journal._tail import MOST_COLUMNS

FILES = (
    "config.json",
    "environment.json",
    "metrics.jsonl",
    "events.jsonl",
    "journal.md",
    "laps.json",
    "lock",
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with Run.create("demo", {"width": 8}, runs_dir=tmp_path_factory.mktemp("sound")) as run:
        run.log({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25})
        run.save_laps({"format": "lapwing laps 1"})
    return run.folder


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(sound, tmp_path / "runs" / sound.name))


def append(run: Run, name: str, *lines: str) -> None:
    with open(run.folder / name, "a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def replaced(run: Run, name: str) -> Path:
    path = run.folder / name
    path.unlink()
    return path


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def outside(path: Path) -> None:
    secret = path.parents[2] / "secret.json"
    secret.write_text('{"format": 2, "created": 1.0, "experiment": "secret", "config": {}}\n')
    path.symlink_to(secret)


@pytest.mark.parametrize("make", [pipe, device, folder, outside])
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_of_the_run_is_not_read(run: Run, name: str, make: Any):
    make(replaced(run, name))
    began = time.process_time()
    reasons = "not a regular file|not inside the run|it has no config"
    with pytest.raises(JournalError, match=reasons) as caught:
        Run.open(run.folder)
    assert name in str(caught.value)
    assert time.process_time() - began < 1


def test_a_link_inside_the_run_is_followed(run: Run):
    path = run.folder / "environment.json"
    path.rename(run.folder / "elsewhere.json")
    path.symlink_to("elsewhere.json")
    assert Run.open(run.folder).environment["host"]


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl", "config.json"])
def test_a_file_of_holes_takes_no_memory(run: Run, name: str):
    with open(run.folder / name, "ab") as file:
        file.truncate(1 << 40)
    began = time.process_time()
    with pytest.raises(JournalError, match=f"{name}: it has holes"):
        print(Run.open(run.folder).state, Run.open(run.folder).columns())
    assert time.process_time() - began < 1


def test_a_line_without_end_is_refused(run: Run):
    append(run, "metrics.jsonl", '{"step": 3, "text": "' + "x" * (LONGEST_LINE + 5_000_000))
    with pytest.raises(JournalError, match=r"metrics\.jsonl: it has a line of more than \d+ bytes"):
        Run.open(run.folder).columns()


def test_the_number_of_columns_is_bounded(run: Run):
    append(run, "metrics.jsonl", json.dumps({f"name{i}": i for i in range(MOST_COLUMNS + 50)}))
    assert len(Run.open(run.folder).columns()) == MOST_COLUMNS


DEEP = "[" * 50_000 + "]" * 50_000


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (DEEP, "nested more than 100 levels deep"),
        ("[" * 400 + "]" * 400, "nested more than 100 levels deep"),
        ('{"format": 2,', "it is not JSON"),
        ('{"format": %s}' % ("9" * 5000), "it is not JSON"),
        ('{"format": %s}' % ("9" * 500), "an integer of more than 1000 bits"),
        ("[1, 2]", "does not belong to a run"),
        ('{"format": true}', "does not belong to a run"),
        ('{"format": 2, "created": 1e300}', "'created' should be seconds since 1970, but is 1e"),
        ('{"format": 2, "created": 1, "config": [1, 2]}', r"'config' should be an object, but is \[1, 2\]"),
        ('{"format": 2, "created": 1, "experiment": [1]}', r"'experiment' should be a text, but is \[1\]"),
    ],
)
def test_a_config_of_another_shape_makes_its_run_unreadable(run: Run, content: str, reason: str):
    (run.folder / "config.json").write_text(content)
    with pytest.raises(JournalError, match=reason):
        Run.open(run.folder)
    assert run.folder in run_folders(run.folder.parent)


@pytest.mark.parametrize("content", ["", "{", "[1]", "7", DEEP, '{"host": ' + "9" * 500 + "}", "\x00"])
@pytest.mark.parametrize("name", ["environment.json", "laps.json", "source.json"])
def test_a_part_that_is_damaged_is_named_and_the_run_is_read_without_it(run: Run, name: str, content: str):
    (run.folder / name).write_text(content)
    opened = Run.open(run.folder)
    _ = opened.environment, opened.laps, opened.source
    assert list(opened.unreadable) == [name]
    assert name in opened.unreadable[name]
    assert opened.columns()["loss"].tolist() == [0.5, 0.25]


def test_a_torn_environment_does_not_stop_a_resume(run: Run):
    (run.folder / "environment.json").write_text('{"host": "a')
    with Run.reopen(run.folder) as again:
        again.log({"step": 3, "loss": 0.1})
    assert Run.open(run.folder).columns()["step"].tolist() == [1, 2, 3]


BAD_EVENTS = [
    '{"event": ["note"], "time": 1.0}',
    '{"event": {"a": 1}}',
    '{"event": "note", "time": 1e300}',
    '{"event": "note", "time": "NaN"}',
    '{"event": "note", "time": [1]}',
    '{"event": "rollback", "step": 1e999, "to": 3}',
    '{"event": "learning_rate", "learning_rate": %s}' % ("9" * 500),
    f'{{"event": "note", "text": {DEEP}}}',
    '{"text": "no name"}',
    "7",
]


@pytest.mark.parametrize("line", BAD_EVENTS)
def test_an_event_of_another_shape_is_skipped_and_counted(run: Run, line: str):
    before = Run.open(run.folder).events()
    append(run, "events.jsonl", line, '{"event": "note", "time": 1.0, "text": "sound"}')
    opened = Run.open(run.folder)
    assert [event["event"] for event in opened.events()] == [*(event["event"] for event in before), "note"]
    assert opened.damaged == 1
    assert (opened.state, opened.tags, opened.controls) == ("finished", [], None)


BAD_ROWS = [
    '{"step": "NaN", "loss": 1}',
    '{"step": [3], "loss": 1}',
    '{"step": 1e300, "loss": 1}',
    '{"step": 3, "time": 1e300}',
    '{"back_to": {"a": 1}}',
    '{"back_to": NaN}',
    "[1]",
    '{"step": 3,, }',
]


@pytest.mark.parametrize("line", BAD_ROWS)
def test_a_row_of_another_shape_is_skipped_and_counted(run: Run, line: str):
    append(run, "metrics.jsonl", line, '{"step": 4, "loss": 0.125}')
    opened = Run.open(run.folder)
    assert opened.columns()["loss"].tolist() == [0.5, 0.25, 0.125]
    assert opened.damaged == 1
    assert opened.latest()["step"] == 4
    assert (best := opened.best()) is not None
    assert best.step == 4


def test_a_metric_larger_than_any_float_is_infinite(run: Run):
    append(run, "metrics.jsonl", '{"step": 3, "loss": -%s}' % ("9" * 400))
    opened = Run.open(run.folder)
    assert opened.columns()["loss"][-1] == -float("inf")
    assert (best := opened.best()) is not None
    assert best.value == 0.25


@pytest.mark.parametrize(
    "content",
    ['{"pid": 1e999, "host": "a"}', '{"pid": [1], "host": "a"}', '{"pid": 1, "host": {}}', DEEP, "7"],
)
def test_a_lock_of_another_shape_has_no_owner(run: Run, content: str):
    (run.folder / "lock").write_text(content)
    assert read_owner(run.folder) is None
    assert Run.open(run.folder).state == "finished"
