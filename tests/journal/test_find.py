import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.journal import JournalError, Run, find_run, run_folders, run_name
from lapwing.journal._find import inside


def make(runs: Path, name: str) -> Path:
    folder = runs / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"format": 1, "created": 0}')
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    for name in ["20260101-000000-adding-aaaa", "20260102-000000-adding-bbbb", "20260102-000000-copy-cccc"]:
        make(runs, name)
    (runs / "notes.txt").write_text("no run")
    (runs / "empty folder").mkdir()
    make(runs, ".20260103-000000-half-made")
    return runs


def test_runs_are_listed_newest_first_and_only_runs(runs: Path):
    assert [folder.name[-4:] for folder in run_folders(runs)] == ["cccc", "bbbb", "aaaa"]


def test_a_folder_that_somebody_renamed_is_as_old_as_it_is(runs: Path):
    renamed = make(runs, "my best run")
    for day, newest in [(1, "cccc"), (3, " run")]:
        when = time.mktime((2026, 1, day, 12, 0, 0, 0, 0, 0))
        os.utime(renamed / "config.json", (when, when))
        assert find_run("latest", runs).name.endswith(newest)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("20260101-000000-adding-aaaa", "aaaa"),
        ("20260101", "aaaa"),
        ("20260102-000000-c", "cccc"),
        ("latest", "cccc"),
        ("latest~0", "cccc"),
        ("latest~2", "aaaa"),
    ],
)
def test_a_name_a_beginning_or_latest(runs: Path, wanted: str, found: str):
    assert find_run(wanted, runs).name.endswith(found)


def test_an_exact_name_wins_over_longer_ones(runs: Path):
    make(runs, "20260101-000000-adding-aaaa-again")
    assert find_run("20260101-000000-adding-aaaa", runs).name == "20260101-000000-adding-aaaa"


def test_an_ambiguous_beginning_lists_the_candidates(runs: Path):
    message = (
        "'20260102' could be 20260102-000000-copy-cccc or 20260102-000000-adding-bbbb; write more of the name"
    )
    with pytest.raises(JournalError) as error:
        find_run("20260102", runs)
    assert str(error.value) == message
    for i in range(20):
        make(runs, f"2026010{i % 10}-1-{i}")
    with pytest.raises(JournalError, match="or 13 more; write more"):
        find_run("2026", runs)


def test_a_typo_gets_a_suggestion(runs: Path):
    with pytest.raises(JournalError, match=r"did you mean 20260101-000000-adding-aaaa\?"):
        find_run("20260101-000000-adding-aaax", runs)
    with pytest.raises(JournalError, match=r"there is no run 'zebra' in '.*runs'; `lapwing runs` lists them"):
        find_run("zebra", runs)
    with pytest.raises(JournalError, match="there are no runs there yet; `lapwing list`"):
        find_run("zebra", runs / "none")


def test_an_explicit_path_is_taken_when_it_is_a_run(runs: Path, tmp_path: Path, monkeypatch):
    outside = make(tmp_path / "elsewhere", "my-run")
    assert find_run(str(outside), runs) == outside
    monkeypatch.chdir(outside.parent)
    assert find_run("./my-run", runs) == Path("my-run")
    assert find_run("my-run", runs) == Path("my-run")
    with pytest.raises(JournalError, match=r"'\.\.' is not a run folder: it has no config.json"):
        find_run("..", runs)


OUTSIDE = [
    "~nobody-of-that-name/x",
    "x" * 5000,
    "x" * 5000 + "/x",
    "../../no-such-run",
    "",
    "../secret",
    "..%2fsecret",
    "%2e%2e/secret",
    "a\0b",
    "x/\0",
    "....//secret",
]


@pytest.mark.parametrize("wanted", [*OUTSIDE, "secret", "link", "link-to-file"])
def test_no_name_leads_out_of_the_runs_folder(runs: Path, tmp_path: Path, wanted: str):
    secret = make(tmp_path, "secret")
    (runs / "link").symlink_to(secret)
    (runs / "link-to-file").symlink_to(secret / "config.json")
    for paths in (True, False):
        with pytest.raises(JournalError, match="there is no run"):
            find_run(wanted, runs, paths=paths)


@given(st.text(st.sampled_from("./%2ef\\~a\0lnks")))
def test_no_spelling_leads_out(tmp_path_factory, wanted: str):
    runs = tmp_path_factory.mktemp("place") / "runs"
    make(runs.parent, "a")
    make(runs, "l")
    (runs / "s").symlink_to(runs.parent / "a")
    if wanted == "l":
        assert find_run(wanted, runs, paths=False) == runs / "l"
    else:
        with pytest.raises(JournalError, match="there is no run"):
            find_run(wanted, runs, paths=False)


