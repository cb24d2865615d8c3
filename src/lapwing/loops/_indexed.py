"""The pass for `xs[i]` with a counter: rows read by their number become xs, and rows written by it become ys.

A loop written with `fori_loop`, or with a counter in its carry, reads `xs[i]` from a constant and writes
`ys.at[i].set(y)` to a carry. Where the indices of all steps are known (`_counters`) and run through the rows in order,
`xs` is simply an input of the loop and `ys` an output. What depends on the row can then be hoisted, and the gradient of
`xs` is written row by row, while jax adds an array of the size of `xs` in every step.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.jaxprs import Loop, Values, interpret
from lapwing.loops._bound import BoundLoop, Rewritten
from lapwing.loops._costs import Costs
from lapwing.loops._counters import Known, counter_steps, known_integers
from lapwing.loops._decisions import Decision
from lapwing.loops._hoist import constant_vars, evaluate


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of an array that the steps read or write, in the order of xs and ys: first, last, and the distance."""

    axis: int
    size: int
    first: int
    last: int
    stride: int

    @property
    def all_in_order(self) -> bool:
        """Whether they are the array itself, so that nothing is copied."""
        return self.axis == 0 and (self.first, self.last, self.stride) == (0, self.size - 1, 1)

    def take(self, array: Any) -> Any:
        """These rows, stacked."""
        if self.all_in_order:
            return array
        low, high = sorted((self.first, self.last))
        rows = lax.slice_in_dim(array, low, high + 1, abs(self.stride), self.axis)
        rows = lax.rev(rows, (self.axis,)) if self.stride < 0 else rows
        return jnp.moveaxis(rows, self.axis, 0)

    def put(self, array: Any, rows: Any) -> Any:
        """The array with these rows replaced by a stack."""
        if self.all_in_order:
            return rows
        low, high = sorted((self.first, self.last))
        rows = lax.rev(rows, (0,)) if self.stride < 0 else rows
        where = (slice(None),) * self.axis + (slice(low, high + 1, abs(self.stride)),)
        return array.at[where].set(jnp.moveaxis(rows, 0, self.axis))


def rows_of(shape: tuple[int, ...], window: list[int], index: np.ndarray, clamps: bool) -> Rows | None:
    """The rows that windows of this size at these indices (steps × axes) are, if they are one row in each step."""
    whole = [axis for axis, n in enumerate(window) if n == shape[axis]]
    axes = [axis for axis in range(len(shape)) if axis not in whole]
    if len(axes) != 1 or window[axes[0]] != 1 or len(index) < 2:
        return None
    limits = np.subtract(shape, window)
    if clamps:
        index = np.clip(index, 0, limits)
    elif (index < 0).any() or (index > limits).any():
        return None
    numbers = index[:, axes[0]].astype(np.int64)
    strides = np.diff(numbers)
    if strides[0] == 0 or (strides != strides[0]).any():
        return None
    return Rows(axes[0], shape[axes[0]], int(numbers[0]), int(numbers[-1]), int(strides[0]))


def read_rows(eqn: core.JaxprEqn, known: Known) -> Rows | None:
    """The rows of its first operand that an equation reads, if they are known."""
    shape = jaxprs.shape(eqn.invars[0])
    if eqn.primitive is p.dynamic_slice_p:
        index = _indices(eqn.invars[1:], known)
        return None if index is None else rows_of(shape, list(eqn.params["slice_sizes"]), index, clamps=True)
    if eqn.primitive is not p.gather_p:
        return None
    numbers = eqn.params["dimension_numbers"]
    if numbers.operand_batching_dims or len(jaxprs.shape(eqn.invars[1])) != 1:
        return None
    index = _scattered(eqn.invars[1], numbers.start_index_map, len(shape), known)
    clamps = eqn.params["mode"] is lax.GatherScatterMode.CLIP
    return None if index is None else rows_of(shape, list(eqn.params["slice_sizes"]), index, clamps)


