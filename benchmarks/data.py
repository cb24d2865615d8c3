"""Data from the host against data on the device: the same network, the same batches, trained by `fit`.

The batches are on the device already (`Arrays`), or come from the host in the ways that people use. A loader that alone
takes longer than the step sets the pace, so each is also read alone. The runs take turns; the quicker half of their
windows counts.
"""

import importlib
import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.bench.measure import environment, main, progress, save, seconds_of
from lapwing.journal import Run
from lapwing.task import Arrays, Batches, Stream, Task
from lapwing.train import FitConfig, fit

ROWS, FEATURES = 8192, 784


@dataclass(frozen=True)
class Config:
    """What it costs to read data on the host."""

    rounds: int = 5
    """how often each is trained, in turn"""
    seconds: float = 4.0
    """about how long a training takes"""
    batch_size: int = 256
    """examples of a batch"""
    widths: tuple[int, ...] = (64, 256, 1024)
    """widths of the hidden layers, from a short step to a long one"""
    steps_per_call: tuple[int, ...] = (1, 10)
    """steps of a call"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    """Measures; seconds a step, and the speed of each source as a part of that of data on the device."""
    results = {
        f"width {width}, {count} a call": _case(width, count, config)
        for width, count in itertools.product(config.widths, config.steps_per_call)
    }
    results["environment"] = environment()
    save(results, "data", config.out)
    return results


def show(results: dict[str, Any]) -> None:
    """Prints the results for a person."""
    for name, case in results.items():
        if name == "environment":
            continue
        print(f"{name}: step on the device {case['on the device'] * 1e6:.0f} µs")
        for source, found in case["from the host"].items():
            alone = f"alone {found['alone_s'] * 1e6:.0f} µs a batch, with moving it {found['moved_s'] * 1e6:.0f} µs"
            print(f"  {source}: {found['seconds'] * 1e6:.0f} µs, speed {found['speed']:.3f}; {alone}")


def _case(width: int, steps_per_call: int, config: Config) -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype(np.float32)
    sources = _sources(x, config.batch_size)
    rivals: dict[str, Any] = {"on the device": Arrays(x, config.batch_size), **sources}
    first = _seconds_a_step(_task(width, rivals["on the device"]), 200, steps_per_call)
    steps = max(100, int(config.seconds / min(first)) // 100 * 100)
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(config.rounds):
        for name, source in rivals.items():
            times[name] += _seconds_a_step(_task(width, source), steps, steps_per_call)
    quick = {name: float(np.quantile(found, 0.25)) for name, found in times.items()}
    progress(f"width {width}, {steps_per_call} a call", quick)
    device = quick.pop("on the device")
    return {
        "steps": steps,
        "on the device": device,
        "from the host": {
            name: {
                "seconds": found,
                "speed": device / found,
                "alone_s": _alone(sources[name]),
                "moved_s": _moved(sources[name], steps_per_call),
            }
            for name, found in quick.items()
        },
    }


def _sources(x: np.ndarray, size: int) -> dict[str, Any]:
    """The ways to give batches; each can be read again and again."""

    def sliced() -> Iterator[np.ndarray]:
        return (x[start : start + size] for start in range(0, len(x) - size + 1, size))

    def gathered(epoch: int) -> Iterator[np.ndarray]:
        order = np.random.default_rng(epoch).permutation(len(x))
        return (x[order[start : start + size]] for start in range(0, len(x) - size + 1, size))

    found: dict[str, Any] = {"iterable of slices": sliced, "shuffled by hand": gathered}
    for name, make in (("Grain", _grain), ("PyTorch DataLoader", _torch)):
        try:
            found[name] = make(x, size)
        except ImportError:
            continue
    return found


def _grain(x: np.ndarray, size: int) -> Any:
    import grain

    return grain.MapDataset.range(len(x) // size).shuffle(seed=0).map(lambda k: x[k * size : (k + 1) * size])


def _torch(x: np.ndarray, size: int) -> Any:
    loader = importlib.import_module("torch.utils.data").DataLoader  # A peer, which need not be installed.

    class Blocks:
        def __len__(self) -> int:
            return len(x) // size

        def __getitem__(self, k: int) -> np.ndarray:
            return x[k * size : (k + 1) * size]

    return loader(Blocks(), batch_size=None, shuffle=True)


def _task(width: int, data: Any) -> Task:
    def init(key: jax.Array) -> list[jax.Array]:
        sizes = [(FEATURES, width), (width, width), (width, 10)]
        keys = jax.random.split(key, len(sizes))
        return [jax.random.normal(k, size) * size[0] ** -0.5 for k, size in zip(keys, sizes, strict=True)]

    def loss(params: list[jax.Array], x: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        hidden = x
        for weights in params[:-1]:
            hidden = jnp.tanh(hidden @ weights)
        return jnp.mean((hidden @ params[-1] - x[:, :10]) ** 2), {}

    return Task(init=init, data=data, loss=loss)


def _seconds_a_step(task: Task, steps: int, steps_per_call: int) -> list[float]:
    """Seconds a step of `fit` in each window after the first, which has the compiling in it."""
    options = FitConfig(steps=steps, steps_per_call=steps_per_call, log_every=max(20, steps // 10))
    with tempfile.TemporaryDirectory() as folder, Run.create("bench", runs_dir=folder) as run:
        fit(task, options, run, quiet=True)
        columns = Run.open(run.folder).columns()
    ends = np.arange(1, steps // options.log_every + 1) * options.log_every - 1
    return (np.diff(columns["time"][ends]) / np.diff(columns["step"][ends])).tolist()


def _alone(source: Any, count: int = 300) -> float:
    """Seconds a batch of a source that nobody trains on."""
    batches = Batches(Stream(source))
    next(batches)
    read: Callable[[], Any] = lambda: [next(batches) for _ in range(count)]  # noqa: E731
    return seconds_of(read) / count


def _moved(source: Any, steps_per_call: int, count: int = 300) -> float:
    """Seconds a batch of a source whose batches are moved to the device, as many at once as a call takes, and not
    trained on: no loop can be faster than this."""
    batches = Batches(Stream(source))

    def move() -> None:
        moving: deque[jax.Array] = deque()
        for _ in range(count // steps_per_call):
            moving.append(jax.device_put(np.stack([next(batches) for _ in range(steps_per_call)])))
            if len(moving) > 4:
                moving.popleft().block_until_ready()
        jax.block_until_ready(list(moving))

    return seconds_of(move) / count


if __name__ == "__main__":
    main(Config, run, show)
