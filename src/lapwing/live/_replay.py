"""A journal, run again: the same values in every cycle, to the last bit."""

from collections.abc import Iterator
from pathlib import Path as File
from typing import NamedTuple

from lapwing.dmm import Cycle, Machine, Trace

from ._journal import LiveError, digest, read_journal
from ._session import Session


class Replay(NamedTuple):
    """A journal that was run again.

    **Fields**: `session` at its end; `trace` of all cycles that were run, as `dmm.interpret` gives it; `numbers`, the
    number of each cycle, which is 1 again after a restart; `edits`, each with the number of cycles in the trace before
    it, its own cycle and its text; `compared`, how many states of the journal were the same here.

    >>> import contextlib, tempfile
    >>> from lapwing import dmm
    >>> from lapwing.live import replay
    >>> journal = tempfile.mkdtemp() + "/detector.jsonl"
    >>> with contextlib.closing(Session(dmm.duplicate_detector(), text="aab", journal=journal)) as session:
    ...     session.run(12)
    ...     session.apply({"edit": "remove", "to": "norm.dict", "from": "accum.dict"})
    >>> again = replay(journal)
    >>> len(again.trace.cycles), again.numbers[-1], again.edits
    (12, 12, [(12, 12, 'remove norm.dict ← accum.dict')])
    """

    session: Session
    trace: Trace
    numbers: list[int]
    edits: list[tuple[int, int, str]]
    compared: int


def replay(file: str | File, cycles: int | None = None) -> Replay:
    """Runs a journal again.

    **Arguments**: `cycles`, where to end after the last edit, counted from the last restart; by default where the
    session ended, or at its last edit if it was killed.

    **Raises** `LiveError` if a state differs from the one that was written.

    >>> import tempfile
    >>> from lapwing import dmm
    >>> journal = tempfile.mkdtemp() + "/detector.jsonl"
    >>> session = Session(dmm.duplicate_detector(), text="aab", journal=journal)
    >>> session.run(12)
    >>> session.apply({"edit": "remove", "to": "norm.dict", "from": "accum.dict"})
    >>> session.run(5)
    >>> session.close()
    >>> again = replay(journal)
    >>> again.session.outputs == session.outputs, again.edits, again.compared
    (True, [(12, 12, 'remove norm.dict ← accum.dict')], 2)
    """
    written = read_journal(file)
    session = Session(Machine.from_json(written.machine), **written.options)
    done: list[Cycle] = []
    numbers: list[int] = []
    edits: list[tuple[int, int, str]] = []
    compared = 0
    for entry in written.entries:
        if entry.edit.get("edit") == "end" and cycles is not None and cycles < entry.cycle:
            break
        for cycle in _until(session, entry.cycle, file):
            done.append(cycle)
            numbers.append(session.cycle)
        if entry.state is not None:
            _compare(session, entry.state, file)
            compared += 1
        if entry.edit.get("edit") != "end":
            session.apply(entry.edit)
            edits.append((len(done), entry.cycle, session.edits[-1][1]))
    for cycle in _until(session, session.cycle if cycles is None else max(cycles, session.cycle), file):
        done.append(cycle)
        numbers.append(session.cycle)
    return Replay(session, Trace(session.machine, done), numbers, edits, compared)


def _until(session: Session, cycle: int, file: str | File) -> Iterator[Cycle]:
    if cycle < session.cycle:
        raise LiveError(
            f"the journal {str(file)!r} is damaged: an edit at cycle {cycle} follows one at cycle {session.cycle}"
        )
    while session.cycle < cycle:
        yield session.step()


def _compare(session: Session, state: str, file: str | File) -> None:
    found = digest(session.outputs)
    if found != state:
        raise LiveError(
            f"the values at cycle {session.cycle} are not those of the journal {str(file)!r}: it was changed, or an "
            "activation or Lapwing is of another version"
        )
