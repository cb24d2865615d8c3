"""How many silent bugs `check.run_all` finds, whether it names their cause, how long that takes, and its false alarms.

The programs are in the repository: `benchmarks/silent_bugs` (bugs that happened in public, each with its fixed twin)
and `benchmarks/clean_programs` (correct ones of every usual kind). Run it in the root of a checkout, or give the folder
of programs of your own with `--folder`.

- *found*: `run_all` fails on the bug in a check that passes on the twin.
- *named*: a pattern that the program gives, written beforehand, is in such a finding: in what it says is wrong, or in
  the first thing that it says to look at.
- *false alarm*: any failed check on a twin or a clean program.

The file of results is written after each program: after Ctrl-C the same command with `--resume` continues. With
`--workers N`, N processes of one core each share the programs. Where the packages of the command line are not
installed, `python -m lapwing.bench.doctor` takes the same options.
"""

import functools
import importlib
import json
import multiprocessing
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lapwing.core import raised_interrupts

from .measure import BenchError, environment, main, save


@dataclass(frozen=True)
class Config:
    """Options of the benchmark."""

    only: tuple[str, ...] = ()
    """names of programs; by default all"""
    part: str = "all"
    """all; open: programs that may be looked at when the doctor is changed; held_out: the others"""
    twins: bool = True
    """also check the fixed twins; without them, any failed check on a bug counts as found"""
    budget: float = 60.0
    """seconds for the checks of one program"""
    folder: str = "benchmarks"
    """folder with the packages silent_bugs and clean_programs"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""
    name: str = "doctor"
    """the file of results is called NAME-BACKEND.json, such as doctor-cpu.json"""
    resume: bool = False
    """continue the results in `out`"""
    workers: int = 1
    """processes that share the programs, each on a core of its own; with 1, all are checked in this process"""


@dataclass(frozen=True)
class Bug:
    """A program with a silent bug, and its fixed twin."""

    name: str
    build: Callable[[bool], Any]
    source: str
    cause: str
    held_out: bool = False
    seen_later: bool = False
    """held out at first, and looked at since"""


@dataclass(frozen=True)
class Clean:
    """A correct program."""

    name: str
    build: Callable[[], Any]
    held_out: bool = False


def bug(source: str, *, cause: str, held_out: bool = False, seen_later: bool = False) -> Callable[[Any], Any]:
    """Marks a function of `wrong`, which returns a task or a task and its config, as a bug."""
    re.compile(cause)

    def mark(build: Callable[[bool], Any]) -> Callable[[bool], Any]:
        build.bug = Bug(build.__name__, build, source, cause, held_out, seen_later)  # pyright: ignore
        return build

    return mark


def clean(build: Any = None, *, held_out: bool = False) -> Any:
    """Marks a function without arguments, which returns a task or a task and its config, as a correct program."""
    if build is None:
        return functools.partial(clean, held_out=held_out)
    build.clean = Clean(build.__name__, build, held_out)
    return build


def bugs_in(*modules: ModuleType) -> dict[str, Bug]:
    """The bugs of modules by name, in the order of their definition."""
    return {
        each.bug.name: each.bug
        for module in modules
        for each in vars(module).values()
        if hasattr(each, "bug")
    }


def clean_in(*modules: ModuleType) -> dict[str, Clean]:
    """The correct programs of modules by name, in the order of their definition."""
    return {
        each.clean.name: each.clean
        for module in modules
        for each in vars(module).values()
        if isinstance(getattr(each, "clean", None), Clean)
    }


def run(config: Config) -> dict[str, Any]:
    programs = _chosen(config)
    results = (_resumed(config) if config.resume else None) or {
        "environment": environment(),
        "config": {"budget": config.budget, "part": config.part},
        "bugs": [],
        "clean": [],
    }
    done = {row["name"] for row in [*results["bugs"], *results["clean"]]}
    left = [each for each in programs if each.name not in done]
    order = {each.name: at for at, each in enumerate(programs)}
    with raised_interrupts():
        for number, row in enumerate(_rows(left, config), len(programs) - len(left) + 1):
            rows = results["bugs" if "bug" in row else "clean"]
            rows.append(row)
            rows.sort(key=lambda each: order.get(each["name"], -1))
            results["summary"] = summary(results)
            save(results, config.name, config.out)
            _say(f"{number}/{len(programs)} {row['name']}: {_verdict(row)}")
    return results


def _rows(programs: Sequence[Bug | Clean], config: Config) -> Iterator[dict[str, Any]]:
    """The result of each program, as they are ready."""
    if config.workers == 1:
        yield from (_row(each, config) for each in programs)
        return
    spawn = multiprocessing.get_context("spawn")  # A fork of a process with jax in it may never end.
    begun = spawn.Value("i", 0)
    with ProcessPoolExecutor(config.workers, spawn, _take_core, (begun,)) as pool:
        made = {pool.submit(_row_of, each.name, config): each.name for each in programs}
        try:
            for each in as_completed(made):
                yield each.result()
        except BrokenProcessPool as error:
            raise BenchError(
                "a process that checked a program was ended from outside or by its memory; "
                "--resume with fewer --workers continues"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _take_core(begun: Any) -> None:
    """Keeps a worker on one core, so that its processor time is that of one core, and workers do not wait for others'
    threads."""
    if hasattr(os, "sched_setaffinity"):
        with begun.get_lock():
            number, begun.value = begun.value, begun.value + 1
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def _row_of(name: str, config: Config) -> dict[str, Any]:
    return _row(_known(config)[name], config)


def _row(program: Bug | Clean, config: Config) -> dict[str, Any]:
    return _bug_row(program, config) if isinstance(program, Bug) else _clean_row(program, config)


def _chosen(config: Config) -> list[Bug | Clean]:
    if config.part not in ("all", "open", "held_out"):
        raise BenchError(f"part should be all, open or held_out, but is {config.part}")
    if config.workers < 1:
        raise BenchError(f"workers should be at least 1, but is {config.workers}")
    known = _known(config)
    for name in config.only:
        if name not in known:
            raise BenchError(
                f"only should be names of programs in {config.folder}, and {name!r} is none of them"
            )
    wanted = [each for name, each in known.items() if not config.only or name in config.only]
    return [each for each in wanted if config.part == "all" or each.held_out == (config.part == "held_out")]


def _known(config: Config) -> dict[str, Bug | Clean]:
    """All programs of the folder by name."""
    packages = (("silent_bugs", "BUGS"), ("clean_programs", "CLEAN"))
    return {name: each for where in packages for name, each in _load(config.folder, *where).items()}


def _load(folder: str, package: str, attribute: str) -> Mapping[str, Any]:
    where = Path(folder).resolve()
    if not (where / package / "__init__.py").is_file():
        raise BenchError(
            f"folder should contain the package {package}, but {folder} does not; run this in the root of a checkout "
            "of Lapwing, or give --folder"
        )
    if str(where.parent) not in sys.path:
        sys.path.insert(0, str(where.parent))
    return getattr(importlib.import_module(f"{where.name}.{package}"), attribute)


def _resumed(config: Config) -> dict[str, Any] | None:
    import jax

    path = Path(config.out) / f"{config.name}-{jax.default_backend()}.json"
    return json.loads(path.read_text()) if config.out and path.is_file() else None


def _bug_row(program: Bug, config: Config) -> dict[str, Any]:
    wrong = examine(program.build, config.budget, True)
    fixed = examine(program.build, config.budget, False) if config.twins else _UNSEEN
    alarms = {each["check"] for each in fixed["failed"]}
    new = [each for each in wrong["failed"] if each["check"] not in alarms]
    return {
        "name": program.name,
        "source": program.source,
        "held_out": program.held_out,
        "seen_later": program.seen_later,
        "found": bool(new),
        "named": any(is_named(program.cause, each["detail"]) for each in new),
        "cause": program.cause,
        "bug": wrong,
        "twin": fixed,
    }


_UNSEEN = {"failed": [], "skipped": [], "seconds": 0.0, "cpu": 0.0, "cpu_without_compiling": 0.0, "crash": ""}


def _clean_row(program: Clean, config: Config) -> dict[str, Any]:
    return {"name": program.name, "held_out": program.held_out, **examine(program.build, config.budget)}


def is_named(cause: str, detail: str) -> bool:
    """Whether a finding names a cause: in what it says is wrong, or in the first thing that it says to look at.

    >>> is_named("mask", "the loss is 3. Look at the mask, and the data")
    True
    >>> is_named("data", "the loss is 3. Look at the mask, and the data")
    False
    """
    what, _, look = detail.partition(". Look at ")
    first = re.split(r"[,;:]| and ", look)[0]
    return re.search(cause, f"{what}. {first}", re.IGNORECASE | re.DOTALL) is not None


def examine(build: Callable[..., Any], budget: float, *arguments: bool) -> dict[str, Any]:
    """What `run_all` says about a program: its failed checks, its time, and a crash if there is one.

    On a busy machine seconds say little, so the processor time is given too. Its part without compiling is that part of
    the seconds that was not spent compiling.
    """
    import jax

    from lapwing.check import run_all

    compiling: list[float] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiling.append(duration_secs)

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    begin, begin_cpu, outcomes, crash = time.perf_counter(), time.process_time(), (), ""
    try:
        made = build(*arguments)
        outcomes = run_all(*(made if isinstance(made, tuple) else (made,)), budget_s=budget)
    except Exception:  # a crash is a result
        crash = traceback.format_exc(limit=-3)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    return {
        "failed": [
            {"check": each.check, "detail": each.detail} for each in outcomes if each.result == "failed"
        ],
        "skipped": [each.check for each in outcomes if each.result == "skipped"],
        "seconds": round(seconds, 2),
        "cpu": round(cpu, 2),
        "cpu_without_compiling": round(cpu * (1 - sum(compiling) / seconds), 2),
        "crash": crash,
    }


def summary(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The counts of all programs, and of the parts."""
    return {
        part: _counts(_of_part(results["bugs"], part), _of_part(results["clean"], part)) for part in _PARTS
    }


