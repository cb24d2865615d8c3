"""docs/architecture.md says what the code does: its lists and its drawing are made again and compared."""

import importlib.util

import pytest

from tests.docs import DOCS
from tests.test_layers import LAYERS

spec = importlib.util.spec_from_file_location("architecture", DOCS / "architecture.py")
assert spec is not None
assert spec.loader is not None
architecture = importlib.util.module_from_spec(spec)
spec.loader.exec_module(architecture)

ADVICE = "`python docs/architecture.py` makes it again"


def test_the_page_and_its_drawing_are_up_to_date(monkeypatch: pytest.MonkeyPatch):
    walks = []
    walk = architecture.walk
    monkeypatch.setattr(architecture, "walk", lambda action: walks.append(walk(action)) or walks[-1])
    assert architecture.page() == architecture.PAGE.read_text(), ADVICE
    assert architecture.drawing() == architecture.PICTURE.read_text(), ADVICE
    upwards = {call.layers for call in walks[0] if call.layers and not allowed(*call.layers)}
    # Those of the interpreter, and that by which jax lowers a loop.
    rules = {("jaxprs", "loops"), ("train", "loops")}
    assert upwards <= {(layer, "experiments") for layer in LAYERS} | rules, (
        "only the functions of the task and rules are called from below"
    )


def allowed(caller: str, called: str) -> bool:
    return caller == called or called in LAYERS[caller]


def test_a_layer_is_drawn_above_all_that_it_imports():
    row = {layer: number for number, layers in enumerate(architecture.levels()) for layer in layers}
    assert set(row) == {layer for layer in LAYERS if not layer.startswith("__")}
    for layer, below in LAYERS.items():
        assert all(row[layer] < row[each] for each in below & row.keys() - {layer} if layer in row)
