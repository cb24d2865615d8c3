"""A worker process of the local engine: `python -m lapwing.sweep._worker`, jobs in, outcomes out, a line each.

It lives for many jobs, so that jax is imported once. It ends when its standard input is closed, by the sweep or by the
sweep's death: a training under way is then stopped as by Ctrl-C, with a checkpoint. What libraries print goes to
standard error, which is a file in the sweep's folder.
"""

import contextlib
import os
import queue
import signal
import sys
import threading

from lapwing.journal import from_json, to_json

from ._job import train

Jobs = queue.SimpleQueue[str | None]


def main() -> None:
    # A shell that starts a sweep in the background has Ctrl-C ignored, which children inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    jobs = Jobs()
    with contextlib.suppress(
        KeyboardInterrupt, BrokenPipeError
    ):  # Nobody listens any more when the sweep was killed.
        threading.Thread(target=_read, args=(jobs,), daemon=True).start()
        while (line := jobs.get()) is not None:
            print(to_json(train(from_json(line))), file=answers)


def _read(jobs: Jobs) -> None:
    for line in sys.stdin:
        jobs.put(line)
    # A training that is interrupted ends properly; then there is nothing more to do.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    jobs.put(None)


if __name__ == "__main__":
    main()
