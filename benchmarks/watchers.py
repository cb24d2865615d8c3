"""What watchers cost: `fit` with and without them, in turn, in one process; and a step replayed to find a first nan,
against the step itself.

A run of some seconds makes no probe by itself, since compiling one would take more than half a percent of its time. So
what probes cost is measured apart, in a run that is long enough for some, from the time that each of them took.
"""

import contextlib
import dataclasses
import statistics
import time
from dataclasses import dataclass
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing.bench.measure import environment, main, progress, save
from lapwing.experiments import find
from lapwing.task import Task
from lapwing.train import FitConfig, Watch, first_feds, fit
from lapwing.train._fit import Alone
from lapwing.train._probe import Timing
from lapwing.train._replay import observed_step
from lapwing.train._state import copy_of
from lapwing.train._watching import Watching

_OFF = Watch(off=("all",))


@dataclass(frozen=True)
class Config:
    """What watchers cost."""

    rounds: int = 7
    """how often each is trained, in turn"""
    seconds: float = 2.0
    """about how long such a training takes"""
    long_seconds: float = 60.0
    """how long the training is in which probes are counted; 0: none"""
    replays: int = 15
    """how often a step is replayed"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    """Measures; seconds a step with and without watchers, the share of probes, the time of a replay in steps."""
    results: dict[str, Any] = {}
    for name, task in {"adding": _adding(), "transformer": transformer()}.items():
        results[name] = {**_alternate(task, config), "own": _own(task, 1000), "replay": _replay(task, config)}
        progress(name, results[name]["clock"]["seconds"])
    if config.long_seconds:
        results["probes"] = _probes(small(), config.long_seconds)
        progress("probes", {"all probes": sum(results["probes"]["each"])})
    results["environment"] = environment()
    save(results, "watchers", config.out)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results for a person."""
    for name, found in results.items():
        if name == "probes":
            print(f"{found['probes']} probes took {found['share']:.3%} of {found['seconds']:.0f} s")
        elif name != "environment":
            for kind in ("clock", "processor"):
                slower, paired = found[kind]["slower"], found[kind]["paired"]
                print(
                    f"{name}: {slower:.4f} times the time of the {kind} with watchers (median of pairs {paired:.4f})"
                )
            print(f"{name}: watchers themselves take {found['own']:.3%} of the processor's time")
            print(
                f"{name}: a step replayed takes {found['replay']['loss']:.2f} steps for the loss, "
                f"{found['replay']['gradient']:.2f} with the gradient"
            )


def _adding() -> Task:
    experiment = find("adding")
    return experiment.build(experiment.Config())


def transformer(width: int = 64, length: int = 32, layers: int = 2, batch: int = 8) -> Task:
    """A small causal transformer on sums of what it has seen."""

    def init(key: Any) -> Any:
        shapes = {
            "qkv": (width, 3 * width),
            "out": (width, width),
            "up": (width, 4 * width),
            "down": (4 * width, width),
        }
        keys = jax.random.split(key, layers * len(shapes))
        made = [
            jax.random.normal(k, s) / s[0] ** 0.5
            for k, s in zip(keys, [*shapes.values()] * layers, strict=True)
        ]
        return [dict(zip(shapes, made[4 * at : 4 * at + 4], strict=True)) for at in range(layers)]

    def normal(x: jax.Array) -> jax.Array:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def loss(params: Any, x: jax.Array) -> Any:
        y, mask = x, jnp.tril(jnp.ones((length, length), bool))
        for layer in params:
            q, k, v = jnp.split(normal(y) @ layer["qkv"], 3, -1)
            scores = jnp.where(mask, q @ k.mT / width**0.5, -jnp.inf)
            y = y + jax.nn.softmax(scores) @ v @ layer["out"]
            y = y + jax.nn.relu(normal(y) @ layer["up"]) @ layer["down"]
        return jnp.mean((y - jnp.cumsum(x, 1) / length) ** 2), {}

    return Task(init=init, data=lambda key, step: jax.random.normal(key, (batch, length, width)), loss=loss)


def small() -> Task:
    """A layer that compiles in a moment, so that probes begin soon."""

    def loss(params: Any, x: jax.Array) -> Any:
        return jnp.mean((jax.nn.relu(x @ params["a"]) @ params["b"] - x) ** 2), {}

    return Task(
        init=lambda key: {"a": 0.1 * jax.random.normal(key, (64, 128)), "b": jnp.zeros((128, 64))},
        data=lambda key, step: jax.random.normal(key, (256, 64)),
        loss=loss,
        optimizer=optax.sgd,
    )


