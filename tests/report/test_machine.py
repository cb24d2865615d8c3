"""Drawings of machines: whether everything is in them, at the right place. How they look is judged by eye."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch, PathPatch

from lapwing import dmm
from lapwing.dmm import Machine
from lapwing.report import answers_picture, machine_picture
from lapwing.report._machine import DEAD, MAX_LINKS, NEGATIVE, POSITIVE
from lapwing.report._machine_layout import arrange

from ..dmm.strategies import cases


def patches(figure, kind):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, kind)]


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def small() -> Machine:
    m = Machine()
    m.neuron("one", dmm.const_1)
    m.neuron("norm", dmm.norm)
    m.neuron("output", dmm.output)
    m.link("norm.dict", "one.const_1", 2.0)
    m.link("output.dict-1", "norm.norm", -1.0, hard=True)
    m.link("output.dict-2", "norm.true", 0.5, dead=True)
    return m


def test_width_is_the_size_colour_the_sign_and_line_the_kind():
    drawn = patches(machine_picture(small()), PathPatch)
    links = {
        (to_hex(p.get_edgecolor(), keep_alpha=False), p.get_linestyle()): p.get_linewidth() for p in drawn
    }
    assert set(links) == {(POSITIVE, "-"), (NEGATIVE, "--"), (DEAD, ":")}
    widths = sorted(links.values())
    assert widths[0] < widths[1] < widths[2]
    assert widths[2] - widths[1] == pytest.approx(2 * (widths[1] - widths[0]))


def test_names_fields_and_weights_are_written():
    assert set(texts(machine_picture(small()))) == {
        "one",
        "norm",
        "output",
        "const_1",
        "dict",
        "true",
        "dict-1",
        "dict-2",
        "2",
        "-1",
        "0.5",
    }


@settings(max_examples=25, deadline=None)
@given(cases())
def test_boxes_do_not_overlap_and_every_link_ends_at_its_fields(case):
    links = [link for link in case.machine.links() if not link.passes_mix]
    linked = {name for link in links for name in (link.to, link.source)}
    layout = arrange({n: c for n, c in case.machine.columns().items() if n in linked}, links)
    columns: dict[float, list] = {}
    for box in layout.boxes.values():
        columns.setdefault(box.x, []).append(box)
    for boxes in columns.values():
        boxes.sort(key=lambda box: -box.y)
        assert all(a.y - a.height > b.y for a, b in pairwise(boxes))
    for link in links:
        route = layout.route(link)
        assert route[0] == layout.boxes[link.source].output_point(link.source_field)
        assert route[-1] == layout.boxes[link.to].input_point(link.to_field)


def test_a_long_link_keeps_clear_of_the_boxes_it_passes():
    m = dmm.readable_detector()
    layout = arrange(m.columns(), m.links())
    for link in m.links():
        inner = layout.route(link)[1:-1]
        for x, y in inner:
            assert not any(b.x <= x <= b.x + 1.6 and b.y - b.height < y < b.y for b in layout.boxes.values())
    assert any(len(layout.route(link)) > 2 for link in m.links())


def test_of_very_many_links_the_strongest_are_drawn():
    m = dmm.superfluid_start()
    figure = machine_picture(m)
    assert len(patches(figure, PathPatch)) == MAX_LINKS
    assert f"the {MAX_LINKS} strongest of 2829 links" in texts(figure)
    assert len(patches(figure, FancyBboxPatch)) <= 26


def test_an_empty_machine_is_an_empty_picture():
    assert texts(machine_picture(Machine())) == []


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_picture_is_written(tmp_path, suffix, start):
    file = tmp_path / f"machine.{suffix}"
    machine_picture(small(), file)
    assert file.read_bytes().startswith(start)


def test_answers_are_plotted_with_those_expected(tmp_path):
    file = tmp_path / "answers.png"
    figure = answers_picture(
        {"dict-1": [0.0, 1.0], "dict-2": [2.0, 3.0]}, {"dict-1": [0.0, 2.0], "dict-2": [2.0, 2.0]}, file
    )
    lines = [[list(line.get_ydata()) for line in axes.lines] for axes in figure.axes]
    assert lines == [[[0.0, 2.0], [0.0, 1.0]], [[2.0, 2.0], [2.0, 3.0]]]
    assert [axes.get_ylabel() for axes in figure.axes] == ["dict-1", "dict-2"]
    assert file.read_bytes().startswith(b"\x89PNG")
