"""A machine as text: one line per neuron, in the order in which values flow."""

from typing import Any

from lapwing import trees

from ._activation import Activation, find_activation
from ._machine import Link, Machine
from ._neuron import FUNCTION, Neuron

HARD, DEAD = "!", "✗"


def listing(machine: Machine, limit: int | None = None) -> str:
    """Returns the machine as text, one line per neuron: its activation and what each input field sums up, the largest
    weights first (the first `limit`, by default all).

    >>> from lapwing import dmm
    >>> print(dmm.listing(dmm.duplicate_detector()))
    9 neurons, 11 links: 9 soft, 2 hard (!), 0 dead (✗)
    timer    timer    timer ← 1! timer.timer
    input    input    timer ← 1! timer.timer
    accum    accum    dict-1 ← 1 accum.dict | dict-2 ← 1 input.char
    eos      eos
    const_1  const_1
    dot      dot      dict-1 ← 1 accum.dict | dict-2 ← 1 eos.char
    norm     norm     dict ← 1 accum.dict
    compare  compare  dict-1 ← 1 norm.norm | dict-2 ← 1 const_1.const_1
    output   output   dict-1 ← 1 compare.true | dict-2 ← 1 dot.dot
    """
    links = machine.links()
    used, without = machine.used(), machine.idle()
    column = machine.columns()
    rows = []
    for name in sorted(machine.neurons, key=lambda name: (column[name], name)):
        if name in without:
            continue
        parts = [*_starts(machine, name), *_fields([link for link in links if link.to == name], limit)]
        note = "  (does not reach the output)" if name not in used else ""
        rows.append((name, _kind(machine.neurons[name]), " | ".join(parts) + note))
    lines = [_headline(machine, links), *_aligned(rows)]
    if without:
        lines.append(f"without links: {', '.join(without)}")
    return "\n".join(lines)


def _headline(machine: Machine, links: list[Link]) -> str:
    hard = sum(link.hard for link in links)
    dead = sum(link.dead for link in links)
    text = (
        f"{len(machine.neurons)} neurons, {len(links)} links: {len(links) - hard} soft, "
        f"{hard} hard ({HARD}), {dead} dead ({DEAD})"
    )
    if machine.matrix_from:
        text += f"; the matrix is in {'.'.join(machine.matrix_from)}"
    if machine.newborn:
        text += f"; up to {machine.capacity} neurons can come to be, of {', '.join(machine.newborn.names)}"
    return text


def _aligned(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max((len(row[k]) for row in rows), default=0) for k in (0, 1)]
    return [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() for a, b, c in rows]


def _kind(neuron: Neuron) -> str:
    return "mix" if neuron.fluid else _with_options(neuron.functions[0])


def _with_options(function: Activation) -> str:
    """The activation's name with the options that are not the default."""
    defaults = find_activation(function.name).options
    changed = [f"{key}={_short(value)}" for key, value in function.options.items() if value != defaults[key]]
    return f"{function.name}({', '.join(changed)})" if changed else function.name


def _short(value: Any) -> str:
    return f"{trees.count(value)} leaves" if isinstance(value, dict) else repr(value)


def _starts(machine: Machine, name: str) -> list[str]:
    """The mix of a fluid neuron and its initial outputs."""
    parts = []
    for field, value in machine.outputs.get(name, {}).items():
        if (name, field) == machine.matrix_from:
            continue
        leaves = trees.paths(value)
        path = ("outputs", name, field)
        terms = [
            f"{leaf:.4g}{HARD if (*path, *keys) in machine.hard else ''} {'/'.join(keys)}"
            for keys, leaf in leaves.items()
        ]
        parts.append(f"{'mix' if field == FUNCTION else f'{field} starts as'} {', '.join(terms)}")
    return parts


def _fields(links: list[Link], limit: int | None) -> list[str]:
    fields: dict[str, list[Link]] = {}
    for link in links:
        if not link.passes_mix:
            fields.setdefault(link.to_field, []).append(link)
    return [f"{field} ← {_sum(found, limit)}" for field, found in fields.items()]


def _sum(links: list[Link], limit: int | None) -> str:
    strongest = sorted(links, key=lambda link: -abs(link.weight))
    terms = [
        f"{link.weight:.4g}{HARD * link.hard}{DEAD * link.dead} {link.origin}" for link in strongest[:limit]
    ]
    more = len(links) - len(terms)
    return ", ".join(terms) + (f" and {more} more" if more else "")
