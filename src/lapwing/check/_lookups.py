"""Rows that are looked up in a table of the parameters, and that it does not have.

Jax raises nothing for an index out of range: it reads the last row (or a nan), and drops the gradient. Such an index is
most often a mark that was meant for the labels, or a vocabulary that is larger than its table.
"""

from typing import Any

import jax
import numpy as np

from lapwing import jaxprs

from ._jaxprs import place
from ._partition import is_array
from ._program import Program, among
from ._report import fail
from ._tokens import integers_behind


def check_lookups(program: Program, params: Any, batch: Any) -> None:
    """Raises if the batch looks up rows that a table does not have, and the loss depends on what is read instead."""
    if not all(map(is_array, jax.tree.leaves((params, batch)))):
        return
    names = {var: path for path, var in program.inputs["params"].items()}
    of_batch = program.dependent("batch")
    for eqn in program.eqns:
        if eqn.primitive.name != "gather":
            continue
        table, axes = program.source(eqn.invars[0]), eqn.params["dimension_numbers"].start_index_map
        if not among(table, names) or len(axes) != 1 or jaxprs.shape(table) != jaxprs.shape(eqn.invars[0]):
            continue
        rank = len(jaxprs.shape(eqn.outvars[0])) - 1
        sources = integers_behind(program, eqn.invars[1], of_batch)
        index = next((var for var in sources if len(jaxprs.shape(var)) == rank), None)
        if index is None:
            continue
        rows, (found,) = jaxprs.shape(table)[axes[0]], program.values([index], params, batch)
        rows_read = np.asarray(found)
        outside = rows_read[(rows_read < -rows) | (rows_read >= rows)]
        if outside.size and _matters(program, eqn, rows_read, rows, params, batch):
            raw = _as_written(program, eqn.invars[1], of_batch, rows, params, batch)
            fail(
                "numbers",
                f"at {place(eqn)} the batch looks up row {raw} of {names[table]}, which has {rows} rows: an index out "
                f"of range ({outside.size} of {rows_read.size}) reads another row, and its gradient is lost",
                "-100 or another mark of the labels in the inputs (written in place, into memory that both share), and "
                "the size of the table",
                [names[table], place(eqn)],
            )


def _as_written(program: Program, atom: Any, of_batch: Any, rows: int, params: Any, batch: Any) -> int:
    """The first index out of range, as it is in the batch: jax adds the number of rows to negative ones."""
    inputs = set(program.inputs["batch"].values())
    sources = sorted(integers_behind(program, atom, of_batch), key=lambda var: var not in inputs)
    for values in map(np.asarray, program.values(sources, params, batch)):
        outside = values[(values < -rows) | (values >= rows)]
        if outside.size:
            return int(outside[0])
    return rows


def _matters(program: Program, eqn: Any, index: np.ndarray, rows: int, params: Any, batch: Any) -> bool:
    """Whether the loss changes with what is read in the place of the rows that are not there."""
    loss, read = program.closed.jaxpr.outvars[0], eqn.outvars[0]
    if jaxprs.shape(loss) != ():
        return False
    before, values = map(np.asarray, program.values([loss, read], params, batch))
    outside = (index < -rows) | (index >= rows)
    if values.shape[:-1] != index.shape:
        return True
    noise = np.random.default_rng(0).normal(size=values.shape)
    other = np.where(outside[..., None], noise, values).astype(values.dtype)
    after = program.evaluator([loss], [read])(params, batch, others=[other])[0]
    return not np.allclose(np.asarray(after), before, rtol=1e-6, atol=0, equal_nan=True)
