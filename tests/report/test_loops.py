"""The picture of a loop is drawn from plain data, whatever found it."""

import subprocess
import sys

import pytest

from lapwing.report import loop_picture
from lapwing.report._loops import Item, _figure, _name, items_in

ROWS = [
    ("gru.py:4:31", "value", "forward loop", "once"),
    ("gru.py:5:32", "value", "forward loop", "forward loop, merged with 10:32, 6:32"),
    ("gru.py:6:32", "value", "forward loop", "forward loop, merged with 10:32, 5:32"),
    ("gru.py:10:32", "value", "forward loop", "forward loop, merged with 5:32, 6:32"),
    ("gru.py:6:32", "gradient of the weight", "backward loop", "once"),
    ("gru.py:6:32", "gradient of the operand", "backward loop", "backward loop and once"),
    ("gru.py:4:31", "gradient of the operand", "backward loop", "-"),
    ("gru.py:4:31", "computed again", "-", "backward loop"),
]


def story(rows=ROWS, memory=None) -> dict:
    keys = ("site", "role", "before", "after")
    before = {"in the forward loop": 4, "in the backward loop": 3, "outside": 0, "computed again": 0}
    after = {"in the forward loop": 1, "in the backward loop": 2, "outside": 2, "computed again": 1}
    return {
        "rows": [dict(zip(keys, row, strict=True)) for row in rows],
        "loop_products": {"before": before, "after": after},
        "memory": memory,
    }


def words(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_merged_rows_are_one_item_in_the_order_of_the_source():
    items = items_in(story()["rows"], "after", "forward loop")
    assert items == [Item(("4:31",), "value", moved="outside"), Item(("5:32", "6:32", "10:32"), "value")]
    assert len(items_in(story()["rows"], "before", "forward loop")) == 4


def test_a_product_stands_wherever_its_row_says_and_leaves_a_trace_where_it_was():
    rows = story()["rows"]
    assert items_in(rows, "after", "backward loop") == [
        Item(("4:31",), "gradient of the operand", moved="not needed"),
        Item(("6:32",), "gradient of the operand"),
        Item(("6:32",), "gradient of the weight", moved="outside"),
        Item(("4:31",), "computed again"),
    ]
    assert [item.role for item in items_in(rows, "after", "once")] == [
        "value", "gradient of the operand", "gradient of the weight",
    ]  # fmt: skip
    assert items_in(rows, "before", "once") == []


def test_the_panels_say_what_was_counted():
    said = words(_figure(story(memory={"before": 4_510_000, "after": 959_000})))
    assert "7 products in every step, 4.5 MB of temporary memory" in said
    assert "3 products in every step, 959.0 kB of temporary memory" in said
    assert "1 product in every step" in said
    assert "2 products once" in said
    assert "5:32 + 6:32 + 10:32" in said
    assert said[-1].startswith("Products are named by line:column in gru.py; a + b is one product")


def test_sites_of_several_files_carry_the_name_of_theirs():
    rows = [("/far/cell.py:4:31", "value", "once", "once"), ("/far/net.py:2:1", "value", "once", "once")]
    found = items_in(story(rows)["rows"], "before", "once")
    assert [item.sites for item in found] == [("cell.py:4:31",), ("net.py:2:1",)]


@pytest.mark.parametrize("site", ["", "unknown", "<string>:3", "a:b.py:7:1"])
def test_code_from_no_file_can_be_drawn(tmp_path, site):
    loop_picture(story([(site, "value", "forward loop", "once")]), tmp_path / "loop.png")
    assert (tmp_path / "loop.png").exists()


def test_long_names_are_cut_to_their_room():
    sites = ("cells.py:100:30", "101:30", "102:30", "103:30")
    assert _name(sites, 99) == "cells.py:100:30 + 101:30 + 102:30 + 103:30"
    assert _name(sites, 35) == "cells.py:100:30 + 101:30 + 2 more"
    assert _name(sites, 24) == "cells.py:100:30 + 3 more"
    assert _name(("a_very_long_name.py:100:30",), 10) == "…py:100:30"


def test_nothing_runs_over_the_edge_of_what_it_stands_in():
    rows = [
        (f"a_file_with_a_long_name.py:{line}:30", role, "backward loop", after)
        for line in (1001, 1002, 1003)
        for role in ("gradient of the operand", "gradient of the weight")
        for after in ["once" if line == 1003 else f"backward loop, merged with {2003 - line}:30, 9:9"]
    ]
    figure = _figure(story([*rows, ("b.py:1:1", "value", "forward loop", "once")]))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    width = figure.bbox.width
    assert all(box.x0 > 0 and box.x1 < width for box in boxes)
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.overlaps(b)]


def test_what_explain_returns_is_drawn_as_its_json(tmp_path):
    class Found:
        def to_json(self):
            return story()

    loop_picture(Found(), tmp_path / "a.png")
    loop_picture(story(), tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(ValueError, match="expected an explanation with a product to draw, found none"):
        loop_picture(story([]), tmp_path / "loop.png")


def test_drawing_needs_neither_pyplot_nor_jax(tmp_path):
    code = f"""
import sys
from lapwing.report import loop_picture
assert "matplotlib" not in sys.modules
loop_picture({story()!r}, {str(tmp_path / "loop.svg")!r})
assert "matplotlib.pyplot" not in sys.modules
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
