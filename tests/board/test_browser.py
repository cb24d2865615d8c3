"""The page in a real browser: against a live training, and against runs that try to do harm."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.journal import COMMANDS, Run
from tests.training import start_training

from .serving import falling, serving, started, timed_laps, until

WAIT_MS = 60_000
# It waits for its data, and so leaves the cores to the browser.
PACED = """import itertools, time
import jax.numpy as jnp, numpy as np
from lapwing.task import Task

def batches():
    for number in itertools.count():
        time.sleep(0.002)
        yield np.random.default_rng(number).normal(size=(4, 3)).astype(np.float32)

def build():
    return Task(lambda key: jnp.zeros(3), batches, lambda w, x: (jnp.mean((x @ (w - 1)) ** 2), {}))
"""


@pytest.fixture
def page(browser) -> Iterator[Any]:
    """A page that fails the test when a script fails, or does what the policy forbids."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    troubles = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if is_trouble(message) else None)
    page.on("dialog", lambda dialog: troubles.append(dialog.message))
    yield page
    context.close()
    assert troubles == []


def is_trouble(message: Any) -> bool:
    """What the board says that it does not have, or that it has ended, a browser calls an error too."""
    return message.type == "error" and not message.text.startswith("Failed to load resource")


def holds(page: Any, condition: str) -> None:
    """Waits for a condition. The browser's own way of waiting is forbidden by the policy of the page."""
    until(lambda: page.evaluate(condition))


def shown(page: Any, text: str) -> Any:
    found = page.get_by_text(text).first
    found.wait_for()
    return found


def points(page: Any, chart: str = "loss") -> int:
    """How many points the first line of a chart has."""
    return page.evaluate(f"document.querySelector('.chart.{chart}')?.data?.[0].x.length ?? 0")


def test_a_live_run_is_seen_and_steered(page, tmp_path: Path):
    (tmp_path / "paced.py").write_text(PACED)
    words = ["--steps", "1000000", "--learning-rate", "0.005", "--log-every", "50", "--laps-every", "0"]
    training, run = start_training(tmp_path, "paced.py", *words, "--no-check", "--quiet", after=100)
    try:
        with serving(tmp_path / "runs") as board:
            page.goto(board.address)
            row = page.locator("tr", has=page.get_by_role("link", name=run.name))
            row.get_by_text("running").wait_for()
            page.get_by_role("link", name=run.name).click()
            holds(page, "document.querySelector('.chart.loss .scatterlayer path')")
            before = points(page)
            holds(page, f"document.querySelector('.chart.loss').data[0].x.at(-1) > {before + 200}")

            rate = page.get_by_label("learning_rate", exact=True)
            holds(page, "document.querySelector('[aria-label=learning_rate]').placeholder === '0.005'")
            rate.fill("0.001")
            rate.press("Enter")
            page.locator(".sent .applied", has_text="applied: learning_rate 0.005 → 0.001").wait_for()
            holds(page, "document.querySelector('[aria-label=learning_rate]').placeholder === '0.001'")
            holds(page, "document.querySelector('.chart.learning_rate').layout.shapes.length > 0")
            assert any(event.get("arguments") == {"learning_rate": 0.001} for event in run.events())

            page.get_by_label("clip", exact=True).fill("-1")
            page.get_by_label("clip", exact=True).press("Enter")
            page.locator(".sent .refused", has_text="refused: clip should be a positive number").wait_for()

            page.get_by_role("button", name="Pause").click()
            page.locator("h1 .paused").wait_for()
            page.get_by_role("button", name="Checkpoint").click()
            page.locator(".sent .applied", has_text="checkpoint").wait_for()
            page.get_by_role("button", name="Resume").click()
            page.locator("h1 .running").wait_for()
            back = page.get_by_role("button", name="Rollback")
            back.click()
            back.click()
            page.locator(".sent .applied", has_text="rollback best").wait_for()
            page.get_by_label("note text").fill("calmer <b>now</b>")
            page.get_by_label("note text").press("Enter")
            page.locator(".journal", has_text="note: calmer <b>now</b>").wait_for()

            stop = page.get_by_role("button", name="Stop")
            stop.click()
            assert training.poll() is None, "one click must not stop a run"
            stop.click()
            page.locator("h1 .stopped").wait_for()
            shown(page, "takes no commands except notes")
            assert training.wait(30) == 130
    finally:
        training.kill()
        training.communicate()