_PARTS = ("all", "open", "seen_later", "held_out")


def _of_part(rows: Sequence[Mapping[str, Any]], part: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if part in ("all", _part_of(row))]


def _part_of(row: Mapping[str, Any]) -> str:
    return "held_out" if row["held_out"] else "seen_later" if row.get("seen_later") else "open"


def _counts(bugs: Sequence[Mapping[str, Any]], correct: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    runs = [row[which] for row in bugs for which in ("bug", "twin")] + list(correct)
    return {
        "bugs": len(bugs),
        "found": sum(row["found"] for row in bugs),
        "named": sum(row["named"] for row in bugs),
        "alarms on twins": sum(bool(row["twin"]["failed"]) for row in bugs),
        "clean": len(correct),
        "alarms on clean": sum(bool(row["failed"]) for row in correct),
        "crashes": sum(bool(each["crash"]) for each in runs),
        "most processor seconds": max((each["cpu"] for each in runs), default=0.0),
        "most processor seconds without compiling": max(
            (each["cpu_without_compiling"] for each in runs), default=0.0
        ),
    }


def _verdict(row: Mapping[str, Any]) -> str:
    times = "bug" in row
    run = row["bug"] if times else row
    words = []
    if times:
        words.append("named" if row["named"] else "found" if row["found"] else "MISSED")
        if row["twin"]["failed"]:
            words.append("ALARM on the twin: " + _findings(row["twin"]))
        if row["twin"]["crash"]:
            words.append("CRASH on the twin")
    elif row["failed"]:
        words.append("ALARM: " + _findings(row))
    else:
        words.append("quiet")
    if run["crash"]:
        words.append("CRASH: " + run["crash"].strip().splitlines()[-1])
    return f"{'; '.join(words)} ({run['cpu']:.1f} s, {run['cpu_without_compiling']:.1f} s without compiling)"


def _findings(run: Mapping[str, Any]) -> str:
    return " | ".join(f"{each['check']}: {each['detail'][:160]}" for each in run["failed"])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(results: Mapping[str, Any]) -> None:
    """Prints a line for each program, and the counts."""
    for row in [*results["bugs"], *results["clean"]]:
        print(f"{row['name']:28} {_verdict(row)}")
    for part, counts in results["summary"].items():
        print(f"{part}: " + ", ".join(f"{name} {value}" for name, value in counts.items()))


if __name__ == "__main__":
    # Programs are marked with the classes of the module that they import, which this one, run by `-m`, is not.
    from lapwing.bench import doctor

    main(doctor.Config, doctor.run, doctor.show)
