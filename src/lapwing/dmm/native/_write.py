"""LLVM's language: the lines of one function, in which a number is a name with a type.

LLVM vectorizes what is the same for numbers that lie next to each other, so a number is written as a number; only
products, which are most of the work, are written as vectors (`_products`).
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from lapwing.dmm._compile_lanes import LanesError

TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "i32",
    "int64": "i64",
    "uint32": "i32",
    "bool": "i1",
}
FLOATS = ("float32", "float64")

# Called by their names in the library of C; those of float have an f at the end.
IN_LIBRARY = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atan2": "atan2",
    "atanh": "atanh", "cbrt": "cbrt", "cos": "cos", "cosh": "cosh", "erf": "erf", "erfc": "erfc", "exp": "exp",
    "exp2": "exp2", "expm1": "expm1", "log": "log", "log1p": "log1p", "pow": "pow", "rem": "fmod", "sin": "sin",
    "sinh": "sinh", "tan": "tan", "tanh": "tanh",
}  # fmt: skip
IN_LLVM = {"abs": "fabs", "ceil": "ceil", "floor": "floor", "sqrt": "sqrt"}
# An operation of floats, of integers, and of integers without a sign; of conditions too where they have bits.
BINARY = {
    "add": ("fadd", "add", "add"), "add_any": ("fadd", "add", "add"), "sub": ("fsub", "sub", "sub"),
    "mul": ("fmul", "mul", "mul"), "div": ("fdiv", "", ""), "and": ("", "and", "and"), "or": ("", "or", "or"),
    "xor": ("", "xor", "xor"),
}  # fmt: skip
COMPARISONS = {
    "eq": ("oeq", "eq", "eq"), "ne": ("une", "ne", "ne"), "lt": ("olt", "slt", "ult"), "le": ("ole", "sle", "ule"),
    "gt": ("ogt", "sgt", "ugt"), "ge": ("oge", "sge", "uge"),
}  # fmt: skip


class Number(NamedTuple):
    """A number that is computed: its name, and its type in NumPy's words."""

    name: str
    dtype: str


Known = Number | np.generic  # A constant is a NumPy scalar.


def kind_of(dtype: Any) -> str:
    name = np.dtype(dtype).name
    if name not in TYPES:
        raise LanesError(f"native code has no numbers of type {name}")
    return name


def of(dtype: Any, width: int = 1) -> str:
    """A type in LLVM's words; a vector if it is wider than one number."""
    name = TYPES[kind_of(dtype)]
    return name if width == 1 else f"<{width} x {name}>"


def constant(value: Any, dtype: Any) -> str:
    name = kind_of(dtype)
    if name in FLOATS:
        return "0x" + struct.pack(">d", float(np.asarray(value, name))).hex()
    return str(int(value))


