"""Products of a cycle, as vectors: over the keys of a field where it has several, else over the fields.

A link that is not there costs nothing where whole vectors of links are missing.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ._write import Lines, constant, of

if TYPE_CHECKING:
    from ._loop import Kind

WIDEST = 32  # bytes of a vector
Places = list[tuple[str, int]]  # of each source: a pointer and an index


def chunks(count: int, dtype: str) -> Iterator[tuple[int, int]]:
    """Where vectors begin, and how wide they are: powers of two."""
    start, width = 0, WIDEST // np.dtype(dtype).itemsize
    while start < count:
        while width > count - start:
            width //= 2
        yield start, width
        start += width


def apply_matrix(
    lines: Lines, dtype: str, kind: "Kind", matrix: str, sources: Places, made: str, first: int, last: int
) -> None:
    """Writes the inputs `first` to `last` of a class: its outputs times its block of the matrix."""
    if kind.keys > 1:
        for to in range(first, last):
            linked = np.flatnonzero(kind.linked[:, to]).tolist()
            weights = {i: lines.load(matrix, dtype, i * kind.targets + to) for i in linked}
            for start, width in chunks(kind.keys, dtype):
                total = None
                for i in linked:
                    pointer, at = sources[i]
                    output = lines.load(pointer, dtype, at + start, width)
                    weight = lines.spread(weights[i], dtype, width)
                    total = lines.add_product(total, output, weight, dtype, width)
                _store(lines, dtype, total, made, (to - first) * kind.keys + start, width)
        return
    outputs = [lines.load(pointer, dtype, at) for pointer, at in sources]
    for start, width in chunks(last - first, dtype):
        total = None
        for i, output in enumerate(outputs):
            if kind.linked[i, first + start : first + start + width].any():
                weights = lines.load(matrix, dtype, i * kind.targets + first + start, width)
                total = lines.add_product(total, lines.spread(output, dtype, width), weights, dtype, width)
        _store(lines, dtype, total, made, start, width)


def transposed(lines: Lines, dtype: str, kind: "Kind", c: int) -> str:
    """A copy of the matrix from the inputs to the computed outputs, if vectors over the outputs will read it."""
    if kind.keys > 1 or not kind.computed:
        return ""
    copy = lines.scratch(of(dtype), kind.targets * kind.computed)
    for i in lines.counted(f"turn{c}", kind.computed):
        for to in lines.counted(f"turn{c}.row", kind.targets):
            row = lines.let(f"add nuw nsw i64 {i}, {kind.known}")
            before = lines.let(f"mul nuw nsw i64 {row}, {kind.targets}")
            after = lines.let(f"mul nuw nsw i64 {to}, {kind.computed}")
            weight = lines.load(f"%matrix{c}", dtype, lines.let(f"add nuw nsw i64 {before}, {to}"))
            lines.store(weight, copy, dtype, lines.let(f"add nuw nsw i64 {after}, {i}"))
    return copy


def apply_transposed(
    lines: Lines,
    dtype: str,
    kind: "Kind",
    linked: np.ndarray,
    matrix: str,
    turned: str,
    errors: str,
    made: str,
) -> None:
    """Writes the errors of the computed outputs: those of the inputs times the transposed matrix."""
    linked = linked[kind.known :]
    if kind.keys > 1:
        for i in range(kind.computed):
            targets = np.flatnonzero(linked[i]).tolist()
            weights = {to: lines.load(matrix, dtype, (kind.known + i) * kind.targets + to) for to in targets}
            for start, width in chunks(kind.keys, dtype):
                total = None
                for to in targets:
                    error = lines.load(errors, dtype, to * kind.keys + start, width)
                    weight = lines.spread(weights[to], dtype, width)
                    total = lines.add_product(total, error, weight, dtype, width)
                _store(lines, dtype, total, made, i * kind.keys + start, width)
        return
    given = [lines.load(errors, dtype, to) for to in range(kind.targets)]
    for start, width in chunks(kind.computed, dtype):
        total = None
        for to, error in enumerate(given):
            if linked[start : start + width, to].any():
                weights = lines.load(turned, dtype, to * kind.computed + start, width)
                total = lines.add_product(total, lines.spread(error, dtype, width), weights, dtype, width)
        _store(lines, dtype, total, made, start, width)


def add_outer(lines: Lines, dtype: str, linked: np.ndarray, sources: Places, errors: str, made: str) -> None:
    """Adds what a cycle contributes to the gradient of the matrix of a class with one key."""
    targets = linked.shape[1]
    for i, (pointer, at) in enumerate(sources):
        number = lines.load(pointer, dtype, at)
        for start, width in chunks(targets, dtype):
            if linked[i, start : start + width].any():
                output = lines.spread(number, dtype, width)
                error = lines.load(errors, dtype, start, width)
                before = lines.load(made, dtype, i * targets + start, width)
                total = lines.add_product(before, output, error, dtype, width)
                lines.store(total, made, dtype, i * targets + start, width)


def outer_of_all(function: Any, c: int, kind: "Kind") -> None:
    """The gradient of the matrix of a class with several keys: for each input a loop over all cycles, in which the sums
    for its links are in registers."""
    lines, dtype = function.lines, function.loop.dtype
    parts = list(chunks(kind.keys, dtype))
    for to in range(kind.targets):
        linked = np.flatnonzero(kind.linked[:, to]).tolist()
        if not linked:
            continue
        sums = {}
        for i in linked:
            for start, width in parts:
                sums[i, start] = lines.scratch(of(dtype, width))
                lines.add(f"store {of(dtype, width)} zeroinitializer, ptr {sums[i, start]}")
        for now in lines.counted(f"outer{c}.{to}", function.loop.cycles):
            errors = function.row(f"errors{c}.bar", now, kind.targets * kind.keys)
            places = function.sources(c, now)
            for start, width in parts:
                error = lines.load(errors, dtype, to * kind.keys + start, width)
                for i in linked:
                    pointer, at = places[i]
                    output = lines.load(pointer, dtype, at + start, width)
                    before = lines.let(f"load {of(dtype, width)}, ptr {sums[i, start]}")
                    total = lines.add_product(before, output, error, dtype, width)
                    lines.add(f"store {of(dtype, width)} {total}, ptr {sums[i, start]}")
        for i in linked:
            total = constant(0, dtype)
            for start, width in parts:
                found = lines.let(f"load {of(dtype, width)}, ptr {sums[i, start]}")
                total = _sum(lines, dtype, found, width, total)
            lines.store(total, f"%matrix{c}.bar", dtype, i * kind.targets + to)


def _sum(lines: Lines, dtype: str, vector: str, width: int, total: str) -> str:
    if width == 1:
        return lines.let(f"fadd {of(dtype)} {total}, {vector}")
    name = f"llvm.vector.reduce.fadd.v{width}f{8 * np.dtype(dtype).itemsize}"
    lines.calls[name] = f"declare {of(dtype)} @{name}({of(dtype)}, {of(dtype, width)})"
    return lines.let(f"call reassoc {of(dtype)} @{name}({of(dtype)} {total}, {of(dtype, width)} {vector})")


def _store(lines: Lines, dtype: str, total: str | None, made: str, at: int, width: int) -> None:
    zero = constant(0, dtype) if width == 1 else "zeroinitializer"
    lines.store(zero if total is None else total, made, dtype, at, width)
