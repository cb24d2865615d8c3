"""A machine's run and its derivative as two functions in LLVM's language.

A run is one loop over the cycles. A cycle is two strokes: the inputs are products of the outputs with blocks of the
network matrix, and the outputs are functions of the inputs. The derivative is the same loop backwards; it reads the
inputs and outputs that the run has kept, and adds up the gradient of the matrix as it goes.

In memory the keys of a field are neighbours: [cycles, fields, keys]. The network matrix of a class of keys is
[fields from, fields to].
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jax.extend import core

from lapwing.dmm._compile_lanes import in_lanes

from ._products import add_outer, apply_matrix, apply_transposed, outer_of_all, transposed
from ._write import Lines, Number, is_zero, of


@dataclass(frozen=True)
class Kind:
    """A class of keys: how many there are, which of its fields are linked ([from, to]), and what those are: known and
    computed outputs, inputs of functions and answers."""

    keys: int
    linked: np.ndarray
    known: int
    inputs: int

    @property
    def sources(self) -> int:
        return self.linked.shape[0]

    @property
    def targets(self) -> int:
        return self.linked.shape[1]

    @property
    def computed(self) -> int:
        return self.sources - self.known

    @property
    def answers(self) -> int:
        return self.targets - self.inputs


@dataclass(frozen=True)
class Loop:
    """What the two functions are made from: `up` is a program from the inputs of the functions and their other
    `parameters` to the outputs, by class of keys; `down` one from the same and the errors of the outputs to those of
    the inputs and parameters. Arrays are [keys, fields]."""

    cycles: int
    dtype: str
    kinds: Mapping[int, Kind]
    parameters: tuple[tuple[int, ...], ...]
    up: core.ClosedJaxpr
    back: core.ClosedJaxpr

    @property
    def answers(self) -> int:
        return sum(kind.answers for kind in self.kinds.values())

    def operands(self) -> dict[str, tuple[int, ...]]:
        """What a run reads: the matrix, the first outputs, the known outputs, the parameters."""
        found = {f"matrix{c}": (kind.sources, kind.targets) for c, kind in self.kinds.items()}
        found |= {f"start{c}": (kind.computed, kind.keys) for c, kind in self.kinds.items()}
        found |= {f"stream{c}": (self.cycles, kind.known, kind.keys) for c, kind in self.kinds.items()}
        return _filled(found | {f"parameter{i}": shape for i, shape in enumerate(self.parameters)})

    def kept(self) -> dict[str, tuple[int, ...]]:
        """What a run keeps for its derivative: outputs, also those after the last cycle, and inputs."""
        found = {f"seen{c}": (self.cycles + 1, kind.computed, kind.keys) for c, kind in self.kinds.items()}
        return _filled(
            found | {f"inputs{c}": (self.cycles, kind.inputs, kind.keys) for c, kind in self.kinds.items()}
        )

    def results(self) -> dict[str, tuple[int, ...]]:
        return {"answers": (self.cycles, self.answers), **self.kept()}

    def derivatives(self) -> dict[str, tuple[int, ...]]:
        """What the derivative returns: one for each operand that is not known, and the errors of all inputs, which it
        only needs itself."""
        operands = {name: shape for name, shape in self.operands().items() if not name.startswith("stream")}
        many = {c: kind for c, kind in self.kinds.items() if kind.keys > 1}
        return operands | _filled(
            {f"errors{c}": (self.cycles, kind.targets, kind.keys) for c, kind in many.items()}
        )


def _filled(arrays: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in arrays.items() if 0 not in shape}


@dataclass
class _Function:
    """One of the two functions while it is written."""

    loop: Loop
    given: list[str]
    made: list[str]
    lines: Lines = field(default_factory=Lines)

    def row(self, name: str, now: str, size: int) -> str:
        """Where the part of a cycle begins."""
        offset = self.lines.let(f"mul nuw nsw i64 {now}, {size}")
        return self.lines.at(f"%{name}", self.loop.dtype, offset)

    def sources(self, c: int, now: str) -> list[tuple[str, int]]:
        """Where each source of a class lies in a cycle: a pointer and an index."""
        kind, found = self.loop.kinds[c], []
        for name, fields in (("stream", kind.known), ("seen", kind.computed)):
            if fields:
                row = self.row(f"{name}{c}", now, fields * kind.keys)
                found += [(row, f * kind.keys) for f in range(fields)]
        return found

    def numbers(self, pointer: str, keys: int, fields: int) -> np.ndarray:
        """[keys, fields] from memory [fields, keys]."""
        found = np.empty((keys, fields), object)
        for f in range(fields):
            for k in range(keys):
                name = self.lines.load(pointer, self.loop.dtype, f * keys + k)
                found[k, f] = Number(name, self.loop.dtype)
        return found

    def keep(self, numbers: np.ndarray, pointer: str) -> None:
        keys, fields = numbers.shape
        for f in range(fields):
            for k in range(keys):
                value = self.lines.value(numbers[k, f])
                self.lines.store(value, pointer, self.loop.dtype, f * keys + k)

    def parameters(self) -> list[np.ndarray]:
        found = []
        for i, shape in enumerate(self.loop.parameters):
            array = np.empty(shape, object)
            for place, at in enumerate(np.ndindex(shape)):
                array[at] = Number(self.lines.load(f"%parameter{i}", self.loop.dtype, place), self.loop.dtype)
            found.append(array)
        return found

    def copy(self, to: str, source: str, count: int) -> None:
        size = count * np.dtype(self.loop.dtype).itemsize
        name = "llvm.memcpy.p0.p0.i64"
        self.lines.calls[name] = f"declare void @{name}(ptr, ptr, i64, i1)"
        self.lines.add(f"call void @{name}(ptr {to}, ptr {source}, i64 {size}, i1 false)")

    def clear(self, pointer: str, count: int) -> None:
        size = count * np.dtype(self.loop.dtype).itemsize
        name = "llvm.memset.p0.i64"
        self.lines.calls[name] = f"declare void @{name}(ptr, i8, i64, i1)"
        self.lines.add(f"call void @{name}(ptr {pointer}, i8 0, i64 {size}, i1 false)")

    def text(self, name: str) -> str:
        given = [f"ptr noalias readonly %{each}" for each in self.given]
        made = [f"ptr noalias %{each}" for each in self.made]
        return "\n".join(
            [
                f"define internal void @{name}({', '.join([*given, *made])}) nounwind {{",
                *self.lines.memory,
                *self.lines.text,
                "  ret void",
                "}",
                *self.lines.calls.values(),
            ]
        )


def run_text(loop: Loop, name: str) -> str:
    """The function of a run: operands -> results."""
    function = _Function(loop, list(loop.operands()), list(loop.results()))
    lines, dtype = function.lines, loop.dtype
    for c, kind in loop.kinds.items():
        if kind.computed:
            function.copy(f"%seen{c}", f"%start{c}", kind.computed * kind.keys)
    for now in lines.counted("cycle", loop.cycles):
        places = {c: function.sources(c, now) for c in loop.kinds}
        inputs = []
        for c, kind in loop.kinds.items():
            made = function.row(f"inputs{c}", now, kind.inputs * kind.keys) if kind.inputs else ""
            apply_matrix(lines, dtype, kind, f"%matrix{c}", places[c], made, 0, kind.inputs)
            if kind.answers:
                answers = function.row("answers", now, loop.answers)
                apply_matrix(lines, dtype, kind, f"%matrix{c}", places[c], answers, kind.inputs, kind.targets)
            if kind.inputs:
                inputs.append(function.numbers(made, kind.keys, kind.inputs))
        outputs = in_lanes(loop.up, *inputs, *function.parameters(), writer=lines.write)
        after = lines.let(f"add nuw nsw i64 {now}, 1")
        computed = [c for c, kind in loop.kinds.items() if kind.computed]
        for c, numbers in zip(computed, outputs, strict=True):
            function.keep(numbers, function.row(f"seen{c}", after, numbers.size))
    return function.text(name)


def derivative_text(loop: Loop, name: str) -> str:
    """The function of its derivative: operands, what the run kept, and the errors of the answers -> the derivatives."""
    given = [*loop.operands(), *loop.kept(), "bar"]
    given = [each for each in given if not each.startswith("start")]
    made = {each: f"{each}.bar" for each in loop.derivatives()}
    function = _Function(loop, given, list(made.values()))
    lines, dtype = function.lines, loop.dtype
    errors = {c: lines.scratch(of(dtype), kind.targets * kind.keys) for c, kind in loop.kinds.items()}
    bars = {
        c: lines.scratch(of(dtype), kind.computed * kind.keys)
        for c, kind in loop.kinds.items()
        if kind.computed
    }
    turned = {c: transposed(lines, dtype, kind, c) for c, kind in loop.kinds.items()}
    for c, kind in loop.kinds.items():
        function.clear(f"%matrix{c}.bar", kind.linked.size)
        if kind.computed:
            function.clear(bars[c], kind.computed * kind.keys)
    for i, shape in enumerate(loop.parameters):
        function.clear(f"%parameter{i}.bar", int(np.prod(shape)))
    for done in lines.counted("cycle", loop.cycles):
        now = lines.let(f"sub nuw nsw i64 {loop.cycles - 1}, {done}")
        inputs = [
            function.numbers(function.row(f"inputs{c}", now, kind.inputs * kind.keys), kind.keys, kind.inputs)
            for c, kind in loop.kinds.items()
            if kind.inputs
        ]
        of_outputs = [function.numbers(bars[c], loop.kinds[c].keys, loop.kinds[c].computed) for c in bars]
        found = in_lanes(loop.back, *inputs, *function.parameters(), *of_outputs, writer=lines.write)
        of_inputs = iter(found[: len(inputs)])
        for i, total in enumerate(found[len(inputs) :]):
            _add_to(lines, dtype, f"%parameter{i}.bar", total)
        for c, kind in loop.kinds.items():
            # Where there are several keys, the products are summed up after the loop: a sum for each link is more than
            # the registers hold.
            size = kind.targets * kind.keys
            here = function.row(f"errors{c}.bar", now, size) if kind.keys > 1 else errors[c]
            zero = np.zeros(kind.targets, bool)
            if kind.inputs:
                numbers = next(of_inputs)
                function.keep(numbers, here)
                zero[: kind.inputs] = [all(is_zero(x) for x in column) for column in numbers.T]
            if kind.answers:
                function.copy(
                    lines.at(here, dtype, kind.inputs), function.row("bar", now, loop.answers), kind.answers
                )
            moving = kind.linked & ~zero
            if kind.keys == 1:
                add_outer(lines, dtype, moving, function.sources(c, now), here, f"%matrix{c}.bar")
            if kind.computed:
                apply_transposed(lines, dtype, kind, moving, f"%matrix{c}", turned[c], here, bars[c])
    for c, kind in loop.kinds.items():
        if kind.keys > 1:
            outer_of_all(function, c, kind)
        if kind.computed:
            function.copy(f"%start{c}.bar", bars[c], kind.computed * kind.keys)
    return function.text(name)


def _add_to(lines: Lines, dtype: str, pointer: str, numbers: np.ndarray) -> None:
    for place, number in enumerate(numbers.ravel()):
        if not is_zero(number):
            before = lines.load(pointer, dtype, place)
            total = lines.let(f"fadd {of(dtype)} {before}, {lines.value(number)}")
            lines.store(total, pointer, dtype, place)