def test_files_of_a_run_stay_in_it(tmp_path: Path):
    run = make(tmp_path, "run")
    (tmp_path / "secret").write_text("s")
    (run / "out").symlink_to(tmp_path / "secret")
    (run / "in").symlink_to(run / "config.json")
    (run / "round").symlink_to(run / "round")
    assert inside(run, "in").read_text() == (run / "config.json").read_text()
    for name in ["../secret", "out", "/etc/passwd", "pictures/../../secret", "a\0b"]:
        with pytest.raises(JournalError, match="is not inside the run run; name a file of the run folder"):
            inside(run, name)
    with pytest.raises(JournalError, match="is not inside the run"):
        Run.open(run).file("../secret")


def test_a_runs_folder_that_is_a_file_gets_a_sentence(tmp_path: Path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(JournalError, match=r"cannot read the runs folder .*runs: Not a directory"):
        run_folders(tmp_path / "runs")


def test_opening_what_is_no_run(tmp_path: Path):
    with pytest.raises(JournalError, match=r"is not a run folder: it has no config\.json"):
        Run.open(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.fixture
def sweep(runs: Path) -> Path:
    make(runs / "rates", "learning_rate=0.1,seed=0")
    make(runs / "rates", "learning_rate=0.2,seed=0")
    make(runs / "rates", ".half-made")
    (runs / "rates" / "sweep.json").write_text("{}")
    make(runs / "no sweep", "learning_rate=0.1")
    return runs


def test_the_runs_of_a_sweep_are_runs_with_the_name_of_the_sweep_before_theirs(sweep: Path):
    names = [run_name(folder, sweep) for folder in run_folders(sweep)]
    assert sorted(names)[3:] == [
        "no sweep/learning_rate=0.1",
        "rates/learning_rate=0.1,seed=0",
        "rates/learning_rate=0.2,seed=0",
    ]
    for paths in (True, False):
        assert (
            find_run("rates/learning_rate=0.2", sweep, paths=paths)
            == sweep / "rates" / "learning_rate=0.2,seed=0"
        )
    with pytest.raises(
        JournalError, match=r"'rates' could be rates/learning_rate=0...seed=0 or rates/learning_rate"
    ):
        find_run("rates", sweep)
    with pytest.raises(JournalError, match=r"did you mean rates/learning_rate=0.1,seed=0"):
        find_run("rates/learning_rate=0.1,sed=0", sweep, paths=False)


def test_no_name_leads_out_of_a_sweep(sweep: Path):
    make(sweep.parent, "secret")
    (sweep / "rates" / "link").symlink_to(sweep.parent / "secret")
    for wanted in ("rates/../../secret", "rates/link"):
        with pytest.raises(JournalError, match="there is no run"):
            find_run(wanted, sweep, paths=False)


def test_runs_are_found_at_any_depth_and_not_inside_of_runs(runs: Path):
    make(runs / "2026" / "november" / "deep", "my-run")
    make(find_run("aaaa", runs) / "copies", "inner")
    names = [run_name(folder, runs) for folder in run_folders(runs)]
    assert "2026/november/deep/my-run" in names
    assert not any("inner" in name for name in names)
    (runs / "2026" / "closed").mkdir(mode=0o000)
    assert len(run_folders(runs)) == 4


@pytest.mark.parametrize(("wanted", "found"), [("aaaa", "aaaa"), ("copy", "cccc"), ("01-000000-add", "aaaa")])
def test_a_part_of_a_name_is_enough(runs: Path, wanted: str, found: str):
    for paths in (True, False):
        assert find_run(wanted, runs, paths=paths).name.endswith(found)


def test_an_exact_name_wins_over_a_beginning_and_that_over_a_part(runs: Path):
    make(runs, "the-20260101")
    assert find_run("20260101", runs).name.endswith("aaaa")
    make(runs, "20260101")
    assert find_run("20260101", runs).name == "20260101"
    with pytest.raises(JournalError, match=r"'adding' could be .*bbbb or .*aaaa; write more of the name"):
        find_run("adding", runs)


def test_a_path_wins_over_a_part_of_a_name(runs: Path, tmp_path: Path, monkeypatch):
    make(tmp_path, "copy")
    monkeypatch.chdir(tmp_path)
    assert find_run("copy", runs) == Path("copy")
    assert find_run("copy", runs, paths=False).name.endswith("cccc")
