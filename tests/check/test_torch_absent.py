"""The checks for PyTorch where it is not installed: one sentence."""

import sys

import pytest

import lapwing as lw
from lapwing.check import CheckInputError


@pytest.mark.parametrize(
    "name", ["gradients", "dead_parameters", "structure", "modes", "causality", "batch_independence"]
)
def test_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # What makes `import torch` fail.
    arguments = {"gradients": (len, None), "dead_parameters": (len, None, [1])}.get(name, (None,))
    with pytest.raises(CheckInputError, match="need PyTorch, which is not installed here; install it with"):
        getattr(lw.check.torch, name)(*arguments)
