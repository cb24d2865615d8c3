"""Loops that users write: `lw.scan` against `jax.lax.scan`, body by body, in time and memory.

Both take turns in one process, on one core. The gradient is for a body's first argument. A body that is held out was
never used to fit the cost model. See `lapwing.bench.loop_bodies` for the bodies and `_compare` for how two programs
are compared.
"""

import contextlib
import functools
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax

import lapwing as lw
from lapwing.bench._compare import compare, compiled, pinned
from lapwing.bench._tracing import tracing_rows
from lapwing.bench.loop_bodies import FAMILIES, HELD_OUT, TABLE, Body
from lapwing.bench.measure import BenchError, environment, main, save
from lapwing.core import format_bytes, suggestion

Rewrite = Literal["auto", "always", "never"]
PARTS = ("gradient", "value")


@dataclass(frozen=True)
class Config:
    names: tuple[str, ...] = ()
    """bodies to measure; default: the whole table"""
    family: tuple[str, ...] = ()
    """only the bodies of these families"""
    rewrite: Rewrite = "auto"
    """how lw.scan decides: auto, always or never"""
    seconds: float = 2.0
    """time limit for one ratio"""
    precision: float = 0.005
    """stop when the ratio is known as well as this"""
    pin: bool = True
    """keep to one core of a CPU"""
    core: int = -1
    """the core to keep to; default: the last"""
    seed: int = 0
    """seed of the arguments"""
    tracing: bool = False
    """also measure the time to trace steps of 50, 200 and 800 equations"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    bodies = choose(config.names, config.family)
    if config.rewrite not in get_args(Rewrite):
        raise BenchError(f"rewrite is {', '.join(get_args(Rewrite))}, not {config.rewrite!r}")
    with _core(config) as core:
        results: dict[str, Any] = {
            "environment": environment(),
            "core": core,
            "rewrite": config.rewrite,
            "table": [],
        }
        print(HEADER, file=sys.stderr)
        try:
            for body in bodies:
                results["table"].append(row := measure(body, config))
                print(line(row), file=sys.stderr, flush=True)
            if config.tracing:
                results["tracing"] = tracing_rows()
        except KeyboardInterrupt:
            results["interrupted"] = f"after {len(results['table'])} of {len(bodies)} bodies"
    results["summary"] = summary(results["table"])
    complete = len(results["table"]) == len(TABLE)
    save(results, "loops" if complete else "loops-some", config.out)
    return results


@contextlib.contextmanager
def _core(config: Config) -> Iterator[int | None]:
    """The core that everything runs on, if so: of a CPU, and pinned before jax starts its threads."""
    with pinned(config.core) if config.pin else contextlib.nullcontext() as core:
        if jax.default_backend() == "cpu":
            yield core
            return
    yield None


def choose(names: Iterable[str], families: Iterable[str]) -> list[Body]:
    """The bodies of these names and families; all if there are none.

    >>> choose(["grü"], [])
    Traceback (most recent call last):
    lapwing.bench.measure.BenchError: there is no loop body 'grü'; did you mean gru?
    """
    for name in names:
        if name not in TABLE:
            raise BenchError(f"there is no loop body {name!r}; {suggestion(name, TABLE)}")
    for family in families:
        if family not in FAMILIES:
            raise BenchError(f"there is no family {family!r}; {suggestion(family, FAMILIES)}")
    return [
        body
        for body in TABLE.values()
        if (not names or body.name in names) and (not families or body.family in families)
    ]


def measure(body: Body, config: Config) -> dict[str, Any]:
    """One row of the table. A body that fails has the reason in its row, and the others go on."""
    row = {"name": body.name, "family": body.family, "held_out": body.name in HELD_OUT}
    ours = functools.partial(lw.scan, rewrite=config.rewrite)
    begin = time.perf_counter()
    try:
        with jax.enable_x64(body.x64):
            arguments = body.arguments(config.seed)
            for part in PARTS:
                plain, other = (compiled(_part(part, body, scan), arguments) for scan in (jax.lax.scan, ours))
                row[part] = compare(plain, other, arguments, config.seconds, config.precision)
    except Exception as error:
        row["failed"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return {**row, "seconds": time.perf_counter() - begin}


def _part(part: str, body: Body, scan: Callable[..., Any]) -> Callable[..., Any]:
    loss = functools.partial(body.loss, scan)
    return jax.value_and_grad(loss) if part == "gradient" else loss


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means and the worst, of all bodies and of those that are held out."""
    found: dict[str, Any] = {"failed": [row["name"] for row in rows if "failed" in row]}
    rows = [row for row in rows if "failed" not in row]
    for part in PARTS if rows else ():
        worst = min(rows, key=lambda row: row[part]["ratio"])
        hungriest = max(rows, key=lambda row: row[part]["memory"])
        found[part] = {
            "geometric_mean": _mean(row[part]["ratio"] for row in rows),
            "geometric_mean_held_out": _mean(row[part]["ratio"] for row in rows if row["held_out"]),
            "worst": [worst["name"], worst[part]["ratio"]],
            "below_0.97": [row["name"] for row in rows if row[part]["ratio"] < 0.97],
            "hungriest": [hungriest["name"], hungriest[part]["memory"]],
            "above_twice_the_memory": [row["name"] for row in rows if row[part]["memory"] > 2],
            "disagree": [row["name"] for row in rows if not row[part]["agrees"]],
        }
    return found


