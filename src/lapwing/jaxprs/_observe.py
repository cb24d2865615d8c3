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
from lapwing.jaxprs._loop import loop_of

# What has the same entries as its input, so that looking again would tell nothing.
_MOVES = frozenset({"broadcast_in_dim", "reshape", "transpose", "squeeze", "rev", "copy", "stop_gradient"})
_CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint"}
)

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
        if not jnp.issubdtype(jnp.result_type(value), jnp.floating) or not jnp.size(value):
            return None
        # Across devices the least of nan and a number may be the number.
        ends = jnp.stack([_number(jnp.min(value)), _number(jnp.max(value))])
        return self.add(jnp.where(jnp.isnan(value).any(), jnp.nan, ends))

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
        frame = Frame(num_consts=loop.num_consts, num_carry=loop.num_carry, offset=len(closed_over))
        body = core.ClosedJaxpr(loop.jaxpr, ())

        def step(state: Any, x: Any) -> tuple[Any, Any]:
            kept, carry = state[:5], state[5:]
            outputs, vector = _run(frame, body, [*consts, *carry, *x])
            kept = _keep(kept, vector, frame.outputs)
            return [*kept, *outputs[: loop.num_carry]], outputs[loop.num_carry :]

        first = jax.tree.map(lambda leaf: leaf[0], list(xs))
        size = jax.eval_shape(lambda c, x: _run(frame, body, [*consts, *c, *x])[1], list(init), first).size
        state, ys = loop.iterate(step, [*_kept(size), *init], xs)
        start = self.add(_flat(state[:5]))
        inner = Inner(frame, start, True, loop.length if loop.reverse else 0)
        return [*state[5:], *ys], (inner,)

    def _while(self, eqn: core.JaxprEqn, inputs: list[Any]) -> tuple[list[Any], tuple[Inner, ...]]:
        of_cond, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        asked, body = eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"]
        cond_consts, consts, init = (
            inputs[:of_cond],
            inputs[of_cond : of_cond + of_body],
            inputs[of_cond + of_body :],
        )
        frame = Frame(num_consts=of_body, num_carry=len(init), offset=-of_cond)

        def goes_on(state: list[Any]) -> Any:
            return core.jaxpr_as_fun(asked)(*cond_consts, *state[5:])[0]

        def step(state: list[Any]) -> list[Any]:
            outputs, vector = _run(frame, body, [*consts, *state[5:]])
            return [*_keep(state[:5], vector, frame.outputs), *outputs]

        size = jax.eval_shape(lambda c: _run(frame, body, [*consts, *c])[1], init).size
        state = jax.lax.while_loop(goes_on, step, [*_kept(size), *map(jnp.asarray, init)])
        return state[5:], (Inner(frame, self.add(_flat(state[:5])), True),)

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


def called_by(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """What a call runs that can be inlined where nothing is differentiated; None for anything else."""
    if eqn.primitive.name not in _CALLS:
        return None
    inner = next((eqn.params[name] for name in ("call_jaxpr", "jaxpr") if name in eqn.params), None)
    return core.ClosedJaxpr(inner, ()) if isinstance(inner, core.Jaxpr) else inner


def _number(value: jax.Array) -> jax.Array:
    return value.astype(jnp.result_type(float))


def _kept(size: int) -> list[jax.Array]:
    """Before the first iteration: its number, those of the two iterations that are kept, and their vectors."""
    none, empty = jnp.full((), -1, jnp.int32), jnp.zeros(size, jnp.result_type(float))
    return [jnp.zeros((), jnp.int32), none, none, empty, empty]


def _keep(kept: Sequence[jax.Array], vector: jax.Array, outputs: Sequence[Slot]) -> list[jax.Array]:
    at, first_nan, first_bad, of_nan, of_bad = kept
    slots = [slot for slot in outputs if slot is not None]
    ends = jnp.stack([vector[slot + end] for slot in slots for end in (0, 1)]) if slots else jnp.zeros(1)
    is_nan = (first_nan < 0) & jnp.isnan(ends).any()
    is_bad = (first_bad < 0) & ~jnp.isfinite(ends).all()
    return [
        at + 1,
        jnp.where(is_nan, at, first_nan),
        jnp.where(is_bad, at, first_bad),
        jnp.where(is_nan, vector, of_nan),
        jnp.where(is_bad, vector, of_bad),
    ]


def _flat(kept: Sequence[jax.Array]) -> jax.Array:
    _, first_nan, first_bad, of_nan, of_bad = kept
    return jnp.concatenate([jnp.stack([_number(first_nan), _number(first_bad)]), of_nan, of_bad])
