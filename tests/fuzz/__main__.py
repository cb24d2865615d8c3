"""`python -m tests.fuzz`: mutations in child processes, some hundred each, on all cores."""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from .drive import LIMIT_S, run
from .kinds import COUNTS

BATCH = 250
GRACE_S = 60.0
_REPORT_EVERY = 1000
_MARK = "found: "


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--only", choices=COUNTS, action="append", help="the kinds to mutate; by default all")
    parser.add_argument(
        "--count", type=int, help="mutations of each kind; by default 20,000 of runs, 5,000 of others"
    )
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutation")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch", nargs=3, metavar=("KIND", "FIRST", "END"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.batch:
        return _batch(options.batch[0], int(options.batch[1]), int(options.batch[2]))
    began, found = time.monotonic(), 0
    for kind in options.only or COUNTS:
        found += _kind(kind, options.first, options.count or COUNTS[kind], options.workers)
    print(f"{found} different findings in {time.monotonic() - began:.0f} s")
    return 1 if found else 0


def _kind(kind: str, first: int, count: int, workers: int) -> int:
    """Prints each finding when it is first met; returns how many different ones there are."""
    began, done = time.monotonic(), 0
    times: Counter[str] = Counter()
    starts = range(first, first + count, BATCH)
    with ThreadPoolExecutor(workers) as pool:
        for text in pool.map(lambda start: _child(kind, start, min(start + BATCH, first + count)), starts):
            for finding in filter(None, text.split(_MARK)):
                where, _, rest = finding.partition(" by ")
                times[where] += 1
                if times[where] == 1:
                    print(f"{kind}: {where}, first by {rest}", flush=True)
            done = min(done + BATCH, count)
            seconds = time.monotonic() - began
            if done == count or done % _REPORT_EVERY == 0:
                print(
                    f"{kind}: {done} mutations in {seconds:.0f} s, {len(times)} different findings",
                    flush=True,
                )
    for where, number in times.items():
        print(f"{kind}: {number} times {where}")
    return len(times)


def _child(kind: str, first: int, end: int) -> str:
    command = [sys.executable, "-m", "tests.fuzz", "--batch", kind, str(first), str(end)]
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GRACE_S + LIMIT_S * (end - first),
        )
    except subprocess.TimeoutExpired:
        return f"{_MARK}a hang by {kind} {first} to {end}\n"
    if child.returncode:
        return f"{_MARK}exit status {child.returncode} by {kind} {first} to {end}\n{child.stderr[-2000:]}\n"
    return child.stdout


def _batch(kind: str, first: int, end: int) -> int:
    for each in run(kind, range(first, end), everything=True, limits=True):
        print(f"{_MARK}{each.where} by {kind} {each.number}\n{each.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
