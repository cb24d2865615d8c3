import base64
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lapwing.journal import Run, find_run
from lapwing.report import report_page, run_pictures
from lapwing.report._glance import glance

from .runs import falling, started, timed_laps

VOID = {"meta", "img", "source", "br"}


class Page(HTMLParser):
    """What a browser would see; fails where tags do not match."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.words += data + " "

    def addresses(self) -> list[str]:
        given = [attrs.get(key) for _, attrs in self.tags for key in ("src", "srcset", "href")]
        return [address for address in given if address]


def page_of(run: Run) -> Page:
    return Page(report_page(run, run_pictures(run)))


def test_a_page_tells_everything_and_needs_nothing(tmp_path: Path):
    run = started(tmp_path, falling(300), seed=12345)
    run.log({"step": 300, "eval_accuracy": 0.75})
    run.event("rollback", "**rolled back** to step 150", step=200, to=150)
    run.note("the loss looks odd")
    run.save_laps({**timed_laps(), "fused": {"p50": 0.5, "steps_per_call": 100}})
    run.end("finished", "300 steps done")
    page = page_of(Run.open(run.folder))
    for words in (
        run.name,
        "finished",
        "300 steps done",
        "rolled back",
        "the loss looks odd",
        "12345",
        "cpu",
    ):
        assert words in page.words
    for words in (
        "unaccounted",
        "100.0%",
        "Fused, as it runs: 5.00 ms per step.",
        "versions.jax",
        "4 events",
    ):
        assert words in page.words
    addresses = page.addresses()
    assert len(addresses) == 2 * 5
    assert all(re.match(r"data:image/png;base64,iVBOR", address) for address in addresses)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "a"}
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags
    assert "prefers-color-scheme: dark" in str(page.tags)


def test_nothing_that_a_run_says_becomes_html(tmp_path: Path):
    nasty = '<script>alert("1")</script>'
    run = started(tmp_path, falling(10), **{nasty: nasty, "deep": {nasty: [nasty]}})
    run.log({"step": 11, nasty: 1.0})
    run.note(nasty)
    run.event(nasty, nasty, **{nasty: nasty})
    run.add_picture(b"not really", f"{nasty.replace('/', '')}.png", nasty)
    run.save_laps({"format": nasty})
    run.end("failed", nasty)
    run.folder = run.folder.rename(tmp_path / "<script>x")
    page = page_of(Run.open(run.folder))
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.words.count(nasty) >= 5


@pytest.mark.slow
def test_a_running_a_lost_and_an_empty_run_have_a_page(tmp_path: Path):
    running = started(tmp_path, [1.0])
    assert "running" in page_of(Run.open(running.folder)).words
    code = "import os, sys, lapwing; lapwing.Run.create('gone', runs_dir=sys.argv[1]); os._exit(1)"
    subprocess.run([sys.executable, "-c", code, tmp_path / "lost"], check=False)
    assert "lost" in page_of(Run.open(find_run("latest", tmp_path / "lost"))).words
    empty = Run.create("empty", runs_dir=tmp_path)
    assert "Settings" not in page_of(empty).words
    for name in ("events.jsonl", "journal.md", "environment.json", "metrics.jsonl"):
        (empty.folder / name).unlink()
    page_of(empty)


@pytest.mark.slow
def test_pictures_of_the_run_are_on_the_page_once(tmp_path: Path):
    run = started(tmp_path, falling(10))
    run.add_picture(b"in the journal", "shown.png", "what it learned")
    run.put("pictures/beside.svg", b"<svg/>")
    run.put("pictures/notes.txt", b"no picture")
    with (run.folder / "journal.md").open("a") as journal:
        journal.write("\n![no](../secret.png)\n![no](pictures/missing.png)\n")
    (tmp_path / "secret.png").write_bytes(b"secret")
    addresses = page_of(run).addresses()
    contents = [base64.b64decode(address.partition(",")[2]) for address in addresses]
    own = [content for content in contents if not content.startswith(b"\x89PNG")]
    assert own == [b"in the journal", b"<svg/>"]


@pytest.mark.slow
def test_a_long_story_is_cut_and_says_so(tmp_path: Path):
    run = started(tmp_path, falling(10))
    for number in range(3):
        run.note("\n".join(f"note {number} line {line}" for line in range(900)))
    page = page_of(run)
    assert "701 earlier lines are in journal.md." in page.words
    assert "note 2 line 899" in page.words


def test_a_glance_sees_the_run_as_it_is(tmp_path: Path):
    losses = falling(100)
    losses[99] = math.nan
    run = started(tmp_path, losses)
    seen = glance(run)
    assert (seen.step, seen.best, seen.best_step) == (99, losses[:99].min(), losses[:99].argmin())
    assert math.isnan(seen.loss or 0.0)
    assert abs((seen.steps_per_second or 0.0) - 1.0) < 1e-3
    run.event("rollback", step=99, to=50)
    run.event("rollback", step=99, to=50)
    run.log({"step": 50, "loss": 1.0, "skipped": 1.0, "time": run.created + 5000.0})
    run.end("finished", "")
    with Run.reopen(run.folder) as again:
        pass
    seen = glance(again)
    assert (seen.rollbacks, seen.restarts, seen.skipped, round(seen.seconds)) == (2, 1, 1, 5000)
    empty = glance(Run.create("empty", runs_dir=tmp_path))
    assert (empty.step, empty.loss, empty.best, empty.steps_per_second) == (None, None, None, None)


def test_a_pause_does_not_count_as_slowness(tmp_path: Path):
    run = Run.create("adding", runs_dir=tmp_path)
    for window in range(10):
        pause = 3600.0 * (window > 5)
        run.log(*({"step": 100 * window + i, "loss": 1.0, "time": window + pause} for i in range(100)))
    assert glance(run).steps_per_second == 100.0
