"""Puts the table of `lapwing bench loops` into docs/is-my-loop-faster.md, from benchmarks/results/loops-cpu.json.

`python docs/loops_table.py` writes the page; a test compares it with what this script makes.
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "loops-cpu.json"
PAGE = ROOT / "docs" / "is-my-loop-faster.md"
BEGIN, END = "<!-- made by docs/loops_table.py -->\n", "<!-- end of the table -->\n"


def table(results: dict[str, Any]) -> str:
    """The bodies by family; for each the gradient and the value: milliseconds, ratio and memory."""
    lines = [
        "| loop | gradient, `lax.scan` | `lw.scan` | times faster | memory | value | times faster | memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in results["table"]:
        name = row["name"].replace("_", " ") + " \\*" * row["held_out"]
        if "failed" in row:
            lines.append(f"| {name} | {row['failed']} | | | | | | |")
            continue
        gradient, value = row["gradient"], row["value"]
        before, after = gradient["ms"]
        cells = [name, f"{before:.2f} ms", f"{after:.2f} ms", _ratio(gradient), _memory(gradient)]
        cells += [f"{value['ms'][0]:.2f} ms", _ratio(value), _memory(value)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_summary(results), ""])


def _ratio(part: dict[str, Any]) -> str:
    return "as written" if part["same_program"] else f"{part['ratio']:.2f}"


def _memory(part: dict[str, Any]) -> str:
    return f"×{part['memory']:.1f}"


def _summary(results: dict[str, Any]) -> list[str]:
    versions = results["environment"]["versions"]
    lines = []
    for part in ("gradient", "value"):
        found = results["summary"][part]
        name, worst = found["worst"]
        mean, held_out = found["geometric_mean"], found["geometric_mean_held_out"]
        lines.append(
            f"Geometric mean, {part}: **{mean:.2f}** ({held_out:.2f} of those held out); the worst is {worst:.2f} "
            f"({name.replace('_', ' ')})."
        )
    return [*lines, f"One core of a CPU, jax {versions['jax']}."]


def page(text: str, results: dict[str, Any]) -> str:
    """The page with the table in it."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + table(results) + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), json.loads(RESULTS.read_text())), encoding="utf-8")
