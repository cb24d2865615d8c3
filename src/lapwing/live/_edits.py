"""Edits of a running machine: what there is to change, checked, with the machine before and after.

An edit is a plain dict, the same on the page, over HTTP and in the journal:

    {"edit": "weight", "to": "norm.dict", "from": "accum.dict", "weight": 0.5}    sets the weight of a link
    {"edit": "add", "to": …, "from": …, "weight": …}     adds a link
    {"edit": "remove", "to": …, "from": …}               removes one
    {"edit": "text", "text": "aab"}                      another text to read, in place of the present one
    {"edit": "append", "text": "xyz"}                    what is read after the present text
    {"edit": "undo"}, {"edit": "redo"}                   takes back an edit of those above, or makes it again
    {"edit": "restart"}                                  back to cycle 0, with the machine as edited

A link that reads a part of a field has the path of that part, `"key": ["a"]`. The edits while a slider moves have
`"continues": true` from the second on: undo takes all of them back at once.

In a machine that holds its matrix itself, an edit changes the link as it is now, and the initial one. A link that the
machine has made itself has no initial one: then only the one of now is changed, and it is not saved.
"""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lapwing import trees
from lapwing.core import suggestion
from lapwing.dmm import Cycle, Machine
from lapwing.trees import Path, Tree

from ._journal import LiveError

Edit = Mapping[str, Any]
_LINK = ("to", "from")
_LONGEST_TEXT = 1_000_000
FIELDS: dict[str, tuple[str, ...]] = {
    "weight": (*_LINK, "weight"),
    "add": (*_LINK, "weight"),
    "remove": _LINK,
    "text": ("text",),
    "append": ("text",),
    "undo": (),
    "redo": (),
    "restart": (),
}


@dataclass(frozen=True)
class Version:
    """A machine, and the options of its run (the text that it reads)."""

    machine: Machine
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """What an edit of the machine changes: its version, and in a matrix that the machine holds itself the link as it
    is now. A weight of None is a link that is not there."""

    edit: Edit
    before: Version
    after: Version
    link: Path | None = None
    weight_before: float | None = None
    weight_after: float | None = None


def checked(edit: Any) -> dict[str, Any]:
    """The edit with the fields of its kind alone.

    >>> checked({"edit": "weight", "to": "norm.dict", "from": "accum.dict", "weight": "much"})
    Traceback (most recent call last):
    lapwing.live._journal.LiveError: a weight is a finite number, but got 'much'
    """
    kind = edit.get("edit") if isinstance(edit, Mapping) else None
    if not isinstance(kind, str) or kind not in FIELDS:
        found = f"{kind!r} is no edit; {suggestion(kind, FIELDS)}" if isinstance(kind, str) else "got none"
        raise LiveError(f'expected an edit such as {{"edit": "undo"}}, but {found}')
    clean: dict[str, Any] = {"edit": kind}
    for field in FIELDS[kind]:
        value = edit.get(field)
        if field == "weight":
            value = _finite(value)
        elif not isinstance(value, str) or not value:
            raise LiveError(
                f"the edit {kind!r} needs {field}=…, a text that is not empty, but got {value!r:.80}"
            )
        clean[field] = value
    if edit.get("key") and "to" in clean:
        clean["key"] = _keys(edit["key"])
    if kind == "weight" and edit.get("continues") is True:
        clean["continues"] = True
    return clean


def _keys(key: Any) -> list[str]:
    if not isinstance(key, (list, tuple)) or not all(isinstance(each, str) and each for each in key):
        raise LiveError(f"the key of a link is a list of texts, like ['a'], but got {key!r:.80}")
    return list(key)


