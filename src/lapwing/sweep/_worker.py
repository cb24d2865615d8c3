"""A worker process of the local engine: `python -m lapwing.sweep._worker`, jobs in, outcomes out, a line each.

It runs many jobs, so that jax is imported once. It ends when its standard input is closed: a training in progress then
ends with a checkpoint, as stopped if the sweep says so before, else as preempted, since the sweep has died or was
preempted itself. What libraries print goes to standard error, a file in the sweep's folder.
"""

import contextlib
import os
import queue
import signal
import sys
import threading

from lapwing.core import raised_interrupts
from lapwing.journal import from_json, to_json

from ._job import STOP, Job, run_job

Lines = queue.SimpleQueue[str | None]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lines = Lines()
    # The pipe is broken if the sweep was killed.
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        threading.Thread(target=_read, args=(lines,), daemon=True).start()
        while (line := lines.get()) is not None:
            with raised_interrupts():
                outcomes = run_job(Job(**from_json(line)))
            print(to_json(outcomes), file=answers)


def _read(lines: Lines) -> None:
    number = signal.SIGTERM
    for line in sys.stdin:
        if line == STOP:
            number = signal.SIGINT
            break
        lines.put(line)
    # An interrupted training ends properly; after it there is nothing to do.
    signal.pthread_kill(threading.main_thread().ident or 0, number)
    lines.put(None)


if __name__ == "__main__":
    main()
