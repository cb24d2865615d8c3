"""Makes the two pictures of docs/persistent.md and the sentence below the first.

Who owns what is computed from the plan for the forward loop of an LSTM; the durations in a step are those that were
measured, in benchmarks/results/persistent-step-gpu.json. `python docs/persistent_pictures.py` makes all of it; a test
compares the page with what this script makes.
"""

import functools
import json
import math
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import lapwing as lw
from lapwing import jaxprs
from lapwing.bench._gru_models import lstm_arguments, lstm_loss
from lapwing.core import new_figure
from lapwing.loops.persistent._plan import Gpu, plans
from lapwing.loops.persistent._prepare import prepare
from lapwing.loops.persistent._shares import Shares
from lapwing.loops.persistent._stages import Stages

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "persistent.md"
OWNERS, STEP = (ROOT / "docs" / "pictures" / f"persistent-{name}.png" for name in ("owners", "step"))
MEASURED = json.loads((ROOT / "benchmarks" / "results" / "persistent-step-gpu.json").read_text())
DURATIONS: dict[str, float] = MEASURED["step_us"]
SHAPE = (16, 1024, 768)
BEGIN, END = "<!-- made by docs/persistent_pictures.py -->\n", "<!-- end of what it makes -->\n"
BLUE, LIGHT, ORANGE, RED, GREY = "#3b6ea5", "#bfd2e5", "#d08a4e", "#a8452f", "#e4e4e4"


@functools.cache
def lstm_plan() -> tuple[Stages, Shares]:
    """The forward loop of an LSTM in bfloat16, and the best plan for it on an H200."""
    weights, xs = jax.eval_shape(lambda: lstm_arguments(*SHAPE, jnp.bfloat16))
    scan = functools.partial(lw.scan, rewrite="always")
    closed = jax.make_jaxpr(jax.grad(functools.partial(lstm_loss, scan)))(weights, xs)
    loops = (jaxprs.loop_of(eqn)[0] for eqn in jaxprs.equations(closed.jaxpr) if eqn.primitive.name == "scan")
    stages = prepare(next(loop for loop in loops if not loop.reverse)).stages
    return stages, plans(stages, Gpu())[0]


