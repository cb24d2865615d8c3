"""The time of a step of adversarial training, then (March 2018, docs/story.md) and now: batch 50, attack of 40 steps.

Ways to attack the same batch of the same network, from the same random starts:

- `one at a time`: as in 2018, image by image and step by step; forward and backward are a compiled call each, and the
  arithmetic between them runs operation by operation.
- `one compiled at a time`: image by image, but all steps of an image are one compiled call.
- `batched`: all images and all steps are one call.
- `batched, early exit`: the same, ending when all images are fooled.
- `replay`: from the stored perturbations, with few steps.

Forward, backward and update are the same compiled calls in all of them. Times are means over steps of `Laps`, so the
phases of a row add up to its step; ratios are of medians. On a single core (`taskset -c 0`) seconds are of the
processor, which other work on the machine changes little.
"""

import dataclasses
import functools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing.attacks import Attack, ReplayBuffer, cross_entropy
from lapwing.bench.measure import environment, main, save
from lapwing.core import format_seconds, new_figure
from lapwing.models import Cnn
from lapwing.timing import Laps

PHASES = ("setup", "attack", "forward", "backward", "update")
THEN = {"setup": 5.84e-3, "attack": 2.3617, "forward": 3.91e-4, "backward": 4.84e-4, "update": 3.05e-4}
STEP_THEN = 2.3688
SLOW = "one at a time"
_MEDIAN = "median attack"
_QUICK_STEPS = 4


@dataclass(frozen=True)
class Config:
    """The time of a step of adversarial training, then and now."""

    widths: tuple[int, ...] = ()
    """width factors of the network; default: 1 and 2 on a CPU, 1 and 16 elsewhere"""
    pixels: int = 28
    """height and width of an image"""
    batch: int = 50
    """images in a batch"""
    steps: int = 40
    """gradient steps of the attack"""
    replay_steps: int = 5
    """gradient steps of an attack that starts at the end of the last one"""
    rounds: int = 5
    """turns of each way: one step of the slow ones, four of the others"""
    out: str = "benchmarks/results"
    """folder for the results as JSON and the picture; empty for none"""


