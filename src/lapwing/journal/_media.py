"""What `run.log` takes besides numbers: text, images, histograms, tables and figures.

Each becomes one event `logged` with its step, name and kind. Small things are in the event itself; what is larger is a
file in media/, which the event names:

    text       text (at most 10,000 characters; `length`, if it was longer)
    histogram  counts, edges (at most 256 bins); not_finite, if some values were not
    image      file: a PNG; width, height; reduced, if only every n-th pixel of each axis is kept
    figure     file: a PNG; width, height
    table      file: JSON with columns and rows (at most 1000; `length`, if there were more)

So a long text or a large image is cut, and never ends a training. numpy is imported by what needs it.
"""

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from ._errors import JournalError
from ._json import encode
from ._png import png

LONGEST_TEXT = 10_000
LONGEST_CELL = 1000
MOST_BINS = 256
MOST_ROWS = 1000
MOST_COLUMNS = 100
LONGEST_SIDE = 2048
FIGURE_DPI = 120


class Image:
    """A picture for `run.log`: height × width numbers, or height × width × 1, 3 or 4 channels.

    Floats are from 0 to 1, and cut there; integers are uint8. Of a side of more than 2048 pixels, every n-th is kept.

    >>> import numpy as np
    >>> Image(np.zeros((8, 8, 2)))
    Traceback (most recent call last):
    lapwing.journal._errors.JournalError: an image has the shape height × width, ... but this has (8, 8, 2)
    """

    def __init__(self, pixels: Any, caption: str = ""):
        self.pixels = _bytes_of(_array(pixels))
        self.caption = caption

    def stored(self) -> "Stored":
        stride = -(-max(self.pixels.shape[:2]) // LONGEST_SIDE)
        kept = self.pixels[::stride, ::stride]
        about = {"height": kept.shape[0], "width": kept.shape[1]}
        about |= {"reduced": stride} if stride > 1 else {}
        about |= {"caption": _cut(self.caption, LONGEST_CELL)} if self.caption else {}
        return Stored("image", about, ".png", png(kept))


class Histogram:
    """The distribution of some numbers for `run.log`: how many are in each of `bins` intervals, or between given edges.

    >>> Histogram([1.0, 2.0, 2.5, float("nan")], bins=2).stored().fields
    {'counts': [1, 2], 'edges': [1.0, 1.75, 2.5], 'not_finite': 1}
    """

    def __init__(self, values: Any, bins: int | Sequence[float] = 32):
        import numpy as np

        flat = _array(values).astype(np.float64).reshape(-1)
        finite = flat[np.isfinite(flat)]
        try:
            with np.errstate(over="raise"):
                counts, edges = np.histogram(finite, bins)
        except (ValueError, FloatingPointError):
            if not isinstance(bins, int) or bins < 1:
                raise
            # Values too close together, or too far apart, to cut their range into bins.
            counts, edges = np.array([len(finite)]), np.array([finite.min(), finite.max()])
        self._set(counts.tolist(), edges.tolist(), len(flat) - len(finite))

    @classmethod
    def from_counts(cls, counts: Sequence[int], edges: Sequence[float]) -> Self:
        """A histogram that was counted elsewhere: n counts and n + 1 edges."""
        histogram = cls.__new__(cls)
        histogram._set([int(each) for each in counts], [float(each) for each in edges], 0)
        return histogram

    def _set(self, counts: list[int], edges: list[float], not_finite: int) -> None:
        if not 1 <= len(counts) <= MOST_BINS or len(edges) != len(counts) + 1:
            raise JournalError(
                f"a histogram has 1 to {MOST_BINS} counts and one edge more, but this has {len(counts)} counts "
                f"and {len(edges)} edges"
            )
        self.counts, self.edges, self.not_finite = counts, edges, not_finite

    def stored(self) -> "Stored":
        about: dict[str, Any] = {"counts": self.counts, "edges": self.edges}
        return Stored("histogram", about | ({"not_finite": self.not_finite} if self.not_finite else {}))


class Table:
    """Rows and columns for `run.log`. The columns of rows that are dicts are their keys. A DataFrame is a table too.

    >>> table = Table([{"word": "a", "score": 0.5}, {"word": "b"}])
    >>> table.columns, table.rows
    (['word', 'score'], [['a', 0.5], ['b', None]])
    """

    def __init__(self, rows: Any, columns: Sequence[str] = ()):
        if hasattr(rows, "to_dict"):  # A DataFrame of pandas.
            rows = rows.to_dict("records")
        self.length = len(rows)
        kept = list(rows[:MOST_ROWS])
        if not columns:
            columns = list({key: None for row in kept if isinstance(row, Mapping) for key in row})
        self.columns = [str(column) for column in columns]
        self.rows = [self._row(row, columns) for row in kept]
        if not 1 <= len(columns) <= MOST_COLUMNS:
            raise JournalError(
                f"a table has 1 to {MOST_COLUMNS} columns, but this has {len(columns)}; "
                "write Table(rows, columns=[...])"
            )

    def _row(self, row: Mapping[str, Any] | Sequence[Any], columns: Sequence[str]) -> list[Any]:
        cells = [row.get(name) for name in columns] if isinstance(row, Mapping) else list(row)
        if len(cells) != len(columns):
            raise JournalError(
                f"a row of the table has {len(cells)} cells, but there are {len(columns)} columns"
            )
        return [_cell(value) for value in cells]

    def stored(self) -> "Stored":
        about = {"columns": len(self.columns), "rows": len(self.rows)}
        about |= {"length": self.length} if self.length > len(self.rows) else {}
        content = encode({"columns": self.columns, "rows": self.rows}) + "\n"
        return Stored("table", about, ".json", content.encode())


@dataclass(frozen=True)
class Stored:
    """What is kept of a value: its kind, the fields of its event and, for some kinds, a file."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    suffix: str = ""
    content: bytes | None = None

    def file_name(self, name: str, step: int) -> str:
        """A name that two different contents never share."""
        assert self.content is not None
        word = re.sub(r"[^A-Za-z0-9]+", "-", name)[:40].strip("-") or "media"
        return f"media/{word}-{step}-{hashlib.sha256(self.content).hexdigest()[:8]}{self.suffix}"


def is_media(value: Any) -> bool:
    return isinstance(value, str | Image | Histogram | Table) or hasattr(value, "savefig")


def stored_form(value: Any) -> Stored:
    """What is kept of a text, an `Image`, a `Histogram`, a `Table` or a figure of matplotlib."""
    if isinstance(value, str):
        about: dict[str, Any] = {"text": _cut(value, LONGEST_TEXT)}
        return Stored("text", about | ({"length": len(value)} if len(value) > LONGEST_TEXT else {}))
    if hasattr(value, "savefig"):
        content = io.BytesIO()
        value.savefig(content, format="png", dpi=FIGURE_DPI)
        width, height = (int.from_bytes(content.getvalue()[at : at + 4], "big") for at in (16, 20))
        return Stored("figure", {"height": height, "width": width}, ".png", content.getvalue())
    return value.stored()


def _array(values: Any) -> Any:
    import numpy as np

    if hasattr(values, "detach"):  # A tensor of PyTorch, which may have a gradient or be on a device.
        values = values.detach().cpu()
    return np.asarray(values)


def _bytes_of(pixels: Any) -> Any:
    """The pixels as uint8, height × width × channels."""
    import numpy as np

    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or 0 in pixels.shape:
        shape = pixels.shape[:-1] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels.shape
        raise JournalError(
            f"an image has the shape height × width, or height × width × 1, 3 or 4 channels, but this has {shape}"
            + ("; write np.moveaxis(x, 0, -1)" if pixels.ndim == 3 and pixels.shape[0] in (1, 3, 4) else "")
        )
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype == bool:
        return pixels.astype(np.uint8) * np.uint8(255)
    if pixels.dtype.kind in "iu":
        raise JournalError(f"an image has floats from 0 to 1, uint8 or bool, but this has {pixels.dtype}")
    return np.rint(np.clip(np.nan_to_num(pixels.astype(np.float32)), 0.0, 1.0) * 255).astype(np.uint8)


def _cell(value: Any) -> Any:
    if hasattr(value, "tolist"):  # A scalar of numpy or jax, or an array.
        value = value.tolist()
    if isinstance(value, str):
        return _cut(value, LONGEST_CELL)
    return value if value is None or isinstance(value, bool | int | float) else _cut(str(value), LONGEST_CELL)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
