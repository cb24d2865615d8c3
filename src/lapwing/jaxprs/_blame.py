"""The equation that made a value that is not finite, read from what `observe` saw.

From an output that is not finite the way leads back, over inputs that are not finite, to an equation whose inputs were
all finite. So a mask of -inf, or a log of 0 that a `where` leaves out, is not blamed for a nan that comes from
elsewhere; a nan that is a constant of the program is blamed on the operation that takes it in. Where the way leads into
a loop, it goes on in the iteration that was the first to return such a value.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core, source_info_util

from lapwing.jaxprs._observe import Frame, Inner, Node, Slot
from lapwing.jaxprs._read import dtype, equations, inner_jaxprs, shape

_NO_PLACE = "an unknown place"


class Iteration(NamedTuple):
    """An iteration of a loop, counted from 0 in the order of its inputs."""

    kind: str
    place: str
    number: int


class Value(NamedTuple):
    """An input or output of an equation: its type, least and largest entry (nan where it holds nan)."""

    type: str
    least: float
    largest: float

    def __str__(self) -> str:
        if math.isnan(self.least):
            return f"{self.type} with nan"
        if self.least == self.largest:
            return f"{self.type} all {self.least:.4g}"
        return f"{self.type} from {self.least:.4g} to {self.largest:.4g}"


class Blame(NamedTuple):
    """Where a value that is not finite was made: the operation, its line of source, the iterations of the loops around
    it (the outermost first), and its inputs. For an input of the program that is not finite itself, `input` is its
    number and there is no operation."""

    operation: str
    place: str
    iterations: tuple[Iteration, ...]
    inputs: tuple[Value, ...]
    output: Value
    is_backward: bool = False
    input: int | None = None

    def __str__(self) -> str:
        where = "".join(
            f", iteration {each.number} of the {each.kind} at {each.place}" for each in self.iterations
        )
        when = "the backward pass of " if self.is_backward else ""
        given = " and ".join(map(str, self.inputs))
        return f"{self.operation} at {when}{self.place}{where}: inputs {given}; output {self.output}"


def blame(frame: Frame, vector: Any, outputs: Sequence[int] | None = None) -> Blame | None:
    """What made an output that is not finite; None if all are finite.

    **Arguments:** `frame` and `vector` are those of `observe`; `outputs` are the numbers of the outputs to explain, by
    default all.

    >>> import jax, jax.numpy as jnp
    >>> from lapwing.jaxprs import observe
    >>> def loss(x):
    ...     masked = jnp.where(x > 2, -jnp.inf, x)  # Meant to be so: not blamed.
    ...     return jax.lax.scan(lambda carry, _: (jnp.log(carry) + jnp.exp(masked).sum(), None), x[0], length=5)[0]
    >>> run, frame = observe(jax.make_jaxpr(loss)(jnp.ones(3)))
    >>> x = jnp.array([1e-3, 3.0, 4.0])
    >>> found = blame(frame, jax.jit(run)(x)[1])
    >>> found.operation, found.iterations[0].number, str(found.inputs[0])
    ('log', 1, 'float32 all -5.907')
    """
    numbers = np.asarray(vector, np.float64)
    wanted = [frame.outputs[at] for at in (range(len(frame.outputs)) if outputs is None else outputs)]
    bad = [slot for slot in wanted if slot is not None and _is_bad(numbers, slot)]
    view = _View(frame, numbers, ())
    for slot in sorted(bad, key=lambda slot: not _is_nan(numbers, slot)):
        found = view.origin(slot)
        if isinstance(found, Blame):
            return found
        if isinstance(found, int):
            value = Value("", numbers[slot], numbers[slot + 1])
            return Blame("", "", (), (), value, input=found)
    made = frame.producers()
    return next((view.blame(made[slot], slot) for slot in bad if slot in made), None)


class _View:
    """A frame with the vector of one iteration, and the iterations that lead to it."""

    def __init__(self, frame: Frame, numbers: np.ndarray, iterations: tuple[Iteration, ...]):
        self._frame, self._numbers, self._iterations = frame, numbers, iterations
        self._made = frame.producers()
        self._known: dict[int, Blame | int | None] = {}

    def origin(self, slot: int) -> Blame | int | None:
        """The equation behind a value that is not finite; the number of the program's input; None for a constant."""
        if slot not in self._known:
            self._known[slot] = None
            self._known[slot] = self._origin(slot)
        return self._known[slot]

    def _origin(self, slot: int) -> Blame | int | None:
        if slot in self._frame.inputs:
            return self._frame.inputs.index(slot)
        node = self._made.get(slot)
        if node is None or self._is_constant(slot):
            return None
        for inner in node.inner:
            found = self._inside(node, inner)
            if found is not None:
                return found
        given = sorted(self._bad(node.inputs), key=lambda slot: not _is_nan(self._numbers, slot))
        for each in given:
            found = self.origin(each)
            if found is not None:
                return found
        with_nan = [each for each in given if _is_nan(self._numbers, each)]
        is_new = not given or (_is_nan(self._numbers, slot) and all(map(self._is_constant, with_nan)))
        return self.blame(node, slot) if is_new else None

    def _is_constant(self, slot: Slot) -> bool:
        """Whether a value is made of constants alone."""
        if slot is None or slot in self._frame.inputs:
            return False
        node = self._made.get(slot)
        return node is None or all(map(self._is_constant, node.inputs))

    def _inside(self, node: Node, inner: Inner) -> Blame | int | None:
        """The same for an output of a loop or of a branch."""
        for view in self._views(node, inner):
            for slot in view._bad(view._frame.outputs):
                found = view.origin(slot)
                if isinstance(found, int):
                    found = self._outside(node, inner, found, view._iterations[-1] if inner.is_loop else None)
                if found is not None:
                    return found
        return None

    def _outside(self, node: Node, inner: Inner, number: int, last: Iteration | None) -> Blame | int | None:
        """An input of a loop or branch that is not finite, in the program around it."""
        frame = inner.frame
        is_carry = frame.num_consts <= number < frame.num_consts + frame.num_carry
        first = inner.reverse - 1 if inner.reverse else 0
        if is_carry and last is not None and last.number != first:
            return None  # From an iteration before it, at which the other vector looks.
        at = number - frame.offset
        slot = node.inputs[at] if 0 <= at < len(node.inputs) else None
        return self.origin(slot) if slot is not None and _is_bad(self._numbers, slot) else None

    def _views(self, node: Node, inner: Inner) -> Iterator["_View"]:
        frame, start = inner.frame, inner.start
        if not inner.is_loop:
            yield _View(frame, self._numbers[start : start + frame.size], self._iterations)
            return
        numbers = [int(each) for each in self._numbers[start : start + 2]]
        for at, number in enumerate(numbers):
            if number < 0 or (at == 1 and number == numbers[0]):
                continue
            begin = start + 2 + at * frame.size
            number = inner.reverse - 1 - number if inner.reverse else number
            here = Iteration(node.eqn.primitive.name, place_of(node.eqn, node.calls), number)
            yield _View(frame, self._numbers[begin : begin + frame.size], (*self._iterations, here))

    def _bad(self, slots: Sequence[Slot]) -> list[int]:
        return [slot for slot in dict.fromkeys(slots) if slot is not None and _is_bad(self._numbers, slot)]

    def blame(self, node: Node, slot: int) -> Blame:
        eqn = node.eqn
        inputs = [
            self._value(atom, at) for atom, at in zip(eqn.invars, node.inputs, strict=True) if at is not None
        ]
        atom = eqn.outvars[node.outputs.index(slot)]
        return Blame(
            eqn.primitive.name,
            place_of(eqn, node.calls),
            self._iterations,
            tuple(inputs),
            self._value(atom, slot),
            "transpose" in str(eqn.source_info.name_stack),
        )

    def _value(self, atom: Any, slot: int) -> Value:
        sizes = ",".join(map(str, shape(atom)))
        kind = f"{dtype(atom)}[{sizes}]" if sizes else str(dtype(atom))
        return Value(kind, float(self._numbers[slot]), float(self._numbers[slot + 1]))


