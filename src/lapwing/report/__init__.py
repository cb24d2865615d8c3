"""Tables, pictures and pages, made from a run folder or from objects in memory.

Each name loads its module on first use, and drawing libraries are imported by the functions that draw: a table does not
import numpy or matplotlib. It does not import jax, so runs can be read where they cannot be trained.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._compare import (  # noqa: F401
        Comparison,
        ComparisonError,
        FirstDifference,
        ParamsComparison,
        compare_params,
        compare_runs,
    )
    from ._glance import Glance, glance, median_speed, surroundings  # noqa: F401
    from ._heatmap import heat_map  # noqa: F401
    from ._laps import fused_line, lap_picture, lap_table  # noqa: F401
    from ._loops import loop_picture  # noqa: F401
    from ._machine import machine_picture  # noqa: F401
    from ._machine_layout import COLUMN, LINE, WIDTH, Drawing, arrange  # noqa: F401
    from ._machine_plots import DrawingError, answers_picture, pruning_picture  # noqa: F401
    from ._marks import Mark, marks_of  # noqa: F401
    from ._page import journal_html, report_page  # noqa: F401
    from ._pictures import Picture, run_pictures  # noqa: F401

_NAMES = {
    "_compare": "Comparison ComparisonError FirstDifference ParamsComparison compare_params compare_runs",
    "_glance": "Glance glance median_speed surroundings",
    "_heatmap": "heat_map",
    "_laps": "fused_line lap_picture lap_table",
    "_loops": "loop_picture",
    "_machine": "machine_picture",
    "_machine_layout": "COLUMN Drawing LINE WIDTH arrange",
    "_machine_plots": "DrawingError answers_picture pruning_picture",
    "_marks": "Mark marks_of",
    "_page": "journal_html report_page",
    "_pictures": "Picture run_pictures",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module 'lapwing.report' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    return getattr(importlib.import_module(f"lapwing.report.{_HOME[name]}"), name)
