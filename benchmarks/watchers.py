"""What watchers cost: one training in short stretches, with and without them in turn; and a step replayed to find a
first nan, against the step itself.

A stretch is a fraction of a second, so that whatever else the machine does falls on both. Four stretches are a pair,
in the order with, without, without, with, and the result is the median of the pairs. What differs is what the loop asks
the watchers; the compiled step is the same.

A run of some seconds makes no probe by itself, since compiling one would take more than half a percent of its time. So
what probes cost is measured apart, in a run that is long enough for some, from the time that each of them took.

A replay is slowest where a loop returned the first bad value late, since the loop then runs a second time up to there.
So it is measured without a bad value, and with one that comes last: a nan in the last time step of the inputs, and for
`recurrent` a square root at 0 in the second time step, whose derivative the backward pass reaches nearly last.
"""

import contextlib
import dataclasses
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing.bench.measure import environment, main, progress, save
from lapwing.experiments import find
from lapwing.jaxprs import blame
from lapwing.task import Task
from lapwing.train import FitConfig, first_feds, fit
from lapwing.train._fit import Alone
from lapwing.train._probe import Timing
from lapwing.train._replay import observed_step
from lapwing.train._state import copy_of
from lapwing.train._watching import Watching


@dataclass(frozen=True)
class Config:
    """What watchers cost."""

    tasks: tuple[str, ...] = ("adding", "recurrent", "transformer")
    """what is trained"""
    seconds: float = 40.0
    """how long each task is trained in stretches; 0: not at all"""
    stretch: float = 0.05
    """seconds of a stretch: the shorter, the more pairs, and the less of what else the machine does is in a pair"""
    long_seconds: float = 60.0
    """how long the training is in which probes are counted; 0: none"""
    replays: int = 15
    """how often a step is replayed; 0: not at all"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    """Measures; seconds a step with and without watchers, the share of probes, the time of a replay in steps."""
    results = _earlier(config)
    tasks = {"adding": _adding(), "recurrent": recurrent(), "transformer": transformer()}

    def note(name: str, measured: dict[str, Any]) -> None:
        results[name] = {**results.get(name, {}), **measured}
        save({**results, "environment": environment()}, "watchers", config.out)

    for name in config.tasks:
        late = recurrent(is_late=True) if name == "recurrent" else _late(tasks[name])
        if config.replays:
            note(name, {"replay": _replay(tasks[name], late, config)})
            progress(name, results[name]["replay"]["seconds"])
        if config.seconds:
            note(name, _alternate(tasks[name], config))
            progress(name, results[name]["processor"]["seconds"])
            note(name, {"own": _own(tasks[name], 1000)})
    if config.long_seconds:
        note("probes", _probes(small(), config.long_seconds))
        progress("probes", {"all probes": sum(results["probes"]["each"])})
    return {**results, "environment": environment()}


def _earlier(config: Config) -> dict[str, Any]:
    """What was measured before: the parts may be measured one after the other."""
    path = Path(config.out) / f"watchers-{jax.default_backend()}.json"
    return json.loads(path.read_text()) if config.out and path.is_file() else {}


def show(results: dict[str, Any]) -> None:
    """Prints the results for a person."""
    for name, found in results.items():
        if name == "probes":
            print(f"{found['probes']} probes took {found['share']:.3%} of {found['seconds']:.0f} s")
        elif name != "environment":
            if "replay" in found:
                replay, compiling = found["replay"], found["replay"]["compiling"]
                print(
                    f"{name}: a step replayed takes {replay['loss']:.2f} steps for the loss and "
                    f"{replay['gradient']:.2f} with the gradient; where a nan comes last, "
                    f"{replay['loss, late']:.2f} and {replay['gradient, late']:.2f}"
                )
                each = ", ".join(f"{seconds:.1f} s ({of})" for of, seconds in compiling.items())
                print(f"{name}: compiling takes {each}")
            for kind in ("clock", "processor") if "clock" in found else ():
                each = found[kind]
                low, high = each["interval"]
                print(
                    f"{name}: {each['slower']:.4f} times the time of the {kind} with watchers "
                    f"({low:.4f} to {high:.4f}, {found['pairs']} pairs, {found['steps_each']:.0f} steps a stretch)"
                )
            if "own" in found:
                print(f"{name}: watchers themselves take {found['own']:.3%} of the processor's time")


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


def recurrent(is_late: bool = False, width: int = 64, length: int = 50, batch: int = 32) -> Task:
    """A recurrent network whose state is pushed by its own size."""

    def step(params: Any, h: jax.Array, x: jax.Array) -> Any:
        inputs, pushed = x[:, :-1], x[:, -1:]
        size = jnp.sqrt(pushed * jnp.sum(h**2, -1, keepdims=True))
        h = jnp.tanh(h @ params["state"] + inputs @ params["in"] + 0.1 * size)
        return h, h @ params["out"]

    def loss(params: Any, x: jax.Array) -> Any:
        start = jnp.full((batch, width), 0.1)
        _, y = jax.lax.scan(lambda h, x: step(params, h, x), start, x)
        return jnp.mean((y[..., 0] - jnp.cumsum(x[..., 0], 0)) ** 2), {}

    def data(key: Any, step: Any) -> Any:
        x = jax.random.normal(key, (length, batch, 9))
        # The first time step has a constant state, to which no gradient flows: the second is the last to return one.
        return x.at[..., -1].set(1.0).at[1, :, -1].set(0.0 if is_late else 1.0)

    shapes = {"state": (width, width), "in": (8, width), "out": (width, 1)}

    def init(key: Any) -> Any:
        return {name: jax.random.normal(key, shape) / shape[0] ** 0.5 for name, shape in shapes.items()}

    return Task(init=init, data=data, loss=loss, batch_axis=1)


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


class _Stretches:
    """Switches the watchers of a run on and off, and notes when, at which step."""

    order = (True, False, False, True)

    def __init__(self, seconds: float) -> None:
        self._seconds, self.on = seconds, True
        self.marks: list[tuple[int, float, float]] = []

    def call(self, step: int) -> None:
        """Before each call of the device."""
        now = time.perf_counter()
        if not self.marks or now - self.marks[-1][1] >= self._seconds:
            self.marks.append((step, now, time.process_time()))
            self.on = self.order[(len(self.marks) - 1) % 4]

    def per_step(self) -> tuple[np.ndarray, np.ndarray, float]:
        """The seconds of a step with and without watchers, for each pair: by the clock, and of the processor; the mean
        number of steps of a stretch."""
        marks = np.array(self.marks[4:])  # The first have the compiling in them.
        parts = np.diff(marks, axis=0)
        parts = parts[: len(parts) // 4 * 4].reshape(-1, 4, 3)
        both = parts[:, [[0, 3], [1, 2]]].sum(2)
        per_step = both[:, :, 1:] / both[:, :, :1]
        return per_step[:, 0], per_step[:, 1], float(parts[:, :, 0].mean())


def _alternate(task: Task, config: Config) -> dict[str, Any]:
    stretches = _Stretches(config.stretch)
    options = FitConfig(steps=10**9, laps_every=0)
    options = dataclasses.replace(
        options, stop=dataclasses.replace(options.stop, minutes=config.seconds / 60)
    )
    probe = Watching.probe_if_due

    def probe_if_due(self: Watching, *arguments: Any) -> None:
        stretches.call(self._loop.position.done)
        if stretches.on:
            probe(self, *arguments)

    def switched(method: Any) -> Any:
        return lambda *arguments: method(*arguments) if stretches.on else None

    names = ("on_metrics", "keep_fed", "on_evaluation")
    patches: dict[str, Any] = {name: switched(getattr(Watching, name)) for name in names}
    patches["probe_if_due"] = probe_if_due
    with mock.patch.multiple(Watching, **patches):
        fit(task, options, quiet=True)
    on, off, steps = stretches.per_step()
    results: dict[str, Any] = {"pairs": len(on), "steps_each": steps}
    for at, kind in enumerate(("clock", "processor")):
        ratios = on[:, at] / off[:, at]
        results[kind] = {
            "seconds": {"with": float(np.median(on[:, at])), "without": float(np.median(off[:, at]))},
            "slower": float(np.median(ratios)),
            "interval": _interval(ratios),
        }
    return results


def _interval(values: np.ndarray) -> list[float]:
    """95% of the medians of resampled values."""
    drawn = np.random.default_rng(0).choice(values, (2000, len(values)))
    return np.quantile(np.median(drawn, axis=1), [0.025, 0.975]).tolist()


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


def _replay(task: Task, late_task: Task, config: Config) -> dict[str, Any]:
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
    late = Alone(late_task, options, None)
    for name, with_gradient in (("loss", False), ("gradient", True)):
        started = time.perf_counter()
        for kind, of in (("", alone), (", late", late)):
            call, frame, leaves = observed_step(of.program, options, state, fed, with_gradient)
            found["compiling"].setdefault(name, time.perf_counter() - started)
            calls[name + kind] = lambda call=call, leaves=leaves: call(*leaves)
            if (blamed := blame(frame, calls[name + kind]())) is not None:
                found.setdefault("blamed", {})[name + kind] = str(blamed)
    times: dict[str, list[float]] = {name: [] for name in ("step", *calls)}
    for _ in range(config.replays):
        copy = jax.block_until_ready(copy_of(carry))
        for name, call in {"step": lambda copy=copy: step(copy, whole), **calls}.items():
            started = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(each) for name, each in times.items()}
    in_steps = {name: statistics.median(np.divide(times[name], times["step"]).tolist()) for name in calls}
    return {**found, "seconds": medians, **in_steps}


def _late(task: Task) -> Task:
    """The task with a nan in the last time step of its inputs, which a loop over time reaches last."""

    source: Any = task.source

    def data(key: Any, step: Any) -> Any:
        batch = source(key, step)
        leaf, *others = jax.tree.leaves(batch)
        time_axis = 1 if leaf.shape[0] == jax.tree.leaves(batch)[-1].shape[0] else 0
        at = (slice(None),) * time_axis + (-1,)
        return jax.tree.unflatten(jax.tree.structure(batch), [leaf.at[at].set(jnp.nan), *others])

    return dataclasses.replace(task, data=data)


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
