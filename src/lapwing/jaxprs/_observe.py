"""A program run with a look at every float value in it: its least and its largest entry.

`observe` makes a function that computes what the program computes and a vector of numbers beside it. The function can
be compiled, so that looking costs a fraction of a step and not one call of the device for every equation. What the
numbers are about is a `Frame`, which is made while the function is traced: its nodes are the equations in order, each
with the places of its inputs and outputs in the vector. Calls are inlined. A loop has a frame of its own, whose vector
is kept for two iterations: the first one that returned a nan, and the first one that returned nan or an infinity.

Operations that only move entries (a reshape, a transpose) have no numbers of their own, but those of their input.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.jaxprs._interpret import bind
from lapwing.jaxprs._iterations import (
    INFINITY,
    NAN,
    Extent,
    badness,
    called_by,
    ends,
    extent,
    has_extent,
    run_quietly,
    visit,
)
from lapwing.jaxprs._loop import loop_of

# What has the same entries as its input, so that looking again would tell nothing.
_MOVES = frozenset({"broadcast_in_dim", "reshape", "transpose", "squeeze", "rev", "copy", "stop_gradient"})
Slot = int | None
"""Where a vector has the least and, after it, the largest entry of a value; None for what is not a float."""


@dataclasses.dataclass(frozen=True)
class Inner:
    """A program inside a node: the vector of its frame is at `start` of the outer one. For a loop there are two numbers
    of iterations and two vectors; `reverse` is the length of a loop that runs backward, else 0."""

    frame: "Frame"
    start: int
    is_loop: bool
    reverse: int = 0


@dataclasses.dataclass(frozen=True)
class Node:
    """One equation, with the calls that it was inlined from, the outermost first."""

    eqn: core.JaxprEqn
    calls: tuple[core.JaxprEqn, ...]
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    inner: tuple[Inner, ...] = ()


@dataclasses.dataclass
class Frame:
    """What the numbers of a vector are about. `inputs` and `outputs` are those of the program; input n of the frame is
    input n - `offset` of the equation around it. A loop has `num_consts` constants and `num_carry` carries."""

    nodes: list[Node] = dataclasses.field(default_factory=list)
    inputs: tuple[Slot, ...] = ()
    outputs: tuple[Slot, ...] = ()
    size: int = 0
    num_consts: int = 0
    num_carry: int = 0
    offset: int = 0

    def producers(self) -> dict[int, Node]:
        """The node that made the value of each slot; none for inputs and constants."""
        made: dict[int, Node] = {}
        for node in self.nodes:
            for slot in node.outputs:
                if slot is not None and slot not in self.inputs and slot not in node.inputs:
                    made.setdefault(slot, node)
        return made


def observe(closed: core.ClosedJaxpr) -> tuple[Callable[..., tuple[list[Any], jax.Array]], Frame]:
    """A function of the flat inputs that returns the flat outputs and the vector; its frame is filled by tracing it.

    >>> closed = jax.make_jaxpr(lambda x: jnp.log(x) + 1)(jnp.ones(2))
    >>> run, frame = observe(closed)
    >>> _, numbers = jax.jit(run)(jnp.array([0.0, 1.0]))
    >>> [(node.eqn.primitive.name, numbers[node.outputs[0]].item()) for node in frame.nodes]
    [('log', -inf), ('add', -inf)]
    """
    frame = Frame()

    def run(*values: Any) -> tuple[list[Any], jax.Array]:
        return _run(frame, closed, values)

    return run, frame


def _run(frame: Frame, closed: core.ClosedJaxpr, values: Sequence[Any]) -> tuple[list[Any], jax.Array]:
    """Runs a program on its inputs, and fills `frame`."""
    recorder = _Recorder()
    inputs = tuple(map(recorder.slot, values))
    outputs = recorder.run(closed.jaxpr, [*closed.consts, *values], ())
    frame.nodes, frame.inputs = recorder.nodes, inputs
    frame.outputs = tuple(map(recorder.slot, outputs))
    vector = recorder.vector()
    frame.size = vector.size
    return outputs, vector


class _Recorder:
    """Takes down the values of one program, without those of the loops inside."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._parts: list[jax.Array] = []
        self._size = 0
        self._slots: dict[int, Slot] = {}
        self._seen: list[Any] = []  # Keeps the values alive: their ids are the keys.

    def run(self, jaxpr: core.Jaxpr, values: Sequence[Any], calls: tuple[core.JaxprEqn, ...]) -> list[Any]:
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], values, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else env[atom]

        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outvars, self._equation(eqn, list(map(read, eqn.invars)), calls), strict=True))
        return list(map(read, jaxpr.outvars))

    def _equation(
        self, eqn: core.JaxprEqn, inputs: list[Any], calls: tuple[core.JaxprEqn, ...]
    ) -> Sequence[Any]:
        if not eqn.outvars and eqn.effects:
            return []  # A print would be printed twice.
        if (called := called_by(eqn)) is not None:
            return self.run(called.jaxpr, [*called.consts, *inputs], (*calls, eqn))
        slots = tuple(map(self.slot, inputs))
        inner: tuple[Inner, ...] = ()
        if eqn.primitive is p.scan_p:
            outputs, inner = self._scan(eqn, inputs)
        elif eqn.primitive is p.while_p:
            outputs, inner = self._while(eqn, inputs)
        elif eqn.primitive is p.cond_p:
            outputs, inner = self._cond(eqn, inputs)
        else:
            outputs = bind(eqn, inputs)
        if eqn.primitive.name in _MOVES:
            self._remember(outputs[0], slots[0])
        self.nodes.append(Node(eqn, calls, slots, tuple(map(self.slot, outputs)), inner))
        return outputs

    def slot(self, value: Any) -> Slot:
        """Where the numbers of a value are; they are computed the first time."""
        if id(value) not in self._slots:
            self._remember(value, self._look(value))
        return self._slots[id(value)]

    def _remember(self, value: Any, slot: Slot) -> None:
        self._slots[id(value)] = slot
        self._seen.append(value)

    def _look(self, value: Any) -> Slot:
        return self.add(_number(ends(extent(value)))) if has_extent(value) else None

    def add(self, part: jax.Array) -> int:
        """The place of further numbers."""
        self._parts.append(part)
        self._size += part.size
        return self._size - part.size

    def vector(self) -> jax.Array:
        return jnp.concatenate([jnp.zeros(0, jnp.result_type(float)), *self._parts])

    # Programs inside equations.

    def _scan(self, eqn: core.JaxprEqn, inputs: list[Any]) -> tuple[list[Any], tuple[Inner, ...]]:
        loop, closed_over = loop_of(eqn)
        consts, init, xs = loop.split_inputs([*closed_over, *inputs])
        body = core.ClosedJaxpr(loop.jaxpr, ())
        frame = Frame(num_consts=loop.num_consts, num_carry=loop.num_carry, offset=len(closed_over))

        def step(carry: Sequence[Any], x: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            outputs = run_quietly(body, [*consts, *carry, *x])
            return outputs[: loop.num_carry], outputs[loop.num_carry :]

        def noting(carry: Sequence[Any], x: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            carry, ys = step(carry, x)
            return carry, [badness(_extents(carry)), *ys]

        def inputs_at(number: jax.Array, carry: Sequence[Any]) -> list[Any]:
            place = loop.length - 1 - number if loop.reverse else number
            x = [jax.lax.dynamic_index_in_dim(leaf, place, keepdims=False) for leaf in xs]
            return [*consts, *carry, *x]

        def advance(number: jax.Array, carry: Sequence[Any]) -> list[Any]:
            return run_quietly(body, inputs_at(number, carry))[: loop.num_carry]

        carry, (found, *ys) = loop.iterate(noting, init, xs)
        if not loop.length:
            return [*carry, *ys], ()
        rows = [extent(y, axis=0) if has_extent(y) else None for y in ys]
        for y, each in zip(ys, rows, strict=True):
            self._remember(y, None if each is None else self.add(_number(ends(each))))
        found = jnp.maximum(found, badness([each for each in rows if each is not None]))
        found = found[::-1] if loop.reverse else found
        firsts = [
            jnp.where((found >= least).any(), jnp.argmax(found >= least), -1) for least in (NAN, INFINITY)
        ]
        vectors = visit(
            firsts,
            list(map(jnp.asarray, init)),
            advance,
            lambda n, carry: _run(frame, body, inputs_at(n, carry))[1],
        )
        start = self.add(_flat(firsts, vectors))
        return [*carry, *ys], (Inner(frame, start, True, loop.length if loop.reverse else 0),)

    def _while(self, eqn: core.JaxprEqn, inputs: list[Any]) -> tuple[list[Any], tuple[Inner, ...]]:
        of_cond, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        asked, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        cond_consts, consts, init = (
            inputs[:of_cond],
            inputs[of_cond : of_cond + of_body],
            list(map(jnp.asarray, inputs[of_cond + of_body :])),
        )
        frame = Frame(num_consts=of_body, num_carry=len(init), offset=-of_cond)

        def goes_on(state: Any) -> Any:
            return run_quietly(asked, [*cond_consts, *state[2]])[0]

        def noting(state: Any) -> Any:
            number, firsts, carry = state
            carry = run_quietly(body, [*consts, *carry])
            found = badness(_extents(carry))
            levels = zip(firsts, (NAN, INFINITY), strict=True)
            firsts = [jnp.where((first < 0) & (found >= least), number, first) for first, least in levels]
            return number + 1, firsts, carry

        none = jnp.full((), -1, jnp.int32)
        _, firsts, carry = jax.lax.while_loop(goes_on, noting, (jnp.zeros((), jnp.int32), [none, none], init))
        vectors = visit(
            firsts,
            init,
            lambda _, carry: run_quietly(body, [*consts, *carry]),
            lambda _, carry: _run(frame, body, [*consts, *carry])[1],
        )
        return carry, (Inner(frame, self.add(_flat(firsts, vectors)), True),)

    def _cond(self, eqn: core.JaxprEqn, inputs: list[Any]) -> tuple[list[Any], tuple[Inner, ...]]:
        which, *operands = inputs
        branches = eqn.params["branches"]
        frames = [Frame(offset=-1) for _ in branches]
        sizes = [
            jax.eval_shape(lambda *values, f=frame, b=branch: _run(f, b, values)[1], *operands).size
            for frame, branch in zip(frames, branches, strict=True)
        ]

        def taken(at: int) -> Callable[..., Any]:
            def run(*values: Any) -> Any:
                outputs, vector = _run(frames[at], branches[at], values)
                zeros = [jnp.zeros(size, vector.dtype) for size in sizes]
                return outputs, jnp.concatenate([*zeros[:at], vector, *zeros[at + 1 :]])

            return run

        outputs, vector = jax.lax.switch(which, [taken(at) for at in range(len(branches))], *operands)
        start = self.add(vector)
        starts = [start + sum(sizes[:at]) for at in range(len(branches))]
        return outputs, tuple(Inner(frame, at, False) for frame, at in zip(frames, starts, strict=True))


def _extents(values: Sequence[Any]) -> list[Extent]:
    return [extent(value) for value in values if has_extent(value)]


def _number(value: jax.Array) -> jax.Array:
    return value.astype(jnp.result_type(float))


def _flat(firsts: Sequence[jax.Array], vectors: Sequence[jax.Array]) -> jax.Array:
    return jnp.concatenate([jnp.stack([_number(first) for first in firsts]), *vectors])