def _train(task: Task, steps: int, watch: Watch) -> np.ndarray:
    """Seconds a step, by the clock and of the processor, without the first half, which has the compiling in it."""
    times: list[tuple[float, float]] = []

    class Clock(Timing):
        """Asked before every call, with watchers or without."""

        def is_reached(self, step: int) -> bool:
            times.append((time.perf_counter(), time.process_time()))
            return super().is_reached(step)

    options = FitConfig(steps=steps, laps_every=0, watch=watch)
    with mock.patch("lapwing.train._watching.Timing", Clock):
        result = fit(task, options, quiet=True)
    jax.block_until_ready(result.state)
    half = len(times) // 2
    return (np.array(times[-1]) - times[half]) / (len(times) - 1 - half)


def _alternate(task: Task, config: Config) -> dict[str, Any]:
    steps = max(60, 2 * int(config.seconds / _train(task, 60, _OFF)[0]))
    found: dict[str, list[np.ndarray]] = {"with": [], "without": []}
    for turn in range(config.rounds):
        pair = [("with", Watch()), ("without", _OFF)]
        for way, watch in pair if turn % 2 else pair[::-1]:
            found[way].append(_train(task, steps, watch))
    ratios = np.array(found["with"]) / np.array(found["without"])
    quickest = {way: np.min(times, 0) for way, times in found.items()}
    results: dict[str, Any] = {"steps": steps}
    for at, kind in enumerate(("clock", "processor")):
        results[kind] = {
            "seconds": {way: float(times[at]) for way, times in quickest.items()},
            "slower": float(quickest["with"][at] / quickest["without"][at]),
            "paired": statistics.median(ratios[:, at].tolist()),
            "ratios": ratios[:, at].tolist(),
        }
    return results


def _own(task: Task, steps: int) -> float:
    """The share of a training's processor time that is spent in the watchers themselves. It does not depend on what
    else the machine does."""
    spent = [0.0]

    def counted(method: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            started = time.thread_time()
            result = method(*arguments, **named)
            spent[0] += time.thread_time() - started
            return result

        return call

    names = ("on_metrics", "keep_fed", "probe_if_due", "on_evaluation")
    patches = [mock.patch.object(Watching, name, counted(getattr(Watching, name))) for name in names]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        started = time.process_time()
        fit(task, FitConfig(steps=steps, laps_every=0), quiet=True)
        return spent[0] / (time.process_time() - started)


def _replay(task: Task, config: Config) -> dict[str, Any]:
    """The time of a replayed step, in steps, and what compiling it takes, all in turn."""
    options = FitConfig(laps_every=0)
    alone = Alone(task, options, None)
    state, fed = alone.states[0], first_feds(task, options)[0]
    whole = fed._replace(each=jax.tree.map(lambda leaf: leaf[None], fed.each))
    carry = alone.program.load(None, copy_of(state), 1, whole)
    started = time.perf_counter()
    step = alone.program.steps(carry, 1, whole)
    found: dict[str, Any] = {"compiling": {"step": time.perf_counter() - started}}
    calls: dict[str, Any] = {}
    for name, with_gradient in (("loss", False), ("gradient", True)):
        started = time.perf_counter()
        call, _, leaves = observed_step(alone.program, options, state, fed, with_gradient)
        found["compiling"][name] = time.perf_counter() - started
        calls[name] = lambda call=call, leaves=leaves: call(*leaves)
    times: dict[str, list[float]] = {name: [] for name in ("step", *calls)}
    for _ in range(config.replays):
        copy = jax.block_until_ready(copy_of(carry))
        for name, call in {"step": lambda copy=copy: step(copy, whole), **calls}.items():
            started = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(time.perf_counter() - started)
    quickest = {name: statistics.median(each) for name, each in times.items()}
    return {**found, "seconds": quickest, **{name: quickest[name] / quickest["step"] for name in calls}}


def _probes(task: Task, seconds: float) -> dict[str, Any]:
    """How much of a long run its probes took."""
    took: list[float] = []

    class Counted(Timing):
        def measure(self, probe: Any) -> Any:
            started = time.perf_counter()
            look = super().measure(probe)
            took.append(time.perf_counter() - started)
            return look

    options = FitConfig(steps=10**9, laps_every=0)
    options = dataclasses.replace(options, stop=dataclasses.replace(options.stop, minutes=seconds / 60))
    with mock.patch("lapwing.train._watching.Timing", Counted):
        result = fit(task, options, quiet=True)
    return {"seconds": result.seconds, "probes": len(took), "share": sum(took) / result.seconds, "each": took}


if __name__ == "__main__":
    main(Config, run, show)
