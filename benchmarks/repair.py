"""Breaks the machines of the library and repairs them: how many, by kind of damage and by machine, and how long.

    python -m benchmarks.repair                         # 100 broken machines
    python -m benchmarks.repair --machines parity edges --count 12

Broken machines of one structure are repaired together, with one compiled program; `--workers` structures at a time, so
that one compiles while another trains; the seconds of each are split into compiling (with tracing) and the rest. Each
structure that is done is in the JSON file: after Ctrl-C the same command continues. A machine is repaired if no answer
to texts that training never saw, twice as long as those it saw, is wrong by more than 0.001. The rules (`RepairConfig`)
were chosen on seed 0; report other seeds.
"""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import numpy as np

from lapwing import dmm
from lapwing.bench.measure import BenchError, check_parts, environment, main, save
from lapwing.core import raised_interrupts
from lapwing.dmm import LibraryMachine, Machine
from lapwing.synthesis import Examples, RepairConfig, damaged, repair_all
from lapwing.synthesis._repair_population import Population

KINDS = ("removed", "rewired", "scaled")
HANDMADE = tuple(name for name, each in dmm.library().items() if not each.published)
ZERO = 1e-3
DRAWS = 16  # of a damage, of which the first is taken that changes an answer


@dataclass(frozen=True)
class Config:
    """Repair of the library's machines."""

    machines: tuple[str, ...] = HANDMADE
    """names of the library"""
    count: int = 100
    """number of broken machines, spread over the library"""
    seed: int = 1
    """decides the damage and the texts"""
    rows: int = 0
    """machines trained at once; 0: 128 on a CPU, 512 on a GPU"""
    attempts: int = 10
    """attempts with new starts"""
    workers: int = 0
    """structures at a time; 0: 1 on a CPU, 8 on a GPU"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    check_parts(config.machines, HANDMADE)
    if config.count < 1:
        raise BenchError(f"count should be at least 1, but is {config.count}")
    is_cpu = jax.default_backend() == "cpu"
    plan = damages(config)
    results = _resumed(config) or {
        "environment": environment(),
        "config": _settings(config),
        "seconds": 0.0,
        "rows": [],
    }
    done = {row["machine"] for row in results["rows"]}
    begin, before, stop = time.perf_counter(), results["seconds"], threading.Event()
    with raised_interrupts(), ThreadPoolExecutor(config.workers or (1 if is_cpu else 8)) as pool:
        jobs = [
            pool.submit(repair_group, name, plan[name], config, stop) for name in plan if name not in done
        ]
        try:
            for job in as_completed(jobs):
                results["rows"] += job.result()  # in the order in which they end
                results["seconds"] = before + time.perf_counter() - begin
                save(results, f"repair-seed-{config.seed}", config.out)
                _say(f"{_right(results['rows'])} of {len(results['rows'])}, {results['seconds']:.0f} s")
        except KeyboardInterrupt:
            stop.set()
            for job in jobs:
                job.cancel()
            _say("stopped; what is done is kept, and the same command continues")
    return results


def damages(config: Config) -> dict[str, list[tuple[str, int]]]:
    """For each machine the kind and the number of broken links of each of its copies."""
    plan: dict[str, list[tuple[str, int]]] = {}
    for i in range(config.count):
        turn, place = divmod(i, len(config.machines))
        kind, count = divmod((place + 4 * turn) % 9, 3)
        plan.setdefault(config.machines[place], []).append((KINDS[kind], count + 1))
    return plan


def repair_group(
    name: str, plan: list[tuple[str, int]], config: Config, stop: threading.Event
) -> list[dict[str, Any]]:
    """Breaks one machine in several ways, repairs all, and returns a row for each."""
    begin = time.perf_counter()
    with compilations() as compiling:
        rows = _repaired(name, plan, config, stop)
    times = {"seconds_of_group": time.perf_counter() - begin, "compiling_of_group": sum(compiling)}
    return [row | times for row in rows]


@contextlib.contextmanager
def compilations() -> Iterator[list[float]]:
    """The seconds that this thread traces, lowers and compiles inside the block; one inside of another counts once."""
    spans: list[tuple[float, float]] = []
    found: list[float] = []
    here = threading.get_ident()

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/") and threading.get_ident() == here:
            end = time.perf_counter()
            spans.append((end - duration_secs, end))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
        last = 0.0
        for begin, end in sorted(spans):
            found.append(max(0.0, end - max(begin, last)))
            last = max(last, end)


def _repaired(
    name: str, plan: list[tuple[str, int]], config: Config, stop: threading.Event
) -> list[dict[str, Any]]:
    place, known = HANDMADE.index(name), dmm.library()[name]
    machine = known.build()
    seen, unseen = (examples_of(known, machine, [config.seed, place, part], part) for part in (1, 2))
    judge = Population([machine], unseen, rows=DRAWS)
    broken = []
    most = (len(machine.soft()) + 1) // 2
    for i, (kind, count) in enumerate(plan):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(config.seed), place), i)
        draws = [damaged(machine, each, min(count, most), kind) for each in jax.random.split(key, DRAWS)]  # pyright: ignore[reportArgumentType]
        visible = np.flatnonzero(judge.errors(draws) > 10 * ZERO)
        broken.append(draws[visible[0]])
    rows = config.rows or (128 if jax.default_backend() == "cpu" else 512)

    def progress(what: str, done: int, count: int) -> bool:
        _say(f"{name}: {what}, {done} of {count}")
        return stop.is_set()

    found = repair_all(broken, seen, RepairConfig(rows=rows, attempts=config.attempts), progress=progress)
    errors = [float(error) for one in found for error in judge.errors([one.machine])]
    return [
        {
            "machine": name,
            "kind": kind,
            "links": min(count, most),
            "repaired": one.right and error <= ZERO,
            "error": one.error,
            "unseen_error": error,
            "changes": len(one.changes),
            "attempts": one.attempts,
        }
        for (kind, count), one, error in zip(plan, found, errors, strict=True)
    ]


def examples_of(known: LibraryMachine, machine: Machine, seed: list[int], times: int) -> Examples:
    """The machine's answers to random texts; part 2 is twice as long and has more texts."""
    if not known.alphabet:
        program = dmm.compile(machine, 14 * times**2)
        return Examples(("",), np.asarray(jax.jit(program.answers)(program.start))[None], program.fields)
    draw = np.random.default_rng(seed)
    length, count = (14 if known.period == 1 else 4) * times, 8 if times == 1 else 20
    texts = ["".join(draw.choice(list(known.alphabet), length)) for _ in range(count)]
    return Examples.from_teacher(machine, texts, length * known.period + 4)


