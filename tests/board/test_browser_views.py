"""What a person chooses in the page: columns, charts, steps of what was logged, axes of a sweep."""

import json
from pathlib import Path

import numpy as np
import pytest

from lapwing.journal import Histogram, Image, Table

from .serving import falling, serving, started
from .test_browser import holds, page, shown, until

__all__ = ["page"]  # The fixture.


def titles(page) -> list[str]:
    return [text.strip() for text in page.locator(".runs thead button").all_inner_texts()]


@pytest.mark.slow
def test_columns_are_chosen_remembered_and_shared(page, tmp_path: Path):
    for width in (16, 8):
        run = started(tmp_path, [3.0, 1.0, 2.0], model={"width": width})
        run.log({"step": 3, "loss": 2.0, "eval_accuracy": width / 100})
    started(tmp_path, [1.0])
    run.tag("narrow")
    with serving(tmp_path) as board:
        page.goto(board.address)
        until(lambda: "eval accuracy" in titles(page))  # Evaluations are beside training metrics by default.
        page.get_by_role("button", name="Choose columns").click()
        page.get_by_label("model.width").check()
        page.locator(".choice", has_text="gradient_norm").get_by_label("highest").check()
        page.get_by_label("steps/s").uncheck()
        page.keyboard.press("Escape")
        chosen = titles(page)
        assert {"model.width", "highest gradient norm"} <= {*chosen}
        assert "steps/s" not in chosen
        page.get_by_role("button", name="model.width").click()
        rows = "[...document.querySelectorAll('.runs tbody tr')]"
        widths = f"{rows}.map((row) => row.innerText.match(/\\t(8|16)(\\t|$)/)?.[1])"
        until(lambda: page.evaluate(widths)[:2] == ["16", "8"])
        page.get_by_label("Filter the runs").fill("narrow")
        until(lambda: page.evaluate(widths) == ["8"])
        address = page.evaluate("location.href")
        page.goto(board.address)  # The browser remembers it.
        until(lambda: titles(page) == chosen)
        stranger = page.context.browser.new_context().new_page()
        stranger.goto(address)  # And the address has all of it.
        until(lambda: titles(stranger) == chosen)
        assert stranger.get_by_label("Filter the runs").input_value() == "narrow"
        until(lambda: stranger.evaluate(widths) == ["8"])
        stranger.context.close()
        page.get_by_role("button", name="Choose columns").click()
        page.get_by_role("button", name="Default").click()
        until(lambda: "steps/s" in titles(page) and "model.width" not in titles(page))


@pytest.mark.slow
def test_a_chart_for_each_metric_with_one_zoom(page, tmp_path: Path):
    run = started(tmp_path, falling(200))
    for step in range(200, 300):
        more = {"eval_loss": 0.5, "eval_accuracy": 0.8} if step % 10 == 0 else {}
        run.log({"step": step, "loss": 0.4, "accuracy": step / 300, "tokens": 5.0, "skipped": 0, **more})
    charts = "[...document.querySelectorAll('.panels .chart')].filter((chart) => chart.data)"
    names = f"{charts}.map((chart) => chart.dataset.chart)"
    with serving(tmp_path) as board:
        page.goto(f"{board.address}#/run/{run.name}")
        expected = ["loss", "gradient_norm", "learning_rate", "accuracy", "tokens"]
        until(lambda: page.evaluate(names) == expected)
        lines = "(name) => document.querySelector(`[data-chart=${name}]`).data.map((trace) => trace.name)"
        assert {"loss", "eval_loss"} <= {*page.evaluate(lines, "loss")}
        assert {"accuracy", "eval_accuracy"} <= {*page.evaluate(lines, "accuracy")}

        page.evaluate(f"Plotly.relayout({charts}[1], {{'xaxis.range[0]': 50, 'xaxis.range[1]': 90}})")
        ranges = f"{charts}.map((chart) => chart.layout.xaxis.range.map(Math.round).join())"
        until(lambda: {*page.evaluate(ranges)} == {"50,90"})
        page.evaluate(f"Plotly.relayout({charts}[0], {{'xaxis.autorange': true}})")
        until(lambda: "50,90" not in page.evaluate(ranges))

        accuracy = page.locator("figure", has_text="accuracy").last
        accuracy.get_by_role("button", name="linear").click()
        holds(page, "document.querySelector('[data-chart=accuracy]').layout.yaxis.type === 'log'")
        page.get_by_role("button", name="Choose charts").click()
        page.get_by_label("tokens").uncheck()
        page.get_by_label("skipped").check()
        page.keyboard.press("Escape")
        until(lambda: page.evaluate(names) == [*expected[:-1], "skipped"])
        page.reload()
        until(lambda: page.evaluate(names) == [*expected[:-1], "skipped"])