@pytest.mark.slow
def test_the_panel_has_the_commands_of_the_table_and_the_controls_of_the_run(page, tmp_path: Path):
    run = started(tmp_path, falling(30))
    run.announce_controls({"learning_rate": 0.1, "clip": float("inf"), "lasso": 0.0})
    shown_in = {
        "running": {"Pause", "Checkpoint", "Rollback", "Laps", "Stop", "Note"},
        "paused": {"Resume", "Checkpoint", "Rollback", "Laps", "Stop", "Note"},
        "stopped": {"Note"},
    }
    with serving(tmp_path) as board:
        page.goto(f"{board.address}#/run/{run.name}")
        for state, names in shown_in.items():
            if state == "paused":
                run.event("paused")
            elif state == "stopped":
                run.end("stopped", "")
            page.locator(f"h1 .{state}").wait_for()
            buttons = page.locator(".steering button:visible")
            expected = names | (set() if state == "stopped" else {"Set"})
            until(lambda: {*buttons.all_inner_texts()} == expected)  # noqa: B023
        labels = page.locator(".steering label").all_text_contents()
        assert [label.strip() for label in labels] == ["learning rate", "clip", "lasso"]
        assert page.get_by_label("clip", exact=True).get_attribute("placeholder") == "Infinity"
        assert {spec.capitalize() for spec in COMMANDS} == {"Set", "Pause", "Resume", *shown_in["running"]}


HARM = [
    "<script>window.harmed=1<!--",
    "<img src=x onerror=window.harmed=1>",
    "\"'><svg onload=window.harmed=1>",
    "%{x} {{1}} ${window.harmed=1} <b>bold<",
]


def harmful_run(folder: Path, name: str) -> Run:
    run = Run.create(name, {name: name, "nested": {"deep": name}}, runs_dir=folder, device=name)
    for step in range(80):
        run.log({"step": step, "loss": 1 / (1 + step), name: step, "learning_rate": 0.1})
    run.event("rollback", name, step=70, to=60, reason=name)
    run.event("applied", name, command="set", step=40, arguments={name: name}, outcome=name, id=name)
    run.note(name)
    run.add_picture(b"x", f"{name}.png", name)
    run.end("failed", name)
    os.rename(run.folder, folder / name)
    return Run.open(folder / name)


def test_whatever_a_run_says_is_shown_as_text(page, tmp_path: Path):
    for name in HARM:
        harmful_run(tmp_path, name)
    (tmp_path / "<i>grid").mkdir()
    (tmp_path / "<i>grid" / "sweep.json").write_text('{"<b>x": "<script>window.harmed=1"}')
    row = {"name": HARM[1], "values": {HARM[1]: HARM[1]}, "mean": HARM[1]}
    summary = {
        "rows": [row],
        "metric": HARM[1],
        "failed": [{"point": HARM[1], "error": HARM[1]}],
        "best": HARM[1],
    }
    (tmp_path / "<i>grid" / "summary.json").write_text(json.dumps(summary))
    harmful_run(tmp_path / "<i>grid", "<u>point")
    harmful_run(tmp_path / "<i>grid", "<img onerror=window.harmed=1>")
    page.add_init_script(
        "document.addEventListener('securitypolicyviolation', (event) => console.error(event.violatedDirective))"
    )
    with serving(tmp_path) as board:
        page.goto(board.address)
        for name in HARM:
            link = page.get_by_role("link", name=name, exact=True).first
            link.click()
            holds(page, "document.querySelector('.chart.other .scatterlayer path')")
            assert page.locator(".chart.other").get_attribute("data-chart") == name
            assert page.locator("h1").inner_text().startswith(name)
            for part in (".journal", ".outcome", ".pairs >> nth=0"):
                page.locator(part).filter(has_text=name).wait_for()
            page.get_by_role("link", name="Lapwing board").click()
        for place in range(3):
            page.get_by_role("checkbox", name="Select").nth(place).check()
        page.get_by_role("button", name="Compare 3").click()
        holds(page, "document.querySelector('.chart.loss .scatterlayer path')")
        page.locator(".verdict").first.wait_for()
        metric = next(
            each for each in page.get_by_label("Metric").locator("option").all_text_contents() if "<" in each
        )
        page.get_by_label("Metric").select_option(metric)
        until(lambda: page.locator(".chart.loss .ytitle").text_content() == metric)
        page.goto(f"{board.address}#/sweep/%3Ci%3Egrid")
        shown(page, "<script>window.harmed=1")
        shown(page, f"best is {HARM[1]}")
        assert page.locator("h1").inner_text() == "<i>grid"
        holds(
            page, "document.querySelector('.chart.heat .heatmaplayer image, .chart.heat .scatterlayer path')"
        )
        assert "<img onerror=window.harmed=1>" in page.locator(".parallel .axis-name").all_text_contents()
        for name in ("nobody<img src=x onerror=window.harmed=1>", "%zz"):
            page.evaluate("name => { location.hash = `#/run/${name}` }", name)
            page.wait_for_timeout(100)
        assert page.evaluate("window.harmed") is None
        assert page.locator("main img[src=x], main script, main svg[onload]").count() == 0


