"""`lapwing evaluate` of a thinker: the problems it solves, over their size and the steps it thinks, as one picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lapwing.core import new_figure, png_of
from lapwing.data.problems import Instances, Problem
from lapwing.models import Looped

from ._evaluate import Evaluated, Trained
from ._thinker_film import film_files

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


@dataclass(frozen=True)
class Plane:
    """The share of problems that are solved, of each size after each step."""

    sizes: tuple[int, ...]
    solved: Float[np.ndarray, "sizes steps"]
    hard: Float[np.ndarray, "sizes steps"] | None = None
    """Of hard instances, such as sums with long carries, where the problem has such."""


def evaluate_thinking(trained: Trained, options: Evaluation) -> Evaluated:
    """Solves problems of several sizes, and draws what comes out into the folder of the run."""
    config = trained.config
    sizes = options.sizes or default_sizes(config)
    steps = options.steps or config.thinking(max(sizes))
    plane = plane_of(config, trained.params, sizes, steps, options.count, options.seed)
    trained.run.put("pictures/thinking.png", png_of(lambda: draw(plane, config), dpi=130))
    filmed = config.harder(1.0) or config.kind
    one = filmed.draw(jax.random.key(options.seed), 1, max(sizes), "test").inputs[0]
    for name, content in film_files(config.kind, trained.params, np.asarray(one), steps).items():
        trained.run.put(f"pictures/{name}", content)
    rows = _rows(plane)
    numbers = {"sizes": [row["size"] for row in rows], "solved": rows}
    best = ", ".join(f"size {row['size']}: {row['at the end']:.1%}" for row in rows)
    return Evaluated(numbers, f"{best} after {steps} steps", _text(rows, steps))


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
    config: Any, model: Looped, sizes: Sequence[int], steps: int, count: int, seed: int = 0
) -> Plane:
    """How many are solved, after each step."""

    def solved(problem: Problem) -> Float[np.ndarray, "sizes steps"]:
        drawn = [problem.draw(jax.random.key(seed), count, size, "test") for size in sizes]
        return np.stack([solved_over_steps(problem, model, instances, steps) for instances in drawn])

    hard = config.harder(1.0)
    return Plane(tuple(sizes), solved(config.kind), hard and solved(hard))


def solved_over_steps(
    problem: Problem, model: Looped, instances: Instances, steps: int
) -> Float[Array, " steps"]:
    """The share of problems whose answer is right, after each step."""

    @jax.jit
    def run(model: Looped, instances: Instances) -> Array:
        recalled = model.recall(instances.inputs)

        def step(state: Array, _: None) -> tuple[Array, Array]:
            state = model.step(state, recalled)
            right = problem.right(instances, jnp.argmax(model.logits(state), axis=-1))
            return state, jnp.mean(right.astype(jnp.float32))

        return jax.lax.scan(step, model.start(instances.inputs), None, length=steps)[1]

    return run(model, instances)


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
