"""The command line of stores: `push`, `pull`, `--store` and `--runs URL`."""

import json
import os
from pathlib import Path

import pytest

from lapwing._commands.storing import followed
from lapwing.cli import main
from lapwing.journal import Run, RunWriter
from lapwing.store import Store, list_runs, pull, push
from lapwing.store._upload import Upload

from ..board.serving import serving as board_of

TINY = ["--steps", "4", "--length", "2", "--width", "2", "--laps-every", "0", "--no-check", "--quiet"]


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_push_and_pull(url: str, run: RunWriter, capsys: pytest.CaptureFixture):
    assert main(["push", "one", url]) == 0
    assert "one: uploaded " in capsys.readouterr().out
    assert main(["push", "one", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"url": url, "runs": {"one": 0}}
    assert main(["pull", url, "--runs", "here", "--json"]) == 0
    (pulled,) = json.loads(capsys.readouterr().out)["runs"]
    assert (pulled["name"], pulled["folder"], pulled["damaged"]) == ("one", "here/one", [])
    assert main(["pull", url, "one", "--runs", "small", "--no-checkpoints"]) == 0
    assert not Path("small/one/checkpoints").exists()


def test_runs_show_and_compare_read_a_store(url: str, run: RunWriter, capsys: pytest.CaptureFixture):
    run.end("finished", "done")
    push(run.folder, url)
    assert main(["runs", "--runs", url, "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["run"], listed["state"], listed["latest"]["step"]) == ("one", "finished", 2)
    assert main(["show", "one", "--runs", url]) == 0
    assert "finished" in capsys.readouterr().out
    assert main(["compare", "one", "one", "--runs", url]) == 0
    assert "They never differ" in capsys.readouterr().out


def test_commands_that_change_a_run_want_a_folder(capsys: pytest.CaptureFixture):
    assert main(["tag", "one", "best", "--runs", "s3://bucket/runs"]) == 2
    assert (
        "--runs takes a folder here, not 's3://bucket/runs'; `lapwing pull s3://bucket/runs` brings runs into one"
        in capsys.readouterr().err
    )
    assert not Path("s3:").exists()


def test_a_damaged_checkpoint_is_named_and_the_status_says_so(run: RunWriter, capsys: pytest.CaptureFixture):
    push(run.folder, f"file://{os.getcwd()}/store")
    (checkpoint,) = Path("store").rglob("*step-2*")
    checkpoint.write_bytes(b"x" + checkpoint.read_bytes()[1:])
    assert main(["pull", f"file://{os.getcwd()}/store", "--runs", "here"]) == 1
    assert "is damaged: it is not what was uploaded" in capsys.readouterr().err
    assert Run.open("here/one").latest()["step"] == 2


def test_train_and_resume_upload_and_record_the_address_without_a_password(
    memory_url: str, capsys: pytest.CaptureFixture
):
    store = memory_url.replace("memory://", "memory://me:hunter2@")
    assert main(["train", "adding", *TINY, "--name", "one", "--store", store]) == 0
    (pulled,) = pull(store, "one", "here")
    there = Run.open(pulled.folder)
    assert (there.state, there.latest()["step"]) == ("finished", 4)
    (event,) = [event for event in there.events() if event["event"] == "store"]
    assert event["url"] == memory_url.replace("memory://", "memory://REDACTED@")
    files = [path for path in Path("runs/one").rglob("*") if path.is_file()]
    assert not any(b"hunter2" in path.read_bytes() for path in files)
    assert "hunter2" not in "".join(capsys.readouterr())
    assert (
        main(
            ["resume", "one", "--runs", "here", "--steps", "6", "--allow-change", "--quiet", "--store", store]
        )
        == 0
    )
    assert pull(store, "one", "runs")[0].size > 0
    assert Run.open("runs/one").latest()["step"] == 6


def test_a_store_that_cannot_be_written_is_refused_before_anything_is_trained(
    s3_server: Path, capsys: pytest.CaptureFixture
):
    assert main(["train", "adding", *TINY, "--store", "s3://nobody/runs"]) == 2
    assert "there is no s3://nobody/runs" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_name_that_is_taken_in_the_store_is_refused(
    memory_url: str, run: RunWriter, capsys: pytest.CaptureFixture
):
    push(run.folder, memory_url)
    assert main(["train", "adding", *TINY, "--runs", "new", "--name", "one", "--store", memory_url]) == 2
    assert "/one is another run, or was continued elsewhere" in capsys.readouterr().err
    assert not Path("new").exists()


@pytest.mark.slow
def test_a_sweep_uploads_its_points(memory_url: str):
    words = ["sweep", "adding", *TINY[:-2], "--quiet", "--grid", "width=1,2", "--workers", "1"]
    assert main([*words, "--name", "s", "--store", memory_url]) == 0
    assert list_runs(memory_url) == ["s/width=1,seed=0", "s/width=2,seed=0"]


def test_the_board_reads_a_store_and_steers_nothing_there(memory_url: str, run: RunWriter):
    Upload(run.folder, Store(memory_url), "one").sync(is_last=False)
    with followed(memory_url) as (folder, read_only), board_of(folder) as board:
        board.shelf.read_only = read_only
        assert board.get("run", run="one").json["run"] == "one"
        answer = board.steer("one", "note", text="hello")
        assert answer.status == 409
        assert "can only be read here; steer them where they run" in answer.json["error"]