@pytest.mark.slow
def test_the_first_page_of_a_newcomer(page, tmp_path: Path):
    with serving(tmp_path / "runs") as board:
        page.goto(board.address)
        shown(page, "No runs yet")
        assert "lapwing train adding" in page.locator(".empty").inner_text()
        run = started(tmp_path / "runs", [1.0])
        page.get_by_role("link", name=run.name).wait_for()
        page.locator(".empty").wait_for(state="hidden")


@pytest.mark.slow
def test_filter_sort_select_and_compare_with_the_keyboard(page, tmp_path: Path):
    low, high = started(tmp_path, [3.0, 2.0, 1.0]), started(tmp_path, [3.0, 2.0, 1.5], clip=2)
    other = Run.create("thinker", runs_dir=tmp_path)
    with serving(tmp_path) as board:
        page.goto(board.address)
        links = page.locator("tbody a.name")
        holds(page, "document.querySelectorAll('tbody a.name').length === 3")
        until(lambda: links.first.inner_text() == other.name)
        page.keyboard.press("/")
        page.keyboard.type("adding")
        holds(page, "document.querySelectorAll('tbody a.name').length === 2")
        page.keyboard.press("Escape")
        shown(page, "1.5")
        for expected in ([low, high], [high, low]):
            page.get_by_role("button", name=re.compile("^loss")).click()
            names = [run.name for run in expected]
            until(lambda names=names: links.all_text_contents() == names)
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.keyboard.press("j")
        page.keyboard.press("x")
        page.keyboard.press("c")
        shown(page, "2 runs compared")
        shown(page, "step 2")
        rows = page.locator("table", has_text="what differs")
        until(lambda: re.search(r"clip\s+2", rows.inner_text()))
        holds(page, "document.querySelector('.chart.loss').data?.length >= 2")
        page.keyboard.press("t")
        holds(page, "document.querySelector('.chart.loss').layout.xaxis.title.text.startsWith('seconds')")
        page.keyboard.press("l")
        holds(page, "document.querySelector('.chart.loss').layout.yaxis.type === 'linear'")
        page.keyboard.press("u")
        holds(page, "document.querySelectorAll('tbody a.name').length === 2")


@pytest.mark.slow
def test_a_phone_needs_no_scrolling_sideways(browser, tmp_path: Path):
    run = started(tmp_path, falling(300))
    second = started(tmp_path, falling(300, 1))
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    names = "/".join((run.name, second.name))
    with serving(tmp_path) as board:
        for address in ("#/", f"#/run/{run.name}", f"#/compare/{names}"):
            page.goto(board.address + address)
            shown(page, run.name)
            if address != "#/":
                holds(page, "document.querySelector('.chart.loss .scatterlayer path')")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
        for scheme, background in {"light": "rgb(246, 248, 250)", "dark": "rgb(13, 17, 23)"}.items():
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == background
    context.close()


@pytest.mark.slow
def test_a_spike_among_many_steps_is_drawn_and_so_are_the_phases(page, tmp_path: Path):
    losses = falling(50_000)
    losses[31_415] = 777.0
    run = started(tmp_path, losses)
    run.save_laps(timed_laps())
    with serving(tmp_path) as board:
        page.goto(f"{board.address}#/run/{run.name}")
        holds(page, "Math.max(...(document.querySelector('.chart.loss')?.data?.[0].y ?? [0])) === 777")
        assert points(page) < 5000
        at = "(data => data.x[data.y.indexOf(777)])(document.querySelector('.chart.loss').data[0])"
        assert page.evaluate(at) == 31_415
        holds(page, "document.querySelector('.chart.phases .barlayer path')")
        names = page.evaluate("document.querySelector('.chart.phases').data.map((bars) => bars.name)")
        assert names == ["data", "forward", "unaccounted"]


@pytest.mark.slow
def test_until_plotly_is_there_a_quick_chart_has_the_line_and_its_axes(page, tmp_path: Path):
    with Run.create("adding", {"steps": 3000}, runs_dir=tmp_path) as run:
        run.log_columns({"step": np.arange(3000), "loss": 10.0 ** (1 - np.arange(3000) / 1000)})
        run.end("finished", "")
    held: list[Any] = []
    page.route("**/plotly.min.js", lambda route: held.append(route))
    with serving(tmp_path) as board:
        page.goto(f"{board.address}#/run/{run.name}", wait_until="commit")  # It may not load without plotly.
        page.locator(".quick polyline").wait_for()
        named = page.locator(".quick text").all_text_contents()
        assert {"0.1", "1", "10"} <= {*named}  # A log axis, as plotly's will be.
        assert {"0", "1\u202f000", "2\u202f000"} <= {*named}
        points = page.locator(".quick polyline").get_attribute("points").split()
        heights = [float(point.split(",")[1]) for point in points]
        assert heights == sorted(heights)
        until(lambda: held)
        held[0].continue_()
        page.locator(".chart.loss .scatterlayer").wait_for()
        until(lambda: page.locator(".quick").count() == 0)
