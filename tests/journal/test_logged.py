"""Texts, images, histograms, tables and figures in a run folder."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

import lapwing as lw
from lapwing.core import new_figure
from lapwing.journal import JournalError, Run, RunWriter, _media
from lapwing.journal._png import png


@pytest.fixture
def run(tmp_path: Path):
    with Run.create("a", runs_dir=tmp_path) as run:
        yield run


def only(run: RunWriter) -> dict:
    (entry,) = Run.open(run.folder).logged()
    return entry


def decoded(content: bytes) -> np.ndarray:
    """By another program's reader of PNG."""
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(content)))


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 1), (6, 4, 3), (3, 9, 4)])
def test_another_reader_sees_the_same_pixels(shape: tuple[int, int, int]):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    np.testing.assert_array_equal(decoded(png(pixels)).reshape(shape), pixels)


def test_numbers_are_metrics_and_everything_else_is_logged_beside_them(run: RunWriter):
    run.log({"step": 3, "loss": 0.5, "sample": "a b"}, {"step": 4, "loss": np.float32(0.25)})
    run.log(step=5, sample="c")
    reader = Run.open(run.folder)
    assert reader.columns()["step"].tolist() == [3, 4]
    assert [(entry["step"], entry["kind"], entry["text"]) for entry in reader.logged("sample")] == [
        (3, "text", "a b"),
        (5, "text", "c"),
    ]
    assert reader.logged("loss") == []


def test_the_step_is_the_newest_one_if_none_is_given(run: RunWriter):
    with pytest.raises(
        JournalError, match=r"at which step is loss logged\? loop over run\.steps\(n\), or write"
    ):
        run.log(loss=1.0)
    run.log({"step": 7, "loss": 1.0})
    run.log(accuracy=0.5)
    run.log_columns({"step": np.arange(8, 10), "loss": [0.5, 0.25]})
    run.log(accuracy=0.75)
    assert run.columns()["step"].tolist() == [7, 7, 8, 9, 9]
    run.log()
    run.log_columns({"step": [], "loss": []})
    assert run.step == 9


@pytest.mark.parametrize(
    ("pixels", "stored"),
    [
        (np.array([[0.0, 0.5], [1.0, 7.0]]), [[0, 128], [255, 255]]),
        (np.array([[np.nan, -1.0]], np.float16), [[0, 0]]),
        (np.array([[True, False]]), [[255, 0]]),
        (np.array([[3, 250]], np.uint8), [[3, 250]]),
        (np.array([[[1.0, 0.0, 0.2]]]), [[[255, 0, 51]]]),
        ([[0.0, 1.0]], [[0, 255]]),
    ],
)
def test_an_image_is_a_file(run: RunWriter, pixels, stored):
    run.log(step=12, digits=lw.Image(pixels, caption="two"))
    entry = only(run)
    height, width = np.shape(stored)[:2]
    assert (entry["kind"], entry["height"], entry["width"], entry["caption"]) == (
        "image",
        height,
        width,
        "two",
    )
    assert entry["file"].startswith("media/digits-12-")
    np.testing.assert_array_equal(decoded(run.file(entry["file"]).read_bytes()), stored)


def test_a_large_image_is_reduced(run: RunWriter):
    run.log(step=0, wide=lw.Image(np.zeros((10, 3 * _media.LONGEST_SIDE), np.uint8)))
    entry = only(run)
    assert (entry["height"], entry["width"], entry["reduced"]) == (4, _media.LONGEST_SIDE, 3)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.zeros(4), r"height × width, or .* but this has \(4,\)$"),
        (np.zeros((3, 8, 9)), r"but this has \(3, 8, 9\); write np\.moveaxis\(x, 0, -1\)$"),
        (np.zeros((0, 8)), r"but this has \(0, 8\)$"),
        (np.zeros((8, 8), np.int64), r"floats from 0 to 1, uint8 or bool, but this has int64$"),
    ],
)
def test_what_is_not_an_image_gets_a_sentence(pixels, message: str):
    with pytest.raises(JournalError, match=message):
        lw.Image(pixels)


def test_names_of_files_stay_in_the_folder_of_media(run: RunWriter):
    for name in ("../../secret", "a/b", "…", "."):
        run.log({"step": 1, name: lw.Image(np.ones((2, 2)))})
    assert [entry["file"].rsplit("-", 2)[0] for entry in run.logged()] == [
        "media/secret",
        "media/a-b",
        "media/media",
        "media/media",
    ]
    assert [entry["name"] for entry in run.logged()] == ["../../secret", "a/b", "…", "."]


