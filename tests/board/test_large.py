"""Long runs and many runs: what a person waits for. The bounds are generous, since other work may go on meanwhile."""

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.journal import Run

from .serving import serving, until

STEPS = 1_000_000
SPIKE = 777.0
HIGHEST = "Math.max(...(document.querySelector('.chart.loss')?.data?.[0].y ?? [0]))"
DRAWN = "document.querySelector('.chart.loss polyline, .chart.loss .scatterlayer path') !== null"


def long_run(folder: Path) -> Run:
    run = Run.create("adding", {"steps": STEPS}, runs_dir=folder)
    losses = np.exp(np.random.default_rng(0).normal(0, 0.3, STEPS) - 5 * np.arange(STEPS) / STEPS)
    losses[STEPS // 3] = SPIKE
    for part in np.array_split(np.arange(STEPS), 100):
        same = {
            name: np.full(len(part), value)
            for name, value in (("gradient_norm", 1.5), ("learning_rate", 0.1))
        }
        run.log_columns({"step": part, "loss": losses[part].astype(np.float32), **same})
    run.end("finished", "")
    return run


def seconds_until(page: Any, condition: str) -> float:
    start = time.perf_counter()
    until(lambda: page.evaluate(condition), seconds=60)
    return time.perf_counter() - start


@pytest.mark.slow
def test_a_million_steps_are_opened_in_a_moment(browser, tmp_path: Path):
    run = long_run(tmp_path)
    page = browser.new_page()
    with serving(tmp_path) as board:
        start = time.perf_counter()
        page.goto(f"{board.address}#/run/{run.name}")
        seconds_until(page, DRAWN)
        first = time.perf_counter() - start
        seconds_until(page, f"{HIGHEST} === {SPIKE}")
        whole = time.perf_counter() - start
        page.goto(board.address)
        page.get_by_role("link", name=run.name).wait_for()
        start = time.perf_counter()
        page.get_by_role("link", name=run.name).click()
        seconds_until(page, f"{HIGHEST} === {SPIKE}")
        again = time.perf_counter() - start
        assert board.shelf.get(run.name).digest.nbytes < 2_000_000
    page.close()
    print(
        f"drawn {first:.2f} s after the board was started, whole after {whole:.2f} s, again in {again:.2f} s"
    )
    assert first < 5
    assert whole < 20
    assert again < 3


WRITER = """
import sys, time
import numpy as np
from lapwing.journal import Run
runs = [Run.create("adding", {"steps": 100_000}, runs_dir=sys.argv[1]) for _ in range(50)]
for call in range(10_000):
    step = np.arange(20 * call, 20 * call + 20)
    for run in runs:
        run.log_columns({"step": step, "loss": 1 / (1 + step) + 0.01, "learning_rate": np.full(20, 0.1)})
    print(call, flush=True)
    time.sleep(0.2)
"""

GAPS = """() => new Promise((resolve) => {
  let last = performance.now(), worst = 0;
  const end = last + 5000;
  const look = (now) => {
    worst = Math.max(worst, now - last);
    last = now;
    if (now < end) requestAnimationFrame(look); else resolve(worst);
  };
  requestAnimationFrame(look);
})"""


@pytest.mark.slow
def test_fifty_live_runs_keep_the_page_responsive(browser, tmp_path: Path):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True)
    page = browser.new_page()
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        with serving(tmp_path) as board:
            page.goto(board.address)
            until(lambda: page.locator(".runs tbody tr").count() == 50)
            until(
                lambda: page.evaluate("window.Plotly !== undefined")
            )  # It is loaded once, which takes a moment.
            used = time.process_time()
            worst_ms = page.evaluate(GAPS)
            used = (time.process_time() - used) / 5
            name = page.locator("a.name").first.inner_text()
            start = time.perf_counter()
            board.get("run", run=name)
            answered = time.perf_counter() - start
            steps = [
                re.sub(r"\D", "", text) for text in page.locator(".runs td:nth-child(5)").all_inner_texts()
            ]
            assert all(int(step) > 0 for step in steps)
            memory = sum(kept.digest.nbytes for kept in board.shelf._kept.values())
    finally:
        writer.kill()
        writer.communicate()
        page.close()
    print(
        f"longest pause {worst_ms:.0f} ms, answered in {1000 * answered:.0f} ms, {used:.0%} of a core, {memory} bytes"
    )
    assert worst_ms < 1000
    assert answered < 1
    assert memory < 50_000_000
