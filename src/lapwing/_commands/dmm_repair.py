"""`lapwing dmm repair`: trains a broken machine until its answers are right."""

from pathlib import Path
from typing import Annotated

import tyro

from lapwing.core import interrupts
from lapwing.dmm import Machine, MachineError
from lapwing.synthesis import Examples, RepairConfig, Repaired, repair_all

from .output import print_json, print_lines, print_rich, table
from .parse import Json


def repair_machine(
    file: Annotated[
        Path,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FILE", help="the broken machine, or a name of the library"),
    ],
    *,
    examples: Path,
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    attempts: int = 10,
    rows: int = 128,
    seed: int = 0,
    as_json: Json = False,
) -> None:
    """Trains the machine until its answers to the examples are right, with as few changes as possible.

    Args:
        examples: a JSON file of texts with their targets, or a name of the library for its examples
        out: file to write the machine to; by default next to the old one
        attempts: number of attempts, each with new starts
        rows: number of starts of an attempt, trained at once
        seed: decides the noise of the starts
    """
    machine, expected = Machine.load(file), Examples.load(examples)
    target = out or file.with_suffix(".repaired.json")
    done = 0
    with interrupts() as interrupt:

        def progress(what: str, right: int, _count: int) -> bool:
            nonlocal done
            done += what == "attempt"
            state = (
                "undoing what is not needed" if what == "simplify" else "right" if right else "still wrong"
            )
            print_lines(f"attempt {done}: {state}", to="stderr")
            return interrupt.reason is not None

        config = RepairConfig(attempts=attempts, rows=rows, seed=seed)
        (found,) = repair_all([machine], expected, config, progress=progress)
    if not found.right:
        raise MachineError(_why_not(found, interrupt.reason))
    found.machine.save(target)
    if as_json:
        changes = [change._asdict() for change in found.changes]
        print_json({"error": found.error, "attempts": found.attempts, "changes": changes, "file": target})
        return
    changes = [[_name(change.path), change.before, change.after] for change in found.changes]
    if changes:
        print_rich(table(["link", "before", "after"], changes, numbers=["before", "after"]))
    else:
        print_lines("nothing is broken: the machine is right as it is")
    print_lines(f"largest error on {len(expected.texts)} examples: {found.error:.2g}", f"machine: {target}")


def _why_not(found: Repaired, reason: str | None) -> str:
    if reason:
        return f"{reason} ended the repair in attempt {found.attempts}; the machine is still wrong by {found.error:.3g}"
    return (
        f"no start in {found.attempts} attempts became right, and the machine is wrong by {found.error:.3g}; "
        "give more --attempts, more --rows or another --seed"
    )


def _name(path: tuple[str, ...]) -> str:
    to, to_field, source, source_field = path[-4:]
    return f"{to}.{to_field} ← {source}.{source_field}"
