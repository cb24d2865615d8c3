"""What the experiments with dataflow matrix machines share: the teacher, the loss, and how they finish."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import jax
import numpy as np
import optax
from jaxtyping import Array, Float

from lapwing import dmm
from lapwing.core import format_seconds
from lapwing.journal import RunWriter
from lapwing.report import answers_picture
from lapwing.synthesis import prune
from lapwing.task import Callback, CallbackEvent, adam_as_published
from lapwing.train import FitResult

TEXT = "test string."


def teacher_answers(cycles: int, text: str) -> Float[Array, "cycles 2"]:
    """The answers of the handcrafted duplicate detector."""
    program = dmm.compile(dmm.duplicate_detector(), cycles, text=text)
    return jax.jit(program.answers)(program.start)


OptimizerName = Literal["auto", "adam", "adam-as-published"]


def optimizer_of(name: OptimizerName, has_weights: bool) -> Callable[[Any], optax.GradientTransformation]:
    """The optimizer of a config: by default Adam as published, if a run starts from given weights."""
    if name == "auto":
        name = "adam-as-published" if has_weights else "adam"
    return adam_as_published if name == "adam-as-published" else optax.adam


def machine_from_file(file: str, below: float) -> dmm.Machine:
    """The machine or the published matrix in a file, without the soft links of a smaller |weight|."""
    return prune(dmm.Machine.load(file), below)


Loss = Callable[[jax.Array, object], tuple[jax.Array, dict[str, jax.Array]]]


def squared_error(program: dmm.Program, targets: Float[Array, "cycles fields"]) -> Loss:
    """The loss of a task, for the parameters of one machine or, with a leading axis, of each of several."""

    def loss(params: jax.Array, batch: object) -> tuple[jax.Array, dict[str, jax.Array]]:
        data_loss = program.loss(params, targets)
        return data_loss, {"data_loss": data_loss}

    return loss


def no_batch(key: jax.Array, step: jax.Array) -> dict[str, jax.Array]:
    """The data of these experiments are part of the program."""
    return {}


class ReportPublished(Callback):
    """Writes the machine and a plot of its answers to the run folder at the end, and prints a table of the published
    numbers and ours (the first of the `rows` is its header), a note on what the table compares, and the time per step,
    published and here."""

    def __init__(
        self,
        program: dmm.Program,
        targets: jax.Array,
        published_seconds: float | None,
        rows: Callable[[FitResult], Iterable[Sequence[Any]]],
        note: str = "",
    ):
        self._program, self._targets, self._seconds = program, targets, published_seconds
        self._rows, self._note = rows, note
        self._answers = jax.jit(program.answers)  # Compiled once for all runs of `fit_many`.

    def on_end(self, event: CallbackEvent) -> str:
        result, run = event.result, event.run
        if run is not None:
            self._program.with_params(result.params).save(run.folder / "machine.json")
            _draw_answers(self._answers(result.params), self._targets, self._program.fields, run)
        # A run that was stopped before its first step has no metrics.
        lines = [_table(list(self._rows(result))), self._note] if result.metrics else []
        now = result.times.seconds_per_step
        if self._seconds and now:
            lines.append(
                f"time per step: {self._seconds:g} s as published, {format_seconds(now)} here "
                f"({self._seconds / now:,.0f} times faster)"
            )
        return "\n\n".join(line for line in lines if line)


def _draw_answers(answers: jax.Array, targets: jax.Array, fields: Sequence[str], run: RunWriter) -> None:
    ours, theirs = (
        {field: np.asarray(table)[:, i].tolist() for i, field in enumerate(fields)}
        for table in (answers, targets)
    )
    picture = run.folder / "answers.png"
    answers_picture(ours, theirs, picture)
    run.add_picture(picture, "answers.png", "answers of the student and of the teacher")


def _table(rows: list[Sequence[Any]]) -> str:
    words = [[f"{cell:.7g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    if len(words) < 2:
        return ""
    widths = [max(len(row[i]) for row in words) for i in range(len(words[0]))]
    return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in words)
