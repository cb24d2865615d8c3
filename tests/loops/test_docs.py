"""The page on the gradient of a loop does what it says, and says what was measured."""

import re

import jax
import pytest

import lapwing as lw
from lapwing.jaxprs import equations
from tests.docs import DOCS, run_page

PAGE = DOCS / "loops.md"


def without_sizes(text: str) -> str:
    """Peak memory differs from compiler to compiler, and plans of kernels get better."""
    return re.sub(r" *[\d.]+ (B|kB|MB|GB|blocks|units|rows)\b", " #", text)


def stacked_arrays(fn, *args) -> tuple[int, int]:
    """How many arrays of each step the forward loop of a gradient hands on, and how many the backward loop carries."""
    eqns = equations(jax.make_jaxpr(jax.grad(fn))(*args).jaxpr)
    loops = {eqn.params["reverse"]: eqn for eqn in eqns if eqn.primitive.name == "scan"}
    length = loops[False].params["length"]
    stacked = [var for var in loops[False].outvars if var.aval.shape[:1] == (length,)]
    carried = [var for var in loops[True].outvars if var.aval.shape[:1] != (length,)]
    return len(stacked), len(carried)


@pytest.mark.slow
@pytest.mark.optimized
def test_the_code_of_the_page_runs_and_prints_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = list(run_page(PAGE, names))
    assert len(blocks) == 13
    for block in blocks:
        assert without_sizes(block.printed) == without_sizes(block.shown)
    assert (tmp_path / "loop-gru.png").exists()
    assert (DOCS / "pictures" / "loop-gru.png").exists()

    loss, params, xs = names["loss"], names["params"], names["xs"]
    outputs = 1
    assert stacked_arrays(loss, params, xs) == (outputs + 9, 1 + 4)
    assert stacked_arrays(lw.accelerate(loss), params, xs) == (outputs + 4, 1)

    save, every_256, sqrt, nested = (
        names["temporary_bytes"](memory) for memory in ("save", 256, "sqrt", "nested")
    )
    assert save > 10 * every_256 > 20 * sqrt > 20 * nested


def test_the_journal_says_what_the_page_says():
    seeds = sorted((DOCS.parents[1] / "shared" / "seeds").glob("003*.txt"))
    if not seeds:
        pytest.skip("the journals are not beside this checkout")
    quadro, *_ = re.split("#####50 calls on GTX", seeds[0].read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    methods = ["TT.grad:", "TT.grad + extra outputs:", "My grad:"]
    rows = {"forward loop": "forward pass calls", "backward loop": "backward pass calls"}
    for column, method in enumerate(methods):
        story = quadro.split(method)[1].split("grad")[0]
        total = re.search(r"\| all, with overhead \|(.*)\|", text)[1].split("|")[column].strip()
        assert story.startswith(f" {total}s")
        for row, name in rows.items():
            shown = re.search(rf"\| {row} \|(.*)\|", text)[1].split("|")[column].strip()
            assert f"{name}: {shown}s" in story
