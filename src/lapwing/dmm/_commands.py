"""What the commands `lapwing dmm show`, `run` and `prune` do: from a file to what is printed, and the files
written.

Each returns the text to print, or with `as_json` the same as a JSON object.
"""

import json
from pathlib import Path
from typing import Any

from lapwing import trees

from ._interpret import Trace, interpret
from ._machine import Machine
from ._picture import picture as draw
from ._plot import plot_answers
from ._prune import prune
from ._text import listing


def show_command(
    file: str | Path, *, picture: str | Path | None = None, limit: int | None = 8, as_json: bool = False
) -> str:
    """The listing of the machine, with the `limit` largest weights of each field, and its picture beside the
    file
    (or where `picture` says)."""
    machine = Machine.load(file)
    target = Path(picture) if picture else Path(file).with_suffix(".png")
    draw(machine, target)
    if as_json:
        links = [link._asdict() for link in machine.links()]
        return json.dumps({**_counts(machine), "links": links, "picture": str(target)})
    return f"{listing(machine, limit)}\npicture: {target}"


def run_command(
    file: str | Path,
    *,
    cycles: int,
    text: str | None = None,
    governor: float | None = None,
    plot: str | Path | None = None,
    as_json: bool = False,
) -> str:
    """The answers of the machine over time (the cycles where one changes or a character is read), and their
    plot
    beside the file (or where `plot` says)."""
    options = {"text": text, "governor": governor}
    given = {name: value for name, value in options.items() if value is not None}
    trace = interpret(Machine.load(file), cycles, **given)
    target = Path(plot) if plot else Path(file).with_suffix(".answers.png")
    plot_answers(trace.answers, file=target)
    if as_json:
        return json.dumps({"cycles": cycles, "answers": trace.answers, "plot": str(target)})
    return f"{_answers_table(trace)}\nplot: {target}"


def prune_command(
    file: str | Path, *, below: float, out: str | Path | None = None, as_json: bool = False
) -> str:
    """Writes the machine without its weak soft leaves (beside the file, or where `out` says)."""
    machine = Machine.load(file)
    pruned = prune(machine, below)
    target = Path(out) if out else Path(file).with_suffix(".pruned.json")
    pruned.save(target)
    before, after = _counts(machine), _counts(pruned)
    if as_json:
        return json.dumps({"below": below, "before": before, "after": after, "file": str(target)})
    changes = [f"{name} {before[name]} → {after[name]}" for name in before]
    return f"pruned below {below:g}: {', '.join(changes)}\nmachine: {target}"


def _counts(machine: Machine) -> dict[str, int]:
    links = machine.links()
    return {
        "links": len(links),
        "soft": sum(not link.hard for link in links),
        "dead": sum(link.dead for link in links),
    }


def _answers_table(trace: Trace) -> str:
    answers = trace.answers
    rows = [["cycle", "read", *answers]]
    last: list[Any] = []
    for cycle, seen in enumerate(trace.cycles, start=1):
        now = [f"{float(numbers[cycle - 1]):.5g}" for numbers in answers.values()]
        read = "".join(trees.prune(seen.outputs.get("input", {}).get("char", {}), 0.5))
        if now != last or read or cycle == len(trace.cycles):
            rows.append([str(cycle), repr(read) if read else "", *now])
        last = now
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(lines)
