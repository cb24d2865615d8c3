"""What is said where there is no Ray, or nobody at its address."""

import socket
import sys
from pathlib import Path

import pytest

from lapwing.cli import main


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_without_ray_it_is_said_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)  # So that importing it fails.
    assert main(["sweep", "adding", "--engine", "ray"]) == 2
    assert capsys.readouterr().err == (
        "lapwing: the engine ray needs Ray, which is not installed; write pip install 'lapwing[ray]', or "
        "--engine local\n"
    )


def test_nobody_at_the_address_is_told_at_once(capsys):
    pytest.importorskip("ray", reason="Ray is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        assert main(["sweep", "adding", "--engine", "ray", "--address", address]) == 2
    assert capsys.readouterr().err == (
        f"lapwing: there is no Ray cluster at '{address}': [Errno 111] Connection refused\n"
    )
