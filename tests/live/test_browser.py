"""A machine in a real browser: played, edited, undone and saved as a person would; names that try to do harm."""

from pathlib import Path

import pytest

from lapwing import dmm
from lapwing.board import Tokens
from lapwing.live import replay
from tests.board.serving import until
from tests.board.test_browser import holds, page

from .serving import Live, live

__all__ = ["page"]  # The fixture.
NORM = ("norm.dict", "accum.dict")


def pick(page, to: str, source: str) -> None:
    page.get_by_label("Link", exact=True).select_option(label=f"{to} ← {source}")


def open_at_cycle(page, served: Live, cycle: int) -> None:
    page.goto(served.board.address)
    holds(page, "document.querySelectorAll('.wire').length === 11")
    for _ in range(cycle):
        page.get_by_role("button", name="Step").click()
    until(lambda: page.locator("#cycle").inner_text() == str(cycle))


def test_a_machine_is_edited_while_it_runs(page, tmp_path: Path):
    with live(tmp_path) as served:
        page.goto(served.board.address)
        holds(page, "document.querySelectorAll('.wire').length === 11")
        page.get_by_role("button", name="Play").click()
        until(lambda: served.cycle > 3)
        holds(page, "document.body.classList.contains('playing')")

        pick(page, *NORM)
        page.get_by_label("Weight", exact=True).fill("2.5")
        page.get_by_label("Weight", exact=True).press("Enter")
        until(lambda: served.weights[NORM] == 2.5)
        holds(page, "[...document.querySelectorAll('.weight')].some((label) => label.textContent === '2.5')")

        page.get_by_label("From", exact=True).select_option("input.char")
        page.get_by_label("To", exact=True).select_option("norm.dict")
        page.get_by_label("Weight of the new link").fill("-0.5")
        page.get_by_role("button", name="Add").click()
        holds(page, "document.querySelectorAll('.wire').length === 12")
        assert served.weights["norm.dict", "input.char"] == -0.5
        # What was added is chosen.
        holds(
            page,
            "document.querySelector('#links select').selectedOptions[0].text === 'norm.dict ← input.char'",
        )

        page.get_by_role("button", name="Add").click()
        page.get_by_text("is there already; set its weight instead").wait_for()
        page.get_by_role("button", name="Remove").click()
        holds(page, "document.querySelectorAll('.wire').length === 11")
        for _ in range(2):
            page.get_by_role("button", name="Undo").click()
            until(lambda: page.locator("#trouble").inner_text() == "")
        until(lambda: ("norm.dict", "input.char") not in served.weights)
        page.get_by_role("button", name="Redo").click()
        holds(page, "document.querySelectorAll('.wire').length === 12")

        page.get_by_label("Text", exact=True).fill("zz")
        page.get_by_role("button", name="Append").click()
        until(lambda: page.locator("#after").inner_text().endswith("zz"))
        page.get_by_role("button", name="Pause").click()
        holds(page, "document.querySelectorAll('#edits li').length === 7")
        # It is in step with the machine, to the number.
        until(lambda: page.locator("#cycle").inner_text() == str(served.cycle))
        assert page.evaluate("document.querySelectorAll('#plot polyline').length") == 2

        page.get_by_role("button", name="Save").click()
        page.get_by_role("button", name="Overwrite?").wait_for()
        assert dmm.Machine.load(served.file).links() == dmm.duplicate_detector().links()
        page.get_by_role("button", name="Overwrite?").click()
        page.get_by_text("Saved as machine.json.").wait_for()
        with served.player.held() as session:
            outputs, links = session.outputs, session.machine.links()
        assert dmm.Machine.load(served.file).links() == links
    again = replay(tmp_path / "machine.live.jsonl")
    assert again.session.outputs == outputs


@pytest.mark.slow
def test_a_drag_of_the_slider_is_one_edit_to_undo(page, tmp_path: Path):
    with live(tmp_path) as served:
        open_at_cycle(page, served, 2)
        pick(page, *NORM)
        box = page.get_by_label("Weight, as a slider").bounding_box()
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.75, y)
        page.mouse.down()
        for part in (0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1):
            page.mouse.move(box["x"] + box["width"] * part, y)
        page.mouse.up()
        until(lambda: served.weights[NORM] < -1)
        holds(page, "document.querySelectorAll('#edits li').length > 1")
        page.get_by_role("button", name="Undo").click()
        until(lambda: served.weights[NORM] == 1.0)
        holds(page, "document.querySelector('#undo').disabled")


@pytest.mark.slow
def test_a_link_is_picked_in_the_drawing(page, tmp_path: Path):
    with live(tmp_path) as served:
        open_at_cycle(page, served, 1)
        # In the middle of the curve; the middle of its bounding box may be beside it.
        place = page.evaluate("""(() => {
          const wires = [...document.querySelectorAll('.wire')];
          const wire = wires.find((each) => each.textContent.includes('input.timer ←'));
          const path = wire.querySelector('.shown');
          const middle = path.getPointAtLength(path.getTotalLength() / 2).matrixTransform(path.getScreenCTM());
          return [middle.x, middle.y];
        })()""")
        page.mouse.click(*place)
        holds(
            page,
            "document.querySelector('#links select').selectedOptions[0].text === 'input.timer ← timer.timer'",
        )
        page.get_by_text("1 flows; fixed in training").wait_for()
        rows = "[...document.querySelectorAll('#values tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
        assert dict(page.evaluate(rows))["input"] == "t 1"
        holds(page, "document.querySelectorAll('.wire.chosen').length === 1")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_page(page, tmp_path: Path, width: int):
    page.set_viewport_size({"width": width, "height": 844})
    with live(tmp_path) as served:
        open_at_cycle(page, served, 1)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # The drawing is scrolled on its own, and can be read.
        assert page.evaluate("document.querySelector('.box .value').getBoundingClientRect().height") > 7


@pytest.mark.slow
def test_somebody_with_a_token_to_watch_has_no_controls(page, tmp_path: Path):
    tokens = Tokens("a-token-to-steer-with", "a-token-to-watch-with")
    with live(tmp_path, tokens=tokens) as served:
        page.goto(f"{served.board.address}#token={tokens.view}")
        page.get_by_text("machine.json (to watch)").wait_for()
        served.player.step()
        until(lambda: page.locator("#cycle").inner_text() == "1")
        holds(
            page,
            "[...document.querySelectorAll('main :is(button, input, select)')].every((each) => each.disabled)",
        )


def test_whatever_a_machine_is_called_is_shown_as_text(page, tmp_path: Path):
    evil = "<img src=x onerror=alert(1)>"
    machine = dmm.Machine()
    machine.neuron(evil, dmm.accum)
    machine.neuron("output", dmm.output)
    machine.initial(f"{evil}.dict", {"<script>alert(2)</script>": 1.0})
    machine.link(f"{evil}.dict-1", f"{evil}.dict", 1.0)
    machine.link("output.dict-1", f"{evil}.dict", 1.0)
    with live(tmp_path, machine) as served:
        page.goto(served.board.address)
        holds(page, "document.querySelectorAll('.wire').length === 2")
        page.get_by_role("button", name="Step").click()
        holds(page, f"[...document.querySelectorAll('.name')].some((each) => each.textContent === {evil!r})")
        assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
