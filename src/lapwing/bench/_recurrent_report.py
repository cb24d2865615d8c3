"""What `lapwing bench recurrent` shows: geometric means, tables and a picture."""

import math
import statistics
from collections.abc import Iterable
from typing import Any

from lapwing.bench._gru_models import MODELS
from lapwing.core import new_figure

OURS = "lw.scan"


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By dtype: how many times faster `lw.scan` is than each rival, and how much longer it compiles.

    Networks (GRU and LSTM) and cells apart; each number with the rows it is of.
    """
    found: dict[str, Any] = {}
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        of_dtype = [row for row in rows if row["dtype"] == dtype]
        groups = {
            "networks": [row for row in of_dtype if row["kind"] in MODELS],
            "cells": [row for row in of_dtype if row["kind"] not in MODELS],
        }
        found[dtype] = {name: _group(group) for name, group in groups.items() if group}
    return found


def _group(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "geometric_mean": {
            rival: {"times_faster": math.exp(statistics.fmean(map(math.log, ratios))), "rows": len(ratios)}
            for rival in _rivals(rows, "ms")
            if (ratios := [1 / ratio for ratio in _ratios(rows, "ms", rival)])
        },
        "median_compile": {
            rival: {"times_longer": statistics.median(ratios), "rows": len(ratios)}
            for rival in _rivals(rows, "compile_s")
            if (ratios := _ratios(rows, "compile_s", rival))
        },
    }


def _rivals(rows: list[dict[str, Any]], what: str) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row[what])
    return [name for name in names if name != OURS]


def _ratios(rows: list[dict[str, Any]], what: str, rival: str) -> list[float]:
    """`lw.scan` over a rival, in the rows that have both."""
    return [row[what][OURS] / row[what][rival] for row in rows if {OURS, rival} <= row[what].keys()]


def show(results: dict[str, Any]) -> None:
    """Print the results for a person."""
    rows = results["table"]
    print(f"Loss and gradient of recurrent cells on {results['environment']['device']}\n")
    rivals = _all(row["ms"] for row in rows)
    others = [name for name in ("lax.scan", "lw.scan off") if name in rivals]
    print(_line("milliseconds (median)", [*rivals, *(f"{name} / lw" for name in others)]))
    for row in rows:
        times = [_number(row["ms"].get(name), ".2f") for name in rivals]
        ratios = [_number(_speedup(row, name, OURS), ".2f") for name in others]
        print(_line(_label(row), [*times, *ratios]))
    compiled = _all(row["compile_s"] for row in rows)
    print("\n" + _line("seconds to compile", compiled))
    for row in rows:
        print(_line(_label(row), [_number(row["compile_s"].get(name), ".2f") for name in compiled]))
    if results.get("compilation_cache"):
        print("  (with a compilation cache on disk: what was compiled before takes no time)")
    _show_errors(rows)
    print()
    for dtype, groups in results["summary"].items():
        for name, found in groups.items():
            _show_means(dtype, name, found)
    for row in rows:
        for rival, why in row["failed"].items():
            print(f"failed: {_label(row)}, {rival}: {why}")
    if results.get("left_out"):
        print(f"left out (--resume measures them): {', '.join(results['left_out'])}")
    if results.get("interrupted"):
        print("interrupted")


def _show_errors(rows: list[dict[str, Any]]) -> None:
    rivals = _all(row["error"] for row in rows)
    if not rivals:
        return
    print("\n" + _line("error against float64", rivals))
    for row in rows:
        for name in _all(row["error"].values()):
            label = f"{_label(row)}, {name}"
            print(_line(label, [_number(row["error"].get(rival, {}).get(name), ".2g") for rival in rivals]))


def _show_means(dtype: str, name: str, found: dict[str, Any]) -> None:
    faster = [f"{mean['times_faster']:.2f} times {rival} ({mean['rows']} rows)"
              for rival, mean in found["geometric_mean"].items()]  # fmt: skip
    longer = [f"{median['times_longer']:.2f} times {rival}'s"
              for rival, median in found["median_compile"].items()]  # fmt: skip
    if faster:
        print(f"{dtype}, {name}: lw.scan is at {', '.join(faster)} (geometric means)", end="")
        print(f"; it compiles in {', '.join(longer)} (medians)" if longer else "")


def _all(parts: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in part))


def _label(row: dict[str, Any]) -> str:
    return f"{row['kind']} {tuple(row['shape'])} {row['dtype']}"


def _line(label: str, cells: list[str]) -> str:
    return f"{label:54}" + "".join(f"{cell:>18}" for cell in cells)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _speedup(row: dict[str, Any], rival: str, of: str) -> float | None:
    ms = row["ms"]
    return ms[rival] / ms[of] if {rival, of} <= ms.keys() else None


COLORS = {
    "lw.scan": "#3b6ea5", "lw.scan off": "#9db8d2", "torch float32": "#d08a4e", "torch bfloat16": "#d08a4e",
    "torch float16": "#a8452f", "lax.scan": "#8a8a8a",
}  # fmt: skip


def picture(results: dict[str, Any], path: str) -> None:
    """Speed against `jax.lax.scan`, and the largest error of a gradient, one row of bars for each row of the table."""
    rows = results["table"][::-1]
    figure = new_figure(12, 1.5 + 0.62 * len(rows))
    measured = any(row["error"] for row in rows)
    speed, *others = figure.subplots(
        1, 1 + measured, sharey=True, squeeze=False, width_ratios=(3, 2)[: 1 + measured]
    )[0]
    _bars(speed, rows, lambda row, name: _speedup(row, "lax.scan", name), "{:.2f}", leave="lax.scan")
    for error in others:
        _bars(error, rows, _largest_error, "{:.2g}")
        error.set_xlabel("largest error of a gradient, from float64")
        error.set_xscale("log")
    speed.axvline(1, color="black", linewidth=1)
    speed.set_xlabel("times faster than lax.scan")
    speed.set_yticks(range(len(rows)), [_label(row) for row in rows])
    figure.suptitle(f"Loss and gradient of recurrent cells on {results['environment']['device']}")
    for axes in (speed, *others):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.12, y=0.01)
    named = [axes.get_legend_handles_labels() for axes in (speed, *others)]
    shown = {
        label: handle for handles, labels in named for handle, label in zip(handles, labels, strict=True)
    }
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=len(shown), frameon=False)
    figure.savefig(path, dpi=110)


def _bars(axes: Any, rows: list[dict[str, Any]], value_of: Any, form: str, leave: str = "") -> None:
    names = [name for name in _all(row["ms"] for row in rows) if name != leave]
    for place, row in enumerate(rows):
        there = [name for name in names if value_of(row, name) is not None]
        height = 0.8 / max(len(there), 1)
        for number, name in enumerate(there):
            value, y = value_of(row, name), place + 0.4 - (number + 0.5) * height
            axes.barh(y, value, height, color=COLORS[name], label=name)
            axes.annotate(
                form.format(value), (value, y), (3, 0), textcoords="offset points", va="center", size=6
            )


def _largest_error(row: dict[str, Any], name: str) -> float | None:
    errors = {key: value for key, value in row["error"].get(name, {}).items() if key != "value"}
    return max(errors.values(), default=None)
