"""Whatever goes wrong in another library is one sentence, and no password is in it."""

import sys
from pathlib import Path

import pytest

from lapwing.journal import RunWriter
from lapwing.store import Store, StoreError, list_runs, push

from .serving import BUCKET, free_port


@pytest.fixture
def fresh_s3():
    """fsspec keeps connections; a test with other credentials needs its own."""
    s3fs = pytest.importorskip("s3fs")
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_bucket_that_does_not_exist_is_not_made(s3_server: Path):
    for action in (Store.check, Store.sizes):
        with pytest.raises(
            StoreError, match=r"there is no s3://nobody/x \(.*bucket does not exist\); create the"
        ):
            action(Store("s3://nobody/x"))
    assert not (s3_server / "nobody").exists()


@pytest.mark.usefixtures("fresh_s3")
def test_no_credentials(s3_server: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(
        StoreError, match=f"there are no credentials for s3://{BUCKET}/x .*; set AWS_ACCESS_KEY_ID"
    ):
        Store(f"s3://{BUCKET}/x").check()


@pytest.mark.usefixtures("fresh_s3")
def test_wrong_credentials(s3_server: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    with pytest.raises(StoreError, match=f"s3://{BUCKET}/x refuses .*; check the credentials") as caught:
        list_runs(f"s3://{BUCKET}/x")
    assert "hunter2" not in str(caught.value)


@pytest.mark.usefixtures("fresh_s3")
def test_no_network(s3_server: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(StoreError, match=f"cannot reach s3://{BUCKET}/x .*; check the network"):
        Store(f"s3://{BUCKET}/x").check()


def test_the_extra_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(
        StoreError, match=r"needs a package that is not installed .* pip install 'lapwing\[cloud\]'"
    ):
        Store("s3://bucket/runs")


@pytest.mark.parametrize("url", ["nothing://x", "s3://"])
def test_what_is_not_an_address(url: str, s3_server: Path):
    with pytest.raises(
        StoreError, match=f"{url} is not an address of a store .*; write one such as s3://bucket/runs"
    ):
        Store(url).check()


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "store").write_text("a file")
    with pytest.raises(StoreError, match="store"):
        Store(f"file://{tmp_path}/store").check()


def test_a_run_folder_without_a_run(tmp_path: Path, memory_url: str):
    with pytest.raises(StoreError, match=r"there is no run in '.*' to upload; `lapwing runs` lists the runs"):
        push(tmp_path, memory_url)


def test_the_password_of_a_url_is_in_no_message(run: RunWriter):
    with pytest.raises(StoreError, match="nothing://REDACTED@host/runs is not an address") as caught:
        push(run.folder, "nothing://me:hunter2@host/runs")
    assert "hunter2" not in str(caught.value)
