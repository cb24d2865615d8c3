"""`explain`: where each matrix product of a function's gradient runs, before and after rewriting, and why.

It does not trust the passes: the gradient is traced twice, as written and rewritten, and the products in the two
programs are counted and compared. Only the reasons come from the decisions of the cost model.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.core import format_bytes
from lapwing.jaxprs import Product, interpret, inventory
from lapwing.loops._costs import Rewrite, platform_is
from lapwing.loops._decisions import Decision, recording
from lapwing.loops._errors import LoopError
from lapwing.loops._kernels import LoopRow, cpu_rows, gpu_rows
from lapwing.loops._memory import MemoryLike
from lapwing.loops._scan import accelerate, as_written


@dataclasses.dataclass(frozen=True)
class Row:
    """The products of one source line in one role."""

    site: str
    role: str
    before: str
    after: str
    count_before: int
    count_after: int
    times_before: int
    times_after: int
    flops: int
    bytes: int
    why: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What `explain` returns; printed, it is a table.

    >>> import jax, jax.numpy as jnp
    >>> import lapwing as lw
    >>> def loss(w, xs):
    ...     return lw.scan(lambda h, x: (jnp.tanh(w @ h + x), None), jnp.zeros(4), xs)[0].sum()
    >>> found = lw.explain(loss, jnp.eye(4), jnp.ones((9, 4)), compiled=False)
    >>> [row.role for row in found.rows], found.loop_products["after"]["in the backward loop"]
    (['value', 'gradient of the operand', 'gradient of the weight'], 2)
    """

    rows: list[Row]
    loop_products: dict[str, dict[str, int]]
    """Number of products in the forward loop, in the backward loop, outside and recomputed; before and after."""
    memory: dict[str, int] | None
    """Peak temporary bytes by XLA's own analysis, before and after."""
    notes: tuple[str, ...] = ()
    """What else was left as it is, and why."""
    loops: tuple[LoopRow, ...] = ()
    """The loops of the rewritten gradient: which are one kernel, and why the others are not. On a CPU these are small
    loops; on a Hopper GPU, whether or not there is one here, those with products."""

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "loops": [row.to_json() for row in self.loops]}

    def __str__(self) -> str:
        head = ("where", "what for", "flops", "before", "after", "why")
        body = [
            (_short(row.site), row.role, f"{row.flops:.3g}", row.before, row.after, row.why)
            for row in self.rows
        ]
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in [head, *body]
        ]
        lines.append("")
        for name, count in self.loop_products.items():
            lines.append(f"{name}: " + ", ".join(f"{number} {place}" for place, number in count.items()))
        lines += dict.fromkeys(map(str, self.loops))
        lines += self.notes
        if self.memory:
            before, after = (format_bytes(self.memory[key]) for key in ("before", "after"))
            lines.append(f"peak temporary memory: {before} before, {after} after")
        return "\n".join(lines)


def explain(
    fn: Callable[..., Any],
    *args: Any,
    memory: MemoryLike = "save",
    rewrite: Rewrite = "auto",
    compiled: bool = True,
) -> Explanation:
    """What `accelerate(fn)` does to the gradient of `fn` at `args`: a table of its matrix products, with reasons.

    **Arguments**

    - `fn`, `args`: the function, and the pytrees to call it with. The gradient is for all floating-point arrays.
    - `memory`, `rewrite`: as for `scan`.
    - `compiled`: whether to compile both programs, for their peak memory.

    **Returns** an `Explanation`: print it, or read its `rows`, `loop_products`, `loops` and `memory`.

    **Raises** a LoopError if no argument is a floating-point array.

    >>> import jax.numpy as jnp
    >>> import lapwing as lw
    >>> def loss(w, xs):
    ...     step = lambda h, x: (jnp.tanh(h @ w + x), None)
    ...     return jnp.sum(lw.scan(step, jnp.zeros((2, 32)), xs)[0])
    >>> story = lw.explain(loss, jnp.eye(32), jnp.ones((50, 2, 32)), compiled=False)
    >>> story.loop_products["before"]["in the backward loop"], story.loop_products["after"]["in the backward loop"]
    (2, 1)
    """
    with as_written():
        plain = _program(fn, args)
    accelerated = accelerate(fn, memory=memory, rewrite=rewrite)
    with recording() as decisions:
        rewritten = _program(accelerated, args)
    with platform_is("gpu"):
        on_gpu = rewritten if jax.default_backend() == "gpu" else _program(accelerated, args)
    before, after = plain.products(), rewritten.products()
    peak = {"before": plain.peak_memory(), "after": rewritten.peak_memory()} if compiled else None
    return Explanation(
        _rows(before, after, decisions),
        {"before": _counts(before), "after": _counts(after)},
        peak,
        _notes(decisions),
        (*(rewritten.loops(cpu_rows) if jax.default_backend() == "cpu" else ()), *on_gpu.loops(gpu_rows)),
    )


@dataclasses.dataclass(frozen=True)
class _Program:
    closed: Any
    num_cotangents: int

    @property
    def cotangents(self) -> list[Any]:
        invars = self.closed.jaxpr.invars
        return invars[len(invars) - self.num_cotangents :]

    def products(self) -> list[Product]:
        return inventory(self.closed.jaxpr, self.cotangents)

    def loops(self, rows: Callable[..., list[LoopRow]]) -> list[LoopRow]:
        return rows(self.closed.jaxpr, self.cotangents)

    def peak_memory(self) -> int:
        function = jax.jit(lambda *values: interpret(self.closed.jaxpr, [*self.closed.consts, *values]))
        shapes = [v.aval for v in self.closed.jaxpr.invars]
        analysis = function.lower(*shapes).compile().memory_analysis()
        return getattr(analysis, "temp_size_in_bytes", 0)


