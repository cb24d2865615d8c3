"""Tables, pictures and pages, made from a run folder or from objects in memory.

Each name loads its module on first use, and drawing libraries are imported by the functions that draw: a table does not
import numpy or matplotlib. It does not import jax, so runs can be read where they cannot be trained.
"""

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Comparison": "_compare",
    "ComparisonError": "_compare",
    "DrawingError": "_machine_plots",
    "Glance": "_glance",
    "Mark": "_marks",
    "ParamsComparison": "_compare",
    "FirstDifference": "_compare",
    "Picture": "_pictures",
    "answers_picture": "_machine_plots",
    "compare_params": "_compare",
    "compare_runs": "_compare",
    "fused_line": "_laps",
    "glance": "_glance",
    "heat_map": "_heatmap",
    "lap_picture": "_laps",
    "lap_table": "_laps",
    "loop_picture": "_loops",
    "machine_picture": "_machine",
    "marks_of": "_marks",
    "pruning_picture": "_machine_plots",
    "report_page": "_page",
    "run_pictures": "_pictures",
    "journal_html": "_page",
    "surroundings": "_glance",
}

__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from ._compare import (  # noqa: F401
        Comparison,
        ComparisonError,
        FirstDifference,
        ParamsComparison,
        compare_params,
        compare_runs,
    )
    from ._glance import Glance, glance, surroundings  # noqa: F401
    from ._heatmap import heat_map  # noqa: F401
    from ._laps import fused_line, lap_picture, lap_table  # noqa: F401
    from ._loops import loop_picture  # noqa: F401
    from ._machine import machine_picture  # noqa: F401
    from ._machine_plots import DrawingError, answers_picture, pruning_picture  # noqa: F401
    from ._marks import Mark, marks_of  # noqa: F401
    from ._page import journal_html, report_page  # noqa: F401
    from ._pictures import Picture, run_pictures  # noqa: F401


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module 'lapwing.report' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    return getattr(importlib.import_module(f"lapwing.report.{_HOME[name]}"), name)