def run(config: Config) -> dict[str, Any]:
    """Seconds by width, way and phase."""
    widths = tuple(map(int, config.widths)) or ((1, 2) if jax.default_backend() == "cpu" else (1, 16))
    results: dict[str, Any] = {
        "environment": environment(),
        "clock": "processor, one core" if _is_one_core() else "wall",
        "config": dataclasses.asdict(config),
        "then": {**THEN, "step": STEP_THEN},
        "widths": {str(width): _measure(config, width) for width in widths},
    }
    path = save(results, "attack", config.out)
    if path is not None:
        _picture(results, path.with_suffix(".png"))
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the table."""
    columns = (*PHASES, "unaccounted", "step")
    print(f"{'':28}" + "".join(f"{name:>12}" for name in columns) + "   attack")
    print(_row("then (2018)", {**THEN, "step": STEP_THEN}, columns, 1.0))
    for width, found in results["widths"].items():
        slow = found["ways"][SLOW][_MEDIAN]
        print(f"now, w = {width}, on {results['environment']['device']}")
        for name, times in found["ways"].items():
            print(_row(f"  {name}", times, columns, slow / times[_MEDIAN]))
        inside = found["inside"]
        print(
            f"  inside one at a time: {2000 * (inside['forward'] + inside['backward']):.2f} s of 2000 forwards and "
            f"backwards, {2000 * inside['rest']:.2f} s of arithmetic around them"
        )
        print(f"  largest difference of the images, batched and one at a time: {found['difference']:.1e}")


def _row(name: str, times: dict[str, float], columns: tuple[str, ...], ratio: float) -> str:
    cells = [format_seconds(times[column]) if column in times else "" for column in columns]
    return f"{name:28}" + "".join(f"{cell:>12}" for cell in cells) + f"   {ratio:.4g}×"


def _measure(config: Config, width: int) -> dict[str, Any]:
    scene = _Scene.build(config, width)
    ways = {
        SLOW: scene.one_at_a_time,
        "one compiled at a time": scene.one_compiled_at_a_time,
        "batched": scene.batched,
        "batched, early exit": scene.early_exit,
        f"replay, {config.replay_steps} steps": scene.replayed,
    }
    steps = {name: _Step(scene, attack) for name, attack in ways.items()}
    for _ in range(config.rounds):  # In turn: what slows one slows the others too.
        for name, step in steps.items():
            for _ in range(1 if name.startswith("one ") else _QUICK_STEPS):
                step.take()
    found = {name: step.times() for name, step in steps.items()}
    for name, times in found.items():
        print(f"w = {width}, {name}: {format_seconds(times[_MEDIAN])}", file=sys.stderr, flush=True)
    alike = np.abs(np.asarray(scene.one_at_a_time()) - np.asarray(scene.batched()))
    return {
        "ways": found,
        "faster": _ratio(found, SLOW, "batched"),
        "replay_faster": _ratio(found, "batched", f"replay, {config.replay_steps} steps"),
        "inside": _inside(scene),
        "difference": float(alike.max()),
        "pixels_that_differ": float((alike > 1e-4).mean()),
    }


def _ratio(found: dict[str, dict[str, float]], slow: str, fast: str) -> float:
    """A ratio of medians: other work on the machine may make any single step long."""
    return found[slow][_MEDIAN] / found[fast][_MEDIAN]


@dataclass(frozen=True)
class _Scene:
    """A network, a batch, random starts, and all ways to attack it."""

    attack: Attack
    network: Cnn
    images: jax.Array
    labels: jax.Array
    keys: jax.Array
    replay_steps: int

    @classmethod
    def build(cls, config: Config, width: int) -> "_Scene":
        shape = (config.pixels, config.pixels, 1)
        network = Cnn.init(jax.random.key(0), shape, width)
        images = jax.random.uniform(jax.random.key(1), (config.batch, *shape))
        # The predicted classes, so that no image is fooled before the attack.
        labels = jnp.argmax(network(images), axis=1)
        keys = jax.random.split(jax.random.key(2), config.batch)
        attack = Attack(eps=0.3, steps=config.steps, step_size=0.01 / 0.3)
        return cls(attack, network, images, labels, keys, config.replay_steps)

    @functools.cached_property
    def start(self) -> jax.Array:
        return jax.jit(self.attack.starts)(self.keys, self.images)

    def one_at_a_time(self) -> jax.Array:
        eps, stride = self.attack.eps, self.attack.eps * self.attack.step_size
        found = []
        for i in range(len(self.labels)):
            image, label, delta = self.images[i : i + 1], self.labels[i : i + 1], self.start[i : i + 1]
            for _ in range(self.attack.steps):
                _, pullback = _pixel_forward(self.network, image + delta, label)
                delta = jnp.clip(delta + stride * jnp.sign(_pixel_backward(pullback)), -eps, eps)
                delta = jnp.clip(image + delta, 0.0, 1.0) - image
            found.append(image + delta)
        return jnp.concatenate(found)

    def one_compiled_at_a_time(self) -> jax.Array:
        parts = [slice(i, i + 1) for i in range(len(self.labels))]
        return jnp.concatenate([self._call(self.attack, part) for part in parts])

    def batched(self) -> jax.Array:
        return self._call(self.attack, slice(None))

    def early_exit(self) -> jax.Array:
        return self._call(dataclasses.replace(self.attack, early_exit=True), slice(None))

    def _call(self, attack: Attack, part: slice) -> jax.Array:
        return _attacked(
            attack, self.network, self.images[part], self.labels[part], self.keys[part], self.start[part]
        )

    @functools.cached_property
    def _replay(self) -> tuple[Callable[..., Any], list[Any]]:
        few = dataclasses.replace(self.attack, steps=self.replay_steps, step_size=0.1)

        def attacked(buffer: Any, network: Cnn, images: Any, labels: Any, keys: Any) -> tuple[Any, jax.Array]:
            examples = jnp.arange(labels.shape[0])
            start, known = buffer.recall(examples)
            start = jnp.where(known[:, None, None, None], start, few.starts(keys, images))
            found = few(network, images, labels, keys, start=start)
            return buffer.store(examples, found.deltas, found.loss), found.images

        # Donated, as in training, so that a step updates its rows in place.
        return jax.jit(attacked, donate_argnums=0), [ReplayBuffer.empty(60_000, self.images.shape[1:])]

    def replayed(self) -> jax.Array:
        call, buffer = self._replay
        buffer[0], images = call(buffer[0], self.network, self.images, self.labels, self.keys)
        return images


@functools.partial(jax.jit, static_argnums=0)
def _attacked(attack: Attack, network: Cnn, images: Any, labels: Any, keys: Any, start: Any) -> jax.Array:
    return attack(network, images, labels, keys, start=start).images


@jax.jit
def _pixel_forward(network: Cnn, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Any]:
    return jax.vjp(lambda images: jnp.sum(cross_entropy(network(images), labels)), images)


@jax.jit
def _pixel_backward(pullback: Any) -> jax.Array:
    return pullback(jnp.float32(1))[0]


@jax.jit
def _forward(network: Cnn, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Any]:
    return jax.vjp(lambda network: jnp.mean(cross_entropy(network(images), labels)), network)


@jax.jit
def _backward(pullback: Any) -> Cnn:
    return pullback(jnp.float32(1))[0]


class _Step:
    """A training step with one of the ways to attack, with timed phases."""

    def __init__(self, scene: _Scene, attack: Callable[[], jax.Array]):
        self._scene, self._attack = scene, attack
        optimizer = optax.adam(1e-4)

        @jax.jit
        def update(network: Any, state: Any, slopes: Any) -> Any:
            moves, state = optimizer.update(slopes, state)
            return optax.apply_updates(network, moves), state

        self._update = update
        self._host = np.asarray(scene.images), np.asarray(scene.labels)
        self._state: Any = (scene.network, optimizer.init(scene.network))  # pyright: ignore[reportArgumentType]
        self._clock = _PausedClock()
        self._laps = Laps(sync=jax.block_until_ready, clock=self._clock)
        jax.block_until_ready(attack())
        self.take()

    def take(self) -> None:
        network, state = self._state
        with self._clock:
            with self._laps("setup") as phase:
                _, labels = phase.wait_for(jax.device_put(self._host))
            with self._laps("attack") as phase:
                images = phase.wait_for(self._attack())
            with self._laps("forward") as phase:
                _, pullback = phase.wait_for(_forward(network, images, labels))
            with self._laps("backward") as phase:
                slopes = phase.wait_for(_backward(pullback))
            with self._laps("update") as phase:
                self._state = phase.wait_for(self._update(network, state, slopes))
            self._laps.step()

    def times(self) -> dict[str, float]:
        """Mean and median seconds of the phases, without steps that compiled."""
        summary = self._laps.summary()
        parts = (*summary.phases, summary.unaccounted, summary.step)
        medians = {f"median {times.path}": times.p50 or 0.0 for times in parts}
        return {times.path: times.mean or 0.0 for times in parts} | medians


class _PausedClock:
    """A clock that stops while other ways have their turn."""

    def __init__(self) -> None:
        self._now = _clock()
        self._total, self._since = 0.0, 0.0

    def __call__(self) -> float:
        return self._total + (self._now() - self._since if self._since else 0.0)

    def __enter__(self) -> None:
        self._since = self._now()

    def __exit__(self, *_: object) -> None:
        self._total, self._since = self(), 0.0


def _is_one_core() -> bool:
    return jax.default_backend() == "cpu" and len(os.sched_getaffinity(0)) == 1


def _clock() -> Callable[[], float]:
    return time.process_time if _is_one_core() else time.perf_counter


def _inside(scene: _Scene, count: int = 200) -> dict[str, float]:
    """Mean seconds of the parts of one step of one image, each of which is waited for, unlike in the attack."""
    eps, stride = scene.attack.eps, scene.attack.eps * scene.attack.step_size
    image, label, delta = scene.images[:1], scene.labels[:1], scene.start[:1]
    laps = Laps(sync=jax.block_until_ready, clock=_clock())
    for _ in range(count):
        with laps("forward") as phase:
            _, pullback = phase.wait_for(_pixel_forward(scene.network, image + delta, label))
        with laps("backward") as phase:
            slopes = phase.wait_for(_pixel_backward(pullback))
        with laps("rest") as phase:
            delta = jnp.clip(delta + stride * jnp.sign(slopes), -eps, eps)
            delta = phase.wait_for(jnp.clip(image + delta, 0.0, 1.0) - image)
        laps.step()
    return {times.path: times.mean or 0.0 for times in laps.summary().phases}


def _picture(results: dict[str, Any], path: Path) -> None:
    """A bar for each way and that of 2018: the time of a step on a log scale."""
    bars = {"then (2018)": STEP_THEN}
    for width, found in results["widths"].items():
        bars |= {f"{name}, w = {width}": times["step"] for name, times in found["ways"].items()}
    figure = new_figure(9, 1 + 0.32 * len(bars))
    axes = figure.subplots()
    drawn = axes.barh(list(bars), list(bars.values()), color=["#8b949e", *["#2a7de1"] * (len(bars) - 1)])
    axes.bar_label(drawn, [format_seconds(seconds) for seconds in bars.values()], padding=3)
    axes.set_xscale("log")
    axes.set_xlim(min(bars.values()) / 4, max(bars.values()) * 4)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(f"seconds of a training step, on {results['environment']['device']}")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main(Config, run, show)