def _program(fn: Callable[..., Any], args: tuple[Any, ...]) -> _Program:
    """The gradient of `fn` with respect to all floating-point arrays in `args`, as one jaxpr."""
    leaves, tree = jax.tree.flatten(args)
    active = [i for i, x in enumerate(leaves) if _is_float(x)]
    if not active:
        raise LoopError("explain needs a floating-point array among the arguments, to take the gradient for")

    def of_floats(*values):
        full = list(leaves)
        for i, value in zip(active, values, strict=True):
            full[i] = value
        return [y for y in jax.tree.leaves(fn(*jax.tree.unflatten(tree, full))) if _is_float(y)]

    floats = [leaves[i] for i in active]
    cotangents = jax.eval_shape(of_floats, *floats)

    def gradient(floats, cotangents):
        return jax.vjp(of_floats, *floats)[1](cotangents)

    return _Program(jax.make_jaxpr(gradient)(floats, cotangents), len(cotangents))


def _is_float(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.inexact)


def _rows(before: list[Product], after: list[Product], decisions: list[Decision]) -> list[Row]:
    merged = [each.sites for each in decisions if each.move == "merge" and each]
    groups = {place: group for group in merged for place in group}
    about = {(site, each.role): each for each in decisions for site in each.sites}
    were = _by_role(before, {})
    are = _by_role([_with_role(product, before, groups) for product in after], groups)
    return [
        _row(
            place,
            role,
            were.get((place, role), []),
            are.get((place, role), []),
            groups,
            about.get((place, role)),
        )
        for place, role in dict.fromkeys([*were, *are])
    ]


def _notes(decisions: list[Decision]) -> tuple[str, ...]:
    """Decisions against moves of something that is no product, by source line."""
    left = [each for each in decisions if not each and each.role is None]
    return tuple(
        dict.fromkeys(f"{_short(site)}: left: {each.against}" for each in left for site in each.sites)
    )


def _by_role(products: list[Product], groups: dict[str, list[str]]) -> dict[tuple[str, str], list[Product]]:
    """Products by source line and role; a merged one is listed under each that it replaced."""
    found = defaultdict(list)
    for product in products:
        for place in groups.get(product.site, [product.site]):
            found[place, product.role].append(product)
    return found


def _with_role(product: Product, before: list[Product], groups: dict[str, list[str]]) -> Product:
    """Outside a loop, the gradient of a weight is recognised by its size: the weight's, or that of those merged."""
    if product.loops or product.role == "value":
        return product
    sites = groups.get(product.site, [product.site])
    weights = [p.result for p in before if p.site in sites and p.role == "gradient of the weight"]
    same_rank = any(len(product.result) == len(weight) for weight in weights)
    sizes = {math.prod(weight) for weight in weights} | {sum(math.prod(weight) for weight in weights)}
    if same_rank and math.prod(product.result) in sizes:
        return dataclasses.replace(product, role="gradient of the weight")
    return product


def _row(
    place: str,
    role: str,
    were: list[Product],
    are: list[Product],
    groups: dict[str, list[str]],
    decision: Decision | None,
) -> Row:
    one = (were or are)[0]
    now = _places(are)
    if place in groups and are:
        others = ", ".join(_column(p) for p in dict.fromkeys(groups[place]) if p != place)
        now += f", merged with {others}" if others else ", merged"
    return Row(
        site=place,
        role=role,
        before=_places(were),
        after=now,
        count_before=len(were),
        count_after=len(are),
        times_before=sum(p.times for p in were),
        times_after=sum(p.times for p in are),
        flops=sum(p.flops * p.times for p in were) or sum(p.flops * p.times for p in are),
        bytes=one.bytes * one.times,
        why=_why(role, were, are, decision),
    )


def _places(products: list[Product]) -> str:
    return " and ".join(dict.fromkeys(p.place for p in products)) or "-"


def _why(role: str, were: list[Product], are: list[Product], decision: Decision | None) -> str:
    looped, loops = any(p.loops for p in were), any(p.loops for p in are)
    if not are:
        return "not needed any more"
    estimate = f": {decision.estimate}" if decision and decision.estimate else ""
    if looped and not loops:
        return "one product over all steps" + estimate
    if not loops:
        return ""
    if role == "value" and len(are) > len(were) and any(not p.loops for p in are):
        return "its part that is known before the loop is one product over all steps"
    if are[0].inside:
        return f"left: inside {are[0].inside}, which is not opened"
    if decision is not None and not decision:
        return f"left: {decision.against}"
    if role == "gradient of the weight" and sum(p.times for p in are) < sum(p.times for p in were):
        return "one product per segment"
    return {
        "value": "stays: the carry depends on it",
        "gradient of the operand": "stays: the carried gradient depends on it",
        "gradient of the weight": "stays: its weight is not a constant of the loop",
        "computed again": "computed again to save memory",
    }[role]


def _counts(products: list[Product]) -> dict[str, int]:
    def count(place: str) -> int:
        return sum(p.place == place for p in products)

    return {
        "in the forward loop": count("forward loop"),
        "in the backward loop": count("backward loop"),
        "outside": count("once"),
        "computed again": sum(p.role == "computed again" for p in products),
    }


def _short(place: str) -> str:
    return place.rsplit("/", 1)[-1]


def _column(place: str) -> str:
    """Line and column of a site."""
    return ":".join(place.split(":")[-2:])
