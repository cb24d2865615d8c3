"""What the three experiments with dataflow matrix machines have in common: the teacher, and how they close."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing import dmm
from lapwing.core import format_seconds
from lapwing.journal import RunWriter
from lapwing.train import FitResult

TEXT = "test string."


def teacher_answers(cycles: int, text: str) -> jax.Array:
    """What the handcrafted duplicate detector answers: [cycles, 2]."""
    program = dmm.compile(dmm.duplicate_detector(), cycles, text=text)
    return jax.jit(program.answers)(program.start)


def drawn_start(program: dmm.Program, spread: float) -> Callable[[jax.Array], jax.Array]:
    """A start whose soft parameters are normal with this spread."""

    def init(key: jax.Array) -> jax.Array:
        return jnp.where(program.soft, spread * jax.random.normal(key, program.start.shape), program.start)

    return init


Loss = Callable[[jax.Array, object], tuple[jax.Array, dict[str, jax.Array]]]


def error_of(program: dmm.Program, targets: jax.Array) -> Loss:
    """The loss of a task: the sum of squared errors."""

    def loss(params: jax.Array, batch: object) -> tuple[jax.Array, dict[str, jax.Array]]:
        prereg = program.loss(params, targets)
        return prereg, {"prereg": prereg}

    return loss


def errors_of(program: dmm.Program, targets: jax.Array) -> Loss:
    """The same of many machines at once."""

    def losses(params: jax.Array, batch: object) -> tuple[jax.Array, dict[str, jax.Array]]:
        prereg = program.population(len(params)).losses(params, targets)
        return prereg, {"prereg": prereg}

    return losses


def no_batch(key: jax.Array, step: jax.Array) -> dict[str, jax.Array]:
    """The data of these experiments are the same in every step: they stand in the program."""
    return {}


def closing(
    program: dmm.Program,
    targets: jax.Array,
    seconds_then: float | None,
    rows: Callable[[FitResult], Iterable[Sequence[Any]]],
) -> Callable[[FitResult, RunWriter | None], str]:
    """A `finish` that writes the machine and a picture of its answers to the run folder, and tells of the published
    numbers beside ours, and of the time of a step then and now. The first of the `rows` is the heading."""

    answers = jax.jit(program.answers)  # Here, so that it is compiled once for all runs of a population.

    def finish(result: FitResult, run: RunWriter | None) -> str:
        if run is not None:
            _write_machine(program.with_params(result.params), run)
            _draw_answers(answers(result.params), targets, program.fields, run)
        # There are no metrics of a run that was stopped before its first step.
        lines = [_table(list(rows(result)) if result.metrics else [])]
        now = result.times.seconds_per_step
        if seconds_then and now:
            lines.append(
                f"then and now: {seconds_then:g} s a step as published, {format_seconds(now)} here "
                f"({seconds_then / now:,.0f} times faster)"
            )
        return "\n\n".join(line for line in lines if line)

    return finish


def _write_machine(machine: dmm.Machine, run: RunWriter) -> None:
    (run.folder / "machine.json").write_text(machine.to_json())


def _draw_answers(answers: jax.Array, targets: jax.Array, fields: Sequence[str], run: RunWriter) -> None:
    ours, theirs = (
        {field: np.asarray(table)[:, i].tolist() for i, field in enumerate(fields)}
        for table in (answers, targets)
    )
    picture = run.folder / "answers.png"
    dmm.plot_answers(ours, theirs, picture)
    run.add_picture(picture, "answers.png", "the answers of the student, over those of the teacher")


def _table(rows: list[Sequence[Any]]) -> str:
    words = [[f"{cell:.7g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    if len(words) < 2:
        return ""
    widths = [max(len(row[i]) for row in words) for i in range(len(words[0]))]
    return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in words)
