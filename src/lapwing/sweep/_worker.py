"""A worker process of the local engine: `python -m lapwing.sweep._worker`, jobs in, outcomes out, a line each.

It runs many jobs, so that jax is imported once. It ends when its standard input is closed, by the sweep or by the
sweep's death: a training in progress is then stopped as by Ctrl-C, with a checkpoint. What libraries print goes to
standard error, a file in the sweep's folder.
"""

import contextlib
import os
import queue
import signal
import sys
import threading

from lapwing.journal import from_json, to_json

from ._job import Job, run_job

Lines = queue.SimpleQueue[str | None]


def main() -> None:
    # A shell that starts a sweep in the background ignores Ctrl-C, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lines = Lines()
    # The pipe is broken if the sweep was killed.
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        threading.Thread(target=_read, args=(lines,), daemon=True).start()
        while (line := lines.get()) is not None:
            print(to_json(run_job(Job(**from_json(line)))), file=answers)


def _read(lines: Lines) -> None:
    for line in sys.stdin:
        lines.put(line)
    # An interrupted training ends properly; after it there is nothing to do.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    lines.put(None)


if __name__ == "__main__":
    main()