def _mean(ratios: Iterable[float]) -> float | None:
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None


_PART = f"{'lax ms':>9}{'lw ms':>9}{'ratio':>7}{'±%':>5}{'memory':>9}{'×':>7}"
HEADER = f"{'':28}{'gradient':^46}   {'value':^46}   compile\n{'body (* held out)':28}{_PART}   {_PART}   lax, lw s"


def line(row: dict[str, Any]) -> str:
    """One row, for a person. `=` in place of the uncertainty: both are the same program."""
    name = row["name"] + " *" * row["held_out"]
    if "failed" in row:
        return f"{name:28}{row['failed']}"
    cells = "   ".join(_cells(row[part]) for part in PARTS)
    spent = ["trace_s", "compile_s"]
    built = "{:5.1f}{:5.1f}".format(*(sum(row["gradient"][key][i] for key in spent) for i in (0, 1)))
    wrong = [f"{part} differs by {row[part]['error']:.1e}" for part in PARTS if not row[part]["agrees"]]
    return "  ".join([f"{name:28}{cells}   {built}", *wrong])


def _cells(part: dict[str, Any]) -> str:
    first, second = part["ms"]
    sure = "=" if part["same_program"] else f"{100 * part['uncertainty']:.1f}"
    memory = format_bytes(part["temporary_bytes"][1])
    return f"{first:9.2f}{second:9.2f}{part['ratio']:7.2f}{sure:>5}{memory:>9}{part['memory']:7.1f}"


def show(results: dict[str, Any]) -> None:
    """Print the results for a person."""
    where = results["environment"]["device"] + (" on one core" if results["core"] is not None else "")
    print(
        f"Loops, {where}: medians; ratio = lax.scan / lw.scan (above 1: lw.scan is faster), ±% its uncertainty;"
    )
    print("temporary memory of lw.scan, and as a multiple of lax.scan's\n")
    print(HEADER)
    for row in results["table"]:
        print(line(row))
    print()
    for part, found in results["summary"].items():
        if part in PARTS:
            _show_summary(part, found)
    for row in results.get("tracing", ()):
        seconds = "{:.2f} s with lax.scan, {:.2f} s with lw.scan".format(*row["trace_s"])
        print(f"tracing the gradient of a step of {row['equations']} equations: {seconds}")
    if results["summary"]["failed"]:
        print(f"failed: {', '.join(results['summary']['failed'])}")
    if "interrupted" in results:
        print(f"interrupted {results['interrupted']}")


def _show_summary(part: str, found: dict[str, Any]) -> None:
    held_out = found["geometric_mean_held_out"]
    of_held_out = "" if held_out is None else f" ({held_out:.2f} of those held out)"
    print(
        f"{part}: geometric mean {found['geometric_mean']:.2f}{of_held_out}, worst {_named(found['worst'])}, ",
        end="",
    )
    print(f"most memory {_named(found['hungriest'])}")
    for key in ("below_0.97", "above_twice_the_memory", "disagree"):
        if found[key]:
            print(f"  {key.replace('_', ' ')}: {', '.join(found[key])}")


def _named(pair: tuple[str, float]) -> str:
    return f"{pair[1]:.2f} ({pair[0]})"


if __name__ == "__main__":
    main(Config, run, show)