def _finite(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            if math.isfinite(value):
                return float(value)
    raise LiveError(f"a weight is a finite number, but got {value!r:.80}")


def in_words(edit: Edit) -> str:
    """An edit as a line for people.

    >>> in_words({"edit": "weight", "to": "norm.dict", "from": "accum.dict", "weight": 0.5})
    'norm.dict ← 0.5 accum.dict'
    """
    match edit:
        case {"edit": "weight", "to": to, "weight": weight}:
            return f"{to} ← {weight:.6g} {_source(edit)}"
        case {"edit": "add", "to": to, "weight": weight}:
            return f"add {to} ← {weight:.6g} {_source(edit)}"
        case {"edit": "remove", "to": to}:
            return f"remove {to} ← {_source(edit)}"
        case {"edit": "text" | "append" as kind, "text": text}:
            return f"{kind} {text!r}"
    return str(edit["edit"])


def _source(edit: Edit) -> str:
    """What a link reads, as text: `accum.dict`, or with a key `accum.dict/a`."""
    return "/".join([edit["from"], *edit.get("key", ())])


def change(edit: Edit, now: Version, matrix: Tree, last: Cycle | None) -> Change:
    """What a checked edit of the machine (not undo, redo or restart) changes.

    **Arguments**: `matrix` of the next cycle; `last`, the cycle before.
    """
    match edit:
        case {"edit": "text", "text": text}:
            return Change(edit, now, _with_text(now, text))
        case {"edit": "append", "text": text}:
            return Change(edit, now, _with_text(now, _continued(now, text, last)))
        case {"edit": kind, "to": str(to), "from": str(source)}:
            return _change_link(edit, kind, now, matrix, (*_path(to, source), *edit.get("key", ())))
    raise LiveError(f"{edit.get('edit')!r} is no edit of the machine")


def _path(to: str, source: str) -> Path:
    ends = []
    for address in (to, source):
        name, dot, field = address.partition(".")
        if not (name and dot and field):
            raise LiveError(f"expected a neuron and its field, like 'norm.dict', but got {address!r:.80}")
        ends += [name, field]
    return tuple(ends)


def _change_link(edit: Edit, kind: str, now: Version, matrix: Tree, link: Path) -> Change:
    machine = now.machine
    weights = trees.paths(machine.matrix)
    present = trees.paths(matrix).get(
        link
    )  # of a machine that holds its matrix itself, not the weight it began with
    known = link in weights or present is not None
    name = f"{edit['to']} ← {_source(edit)}"
    if kind == "add" and known:
        raise LiveError(f"the link {name} is there already; set its weight instead")
    if kind != "add" and not known:
        raise LiveError(f"there is no link {name}; add it first")
    check_place(matrix, link, name)
    weight = None if kind == "remove" else edit["weight"]
    if kind == "add":
        after = _with_link(machine, edit)
    elif link not in weights:
        after = machine
    else:
        after = _without(machine, link) if weight is None else _with_weight(machine, link, weight)
    changed = Version(after, now.options)
    return Change(edit, now, changed, link, None if present is None else float(present), weight)


def _with_weight(machine: Machine, link: Path, weight: float) -> Machine:
    leaves = {**trees.paths(machine.values), (*machine.matrix_path, *link): weight}
    return machine.with_values(trees.from_paths(leaves))


def _with_link(machine: Machine, edit: Edit) -> Machine:
    twin = machine.with_values(machine.values)
    twin.link(edit["to"], edit["from"], edit["weight"], key=tuple(edit.get("key", ())))
    return twin


def _without(machine: Machine, link: Path) -> Machine:
    leaves = trees.paths(machine.values)
    leaves.pop((*machine.matrix_path, *link), None)
    return machine.with_values(trees.from_paths(leaves))


def check_place(matrix: Tree, link: Path, name: str) -> None:
    """Refuses a link where another one reads a part of the same, or all of it."""
    branch: Any = matrix
    for key in link:
        if not isinstance(branch, dict):
            break
        branch = branch.get(key, {})
    else:
        if not isinstance(branch, dict) or not branch:
            return
    raise LiveError(
        f"the link {name} reads what another link reads a part of, or a part of it; remove that one first"
    )


def place_weight(outputs: Tree, path: Path, weight: float | None) -> Tree:
    """The outputs with a leaf set, or without it; the given tree stays as it is.

    >>> place_weight({"self": {"result": {"a": 1.0}}}, ("self", "result", "b"), 2.0)
    {'self': {'result': {'a': 1.0, 'b': 2.0}}}
    """
    top = dict(outputs)
    branch = top
    for key in path[:-1]:
        branch[key] = dict(branch.get(key, {}))
        branch = branch[key]
    if weight is None:
        branch.pop(path[-1], None)
    else:
        branch[path[-1]] = weight
    return top


# Texts.


def readers(machine: Machine) -> list[str]:
    """The neurons that read a text."""
    neurons = machine.neurons.items()
    return [name for name, neuron in neurons if any("text" in each.options for each in neuron.functions)]


def text_of(now: Version) -> Any:
    """The text that the machine reads; None if it has none."""
    if "text" in now.options:
        return now.options["text"]
    own = [
        function.options["text"]
        for name in readers(now.machine)
        for function in now.machine.neurons[name].functions
        if function.options.get("text")
    ]
    return own[0] if own else None


def items_read(now: Version, last: Cycle | None) -> int:
    """How many items of the text were read, counting the last one each time that it is repeated."""
    counts = [0]
    for name in readers(now.machine):
        for function in now.machine.neurons[name].functions:
            period = function.options.get("period")
            if last is not None and period and function.inputs:
                tick = trees.number(last.inputs.get(name, {}).get(function.inputs[0], {}))
                counts.append(math.floor(tick / period) + 1 if 0 <= tick < math.inf else 0)
    return max(counts)


def _with_text(now: Version, text: Any) -> Version:
    if not readers(now.machine):
        raise LiveError("this machine has no neuron that reads a text")
    return Version(now.machine, {**now.options, "text": text})


def _continued(now: Version, more: str, last: Cycle | None) -> Any:
    """The text with more at its end. What was repeated after its end is written out, so that `more` is read next."""
    text = text_of(now) or ""
    repeated = max(items_read(now, last) - len(text), 0) if len(text) else 0
    if len(text) + repeated > _LONGEST_TEXT:
        raise LiveError(
            f"a text has at most {_LONGEST_TEXT} characters with those repeated; give another text instead"
        )
    if isinstance(text, str):
        return text + text[-1:] * repeated + more
    return (*text, *text[-1:] * repeated, *more)