class Lines:
    """The lines of a function, and what it calls."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.memory: list[str] = []  # What the function asks for when it is entered.
        self.calls: dict[str, str] = {}
        self._count = 0

    def add(self, line: str) -> None:
        self.text.append(f"  {line}")

    def name(self, prefix: str = "v") -> str:
        self._count += 1
        return f"%{prefix}{self._count}"

    def let(self, expression: str) -> str:
        name = self.name()
        self.add(f"{name} = {expression}")
        return name

    def call(self, name: str, dtype: Any, arguments: list[str], result: str | None = None) -> str:
        of_all = ", ".join(f"{of(dtype)} {each}" for each in arguments)
        self.calls[name] = f"declare {result or of(dtype)} @{name}({', '.join([of(dtype)] * len(arguments))})"
        return self.let(f"call {result or of(dtype)} @{name}({of_all})")

    def label(self, name: str) -> None:
        self.text.append(f"{name}:")

    # Memory, always of numbers one after the other --------------------------------------------------------------

    def at(self, pointer: str, dtype: Any, index: int | str) -> str:
        """The address of a number; an index 0 needs no line."""
        if index == 0:
            return pointer
        return self.let(f"getelementptr inbounds {of(dtype)}, ptr {pointer}, i64 {index}")

    def load(self, pointer: str, dtype: Any, index: int | str, width: int = 1) -> str:
        where = self.at(pointer, dtype, index)
        return self.let(f"load {of(dtype, width)}, ptr {where}, align {np.dtype(dtype).itemsize}")

    def store(self, value: str, pointer: str, dtype: Any, index: int | str, width: int = 1) -> None:
        where = self.at(pointer, dtype, index)
        self.add(f"store {of(dtype, width)} {value}, ptr {where}, align {np.dtype(dtype).itemsize}")

    def scratch(self, kind: str, count: int = 1) -> str:
        """Memory of the function; what is read and written whole becomes a register."""
        name = self.name()
        self.memory.append(f"  {name} = alloca {kind if count == 1 else f'[{count} x {kind}]'}, align 64")
        return name

    def counted(self, label: str, count: int) -> Iterator[str]:
        """`for i in lines.counted(...)`: what is written in the body is done for each i from 0."""
        counter = self.scratch("i64")
        self.add(f"store i64 0, ptr {counter}")
        self.add(f"br label %{label}")
        self.label(label)
        done = self.let(f"load i64, ptr {counter}")
        more = self.let(f"icmp ult i64 {done}, {count}")
        self.add(f"br i1 {more}, label %{label}.body, label %{label}.end")
        self.label(f"{label}.body")
        yield done
        self.add(f"store i64 {self.let(f'add nuw nsw i64 {done}, 1')}, ptr {counter}")
        self.add(f"br label %{label}")
        self.label(f"{label}.end")

    # Vectors ----------------------------------------------------------------------------------------------------

    def spread(self, number: str, dtype: Any, width: int) -> str:
        """A vector of one number."""
        if width == 1:
            return number
        vector = of(dtype, width)
        first = self.let(f"insertelement {vector} poison, {of(dtype)} {number}, i32 0")
        return self.let(f"shufflevector {vector} {first}, {vector} poison, <{width} x i32> zeroinitializer")

    def add_product(self, total: str | None, a: str, b: str, dtype: Any, width: int) -> str:
        """total + a b; with the rounding of one operation where the processor has one for it."""
        product = self.let(f"fmul contract {of(dtype, width)} {a}, {b}")
        return product if total is None else self.let(f"fadd contract {of(dtype, width)} {total}, {product}")

    # Numbers ----------------------------------------------------------------------------------------------------

    def write(
        self, primitive: core.Primitive, numbers: list[Known], params: dict[str, Any], dtype: Any
    ) -> Known:
        """An operation of jax on numbers: the writer of `in_lanes`."""
        if (same := _unchanged(primitive.name, numbers)) is not None:
            return same
        return Number(self._expression(primitive.name, numbers, params, kind_of(dtype)), kind_of(dtype))

    def value(self, number: Known) -> str:
        return number.name if isinstance(number, Number) else constant(number, number.dtype)

    def _expression(self, name: str, numbers: list[Known], params: dict[str, Any], result: str) -> str:
        dtype = kind_of(numbers[-1].dtype)
        given = [self.value(number) for number in numbers]
        which = 0 if dtype in FLOATS else 2 if dtype in ("uint32", "bool") else 1
        if name in BINARY and BINARY[name][which]:
            flags = " contract" if which == 0 else ""
            return self.let(f"{BINARY[name][which]}{flags} {of(dtype)} {given[0]}, {given[1]}")
        if name in COMPARISONS:
            word = "fcmp" if which == 0 else "icmp"
            return self.let(f"{word} {COMPARISONS[name][which]} {of(dtype)} {given[0]}, {given[1]}")
        if which == 0 and name in IN_LLVM:
            return self.call(f"llvm.{IN_LLVM[name]}.f{8 * np.dtype(dtype).itemsize}", dtype, given)
        if which == 0 and name in IN_LIBRARY:
            return self.call(IN_LIBRARY[name] + ("f" if dtype == "float32" else ""), dtype, given)
        if (rule := RULES.get(name)) is None:
            raise LanesError(f"native code has no {name} of {dtype}")
        return rule(self, given, dtype, result, params)


def _unchanged(name: str, numbers: list[Known]) -> Known | None:
    """Sums with a zero, of which derivatives are full; LLVM keeps them for the sake of a negative zero."""
    if name in ("add", "add_any") and is_zero(numbers[0]):
        return numbers[1]
    return numbers[0] if name in ("add", "add_any", "sub") and is_zero(numbers[1]) else None


def is_zero(number: Known) -> bool:
    return not isinstance(number, Number) and number == 0


# Operations of several lines ------------------------------------------------------------------------------------

Rule = Callable[[Lines, list[str], str, str, dict[str, Any]], str]


def _is_float(dtype: str) -> bool:
    return dtype in FLOATS


def _zero(dtype: str, value: float = 0) -> str:
    return constant(value, dtype)


def _extreme(lines: Lines, given: list[str], dtype: str, larger: bool) -> str:
    """The larger or smaller of two numbers; not a number if one of them is none."""
    a, b = given
    if not _is_float(dtype):
        sign = "u" if dtype in ("uint32", "bool") else "s"
        better = lines.let(f"icmp {sign}{'gt' if larger else 'lt'} {of(dtype)} {a}, {b}")
        return lines.let(f"select i1 {better}, {of(dtype)} {a}, {of(dtype)} {b}")
    better = lines.let(f"fcmp {'ogt' if larger else 'olt'} {of(dtype)} {a}, {b}")
    best = lines.let(f"select i1 {better}, {of(dtype)} {a}, {of(dtype)} {b}")
    no_number = lines.let(f"fcmp uno {of(dtype)} {a}, {a}")
    return lines.let(f"select i1 {no_number}, {of(dtype)} {a}, {of(dtype)} {best}")


def _negative(lines: Lines, given: list[str], dtype: str, *_: Any) -> str:
    if _is_float(dtype):
        return lines.let(f"fneg {of(dtype)} {given[0]}")
    return lines.let(f"sub {of(dtype)} 0, {given[0]}")


def _not(lines: Lines, given: list[str], dtype: str, *_: Any) -> str:
    return lines.let(f"xor {of(dtype)} {given[0]}, {'true' if dtype == 'bool' else '-1'}")


def _sign(lines: Lines, given: list[str], dtype: str, *_: Any) -> str:
    """-1, 0 or 1; of zero itself, and of what is no number too."""
    if not _is_float(dtype):
        raise LanesError(f"native code has no sign of {dtype}")
    kind, (x,) = of(dtype), given
    name = f"llvm.copysign.f{8 * np.dtype(dtype).itemsize}"
    one = lines.call(name, dtype, [_zero(dtype, 1), x])
    moves = lines.let(f"fcmp one {kind} {x}, {_zero(dtype)}")
    return lines.let(f"select i1 {moves}, {kind} {one}, {kind} {x}")


def _absolute(lines: Lines, given: list[str], dtype: str, *_: Any) -> str:
    if dtype in ("uint32", "bool"):
        return given[0]
    negative = lines.let(f"sub {of(dtype)} 0, {given[0]}")
    return _extreme(lines, [given[0], negative], dtype, True)


def _select(lines: Lines, given: list[str], dtype: str, *_: Any) -> str:
    if len(given) != 3:
        raise LanesError("native code selects between two numbers only")
    which, no, yes = given
    return lines.let(f"select i1 {which}, {of(dtype)} {yes}, {of(dtype)} {no}")


def _clamp(lines: Lines, given: list[str], dtype: str, *_: Any) -> str:
    low, x, high = given
    return _extreme(lines, [_extreme(lines, [x, low], dtype, True), high], dtype, False)


def _square(lines: Lines, given: list[str], dtype: str, *_: Any) -> str:
    return lines.let(f"{'fmul' if _is_float(dtype) else 'mul'} {of(dtype)} {given[0]}, {given[0]}")


def _integer_power(lines: Lines, given: list[str], dtype: str, _: str, params: dict[str, Any]) -> str:
    power, word = abs(params["y"]), "fmul" if _is_float(dtype) else "mul"
    if params["y"] < 0 and not _is_float(dtype):
        raise LanesError("native code has no negative power of integers")
    total, base = _zero(dtype, 1), given[0]
    while power:
        if power & 1:
            total = lines.let(f"{word} {of(dtype)} {total}, {base}")
        power >>= 1
        if power:
            base = lines.let(f"{word} {of(dtype)} {base}, {base}")
    return total if params["y"] >= 0 else lines.let(f"fdiv {of(dtype)} {_zero(dtype, 1)}, {total}")


def _logistic(lines: Lines, given: list[str], dtype: str, *_: Any) -> str:
    negative = lines.let(f"fneg {of(dtype)} {given[0]}")
    small = lines.call("expf" if dtype == "float32" else "exp", dtype, [negative])
    below = lines.let(f"fadd {of(dtype)} {small}, {_zero(dtype, 1)}")
    return lines.let(f"fdiv {of(dtype)} {_zero(dtype, 1)}, {below}")


def _reciprocal_root(lines: Lines, given: list[str], dtype: str, *_: Any) -> str:
    root = lines.call(f"llvm.sqrt.f{8 * np.dtype(dtype).itemsize}", dtype, given)
    return lines.let(f"fdiv {of(dtype)} {_zero(dtype, 1)}, {root}")


def _is_finite(lines: Lines, given: list[str], dtype: str, *_: Any) -> str:
    size = lines.call(f"llvm.fabs.f{8 * np.dtype(dtype).itemsize}", dtype, given)
    return lines.let(f"fcmp olt {of(dtype)} {size}, {constant(np.inf, dtype)}")


def _round(lines: Lines, given: list[str], dtype: str, _: str, params: dict[str, Any]) -> str:
    to_even = int(params["rounding_method"]) == 1
    return lines.call(
        f"llvm.{'roundeven' if to_even else 'round'}.f{8 * np.dtype(dtype).itemsize}", dtype, given
    )


def _convert(lines: Lines, given: list[str], dtype: str, result: str, _: dict[str, Any]) -> str:
    (x,) = given
    if dtype == result:
        return x
    before, after = of(dtype), of(result)
    signed = "u" if dtype in ("uint32", "bool") else "s"
    if result == "bool":
        compared = "fcmp une" if _is_float(dtype) else "icmp ne"
        return lines.let(f"{compared} {before} {x}, {_zero(dtype)}")
    if _is_float(dtype) and _is_float(result):
        return lines.let(f"{'fpext' if result == 'float64' else 'fptrunc'} {before} {x} to {after}")
    if _is_float(result):
        return lines.let(f"{signed}itofp {before} {x} to {after}")
    if _is_float(dtype):
        return lines.call(f"llvm.fpto{'u' if result == 'uint32' else 's'}i.sat.{after}.f{8 * np.dtype(dtype).itemsize}",
                          dtype, given, after)  # fmt: skip
    sizes = [1 if each == "bool" else 8 * np.dtype(each).itemsize for each in (dtype, result)]
    if sizes[0] == sizes[1]:
        return x
    word = "trunc" if sizes[0] > sizes[1] else "zext" if signed == "u" else "sext"
    return lines.let(f"{word} {before} {x} to {after}")


def _same(lines: Lines, given: list[str], *_: Any) -> str:
    return given[0]


RULES: dict[str, Rule] = {
    "max": lambda lines, given, dtype, *_: _extreme(lines, given, dtype, True),
    "min": lambda lines, given, dtype, *_: _extreme(lines, given, dtype, False),
    "abs": _absolute,
    "clamp": _clamp,
    "convert_element_type": _convert,
    "copy": _same,
    "copy_p": _same,
    "integer_pow": _integer_power,
    "is_finite": _is_finite,
    "logistic": _logistic,
    "name": _same,
    "neg": _negative,
    "not": _not,
    "round": _round,
    "rsqrt": _reciprocal_root,
    "select_n": _select,
    "sign": _sign,
    "square": _square,
    "stop_gradient": _same,
}
