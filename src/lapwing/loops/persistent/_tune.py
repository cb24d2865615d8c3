"""`"tune"`: the most promising plans and the ordinary loop, timed on the GPU."""

import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from lapwing.jaxprs import Loop
from lapwing.loops.persistent._choice import Choice, structs
from lapwing.loops.persistent._program import Program, kernel_program, plain_settings
from lapwing.loops.persistent._shares import Shares
from lapwing.loops.persistent._store import Timed
from lapwing.loops.persistent._warn import sentence, warn_once

Compiled = Callable[..., Any]
Measure = Callable[[Compiled, Sequence[Any]], float]
MOST_PLANS = 4
RUNS = 10


def tune(choice: Choice, loop: Loop, measure: Measure | None = None) -> list[Timed]:
    """Time what a loop could be. What cannot be lowered, compiled or run is left out, with one warning."""
    assert choice.prepared is not None
    programs: dict[Shares | None, Program] = {None: _as_loop(loop)}
    for plan in different(choice.plans):
        programs[plan] = kernel_program(choice.prepared, plan)
    timed: list[Timed] = []
    with plain_settings(), concurrent.futures.ThreadPoolExecutor() as pool:
        compiling: dict[Shares | None, concurrent.futures.Future[Compiled]] = {}
        # Lowered here, where the settings of jax are ours: each thread has its own.
        for plan, program in programs.items():
            with _or_without_it():
                compiling[plan] = pool.submit(_lowered(program, loop).compile)
        inputs = _inputs(loop)
        for plan, compiled in compiling.items():
            with _or_without_it():
                timed.append(Timed(plan, (measure or fastest)(compiled.result(), inputs)))
    return timed


@contextlib.contextmanager
def _or_without_it() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Any of Pallas's and XLA's: there are other plans.
        warn_once("kernel", f"a plan for a loop as one GPU kernel failed ({sentence(error)})")


def different(plans: Iterable[Shares]) -> list[Shares]:
    """The first few that differ in who owns what, and not only in their buffers."""
    found: dict[Any, Shares] = {}
    for plan in plans:
        found.setdefault((plan.groups, plan.units, plan.split, plan.near), plan)
    return list(found.values())[:MOST_PLANS]


def fastest(compiled: Compiled, inputs: Sequence[Any]) -> float:
    """The seconds of the fastest of several runs."""
    jax.block_until_ready(compiled(*inputs))
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*inputs))
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _as_loop(loop: Loop) -> Program:
    return lambda *values: loop.run(*loop.split_inputs(values))


def _lowered(program: Program, loop: Loop) -> Any:
    return jax.jit(program).lower(*structs(loop))


def _inputs(loop: Loop) -> list[jax.Array]:
    """Small numbers, so that no step overflows."""
    made = np.random.default_rng(0)
    return [
        jax.device_put((0.05 * made.standard_normal(each.shape, np.float32)).astype(each.dtype))
        for each in structs(loop)
    ]