def _is_nan(numbers: np.ndarray, slot: int) -> bool:
    return bool(np.isnan(numbers[slot : slot + 2]).any())


def _is_bad(numbers: np.ndarray, slot: int) -> bool:
    return not np.isfinite(numbers[slot : slot + 2]).all()


def place_of(eqn: core.JaxprEqn, calls: Sequence[core.JaxprEqn] = ()) -> str:
    """File, line and function of an equation that was inlined from some calls.

    Jax keeps what it traced: inside one of its own functions, the lines are those of the first caller, so there the
    line of the call counts. The frames of installed libraries are left out where the user has one.
    """
    of_library = (call for call in calls if _is_library(call))
    # Where jax's own functions call each other, only the outermost call has a line of the user's.
    for each in (*of_library, eqn, *calls[::-1]):
        if frames := _frames(each):
            own = [frame for frame in frames if not _is_installed(frame[0])]
            path, line, function = (own or frames)[0]
            inside = f" in {function}" if function else ""
            return f"{path.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line}{inside}"
    return _NO_PLACE


def _is_library(call: core.JaxprEqn) -> bool:
    """Whether a call is of a function that none of the frames inside it names: one of jax's own."""
    name = call.params.get("name")
    inside = [each for jaxpr in inner_jaxprs(call) for each in equations(jaxpr)]
    return bool(name and inside) and not any(name == frame[2] for each in inside for frame in _frames(each))


def _frames(eqn: core.JaxprEqn) -> list[tuple[str, str, str]]:
    """Path, line and function of the user's frames, the innermost first; those of Lapwing's own machinery left out."""
    text = source_info_util.summarize(eqn.source_info, num_frames=20)
    frames = []
    for row in filter(None, text.split("\n")[::-1]):
        where, _, function = row.partition(" (")
        path, number, _ = where.rsplit(":", 2)
        frames.append((path, number, function.rstrip(")").rsplit(".", 1)[-1]))
    return [frame for frame in frames if not _is_machinery(frame[0])]


def _is_machinery(path: str) -> bool:
    path = path.replace("\\", "/")
    return any(f"/lapwing/{layer}/" in path for layer in ("jaxprs", "loops", "train", "task"))


def _is_installed(path: str) -> bool:
    return "site-packages" in path or "dist-packages" in path