def written_rows(eqn: core.JaxprEqn, known: Known) -> Rows | None:
    """The rows of its first operand that an equation replaces, if they are known."""
    shape = jaxprs.shape(eqn.invars[0])
    if eqn.primitive is p.dynamic_update_slice_p:
        index = _indices(eqn.invars[2:], known)
        return (
            None if index is None else rows_of(shape, list(jaxprs.shape(eqn.invars[1])), index, clamps=True)
        )
    if eqn.primitive is not p.scatter_p or len(jaxprs.shape(eqn.invars[1])) != 1:
        return None
    numbers = eqn.params["dimension_numbers"]
    update = iter(jaxprs.shape(eqn.invars[2]))
    if numbers.operand_batching_dims or len(numbers.update_window_dims) != len(jaxprs.shape(eqn.invars[2])):
        return None
    window = [1 if axis in numbers.inserted_window_dims else next(update) for axis in range(len(shape))]
    index = _scattered(eqn.invars[1], numbers.scatter_dims_to_operand_dims, len(shape), known)
    return None if index is None else rows_of(shape, window, index, clamps=False)


def _indices(atoms: list[jaxprs.Atom], known: Known) -> np.ndarray | None:
    """Indices given one by one, as steps × axes."""
    found = [np.asarray(a.val) if isinstance(a, core.Literal) else known.get(a) for a in atoms]
    if any(each is None for each in found) or not any(isinstance(a, core.Var) for a in atoms):
        return None
    return np.stack(np.broadcast_arrays(*found), -1)  # pyright: ignore[reportCallIssue, reportArgumentType]


def _scattered(atom: jaxprs.Atom, axes: tuple[int, ...], rank: int, known: Known) -> np.ndarray | None:
    """Indices given as a vector for some of the axes, as steps × axes."""
    if not isinstance(atom, core.Var) or atom not in known:
        return None
    index = np.zeros((len(known[atom]), rank), np.int64)
    index[:, list(axes)] = known[atom]
    return index


@dataclasses.dataclass(frozen=True)
class _Plan:
    reads: dict[int, tuple[core.Var, Rows]]
    """By equation: the constant it reads, and which rows."""
    writes: dict[int, tuple[core.JaxprEqn, Rows]]
    """By carry: the equation that writes to it, and which rows."""
    counters: dict[int, int]
    """By carry: what each step adds to it."""
    decisions: list[Decision]


def _plan(loop: Loop, known: Known, costs: Costs) -> _Plan:
    made_by = {var: eqn for eqn in loop.eqns for var in eqn.outvars}
    uses = loop.uses()
    reads, decisions = _reads(loop, known, costs) if known else ({}, [])
    writes = {}
    for index, (carry, out) in enumerate(zip(loop.carry, loop.carry_out, strict=True)):
        eqn = made_by.get(out) if known and isinstance(out, core.Var) else None
        if eqn is None or carry not in jaxprs.variables(eqn.invars[:1]):
            continue
        read_only_here = (uses[carry], uses[eqn.outvars[0]]) == (1, 1)
        if read_only_here and (rows := written_rows(eqn, known)):
            writes[index] = (eqn, rows)
    counters = {i: step for i, step in counter_steps(loop).items() if loop.carry[i] in known}
    return _Plan(reads, writes, counters, decisions)


def _reads(loop: Loop, known: Known, costs: Costs) -> tuple[dict[int, tuple[core.Var, Rows]], list[Decision]]:
    constant = constant_vars(loop)
    found = {
        id(eqn): (eqn, array, rows)
        for eqn in loop.eqns
        for array in jaxprs.variables(eqn.invars[:1])
        if array in constant and (rows := read_rows(eqn, known))
    }
    before = constant | set(loop.xs) | {var for eqn, _, _ in found.values() for var in eqn.outvars}
    for eqn in loop.eqns:
        if before.issuperset(jaxprs.variables(eqn.invars)):
            before.update(eqn.outvars)

    def feeds_product(row: core.Var) -> bool:
        reached = jaxprs.depends_on(loop.eqns, [row])
        made = (eqn for eqn in loop.eqns if before.issuperset(eqn.outvars) and jaxprs.holds_products(eqn))
        return any(not reached.isdisjoint(eqn.outvars) for eqn in made)

    decisions = {
        key: costs.takes_rows(eqn, copied=not rows.all_in_order, feeds_product=feeds_product(eqn.outvars[0]))
        for key, (eqn, _, rows) in found.items()
    }
    taken = {key: (array, rows) for key, (_, array, rows) in found.items() if decisions[key]}
    return taken, list(decisions.values())


