"""A process with a Hopper GPU, as far as lowering can tell."""

import pytest

from lapwing.loops.persistent import _device, _warn
from tests.loops.persistent.gpu import H200


@pytest.fixture
def hopper(monkeypatch, tmp_path):
    """This process has such a GPU, and a cache and warnings of its own."""
    monkeypatch.setattr(_device, "device_here", lambda: H200)
    monkeypatch.setattr(_warn, "warned", set())
    monkeypatch.setenv("LAPWING_CACHE", str(tmp_path))
    return tmp_path
