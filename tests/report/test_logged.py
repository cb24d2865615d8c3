"""Texts, images, histograms, tables and figures on the page of a run."""

from pathlib import Path

import numpy as np
import pytest

import lapwing as lw
from lapwing.core import new_figure
from lapwing.journal import Run
from lapwing.report._logged import MOST_HISTOGRAMS, histogram_figure, over_steps

from .test_page import Page, page_of


@pytest.fixture
def run(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        yield run


def pictures(page: Page) -> list[dict[str, str | None]]:
    return [attrs for tag, attrs in page.tags if tag == "img"]


def test_everything_that_was_logged_is_on_the_page(run):
    figure = new_figure(2, 2)
    figure.add_subplot().plot([1, 2])
    run.log(step=4, sample="<b>once upon</b>", noise=lw.Image(np.ones((4, 4)), caption="all <white>"))
    run.log(step=5, worst=lw.Table([{"word": "<i>lapwing</i>", "score": 0.125}]), curve=figure)
    for step in (4, 5):
        run.log(step=step, weights=lw.Histogram([1.0, 2.0, step]))
    page = page_of(run)
    for words in (
        "<b>once upon</b>",
        "step 4 · all <white>",
        "<i>lapwing</i>",
        "0.125",
        "weights, steps 4 to 5",
    ):
        assert words in page.words
    assert [attrs["alt"] for attrs in pictures(page)] == ["noise", "curve", "weights, steps 4 to 5"]
    assert all(address.startswith("data:image/png") for address in page.addresses())
    assert "6 events" not in page.words  # The logged ones are not listed again.


def test_the_newest_few_of_each_name_are_shown(run):
    for step in range(10):
        run.log(step=step, sample=f"text {step}.", noise=lw.Image(np.full((2, 2), step / 10)))
    run.log(step=10, table=lw.Table([[i] for i in range(70)], columns=["n"]))
    words = page_of(run).words
    assert [step for step in range(10) if f"text {step}." in words] == [6, 7, 8, 9]
    assert words.count("6 earlier ones are in the run folder.") == 2
    assert "the first 50 of 70 rows" in words
    assert len(pictures(page_of(run))) == 4


def test_what_a_rollback_undid_is_not_shown(run):
    run.log(step=1, sample="kept")
    run.log(step=2, sample="undone")
    run.back_to(2)
    words = page_of(run).words
    assert "kept" in words
    assert "undone" not in words


def test_damaged_entries_do_not_break_the_page(run):
    entry = {"step": 1, "name": "x"}
    run.event("logged", **entry, kind="image", file="../../secret.png")
    run.event("logged", **entry, kind="table", file="media/none.json")
    run.event("logged", **entry, kind="histogram", counts=[1, 2], edges=[0, "a", 2])
    run.event("logged", **entry, kind="hologram")
    words = page_of(run).words
    for sentence in (
        "image: it cannot be shown",
        "its file cannot be read",
        "they cannot be shown",
        "hologram: it",
    ):
        assert sentence in words


def histogram(step: int, values) -> dict:
    stored = lw.Histogram(values).stored().fields
    return {"step": step, "name": "w", **stored}


def test_histograms_with_different_edges_share_one_axis():
    entries = [histogram(step, np.random.default_rng(step).normal(step, 1, 500)) for step in range(4)]
    steps, edges, shares = over_steps(entries)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    middles = (edges[1:] + edges[:-1]) / 2
    np.testing.assert_allclose(shares @ middles, [0, 1, 2, 3], atol=0.2)
    assert steps.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [1, 2, MOST_HISTOGRAMS + 50])
def test_any_number_of_histograms_is_drawn(count: int):
    entries = [histogram(step, [] if step == 1 else [step, 0.0]) for step in range(count)]
    assert histogram_figure(entries).axes
    assert len(over_steps(entries)[0]) <= MOST_HISTOGRAMS
