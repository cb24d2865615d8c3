"""`lapwing evaluate` of a thinker: the problems it solves, over their size and the steps it thinks, as one picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float

from lapwing.core import new_figure, png_of
from lapwing.models import Looped
from lapwing.train import check_option

from ._evaluate import Evaluated, Trained
from ._thinker_film import film_files
from ._thinker_halting import SURE, halting_rules, trace_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Evaluation:
    """Held-out problems of several sizes, with more and more thinking."""

    sizes: tuple[int, ...] = ()
    """sizes of the problems; default: from that of the training to 4 times it, or to --far of the training"""
    steps: int = 0
    """thinking steps; default: as many as in training, in proportion to the largest size"""
    count: int = 256
    """problems of each size"""
    seed: int = 0
    """seed of the problems"""
    sure: float = SURE
    """how sure a thinker that learned it should be to stop: a probability"""

    def __post_init__(self) -> None:
        check_option(self, "sure", 0 < self.sure < 1, "between 0 and 1")


@dataclass(frozen=True)
class Plane:
    """The share of problems that are solved, of each size after each step."""

    sizes: tuple[int, ...]
    solved: Float[np.ndarray, "sizes steps"]
    hard: Float[np.ndarray, "sizes steps"] | None = None
    """Of hard instances, such as sums with long carries, where the problem has such."""
    rules: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """What each rule of halting gets right, and after how many steps, by size; that of hard ones is "10 hard"."""


def evaluate_thinking(trained: Trained, options: Evaluation) -> Evaluated:
    """Solves problems of several sizes, and draws what comes out into the folder of the run."""
    config = trained.config
    sizes = options.sizes or default_sizes(config)
    config.check_reach(max(sizes))
    steps = options.steps or config.thinking(max(sizes))
    plane = plane_of(config, trained.params, sizes, steps, options.count, options.seed, options.sure)
    trained.run.put("pictures/thinking.png", png_of(lambda: draw(plane, config), dpi=130))
    filmed = config.harder(1.0) or config.kind
    one = filmed.draw(jax.random.key(options.seed), 1, max(sizes), "test").inputs[0]
    for name, content in film_files(config.kind, trained.params, np.asarray(one), steps).items():
        trained.run.put(f"pictures/{name}", content)
    rows = _rows(plane)
    numbers = {"sizes": [row["size"] for row in rows], "solved": rows, "halting": plane.rules}
    best = ", ".join(f"size {row['size']}: {row['at the end']:.1%}" for row in rows)
    return Evaluated(
        numbers, f"{best} after {steps} steps", f"{_text(rows, steps)}\n\n{_rules_text(plane.rules)}"
    )


def default_sizes(config: Any) -> tuple[int, ...]:
    """From the size of training to the largest."""
    if config.model.mixer == "dense":
        return (config.size,)
    twice = config.kind.twice
    largest = config.far or twice(twice(config.size))
    found = [config.size]
    while twice(found[-1]) < largest:
        found.append(twice(found[-1]))
    return tuple(dict.fromkeys([*found, largest]))


def plane_of(
    config: Any,
    model: Looped,
    sizes: Sequence[int],
    steps: int,
    count: int,
    seed: int = 0,
    sure: float = SURE,
) -> Plane:
    """How many are solved, after each step, and under each rule of halting."""
    solved, rules = {}, {}
    hard = config.harder(1.0)
    for name, problem in {"": config.kind, **({" hard": hard} if hard else {})}.items():
        solved[name] = []
        for size in sizes:
            instances = problem.draw(jax.random.key(seed), count, size, "test")
            trace = trace_of(problem, model, instances, steps)
            solved[name].append(trace.right.mean(axis=1))
            rules[f"{size}{name}"] = halting_rules(trace, min(steps, config.thinking(size)), sure)
    return Plane(tuple(sizes), np.stack(solved[""]), np.stack(solved[" hard"]) if hard else None, rules)


def _rows(plane: Plane) -> list[dict[str, Any]]:
    rows = []
    for size, solved in zip(plane.sizes, plane.solved, strict=True):
        best = float(solved.max())
        first = int(np.argmax(solved >= best - 1e-9)) + 1
        rows.append({"size": size, "best": best, "after": first, "at the end": float(solved[-1])})
    if plane.hard is not None:
        rows = [{**row, "hard": float(hard[-1])} for row, hard in zip(rows, plane.hard, strict=True)]
    return rows


def _text(rows: Sequence[dict[str, Any]], steps: int) -> str:
    lines = [f"{'size':>6}  {'solved':>7}  {'first so after':>14}  {f'after {steps} steps':>16}"]
    lines += [
        f"{row['size']:>6}  {row['best']:>7.1%}  {row['after']:>8} steps  {row['at the end']:>16.1%}"
        for row in rows
    ]
    if "hard" in rows[0]:
        last = ["hard ones", *(f"{row['hard']:.1%}" for row in rows)]
        lines = [f"{line}  {cell:>9}" for line, cell in zip(lines, last, strict=True)]
    return "\n".join(lines)


def _rules_text(rules: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """A row for each size, with what each rule solves and the mean of its steps."""
    names = list(next(iter(rules.values())))
    lines = [f"{'when to stop':>13}" + "".join(f"  {name:>16}" for name in names)]
    for size, row in rules.items():
        cells = (f"  {rule['solved']:>7.1%} {rule['steps']:>8.1f}" for rule in row.values())
        lines.append(f"{size:>13}" + "".join(cells))
    return "\n".join(lines)


def draw(plane: Plane, config: Any) -> "Figure":
    """The plane of sizes and steps, of hard instances where there are such, and all as curves."""
    figure = new_figure(11, 4.2)
    image, curves = figure.subplots(1, 2)
    solved = plane.solved if plane.hard is None else plane.hard
    shown = image.imshow(solved, aspect="auto", origin="lower", vmin=0, vmax=1, cmap="viridis",
                         extent=(0, plane.solved.shape[1], -0.5, len(plane.sizes) - 0.5))  # fmt: skip
    image.set_yticks(range(len(plane.sizes)), [str(size) for size in plane.sizes])
    image.set(xlabel="thinking steps", ylabel=f"size ({config.problem})")
    image.set_title(f"share of {'' if plane.hard is None else 'hard '}problems solved", size=10)
    figure.colorbar(shown, ax=image)
    for size, solved in zip(plane.sizes, plane.solved, strict=True):
        trained = " (trained)" if size <= config.size else ""
        curves.plot(np.arange(1, solved.size + 1), solved, label=f"size {size}{trained}")
    if plane.hard is not None:
        curves.set_prop_cycle(None)  # The same colours again.
        curves.plot(np.arange(1, plane.hard.shape[1] + 1), plane.hard.T, linestyle="--")
        curves.plot([], [], "--", color="grey", label="hard ones")
    curves.axvline(config.before + config.gradient_steps, color="grey", linestyle=":", linewidth=1)
    curves.text(config.before + config.gradient_steps, 1.03, " most steps in training", size=8, color="grey")
    curves.set(xlabel="thinking steps", ylabel="solved", ylim=(-0.03, 1.1))
    curves.legend(frameon=False, fontsize=8, loc="lower right")
    curves.spines[["top", "right"]].set_visible(False)
    return figure
