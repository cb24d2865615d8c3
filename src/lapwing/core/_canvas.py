"""Figures without pyplot: no window system is needed, and nobody else's current figure changes."""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure


def new_figure(width: float, height: float, layout: Any = "constrained", **options: Any) -> "Figure":
    """An empty figure of this size in inches that draws into memory.

    >>> new_figure(4, 3).get_size_inches().tolist()
    [4.0, 3.0]
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout, **options)
    FigureCanvasAgg(figure)
    return figure


def png_of(make: "Callable[[], Figure]", settings: Any = None, dpi: int = 150) -> bytes:
    """The figure that `make()` returns, as the content of a PNG file.

    `settings` are matplotlib's; they hold while the figure is made, so one function draws for light and dark pages.

    >>> png_of(lambda: new_figure(1, 1))[1:4]
    b'PNG'
    """
    from matplotlib import rc_context

    content = io.BytesIO()
    with rc_context(settings):
        make().savefig(content, format="png", dpi=dpi)
    return content.getvalue()
