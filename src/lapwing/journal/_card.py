"""A run as a small HTML card for notebooks: its state, a few numbers and a curve of its loss.

It loads nothing and contains no script. Colours come from the text around it, for light and dark notebooks.
"""

import html
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from ._run import Run

WIDTH, HEIGHT, MARGIN = 320, 72, 4
MOST_POINTS = 2 * WIDTH
_COLORS = {
    "running": "#2a7de1",
    "paused": "#b8860b",
    "finished": "#2e9e5b",
    "stopped": "#808080",
    "preempted": "#b8860b",
}
_BAD = "#d1453b"


def card(run: "Run") -> str:
    """The card of a run.

    >>> import tempfile
    >>> from lapwing.journal import Run
    >>> with Run.create("demo", runs_dir=tempfile.mkdtemp()) as run:
    ...     run.log(*({"step": step, "loss": 1 / (1 + step)} for step in range(5)))
    >>> text = card(run)
    >>> "finished" in text, "0.2" in text, "<polyline" in text
    (True, True, True)
    """
    state = run.state
    color = _COLORS.get(state, _BAD)
    name, word = html.escape(run.name), html.escape(state)
    return (
        '<div style="display:inline-block;border:1px solid #8884;border-radius:8px;padding:10px 14px;'
        'font:14px/1.5 system-ui,sans-serif">'
        f'<div><b>{name}</b> <span style="color:{color}">● {word}</span></div>'
        f"{_loss(run)}</div>"
    )


def _loss(run: "Run") -> str:
    import numpy as np

    columns = run.columns()
    steps, losses = run.curve("loss") if {"loss", "step"} <= columns.keys() else (np.zeros(0),) * 2
    if not len(steps):
        return _line([("step", run.latest().get("step"))])
    finite = losses[np.isfinite(losses)]
    numbers: list[tuple[str, Any]] = [("step", int(steps[-1])), ("loss", float(losses[-1]))]
    if len(finite):
        numbers.append(("best", float(finite.min())))
    return _line(numbers) + _svg(*run.curve("loss", MOST_POINTS))


def _line(numbers: list[tuple[str, Any]]) -> str:
    parts = [f"{name} <b>{_short(value)}</b>" for name, value in numbers if value is not None]
    return f'<div style="opacity:.8">{" · ".join(parts) or "nothing logged yet"}</div>'


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))


def _svg(steps: "np.ndarray", values: "np.ndarray") -> str:
    """The curve, on a log axis if all values are positive, with gaps where the loss was not finite."""
    import numpy as np

    shown = np.isfinite(values)
    if shown.sum() < 2 or steps[-1] == steps[0]:
        return ""
    log = bool((values[shown] > 0).all())
    heights = np.log(values, where=shown, out=np.full(len(values), math.nan)) if log else values
    low, high = heights[shown].min(), heights[shown].max()
    x = MARGIN + (steps - steps[0]) / (steps[-1] - steps[0]) * (WIDTH - 2 * MARGIN)
    y = HEIGHT - MARGIN - (heights - low) / ((high - low) or 1.0) * (HEIGHT - 2 * MARGIN)
    pieces = np.split(np.arange(len(values)), np.flatnonzero(~shown))
    lines = "".join(
        _polyline(x[piece], y[piece]) for piece in (each[shown[each]] for each in pieces) if len(piece)
    )
    title = f"loss, {'log' if log else 'linear'} axis, steps {steps[0]} to {steps[-1]}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{title}" '
        f'style="display:block;margin-top:6px"><title>{title}</title>{lines}</svg>'
    )


def _polyline(x: "np.ndarray", y: "np.ndarray") -> str:
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return f'<polyline points="{points}" fill="none" stroke="#2a7de1" stroke-width="1.5" stroke-linejoin="round"/>'
