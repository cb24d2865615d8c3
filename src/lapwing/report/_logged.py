"""What a run has logged besides numbers, on its page: the newest few of each name, histograms over the steps."""

import html
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lapwing.journal import JournalError, Run

from ._drawing import BLUE, GREY, prepare, run_figure
from ._html import embedded, figure, table
from ._pictures import HALF, Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NAMES = 40
NEWEST = 4
MOST_ROWS = 50
MOST_HISTOGRAMS = 200
LEVELS = 80
LARGEST = 1e300
"""Differences of larger numbers overflow."""


def logged_html(run: Run) -> str:
    """The texts, images, histograms, tables and figures of a run.

    >>> import tempfile
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.log(step=3, sample="<b>once</b>")
    >>> "&lt;b&gt;once" in logged_html(run)
    True
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in run.logged():
        groups.setdefault((entry["name"], entry["kind"]), []).append(entry)
    shown = list(groups.items())[:MOST_NAMES]
    parts = [f"<h3>{html.escape(name)}</h3>{_shown(run, kind, entries)}" for (name, kind), entries in shown]
    more = len(groups) - len(shown)
    return "".join(parts) + (f'<p class="soft">{more} more names are not shown.</p>' if more else "")


def _shown(run: Run, kind: str, entries: list[dict[str, Any]]) -> str:
    if kind == "histogram":
        return _histograms(entries)
    newest = [_one(run, kind, entry) for entry in reversed(entries[-NEWEST:])]
    omitted = len(entries) - len(newest)
    before = f'<p class="soft">{omitted} earlier ones are in the run folder.</p>' if omitted else ""
    inside = "".join(newest)
    return (f'<div class="pair">{inside}</div>' if kind == "image" else inside) + before


def _one(run: Run, kind: str, entry: dict[str, Any]) -> str:
    step = f"<figcaption>step {entry['step']}{_caption(entry)}</figcaption>"
    if kind == "text":
        return f"<figure><pre>{html.escape(str(entry.get('text')))}</pre>{step}</figure>"
    if kind == "table":
        return f"<figure>{_table(run, entry)}{step}</figure>"
    address = embedded(run, str(entry.get("file"))) if kind in ("image", "figure") else None
    if address is None:
        return f"<figure><p>{html.escape(kind)}: it cannot be shown</p>{step}</figure>"
    style = ' class="pixels"' if kind == "image" else ""
    return f'<figure><img{style} src="{address}" alt="{html.escape(entry["name"])}">{step}</figure>'


def _caption(entry: dict[str, Any]) -> str:
    words = [str(entry["caption"])] if entry.get("caption") else []
    if entry.get("kind") == "table":
        rows = entry.get("length", entry.get("rows"))
        words += (
            [f"the first {MOST_ROWS} of {rows} rows"] if isinstance(rows, int) and rows > MOST_ROWS else []
        )
    return html.escape("".join(f" · {each}" for each in words))


def _table(run: Run, entry: dict[str, Any]) -> str:
    try:
        content = run.read_json(str(entry.get("file")))
    except JournalError:
        content = None
    match content:
        case {"columns": list(columns), "rows": list(rows)} if all(isinstance(row, list) for row in rows):
            return table(columns, rows[:MOST_ROWS])
    return "<p>its file cannot be read</p>"


def _histograms(entries: list[dict[str, Any]]) -> str:
    sound = [entry for entry in entries if _is_histogram(entry)]
    if not sound:
        return "<p>they cannot be shown</p>"
    last = sound[-1]
    steps = f"steps {sound[0]['step']} to {last['step']}" if len(sound) > 1 else f"step {last['step']}"
    caption = f"{last['name']}, {steps}"
    return figure(Picture("histogram.png", caption, lambda: histogram_figure(sound)))


def _is_histogram(entry: dict[str, Any]) -> bool:
    counts, edges = entry.get("counts"), entry.get("edges")
    return (
        isinstance(counts, list)
        and isinstance(edges, list)
        and len(edges) == len(counts) + 1 > 1
        and all(isinstance(each, int | float) and abs(each) < LARGEST for each in [*counts, *edges])
        and min(counts) >= 0
        and all(a <= b for a, b in itertools.pairwise(edges))
    )


def histogram_figure(entries: Sequence[dict[str, Any]]) -> "Figure":
    """One histogram as bars; several as a map, with the steps from left to right and dark where many values are."""
    drawn = run_figure(*HALF)
    axes = drawn.add_subplot()
    if len(entries) == 1:
        axes.stairs(entries[0]["counts"], entries[0]["edges"], fill=True, color=BLUE)
        axes.set_ylabel("values")
        axes.spines[["top", "right"]].set_visible(False)
        return drawn
    steps, edges, shares = over_steps(entries)
    from matplotlib.colors import LinearSegmentedColormap

    faint = LinearSegmentedColormap.from_list("faint", [(*_rgb(BLUE), 0.0), (*_rgb(BLUE), 1.0)])
    middles = (steps[1:] + steps[:-1]) / 2
    sides = np.concatenate([steps[:1], middles, steps[-1:] + (steps[-1:] - middles[-1:])])
    highest = shares.max(axis=1, keepdims=True)
    shade = np.sqrt(shares / np.where(highest > 0, highest, 1))
    axes.pcolormesh(sides, edges, shade.T, cmap=faint, rasterized=True)
    medians = [np.interp(0.5, np.cumsum([0, *row]), edges) if row.any() else np.nan for row in shares]
    axes.plot(steps, medians, color=GREY, linewidth=1.5, label="median")
    axes.set_xlabel("step")
    drawn.legend(loc="outside upper left", frameon=False, fontsize=10)
    prepare(axes, steps, log=False)
    axes.set_xlim(sides[0], sides[-1])
    return drawn


def over_steps(entries: Sequence[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Histograms with edges of their own on common ones: steps, edges, and the share of the values in each bin.

    Values are taken as evenly spread within a bin.

    >>> a, b = {"step": 0, "counts": [2, 2], "edges": [0, 1, 2]}, {"step": 5, "counts": [1], "edges": [1, 3]}
    >>> steps, edges, shares = over_steps([a, b])
    >>> steps.tolist(), shares[:, edges[:-1] < 1.5].sum(axis=1).round(6).tolist()
    ([0.0, 5.0], [0.75, 0.25])
    """
    if len(entries) > MOST_HISTOGRAMS:
        kept = np.unique(np.linspace(0, len(entries) - 1, MOST_HISTOGRAMS).astype(int))
        entries = [entries[index] for index in kept]
    low, high = (pick(entry["edges"][at] for entry in entries) for pick, at in ((min, 0), (max, -1)))
    edges = np.linspace(low, high if high > low else low + 1, LEVELS + 1)
    rows = []
    for entry in entries:
        below = np.cumsum([0.0, *entry["counts"]])
        rows.append(np.diff(np.interp(edges, entry["edges"], below)) / max(below[-1], 1))
    return np.array([float(entry["step"]) for entry in entries]), edges, np.array(rows)


def _rgb(color: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(color)
