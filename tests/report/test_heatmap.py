import io

import numpy as np
from matplotlib.image import imread

from lapwing.report import heat_map

ROWS, COLUMNS = ("latents", ["4", "8"]), ("steps", ["1", "2", "3"])


def pixels(values, **options) -> np.ndarray:
    drawn = heat_map(values, rows=ROWS, columns=COLUMNS, label="exact match", **options)
    return imread(io.BytesIO(drawn.light))


def test_the_same_numbers_are_the_same_picture_and_others_another():
    first = pixels([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    assert np.array_equal(first, pixels([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]))
    assert not np.array_equal(first, pixels([[0.6, 0.2, 0.3], [0.4, 0.5, 0.1]]))


def test_colours_follow_the_values():
    """From dark to bright; the largest patch of a colour is a cell without its number."""
    shown = pixels([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], limits=(0.0, 1.0))
    height, width, _ = shown.shape
    upper = shown[height // 4, width // 4 : width // 2, :3]
    lower = shown[int(0.7 * height), width // 4 : width // 2, :3]
    assert np.median(upper.sum(1)) > np.median(lower.sum(1)) + 0.5


def test_a_cell_without_a_value_stays_empty_and_all_equal_values_are_drawn():
    assert pixels([[0.1, None, 0.3], [0.4, 0.5, None]], notes=[["a", "", ""]] * 2).size
    assert pixels([[0.5] * 3] * 2).size


def test_it_is_a_picture_for_light_and_dark_pages():
    drawn = heat_map([[1.0]], rows=("a", ["1"]), columns=("", [""]), label="loss", title="one")
    assert (drawn.name, drawn.caption) == ("heatmap.png", "loss by a")
    assert drawn.light != drawn.dark
