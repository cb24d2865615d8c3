"""A machine that runs and is edited meanwhile: its state, its undo stack, its journal. No threads, no clock.

An edit takes effect between two cycles and leaves the outputs of all neurons as they are. It is checked, then written
to the journal, then made: an edit that fails changes nothing, and one that was made is in the journal. All that happens
follows from the machine and the list of (cycle, edit), which is why a journal can be replayed to the same bits.
"""

from collections import deque
from pathlib import Path as File
from typing import Any

from lapwing import trees
from lapwing.core import LapwingError
from lapwing.dmm import Cycle, Machine, step
from lapwing.trees import Tree

from ._edits import Change, Edit, Version, change, check_place, checked, in_words, place_weight
from ._journal import Journal, LiveError, digest

HISTORY = 1000
"""Cycles whose answers are kept."""
_MOST_UNDO = 200


class Session:
    """A running machine.

    **Arguments**: `journal`, the file to write each edit to, which must not exist; `options` of the run as for
    `dmm.interpret`, such as `text`.

    **Attributes**: `cycle`, the number of cycles run; `outputs` of all neurons after the last one; `last`, that whole
    cycle, None before the first; `answers`, the last thousand cycles' answers with their numbers.

    >>> from lapwing import dmm
    >>> session = Session(dmm.duplicate_detector(), text="aab")
    >>> session.run(15)
    >>> session.answers[-1]
    (15, {'dict-1': 1.0, 'dict-2': 0.0})
    >>> session.apply({"edit": "weight", "to": "norm.dict", "from": "accum.dict", "weight": 10})
    >>> session.run(3)
    >>> session.answers[-1]
    (18, {'dict-1': 19.0, 'dict-2': 0.0})
    """

    def __init__(self, machine: Machine, *, journal: str | File | None = None, **options: Any):
        # A replay reads the machine from the journal, so this run too begins with what a reader gets.
        text = machine.to_json()
        self._now = Version(Machine.from_json(text), dict(options))
        self._running = self._now.machine.with_options(**options)
        self._undo: deque[Change] = deque(maxlen=_MOST_UNDO)
        self._redo: list[Change] = []
        self.edits: deque[tuple[int, str]] = deque(maxlen=HISTORY)
        """The last edits, with their cycles, as text."""
        self._begin()
        self.journal = Journal.create(journal, text, options) if journal is not None else None

    def _begin(self) -> None:
        self.cycle = 0
        self.outputs: Tree = self._now.machine.outputs
        self.last: Cycle | None = None
        self.answers: deque[tuple[int, dict[str, Any]]] = deque(maxlen=HISTORY)

    @property
    def machine(self) -> Machine:
        """The machine as edited, with its own initial values: what is saved."""
        return self._now.machine

    @property
    def version(self) -> Version:
        """The machine and the options of the run."""
        return self._now

    @property
    def matrix(self) -> Tree:
        """The matrix of the next cycle."""
        if self.machine.matrix_from is None:
            return self.machine.matrix
        name, field = self.machine.matrix_from
        return self.outputs.get(name, {}).get(field, {})

    def step(self) -> Cycle:
        """Runs one cycle. If an activation fails, nothing has changed."""
        try:
            cycle = step(self._running, self.outputs, self.cycle + 1)
        except LapwingError:
            raise
        except Exception as error:  # An activation may be anybody's.
            raise LiveError(
                f"cycle {self.cycle + 1} failed with {type(error).__name__}: {error}; undo the last edit, or restart"
            ) from error
        self.cycle, self.outputs, self.last = self.cycle + 1, cycle.outputs, cycle
        output = self.machine.neurons.get(self.machine.output)
        if output is not None:
            inputs = cycle.inputs.get(self.machine.output, {})
            self.answers.append(
                (self.cycle, {name: trees.number(inputs.get(name, {})) for name in output.inputs})
            )
        return cycle

    def run(self, cycles: int) -> None:
        """Runs N cycles."""
        for _ in range(cycles):
            self.step()

    def apply(self, edit: Edit) -> None:
        """Makes an edit: see `lapwing.live` for the kinds.

        **Raises** a `LapwingError` of one sentence for an edit that makes no sense; then nothing has changed.
        """
        edit = checked(edit)
        planned = None if edit["edit"] == "restart" else self._plan(edit)
        if self.journal is not None:
            self.journal.write(self.cycle, edit, digest(self.outputs))
        self.edits.append((self.cycle, self._words(edit, planned)))
        if planned is None:
            self._begin()
        elif edit["edit"] == "undo":
            self._redo.append(self._undo.pop())
            self._make(planned.before, planned, planned.weight_before)
        elif edit["edit"] == "redo":
            self._undo.append(self._redo.pop())
            self._make(planned.after, planned, planned.weight_after)
        else:
            if edit.get("continues"):
                self._undo.pop()
            self._undo.append(planned)
            self._redo.clear()
            self._make(planned.after, planned, planned.weight_after)

    def _plan(self, edit: Edit) -> Change:
        if edit["edit"] in ("undo", "redo"):
            stack = self._undo if edit["edit"] == "undo" else self._redo
            if not stack:
                raise LiveError(f"there is nothing to {edit['edit']}")
            if stack[-1].link is not None and self.machine.matrix_from is not None:
                check_place(self.matrix, stack[-1].link, in_words(stack[-1].edit))
            return stack[-1]
        planned = change(edit, self._now, self.matrix, self.last)
        planned.after.machine.with_options(
            **planned.after.options
        )  # refuses what does not fit, before it is written
        if edit.get("continues"):
            earlier = self._undo[-1] if self._undo else None
            if earlier is None or earlier.link != planned.link or earlier.edit["edit"] != "weight":
                raise LiveError(
                    "the edit before is none of this link's weight, so this one cannot continue it"
                )
            return Change(
                edit, earlier.before, planned.after, planned.link, earlier.weight_before, planned.weight_after
            )
        return planned

    def _make(self, version: Version, made: Change, weight: float | None) -> None:
        self._now = version
        self._running = version.machine.with_options(**version.options)
        if self.last is None:
            self.outputs = version.machine.outputs
        elif made.link is not None and self.machine.matrix_from is not None:
            path = (*self.machine.matrix_from, *made.link)
            self.outputs = place_weight(self.outputs, path, weight)

    @staticmethod
    def _words(edit: Edit, planned: Change | None) -> str:
        if planned is not None and edit["edit"] in ("undo", "redo"):
            return f"{edit['edit']}: {in_words(planned.edit)}"
        return in_words(edit)

    def can(self) -> dict[str, str | None]:
        """What undo and redo would take back or make again, as text."""
        stacks = {"undo": self._undo, "redo": self._redo}
        return {name: in_words(stack[-1].edit) if stack else None for name, stack in stacks.items()}

    def close(self) -> None:
        """Ends the journal. One without edits is removed: there is nothing to replay."""
        if self.journal is not None:
            self.journal.end(self.cycle, digest(self.outputs))
