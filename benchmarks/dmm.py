"""Dataflow matrix machines: compiled against interpreted and hand-written ones, alone and as a population.

    python -m benchmarks.dmm                                          # everything
    python -m benchmarks.dmm --parts population --variants all        # other ways to compute a population

The machine of the training steps is DMM Lite with its published weights.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing import dmm, trees
from lapwing.bench.measure import alternate, check_parts, environment, main, progress, save
from lapwing.dmm import _compile_batched
from lapwing.dmm._compile import Engine
from lapwing.dmm.native import is_installed

from .dmm_by_hand import answers_of, lite_loss
from .dmm_limit import REPEATED, limits

TEXT = "test string."
PARTS = ("interpreter", "compile", "step", "population", "cost")
VARIANTS: dict[str, dict[str, Any]] = {
    "unroll 1": {"cycles": 1},
    "unroll 4": {"cycles": 4},
    "unroll 8": {"cycles": 8},
    "sums": {"weights": "sum"},
    "vmap": {},
    "kernels": {"kernels": "compiled"},
    "kernels, sums": {"kernels": "compiled", "weights": "sum"},
}
"""What of the style of a batch on a GPU is another in each; `vmap` is that of a single machine's program."""


@dataclass(frozen=True)
class Config:
    """The speed of dataflow matrix machines."""

    parts: tuple[str, ...] = PARTS
    """what to measure: interpreter, compile, step, population, cost"""
    machines: int = 0
    """size of the population; 0: 256 on a CPU, 4096 on a GPU"""
    variants: tuple[str, ...] = ()
    """ways to compute a population besides the default: all, or some of them by name"""
    rounds: int = 15
    """runs of each rival"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    check_parts(config.parts, PARTS)
    check_parts(config.variants, ("all", *VARIANTS))
    results: dict[str, Any] = {"environment": environment()}
    for part in PARTS:
        if part in config.parts:
            results[part] = globals()[f"measure_{part}"](config)
    name = "dmm" if set(PARTS) <= {*config.parts} else "-".join(["dmm", *sorted(config.parts)])
    if path := save(results, name, config.out):
        results["written_to"] = str(path)
    return results


def compiled_lite(cycles: int = 140, engine: Engine = "auto") -> dmm.Program:
    return dmm.compile(
        dmm.lite_start(), cycles, text=TEXT, governor=100.0, accumulator_gradient="truncated", engine=engine
    )


def teacher(cycles: int) -> jax.Array:
    program = dmm.compile(dmm.duplicate_detector(), cycles, text=TEXT)
    return jax.jit(program.answers)(program.start)


def measure_interpreter(config: Config) -> dict[str, Any]:
    """The gradient of the superfluid machine at 2 cycles: compiled, and by differentiating the interpreter."""
    program = dmm.compile(dmm.superfluid_start(), 2, text=TEXT)
    targets = teacher(2)

    def interpreted(values: Any) -> jax.Array:
        answers = dmm.interpret(program.machine.with_values(values), 2).answers
        rows = jnp.stack(
            [jnp.stack([jnp.asarray(x, float) for x in answers[field]]) for field in program.fields], 1
        )
        return jnp.sum((rows[1:] - targets[1:]) ** 2)

    compiled = jax.jit(jax.grad(lambda params: program.loss(params, targets, skip=1)))
    values = trees.map_leaves(jnp.asarray, program.machine.values)
    start = time.perf_counter()
    slow = program.from_tree(jax.block_until_ready(jax.grad(interpreted)(values)))
    seconds = time.perf_counter() - start
    times = alternate({"compiled": lambda: compiled(program.start)}, config.rounds * 5)
    difference = float(jnp.max(jnp.abs(jnp.where(program.soft, slow - compiled(program.start), 0.0))))
    progress("superfluid gradient", {"interpreted": seconds, **times})
    return {"interpreted": seconds, **times, "ratio": seconds / times["compiled"], "difference": difference}


def measure_compile(config: Config) -> dict[str, Any]:
    """Seconds from a machine to a compiled gradient, by machine and cycles."""
    machines: dict[str, Callable[[], dmm.Machine]] = {
        "dmm-lite": dmm.lite_start,
        "superfluid": dmm.superfluid_start,
        "dmm-feedforward": lambda: dmm.random_start(dmm.feedforward_student(), jax.random.key(0), 0.01),
    }
    found: dict[str, Any] = {}
    for name, make in machines.items():
        machine = make()
        # The faster of two; each is another program, so that nothing comes from a cache.
        times = {c: min(_compiling(machine, c) for _ in range(2)) for c in (10, 140, 1000)}
        found[name] = {str(cycles): seconds for cycles, seconds in times.items()}
        progress(f"compiling {name}", found[name])
    return found


def _compiling(machine: dmm.Machine, cycles: int) -> float:
    start = time.perf_counter()
    program = dmm.compile(machine, cycles, text=TEXT)
    gradient = jax.value_and_grad(lambda params: jnp.sum(program.answers(params)))
    jax.jit(gradient).lower(program.start).compile()
    return time.perf_counter() - start


def training_step(loss: Callable[..., Any], soft: np.ndarray, start: jax.Array) -> Callable[[], Any]:
    """A function that repeats the first Adam step."""
    step, state = jax.jit(adam_step(loss, soft)), optax.adam(1e-3).init(start)
    return lambda: step(start, state)


def adam_step(loss: Callable[..., Any], soft: np.ndarray) -> Callable[..., Any]:
    optimizer = optax.adam(1e-3)

    def step(params: jax.Array, state: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params)
        update, state = optimizer.update(jnp.where(soft, gradient, 0.0), state)
        return optax.apply_updates(params, update), state, value

    return step


def measure_step(config: Config) -> dict[str, Any]:
    """A training step of DMM Lite at 140 cycles: compiled by each engine, written by hand, and its arithmetic."""
    targets, start = teacher(140), compiled_lite().start
    programs = {"xla": compiled_lite(engine="xla")}
    if jax.default_backend() == "cpu" and is_installed():
        programs["native"] = compiled_lite(engine="native")
    soft = programs["xla"].soft
    ways = {"by hand": answers_of(programs["xla"].machine, 140)} | {k: p.answers for k, p in programs.items()}
    losses = {name: lite_loss(answers, targets, soft) for name, answers in ways.items()}
    steps = {name: training_step(loss, soft, start) for name, loss in losses.items()}
    times = alternate(steps, config.rounds * 10)
    progress("dmm-lite step", times)
    engines = {name: steps[name] for name in programs}  # without the threads of the one by hand
    shortest = alternate(engines, config.rounds * 20, of=min)
    arithmetic = {}
    if jax.default_backend() == "cpu":
        arithmetic = limits(adam_step(losses["xla"], soft), start, optax.adam(1e-3).init(start))
    compiled = min(times[name] for name in programs)
    return {
        **times,
        "shortest": shortest,
        "compiled": compiled,
        "ratio": times["by hand"] / compiled,
        "losses": {name: float(step()[2]) for name, step in steps.items()},
        "arithmetic": arithmetic,
    }


def measure_population(config: Config) -> dict[str, Any]:
    """A training step of many machines: as a population, and as `vmap` of the version written by hand."""
    machines = config.machines or (256 if jax.default_backend() == "cpu" else 4096)
    program, targets = compiled_lite(), teacher(140)
    optimizer = optax.adam(1e-3)
    noise = 1 + 0.01 * jax.random.normal(jax.random.key(0), (machines, len(program.start)))
    starts = jnp.where(program.soft, program.start * noise, program.start)
    alone = lite_loss(answers_of(program.machine, 140), targets, program.soft)

    def loss(params: jax.Array, answers: jax.Array) -> jax.Array:
        return lite_loss(lambda _: answers, targets, program.soft)(params)

    def stepper(losses_and_gradients: Callable[..., Any]) -> Callable[[], Any]:
        @jax.jit
        def step(params: jax.Array, state: Any) -> Any:
            values, gradients = losses_and_gradients(params)
            update, state = optimizer.update(jnp.where(program.soft, gradients, 0.0), state)
            return optax.apply_updates(params, update), state, values

        state = optimizer.init(starts)
        return lambda: step(starts, state)

    staged = compiled_lite(engine="xla")  # what the variants are variants of
    of_one = jax.vmap(jax.value_and_grad(lambda params: loss(params, staged.answers(params))))
    ways = {"population": program.value_and_grad(loss), "vmap by hand": jax.vmap(jax.value_and_grad(alone))}
    for name in VARIANTS if "all" in config.variants else config.variants:
        ways[name] = of_one if name == "vmap" else staged.value_and_grad(loss)
    rivals, compiling, failed = {}, {}, {}
    for name, way in ways.items():
        begin = time.perf_counter()
        try:
            with styled(VARIANTS.get(name, {})):
                step = stepper(way)
                jax.block_until_ready(step())
        except (
            Exception
        ) as error:  # A variant that this device or this jax does not have is no reason to lose the others.
            failed[name] = f"{type(error).__name__}: {error}"[:500]
            print(f"{name}: {failed[name]}", file=sys.stderr, flush=True)
            continue
        rivals[name], compiling[name] = step, time.perf_counter() - begin
        progress(f"compiling {name}", {"it": compiling[name]})
    losses = {name: step()[2] for name, step in rivals.items()}
    differences = {
        name: float(jnp.max(jnp.abs(found / losses["vmap by hand"] - 1))) for name, found in losses.items()
    }
    times = alternate(rivals, max(config.rounds // 3, 3), 60.0)
    each = {name: seconds / machines for name, seconds in times.items()}
    progress(f"{machines} machines, each", each)
    return {
        "machines": machines,
        "seconds_each": each,
        "ratio": times["vmap by hand"] / times["population"],
        "difference": differences["population"],
        "differences": differences,
        "compiling": compiling,
        "failed": failed,
    }


@contextlib.contextmanager
def styled(changes: dict[str, Any]) -> Iterator[None]:
    """What is traced in here is written for a GPU, with these changes; without any as for the device."""
    before = _compile_batched.CPU, _compile_batched.GPU
    if changes:
        _compile_batched.CPU = _compile_batched.GPU = before[1]._replace(**changes)
    try:
        yield
    finally:
        _compile_batched.CPU, _compile_batched.GPU = before


def measure_cost(config: Config) -> dict[str, Any]:
    """Seconds of a gradient by cycles, by links, and for each machine by the size of the population."""
    by_cycles = {
        str(cycles): _gradient_time(compiled_lite(cycles), config) for cycles in (10, 100, 1000, 10000)
    }
    by_links = {}
    for layers, width in ((1, 1), (3, 1), (3, 2), (5, 2), (5, 4)):
        student = dmm.random_start(dmm.feedforward_student(layers, width), jax.random.key(0), 0.01)
        program = dmm.compile(student, 140, text=TEXT, governor=4.0)
        by_links[str(int(program.soft.sum()))] = _gradient_time(program, config)
    program = compiled_lite()
    sizes = (8, 32, 256) if jax.default_backend() == "cpu" else (64, 512, 4096)
    by_machines = {}
    for machines in sizes:
        starts = jnp.tile(program.start, (machines, 1))
        gradient = jax.jit(program.value_and_grad(lambda params, answers: jnp.sum(answers**2)))
        seconds = alternate({"it": lambda g=gradient, s=starts: g(s)}, config.rounds, 10.0)["it"]
        by_machines[str(machines)] = seconds / machines
    progress("cost by cycles", by_cycles)
    progress("cost by links", by_links)
    progress("cost by machines, each", by_machines)
    return {"cycles": by_cycles, "links": by_links, "machines": by_machines}


def _gradient_time(program: dmm.Program, config: Config) -> float:
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(program.answers(params) ** 2)))
    return alternate({"it": lambda: gradient(program.start)}, config.rounds, 10.0)["it"]


def show(results: dict[str, Any]) -> None:
    print(f"DMM Lite with its published weights, on {results['environment']['device']}")
    if found := results.get("interpreter"):
        print(
            f"gradient of the superfluid machine, 2 cycles: interpreted {found['interpreted']:.2f} s, "
            f"compiled {found['compiled'] * 1e6:.0f} µs: {found['ratio']:,.0f} times faster"
        )
    for name, by_cycles in results.get("compile", {}).items():
        times = ", ".join(f"{cycles} cycles {seconds:.2f} s" for cycles, seconds in by_cycles.items())
        print(f"tracing and compiling the gradient of {name}: {times}")
    if found := results.get("step"):
        print(
            f"training step of DMM Lite, 140 cycles: by hand {found['by hand'] * 1e3:.3f} ms, "
            f"compiled {found['compiled'] * 1e3:.3f} ms: {found['ratio']:.2f} times faster"
        )
        for name, seconds in found["shortest"].items():
            against = [
                f"{seconds / found['arithmetic'][kind]['seconds']:.1f} times its arithmetic ({kind})"
                for kind in REPEATED
                if found["arithmetic"]
            ]
            print(f"  {name}, at the shortest: " + ", ".join([f"{seconds * 1e6:.0f} µs", *against]))
    if found := results.get("population"):
        each = {name: f"{seconds * 1e6:.1f} µs" for name, seconds in found["seconds_each"].items()}
        print(
            f"{found['machines']} machines, each a step: population {each['population']}, "
            f"vmap of the one by hand {each['vmap by hand']}: {found['ratio']:.2f} times faster"
        )
        for name in found["seconds_each"].keys() - {"population", "vmap by hand"}:
            print(f"  {name}: {each[name]}")
    for what, costs in results.get("cost", {}).items():
        print(f"gradient by {what}: " + ", ".join(f"{k}: {v * 1e6:,.1f} µs" for k, v in costs.items()))
    if "written_to" in results:
        print(f"written to {results['written_to']}")


if __name__ == "__main__":
    main(Config, run, show)