def sentence() -> str:
    """The plan in words."""
    stages, plan = lstm_plan()
    (product,) = stages.products
    gates = math.prod(stages.parts(product.out))
    columns, kilobytes = gates * plan.units * plan.split, gates * plan.units * plan.width * 2 / 1024
    text = (
        f"The plan for LSTM {SHAPE} (batch, steps, width) in bfloat16 on an H200 has {plan.groups * plan.in_group} "
        f"blocks: {_count(plan.groups, 'group')} of {plan.in_group}, and {plan.rows} rows of the batch for each group. "
        f"A block owns {plan.units} units of its group's rows. It keeps {columns} of the {gates * plan.width} columns "
        f"of the recurrent weight in its shared memory, {kilobytes:.0f} kB"
    )
    if plan.split > 1:
        share = plan.width // plan.split
        text += f": those of its cluster of {plan.split}, for {share} of the {plan.width} published units"
    return textwrap.fill(f"{text}.", 120) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def page(text: str) -> str:
    """The page with that sentence in it."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + "\n" + sentence() + "\n" + END + rest.split(END)[1]


def draw_owners(path: Path) -> None:
    """The state, rows by units, and the recurrent weight, with the share of one block in both."""
    stages, plan = lstm_plan()
    (product,) = stages.products
    gates = math.prod(stages.parts(product.out))
    chosen = plan.in_group // 3 // plan.split * plan.split
    peers = range(chosen, chosen + plan.split)
    figure = new_figure(11, 6.4)
    state, weight = figure.subplots(2, 1, height_ratios=(1, 2))
    _draw_state(state, plan, chosen, peers)
    _draw_weight(weight, plan, gates, chosen, peers)
    figure.savefig(path, dpi=110)


def _draw_state(axes: Any, plan: Shares, chosen: int, peers: range) -> None:
    for group in range(plan.groups):
        for block in range(plan.in_group):
            mine, near = group == 0 and block == chosen, group == 0 and block in peers
            color = RED if mine else ORANGE if near else LIGHT if group == 0 else GREY
            _rectangle(axes, block * plan.units, group * plan.rows, plan.units, plan.rows, color)
        label = f"group {group}:\n{plan.in_group} blocks,\n{plan.rows} rows"
        axes.text(plan.width * 1.01, (group + 0.5) * plan.rows, label, va="center", size=9)
    axes.set(xlim=(0, plan.width), ylim=(plan.all_rows, 0), ylabel="rows (batch)", xlabel="units")
    axes.set_title(
        f"The state h: a block (red) owns {plan.rows} rows × {plan.units} units. It publishes them; all of its group "
        "(blue) read them, no other group does.",
        loc="left",
        size=10,
    )


def _draw_weight(axes: Any, plan: Shares, gates: int, chosen: int, peers: range) -> None:
    width, share = plan.width, plan.width // plan.split
    _rectangle(axes, 0, 0, gates * width, width, LIGHT)
    for gate, name in zip(range(gates), ("i", "f", "g", "o"), strict=True):
        for block in peers:
            left = gate * width + block * plan.units
            _rectangle(axes, left, 0, plan.units, width, ORANGE if plan.split > 1 else RED, edge=0)
        left = gate * width + peers[0] * plan.units
        if plan.split > 1:
            _rectangle(axes, left, (chosen - peers[0]) * share, plan.units * plan.split, share, RED, edge=0)
        axes.axvline(gate * width, color="white", linewidth=3)
        axes.text((gate + 0.5) * width, -0.02 * width, f"gate {name}", ha="center", va="bottom", size=9)
    axes.set(
        xlim=(0, gates * width),
        ylim=(width, 0),
        xlabel="columns: units of each gate",
        ylabel="published units (K)",
    )
    kept = f"{gates * plan.units * width * 2 / 1024:.0f} kB in shared memory, for all steps"
    title = f"The recurrent weight: the block keeps the columns of its units, of every gate (red): {kept}."
    if plan.split > 1:
        title += f"\nIts cluster of {plan.split} (orange) splits K: each keeps a share of it for the columns of all."
    axes.set_title(title, loc="left", size=10, pad=18)


def _rectangle(
    axes: Any, x: float, y: float, width: float, height: float, color: str, edge: float = 0.8
) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor="white", linewidth=edge))


MEANWHILE = "start fetching; outputs leave"
LABELS = {MEANWHILE: "fetch", "pass on": "pass on", "elementwise": "elementwise"}
COLORS = {
    "publish": BLUE, "signal and wait": GREY, MEANWHILE: ORANGE, "multiply": RED, "pass on": LIGHT,
    "elementwise": "#6b9e6b", "next step": "white",
}  # fmt: skip


def draw_step(path: Path) -> None:
    """Two blocks through one step, of which the second is a little late, and what is on its way meanwhile."""
    late = 0.3 * DURATIONS["signal and wait"]
    figure = new_figure(12, 3.8)
    axes = figure.subplots()
    for lane, delay in ((0, 0.0), (1, late)):
        _draw_block(axes, lane, delay)
    begin, step = DURATIONS["publish"], sum(DURATIONS.values())
    fetching = begin + DURATIONS["signal and wait"]
    _draw_bar(
        axes, 2, fetching, DURATIONS[MEANWHILE] + 0.4 * DURATIONS["multiply"], "#c9b6d9", "published units"
    )
    _draw_bar(axes, 3, fetching + 0.1, step - fetching - 0.1, "#c9b6d9", "outputs of t − 1, inputs of t + 1")
    axes.annotate("", (begin + DURATIONS["signal and wait"], 0.62), (begin + late, 0.62),
                  arrowprops={"arrowstyle": "<->", "color": "black"})  # fmt: skip
    axes.text(
        begin + (DURATIONS["signal and wait"] + late) / 2,
        0.56,
        "the counter travels",
        ha="center",
        va="bottom",
        size=7,
    )
    axes.axvline(step, color="black", linewidth=1, linestyle=":")
    axes.text(step, -0.75, f" one step: {step:.1f} µs", va="center", size=9)
    axes.set(xlim=(0, step + 1.5 * DURATIONS["publish"]), ylim=(3.6, -1))
    axes.set_xlabel(f"µs ({MEASURED['note']})" if "note" in MEASURED else "µs")
    axes.set_yticks(range(4), ["a block", "one that is late", "fetched", "on their way"])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(path, dpi=110)


def _draw_block(axes: Any, lane: int, delay: float) -> None:
    """Who is late waits less: all continue when the last has signalled."""
    at = delay
    for name, duration in DURATIONS.items():
        length = duration - delay if name == "signal and wait" else duration
        wide = length > 0.3 * DURATIONS["multiply"]
        _draw_bar(axes, lane, at, length, COLORS[name], LABELS.get(name, name) if wide else "")
        if not wide and name in LABELS and lane == 0:
            axes.annotate(LABELS[name], (at + length / 2, -0.3), (0, 9 + 11 * (name == "elementwise")),
                          textcoords="offset points", ha="center", size=8,
                          arrowprops={"arrowstyle": "-", "linewidth": 0.6})  # fmt: skip
        at += length
    _draw_bar(axes, lane, at, DURATIONS["publish"], COLORS["publish"], "publish")


def _draw_bar(axes: Any, lane: float, left: float, length: float, color: str, name: str) -> None:
    axes.barh(lane, length, 0.6, left, color=color, edgecolor="white")
    dark = color in (BLUE, RED, "#6b9e6b")
    axes.text(
        left + length / 2, lane, name, ha="center", va="center", size=8, color="white" if dark else "black"
    )


if __name__ == "__main__":
    draw_owners(OWNERS)
    draw_step(STEP)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