def show(results: dict[str, Any]) -> None:
    """Prints the tables: by kind and number of broken links, and by machine."""
    rows = results["rows"]
    print(f"{'damage':10}" + "".join(f"{n} {'link' if n == 1 else 'links':9}" for n in (1, 2, 3)))
    for kind in KINDS:
        cells = [[r for r in rows if (r["kind"], r["links"]) == (kind, n)] for n in (1, 2, 3)]
        print(f"{kind:10}" + "".join(f"{_right(cell)} of {len(cell):<6}" for cell in cells))
    print()
    groups = {row["machine"]: (row["seconds_of_group"], row.get("compiling_of_group", 0.0)) for row in rows}
    for name, (seconds, compiling) in groups.items():
        cell = [row for row in rows if row["machine"] == name]
        print(
            f"{name:20}{_right(cell)} of {len(cell):<4}{seconds:6.1f} s, {compiling:6.1f} s of them compiling"
        )
    exact = sum(row["repaired"] and row["unseen_error"] == 0 for row in rows)
    print(f"\nrepaired: {_right(rows)} of {len(rows)}, {exact} of them with no error at all")
    print(f"{results['seconds']:.0f} s on {results['environment']['device']}")
    every, compiling = (sum(each[at] for each in groups.values()) for at in (0, 1))
    print(
        f"the structures took {every:.0f} s one by one: {compiling:.0f} s to compile, {every - compiling:.0f} s to run"
    )


def _right(rows: list[dict[str, Any]]) -> int:
    return sum(row["repaired"] for row in rows)


def _settings(config: Config) -> dict[str, Any]:
    return json.loads(json.dumps({k: v for k, v in asdict(config).items() if k not in ("out", "workers")}))


def _resumed(config: Config) -> dict[str, Any] | None:
    """The results so far, if they are of the same settings on the same kind of device."""
    path = Path(config.out) / f"repair-seed-{config.seed}-{jax.default_backend()}.json"
    if not config.out or not path.exists():
        return None
    results = json.loads(path.read_text(encoding="utf-8"))
    return results if results["config"] == _settings(config) else None


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Config, run, show)