def rows_to_xs(bound: BoundLoop, costs: Costs) -> Rewritten:
    """Rows of constants become xs and rows written to carries become ys, where a counter runs through them."""
    loop = bound.loop
    plan = _plan(loop, known_integers(loop, bound.init, bound.xs), costs)
    if not plan.reads and not plan.writes:
        return Rewritten(bound, decisions=tuple(plan.decisions))
    sources = list(dict.fromkeys(plan.reads.values()))
    arrays = dict(zip(loop.consts, bound.consts, strict=True))
    arrays |= evaluate(loop.eqns, arrays, {array for array, _ in sources})
    rows = [taken.take(arrays[array]) for array, taken in sources]
    left, staying = _with_rows(bound, plan, sources, rows)

    def undo(out: list[Any]) -> list[Any]:
        last = dict(zip(staying, out, strict=False))
        written = dict(zip(plan.writes, out[len(out) - len(plan.writes) :], strict=True))
        for index, (_, where) in plan.writes.items():
            last[index] = where.put(bound.init[index], written[index])
        for index, step in plan.counters.items():
            last.setdefault(index, _after(loop, index, step, bound.init[index]))
        ys = out[len(staying) : len(out) - len(plan.writes)]
        return [*(last[i] for i in range(loop.num_carry)), *ys]

    return Rewritten(left, undo, tuple(plan.decisions))


def _after(loop: Loop, index: int, step: int, start: Any) -> Any:
    """A counter's value at the end. What is added fits its type, and as a Python number leaves a weak type weak."""
    grown = np.asarray(loop.length * step).astype(jaxprs.dtype(loop.carry[index]))
    return jnp.asarray(start) + int(grown)


def _with_rows(
    bound: BoundLoop, plan: _Plan, sources: list[tuple[core.Var, Rows]], rows: Values
) -> tuple[BoundLoop, list[int]]:
    """The loop with rows as its last xs and ys, and which of its carries are left."""
    loop = bound.loop
    writes = {id(eqn): index for index, (eqn, _) in plan.writes.items()}

    def step(*values: Any) -> list[Any]:
        inputs = values[: len(loop.jaxpr.invars)]
        now = dict(zip(sources, values[len(inputs) :], strict=True))
        new: dict[int, Any] = {}

        def rule(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any] | None:
            if id(eqn) in plan.reads:
                return [now[plan.reads[id(eqn)]].reshape(jaxprs.shape(eqn.outvars[0]))]
            if (index := writes.get(id(eqn))) is None:
                return None
            row = inputs[1] if eqn.primitive is p.dynamic_update_slice_p else inputs[2]
            axis = plan.writes[index][1].axis
            new[index] = row.reshape(np.delete(jaxprs.shape(loop.carry[index]), axis))
            return [inputs[0]]

        out = interpret(loop.jaxpr, inputs, rule)
        return [*out, *(new[index] for index in plan.writes)]

    of_rows = [jax.ShapeDtypeStruct(row.shape[1:], row.dtype, weak_type=False) for row in rows]
    jaxpr, closed_over = jaxprs.trace(step, [*(var.aval for var in loop.jaxpr.invars), *of_rows])
    num_consts = loop.num_consts + len(closed_over)
    wide = dataclasses.replace(loop, jaxpr=jaxpr, num_consts=num_consts)

    moving = [i for i in range(loop.num_carry) if i not in plan.writes and i not in plan.counters]
    results = [*(wide.carry_out[i] for i in moving), *wide.ys]
    read = set(jaxprs.reads(jaxprs.needed(wide.eqns, results), results))
    staying = [
        i for i in range(loop.num_carry) if i in moving or (wide.carry[i] in read and i in plan.counters)
    ]
    inputs = [*wide.consts, *(wide.carry[i] for i in staying), *wide.xs]
    outputs = [*(wide.carry_out[i] for i in staying), *wide.ys]
    slim = jaxprs.part(jaxpr, wide.eqns, inputs, outputs)
    left = dataclasses.replace(wide, jaxpr=slim, num_carry=len(staying))
    init = [bound.init[i] for i in staying]
    return BoundLoop(left, [*closed_over, *bound.consts], init, [*bound.xs, *rows]), staying
