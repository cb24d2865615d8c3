"""The activation functions of the published experiments, and the same under the names of the superfluid machine."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp

from lapwing import trees
from lapwing.trees import NUMBER, Tree

from ._activation import MachineError, activation, protect_registered
from ._builtin_arrays import Compare, Dot, Norm
from ._keys import nested_path, normalised, place
from ._numbers import governed, largest, relu, stopped, where


@activation(
    inputs=("dict-1", "dict-2"),
    outputs=("dict",),
    choices={"accumulator_gradient": ("full", "truncated")},
    accumulator=True,
    linearity="linear",
)
def accum(inputs: Tree, accumulator_gradient: str = "full") -> Tree:
    """dict-1 + dict-2. Truncated: no gradient flows through dict-1, where an accumulator reads itself."""
    memory = inputs["dict-1"]
    if accumulator_gradient == "truncated":
        memory = trees.map_leaves(stopped, memory)
    return {"dict": trees.add(memory, inputs["dict-2"])}


@activation(
    inputs=("dict",),
    outputs=("norm",),
    choices={"norm_ties": ("shared", "last")},
    linearity="absolute",
    arrays=Norm,
    phrase="is the largest part of {}",
)
def norm(inputs: Tree, norm_ties: str = "shared", norm_order: tuple[str, ...] = ()) -> Tree:
    """The largest |leaf|. With norm_ties="last" the last of the largest takes the gradient, in the order of
    `norm_order` (first keys of the leaves); keys that it does not name come before those, sorted.
    """
    order = {key: place for place, key in enumerate(norm_order, start=1)}
    leaves = trees.paths(inputs["dict"])
    in_order = sorted(leaves, key=lambda path: (order.get(path[0], 0), path))
    return {"norm": {NUMBER: largest([leaves[path] for path in in_order], norm_ties)}}


@activation(
    inputs=("dict-1", "dict-2"),
    outputs=("dot",),
    linearity="multilinear",
    arrays=Dot,
    phrase="is the product of {} with {}",
)
def dot(inputs: Tree, governor: float | None = None) -> Tree:
    """The sum of the products of numbers at the same place; where one has a number and the other nothing but
    branches, that is nothing."""
    left, right = (
        {place(path): leaf for path, leaf in trees.paths(inputs[field]).items()}
        for field in ("dict-1", "dict-2")
    )
    products = [left[key] * right[key] for key in left if key in right]
    return {"dot": {NUMBER: governed(sum(products, start=0.0), governor)}}


@activation(
    inputs=("dict-1", "dict-2"),
    outputs=("true", "false"),
    linearity="positive",
    antisymmetric=True,
    arrays=Compare,
    phrase="asks by how much {} is more (true) or less (false) than {}",
)
def compare(inputs: Tree) -> Tree:
    """By how much the first number is larger, and by how much the second."""
    difference = trees.number(inputs["dict-1"]) - trees.number(inputs["dict-2"])
    return {"true": {NUMBER: relu(difference)}, "false": {NUMBER: relu(-difference)}}


@activation(outputs=("const_1",))
def const_1(inputs: Tree) -> Tree:
    """Always the number 1."""
    return {"const_1": {NUMBER: 1.0}}


@activation(outputs=("char",))
def eos(inputs: Tree) -> Tree:
    """Always the character that ends a text."""
    return {"char": {".": 1.0}}


@activation(outputs=("result",))
def constant(inputs: Tree, value: Any = 0.0) -> Tree:
    """Always the same V-value."""
    return {"result": value}


@activation(inputs=("timer",), outputs=("timer",))
def timer(inputs: Tree) -> Tree:
    """Its input plus 1: linked to itself, it counts cycles."""
    return {"timer": {NUMBER: trees.number(inputs["timer"]) + 1.0}}


@activation(name="input", inputs=("timer",), outputs=("char",))
def input_text(
    inputs: Tree, text: str | Sequence[str | float | Tree] | None = None, period: int = 10
) -> Tree:
    """One character of the text at every `period`-th tick; after its end the last one is repeated. A text may also
    be a sequence of V-values: the character "a" is short for {"a": 1}.

    No gradient flows into the choice. A concrete tick gives the keys of one item; under a jax trace the result has all
    keys of the text, and those of other items are zero: the same V-value.
    """
    if not text:
        raise MachineError(
            "the input neuron has no text to read; pass one to the run, like text='test string.'"
        )
    if period < 1:
        raise MachineError(
            f"the input neuron reads a character every `period` ticks, but the period is {period}"
        )
    tick = stopped(trees.number(inputs["timer"]))
    try:
        known_tick = float(tick)
    except jax.errors.ConcretizationTypeError:
        return {"char": _every_key(tick, text, period)}
    if known_tick < 0 or known_tick % period:
        return {"char": {}}
    return {"char": _item(text[min(math.floor(known_tick / period), len(text) - 1)])}


def _item(item: str | float | Tree) -> Tree:
    return {item: 1.0} if isinstance(item, str) else trees.as_tree(item)


def _every_key(tick: Any, text: str | Sequence[str | float | Tree], period: int) -> Tree:
    items = [trees.paths(_item(item)) for item in text]
    index = jnp.clip(tick // period, 0, len(text) - 1).astype(int)
    due = (tick >= 0) & (tick % period == 0)
    keys = normalised(chain(*items))
    moved = [{nested_path(path, frozenset(keys)): leaf for path, leaf in item.items()} for item in items]
    columns = {path: jnp.array([item.get(path, 0.0) for item in moved]) for path in keys}
    return trees.from_paths({path: jnp.where(due, column[index], 0.0) for path, column in columns.items()})


@activation(inputs=("template", "timer"), outputs=("result",))
def sprout(inputs: Tree, period: int = 3, births: int = 8) -> Tree:
    """The template at every `period`-th tick, with the number of times so far in place of "{n}" in its keys, and the
    number before it in place of "{n-1}"; nothing after the last of the `births`. With a template like
    {"cell-{n}": {"x": {"cell-{n-1}": {"y": 1}}}} that is added to the network matrix, a chain of neurons grows.

    No gradient flows into the tick. As with `input`, under a jax trace the result has all keys.
    """
    if period < 1 or births < 1:
        raise MachineError(
            f"a sprout grows every `period` ticks and makes `births`, both 1 or more, but got {period} and {births}"
        )
    tick = stopped(trees.number(inputs["timer"]))
    try:
        number, rest = divmod(float(tick), period)
    except jax.errors.ConcretizationTypeError:
        due = [where(tick == n * period, 1.0, 0.0) for n in range(1, births + 1)]
        made = [trees.scale(x, _numbered(inputs["template"], n)) for n, x in enumerate(due, start=1)]
        return {"result": trees.add(*made)}
    if rest or not 1 <= number <= births:
        return {"result": {}}
    return {"result": _numbered(inputs["template"], int(number))}


def _numbered(template: Tree, n: int) -> Tree:
    numbered = [
        {tuple(key.replace("{n}", str(n)).replace("{n-1}", str(n - 1)) for key in path): leaf}
        for path, leaf in trees.paths(template).items()
    ]
    return trees.add({}, *map(trees.from_paths, numbered))


@activation(inputs=("dict-1", "dict-2"))
def output(inputs: Tree) -> Tree:
    """Writes nothing: its inputs are the machine's answer."""
    return {}


accum_add_args = accum.renamed("accum_add_args", ("accum", "delta"), ("result",))
"""`accum` under the name and with the fields of the published machines."""
max_norm_dict = norm.renamed("max_norm_dict", ("dict",), ("norm",))
"""`norm` under the name and with the fields of the published machines."""
dot_product = dot.renamed("dot_product", ("x", "y"), ("dot",))
"""`dot` under the name and with the fields of the published machines."""
compare_scalars = compare.renamed("compare_scalars", ("x", "y"), ("true", "false"))
"""`compare` under the name and with the fields of the published machines."""
timer_add_one = timer.renamed("timer_add_one", ("timer",), ("timer",))
"""`timer` under the name and with the fields of the published machines."""
input_dummy = input_text.renamed("input_dummy", ("timer",), ("char",))
"""`input_text` under the name and with the fields of the published machines."""
const_end = eos.renamed("const_end", (), ("char",))
"""`eos` under the name and with the fields of the published machines."""
output_dummy = output.renamed("output_dummy", ("dict-1", "dict-2"), ())
"""`output` under the name and with the fields of the published machines."""

protect_registered()