def test_histograms_count_what_is_finite(run: RunWriter):
    run.log(step=1, w=lw.Histogram(np.array([[0.0, 1.0], [np.inf, 0.9]]), bins=[0.0, 0.5, 1.0]))
    run.log(step=2, w=lw.Histogram.from_counts(np.array([1, 2]), [0, 1, 2]))
    run.log(step=3, w=lw.Histogram([]))
    first, second, third = Run.open(run.folder).logged("w")
    assert (first["counts"], first["edges"], first["not_finite"]) == ([1, 2], [0.0, 0.5, 1.0], 1)
    assert (second["counts"], second["edges"], "not_finite" in second) == ([1, 2], [0.0, 1.0, 2.0], False)
    assert sum(third["counts"]) == 0
    with pytest.raises(
        JournalError, match="1 to 256 counts and one edge more, but this has 2 counts and 2 edges"
    ):
        lw.Histogram.from_counts([1, 2], [0, 1])
    with pytest.raises(JournalError, match="but this has 300 counts"):
        lw.Histogram([1.0], bins=300)


@pytest.mark.parametrize("values", [[1e16, 1e16 + 2], [-1.5e308, 1.5e308], [7.0, 7.0]])
def test_values_that_no_bins_can_divide_still_have_a_histogram(run: RunWriter, values):
    run.log(step=1, w=lw.Histogram(values))
    entry = only(run)
    assert (sum(entry["counts"]), len(entry["edges"])) == (2, len(entry["counts"]) + 1)
    with pytest.raises(ValueError, match="positive"):
        lw.Histogram(values, bins=0)


def test_a_data_frame_is_a_table():
    class DataFrame:  # What pandas promises of its own.
        def to_dict(self, orient: str) -> list[dict]:
            assert orient == "records"
            return [{"word": "a", "score": np.float64(0.5)}, {"word": "b", "score": np.float64(0.25)}]

    table = lw.Table(DataFrame())
    assert (table.columns, table.rows) == (["word", "score"], [["a", 0.5], ["b", 0.25]])


def test_tables_keep_their_first_rows(run: RunWriter):
    rows = [(i, f"word {i}", np.float32(i / 2), None, {"a": 1}) for i in range(1200)]
    run.log(step=1, table=lw.Table(rows, columns=["n", "word", "half", "none", "other"]))
    entry = only(run)
    assert (entry["columns"], entry["rows"], entry["length"]) == (5, 1000, 1200)
    table = json.loads(run.file(entry["file"]).read_bytes())
    assert table["columns"] == ["n", "word", "half", "none", "other"]
    assert table["rows"][3] == [3, "word 3", 1.5, None, "{'a': 1}"]
    with pytest.raises(JournalError, match="a row of the table has 1 cells, but there are 2 columns"):
        lw.Table([[1]], columns=["a", "b"])
    with pytest.raises(JournalError, match=r"1 to 100 columns, but this has 0; write Table\(rows, columns="):
        lw.Table([])


def test_figures_are_drawn_at_once(run: RunWriter):
    figure = new_figure(3, 2)
    figure.add_subplot().plot([1, 2])
    run.log(step=1, curve=figure)
    entry = only(run)
    assert (entry["kind"], entry["width"], entry["height"]) == ("figure", 360, 240)
    assert decoded(run.file(entry["file"]).read_bytes()).shape[:2] == (240, 360)


def test_a_long_text_is_cut(run: RunWriter):
    run.log(step=1, text="x" * 20_000)
    assert (len(only(run)["text"]), only(run)["length"]) == (10_000, 20_000)


def test_a_rollback_undoes_what_was_logged_after_it(run: RunWriter):
    for step in range(5):
        run.log(step=step, loss=1.0, sample=f"first {step}")
    run.back_to(3)
    run.log(step=3, loss=0.5, sample="second 3")
    texts = ["first 0", "first 1", "first 2", "second 3"]
    assert [entry["text"] for entry in Run.open(run.folder).logged()] == texts
    run.back_to(4)  # It undoes nothing that was logged, and so it writes no event.
    assert [event["event"] for event in run.events()].count("back_to") == 1


def test_a_record_with_a_mistake_leaves_nothing(run: RunWriter):
    with pytest.raises(
        TypeError, match=r"'w' is an array, but .* log an array as lw\.Histogram\(x\), lw\.Image"
    ):
        run.log(step=1, w=np.zeros((3, 3)), sample="a")
    assert (run.logged(), run.columns()) == ([], {})


def test_damaged_events_are_not_shown(run: RunWriter):
    run.event("logged", step="x", name=3)
    run.event("logged")
    run.event("back_to", step=None)
    assert run.logged() == []