@pytest.mark.slow
def test_what_was_logged_and_the_machine_are_tabs_of_their_own(page, tmp_path: Path):
    run = started(tmp_path, falling(30))

    def log(step: int) -> None:
        run.log(step=step, sample=f"<img src=x onerror=window.harmed=1> {step}")
        run.log(
            step=step, noise=Image(np.full((4, 4), step / 30)), spread=Histogram([1.0, 2.0, step], bins=3)
        )
        run.log(step=step, worst=Table([{"<b>word": f"<i>{step}", "score": 0.5}]))

    log(10)
    log(20)
    sample = {"cpu_percent": 120.0, "memory_bytes": 3e9, "gpu0_percent": 90}
    run.put(
        "system.jsonl",
        "".join(json.dumps({"time": run.created + at, **sample}) + "\n" for at in (1, 11)),
    )
    with serving(tmp_path) as board:
        page.goto(f"{board.address}#/run/{run.name}")
        page.get_by_role("tab", name="Logged (8)").click()
        shown(page, "onerror=window.harmed=1> 20")
        holds(page, "document.querySelector('.logged-image img')?.naturalWidth === 4")
        holds(page, "document.querySelector('.chart.histogram .barlayer path')")
        page.locator(".logged-table").get_by_text("<i>20").wait_for()
        assert page.locator(".logged-table").inner_text().split() == ["<b>word", "score", "<i>20", "0.5"]
        page.get_by_label("Step").focus()
        page.keyboard.press("ArrowLeft")
        shown(page, "onerror=window.harmed=1> 10")
        page.locator(".logged-table").get_by_text("<i>10").wait_for()
        assert page.locator(".logged-table").get_by_text("<i>10").count() == 1
        log(29)  # A slider that was moved stays; one at its end follows the run.
        page.get_by_role("tab", name="Logged (12)").wait_for()
        shown(page, "onerror=window.harmed=1> 10")
        page.get_by_role("button", name="Newest").click()
        shown(page, "onerror=window.harmed=1> 29")
        assert page.evaluate("window.harmed") is None

        page.get_by_role("tab", name="Logged").press("ArrowRight")
        holds(page, "document.querySelectorAll('.chart.system .scatterlayer path.js-line').length >= 3")
        memory = "document.querySelectorAll('.chart.system')[1].data[0]"
        assert page.evaluate(f"[{memory}.x.slice(0, 2), {memory}.y.slice(0, 2)]") == [[1, 11], [3, 3]]
        assert "tab=system" in page.url


@pytest.mark.slow
def test_a_sweep_is_drawn_and_its_drawings_open_runs(page, tmp_path: Path):
    folder = tmp_path / "grid"
    folder.mkdir()
    grid = ["model.width=8,16", "learning_rate=0.1,0.2"]
    (folder / "sweep.json").write_text(json.dumps({"format": 1, "experiment": "adding", "grid": grid}))
    for width in (8, 16):
        for rate in (0.1, 0.2):
            run = started(folder, [3.0, width * rate], learning_rate=rate, model={"width": width})
            run.log({"step": 2, "eval_loss": width + rate})
    with serving(tmp_path) as board:
        page.goto(f"{board.address}#/sweep/grid")
        holds(page, "document.querySelectorAll('.parallel a').length === 4")
        axes = page.locator(".parallel .axis-name").all_text_contents()
        assert axes == ["model.width", "learning_rate", "latest eval_loss"]
        page.locator("select[aria-label=measure]").select_option("min:loss")
        cells = "document.querySelector('.chart.heat').data?.[0].text?.flat().map(Number)"
        until(lambda: sorted(page.evaluate(cells)) == [0.8, 1.6, 1.6, 3])
        page.locator("select[aria-label=across]").select_option("learning_rate")
        until(lambda: page.evaluate("document.querySelector('.chart.heat').data[0].x") == ["0.1", "0.2"])
        for scheme, ink in {"dark": "rgb(230, 237, 243)", "light": "rgb(31, 41, 51)"}.items():
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("getComputedStyle(document.querySelector('.axis-name')).fill") == ink
        assert page.locator("main img").count() == 0
        assert {"measure=min%3Aloss", "across=learning_rate"} <= {*page.url.partition("?")[2].split("&")}

        page.locator(".chart.heat").scroll_into_view_if_needed()
        box = page.locator(".chart.heat .heatmaplayer").bounding_box()
        page.mouse.click(box["x"] + 10, box["y"] + box["height"] - 10)  # The smallest width and rate.
        page.locator("h1 .running").wait_for()
        until(lambda: page.locator(".pairs").first.inner_text().count("\n") > 2)
        shown(page, "model.width")
        page.go_back()
        line = page.locator(".parallel a").first
        line.wait_for(state="attached")
        line.focus()
        page.keyboard.press("Enter")
        page.locator("h1 .running").wait_for()


@pytest.mark.slow
def test_a_sweep_that_is_no_full_grid_is_drawn_as_dots(page, tmp_path: Path):
    """A search over ranges, and a sweep over one setting, which is drawn with its number upwards."""
    for name, settings in {
        "search": [
            {"learning_rate": rate, "width": width} for rate, width in ((0.1, 8), (0.02, 16), (0.3, 4))
        ],
        "one": [{"width": 8}, {"width": 16}],
        "gaps": [
            {"width": 8, "learning_rate": 0.1},
            {"width": 8, "learning_rate": 0.2},
            {"width": 4, "learning_rate": 0.1},
        ],
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "sweep.json").write_text(
            json.dumps({"format": 1, "experiment": "adding", "grid": ["width=4..16"]})
        )
        for number, each in enumerate(settings):
            started(folder, [3.0, 1.0 + number], **each)
    chart = "document.querySelector('.chart.heat')"
    with serving(tmp_path) as board:
        page.goto(f"{board.address}#/sweep/search")
        holds(page, f"{chart}?.data?.[0].type === 'scatter'")
        page.goto(f"{board.address}#/sweep/one")
        holds(page, f"JSON.stringify({chart}?.data?.[0].y.toSorted()) === '[1,2]'")
        assert not page.locator("select[aria-label=up]").is_visible()
        page.goto(f"{board.address}#/sweep/gaps")
        holds(page, f"{chart}?.data?.[0].type === 'heatmap'")
        assert sorted(page.evaluate(f"{chart}.data[0].text.flat()")) == ["", "1", "2", "3"]
