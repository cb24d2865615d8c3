"""The gradient of recurrent networks: `lw.scan` against `jax.lax.scan` and others, shape by shape.

Then the experiment of 2014 that measured the same in Theano (docs/story.md), memory policies and compile times.
Gradients are for the weights.
"""

import functools
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import lapwing as lw
from lapwing.bench import _gru_models as models
from lapwing.bench.measure import BenchError, alternate, environment, main, progress, save
from lapwing.core import new_figure

SHAPES = (
    "gru,80,50,1000", "gru,1,1000,512", "gru,8,500,1024", "gru,16,200,256", "gru,64,100,512",
    "lstm,16,256,256", "lstm,64,128,512",
)  # fmt: skip
GPU_SHAPES = (*SHAPES, "lstm,16,1024,768", "lstm,64,256,1024")
THEANO_SHAPE = (80, 50, 1000)


@dataclass(frozen=True)
class Config:
    """Shapes are written kind,batch,steps,width, such as gru,80,50,1000 or lstm,64,256,1024."""

    shapes: tuple[str, ...] = ()
    """shapes to time; default: the whole table"""
    rounds: int = 9
    """runs of each rival; the median counts"""
    seconds: float = 20.0
    """time limit for one shape"""
    peers: bool = True
    """also time Flax and PyTorch, if installed"""
    experiment: bool = True
    """run the Theano experiment of 2014"""
    memory: bool = True
    """measure the memory policies"""
    out: str = "benchmarks/results"
    """folder for the results as JSON and the picture; empty for none"""


def run(config: Config) -> dict[str, Any]:
    shapes = config.shapes or (GPU_SHAPES if jax.default_backend() == "gpu" else SHAPES)
    parsed = [parse_shape(text) for text in shapes]
    dtypes = [jnp.float32, jnp.bfloat16] if jax.default_backend() == "gpu" else [jnp.float32]
    results: dict[str, Any] = {"environment": environment()}
    results["table"] = [shape_row(config, *shape, dtype) for dtype in dtypes for shape in parsed]
    results["geometric_mean"] = {
        jnp.dtype(dtype).name: _geometric_mean(results["table"], jnp.dtype(dtype).name) for dtype in dtypes
    }
    if config.experiment:
        results["experiment"] = theano_experiment(config)
    if config.memory:
        results["memory"] = memory_rows(config)
    path = save(results, "gru", config.out)
    if path is not None:
        _picture(results, str(path.with_suffix(".png")))
    return results


def parse_shape(text: str, kinds: Collection[str] = tuple(models.MODELS)) -> tuple[str, int, int, int]:
    """Parses a shape of one of these kinds.

    >>> parse_shape("gru,80,50,1000")
    ('gru', 80, 50, 1000)
    """
    kind, *numbers = text.split(",")
    if kind not in kinds or len(numbers) != 3 or not all(n.isdigit() and int(n) > 0 for n in numbers):
        raise BenchError(
            f"a shape is written gru,80,50,1000 or lstm,64,128,512 (batch, steps, width), not {text!r}"
            + (f"; kinds are {', '.join(kinds)}" if kind not in kinds else "")
        )
    batch, steps, width = (int(n) for n in numbers)
    return kind, batch, steps, width


def shape_row(config: Config, kind: str, batch: int, steps: int, width: int, dtype: Any) -> dict[str, Any]:
    """Milliseconds of each rival at one shape, the ratio to `jax.lax.scan`, and the compile times."""
    loss, arguments = models.MODELS[kind]
    weights, xs = arguments(batch, steps, width, dtype)
    compile_seconds = {}

    def gradient(name: str, scan: Callable[..., Any]) -> Callable[[], Any]:
        start = time.perf_counter()
        compiled = _gradient(functools.partial(loss, scan), 0, weights, xs)
        compile_seconds[name] = time.perf_counter() - start
        return lambda: compiled(weights, xs)

    rivals = {
        "lax.scan": gradient("lax.scan", jax.lax.scan),
        "lw.scan": gradient("lw.scan", lw.scan),
        "lax.scan unroll=4": gradient("unrolled", functools.partial(jax.lax.scan, unroll=4)),
    }
    if config.peers:
        found = {name: make(kind, batch, steps, width, dtype) for name, make in _PEERS.items()}
        rivals |= {name: peer for name, peer in found.items() if peer is not None}
    times = alternate(rivals, config.rounds, config.seconds)
    progress(f"{kind},{batch},{steps},{width} {jnp.dtype(dtype).name}", times)
    return {
        "kind": kind,
        "shape": [batch, steps, width],
        "dtype": jnp.dtype(dtype).name,
        "ms": {name: seconds * 1e3 for name, seconds in times.items()},
        "ratio": times["lax.scan"] / times["lw.scan"],
        "compile_s": {name: compile_seconds[name] for name in ("lax.scan", "lw.scan")},
    }


_PEERS = {"flax nnx.RNN": models.flax_peer, "torch": models.torch_peer}


def _gradient(loss: Callable[..., Any], argnums: int | tuple[int, ...], *arguments: Any) -> Any:
    return jax.jit(jax.value_and_grad(loss, argnums)).lower(*arguments).compile()


def _geometric_mean(rows: list[dict[str, Any]], dtype: str) -> float:
    ratios = [row["ratio"] for row in rows if row["dtype"] == dtype]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def theano_experiment(config: Config) -> dict[str, Any]:
    """Seconds of 50 calls at the shape of the Theano experiment of 2014, by method and part, as its author split them.

    Forward: the loss alone. Backward: the gradient for the gates' inputs, minus that. Weight products: the gradient
    for the weights too, minus the one without. Overhead: the same loops with batch 1 and width 1.
    """
    weights, xs = models.gru_arguments(*THEANO_SHAPE)
    tiny = models.gru_arguments(1, THEANO_SHAPE[1], 1)
    methods = {
        "automatic": functools.partial(models.gru_loss, jax.lax.scan),
        "automatic, extra outputs": functools.partial(models.gru_loss, jax.lax.scan, extra_outputs=True),
        "deferred": functools.partial(models.gru_loss, lw.scan, siblings=False),
        "deferred and merged": functools.partial(
            models.gru_loss, functools.partial(lw.scan, rewrite="always")
        ),
    }
    parts: dict[str, Callable[[], Any]] = {}
    for name, loss in methods.items():
        compiled = {
            "forward": jax.jit(loss).lower(weights, xs).compile(),
            "no weights": _gradient(loss, 1, weights, xs),
            "all": _gradient(loss, (0, 1), weights, xs),
        }
        parts |= {f"{name}/{part}": functools.partial(call, weights, xs) for part, call in compiled.items()}
        parts[f"{name}/overhead"] = functools.partial(_gradient(loss, (0, 1), *tiny), *tiny)
    times = alternate(parts, config.rounds, 4 * config.seconds)
    return {name: _split(times, name) for name in methods}


def _split(times: dict[str, float], name: str, calls: int = 50) -> dict[str, float]:
    forward, some, every, overhead = (
        calls * times[f"{name}/{part}"] for part in ("forward", "no weights", "all", "overhead")
    )
    return {
        "total": every,
        "forward": forward,
        "backward": some - forward,
        "weight products": every - some,
        "of which overhead": overhead,
    }


def memory_rows(config: Config) -> list[dict[str, Any]]:
    """Temporary memory and time of a GRU of 4096 steps under each policy, and of 100,000 steps under one."""
    weights, xs = models.gru_arguments(16, 4096, 128)
    policies = {"save": "save", "sqrt": "sqrt", "every 64": 64, "nested": "nested"}
    compiled = {
        name: _gradient(
            functools.partial(_last_state, functools.partial(lw.scan, memory=memory)), 0, weights, xs
        )
        for name, memory in policies.items()
    }
    times = alternate(
        {name: functools.partial(call, weights, xs) for name, call in compiled.items()},
        config.rounds,
        config.seconds,
    )
    rows = [_memory_row(name, 4096, 128, compiled[name], times[name]) for name in policies]
    weights, xs = models.gru_arguments(1, 100_000, 256)
    long = _gradient(
        functools.partial(_last_state, functools.partial(lw.scan, memory="nested")), 0, weights, xs
    )
    seconds = alternate({"long": functools.partial(long, weights, xs)}, 3, 60)["long"]
    return [*rows, _memory_row("nested", 100_000, 256, long, seconds)]


def _last_state(scan: Callable[..., Any], weights: Any, xs: jax.Array) -> Any:
    """A loss of the last state only: the memory of all states as outputs would hide the loop's."""

    def only_carry(step, init, xs):
        last, _ = scan(lambda h, x: (step(h, x)[0], None), init, xs)
        return None, last

    return models.gru_loss(only_carry, weights, xs)


def _memory_row(name: str, steps: int, width: int, compiled: Any, seconds: float) -> dict[str, Any]:
    temporary = compiled.memory_analysis().temp_size_in_bytes
    return {
        "policy": name,
        "steps": steps,
        "width": width,
        "temporary_mb": temporary / 1e6,
        "ms": seconds * 1e3,
    }


def show(results: dict[str, Any]) -> None:
    """Print the results for a person."""
    device = results["environment"]["device"]
    print(
        f"Gradient of recurrent networks on {device}: milliseconds (median), ratio of lax.scan to lw.scan\n"
    )
    names = list(dict.fromkeys(name for row in results["table"] for name in row["ms"]))
    print(f"{'shape':28}" + "".join(f"{name:>20}" for name in names) + f"{'ratio':>8}")
    for row in results["table"]:
        label = f"{row['kind']} {tuple(row['shape'])} {row['dtype']}"
        cells = "".join(f"{row['ms'][name]:20.2f}" if name in row["ms"] else f"{'-':>20}" for name in names)
        print(f"{label:28}{cells}{row['ratio']:8.2f}")
    for dtype, mean in results["geometric_mean"].items():
        print(f"geometric mean, {dtype}: {mean:.2f}")
    if "experiment" in results:
        print(
            "\nThe Theano experiment of 2014, seconds for 50 calls (then, on a Quadro: 15 automatic, 8.82 by hand)\n"
        )
        parts = list(next(iter(results["experiment"].values())))
        print(f"{'method':28}" + "".join(f"{part:>20}" for part in parts))
        for method, row in results["experiment"].items():
            print(f"{method:28}" + "".join(f"{row[part]:20.2f}" for part in parts))
    if "memory" in results:
        print("\nMemory policies\n")
        print(f"{'policy':12}{'steps':>8}{'width':>8}{'temporary MB':>16}{'ms':>12}")
        for row in results["memory"]:
            sizes = f"{row['steps']:8}{row['width']:8}{row['temporary_mb']:16.1f}"
            print(f"{row['policy']:12}{sizes}{row['ms']:12.1f}")


def _picture(results: dict[str, Any], path: str) -> None:
    """Bars of the ratio to `jax.lax.scan`, one per shape."""
    rows = results["table"]
    labels = [f"{row['kind']} {','.join(map(str, row['shape']))}\n{row['dtype']}" for row in rows]
    figure = new_figure(2 + 0.9 * len(rows), 4)
    axes = figure.subplots()
    bars = axes.bar(labels, [row["ratio"] for row in rows], color="#3b6ea5")
    axes.bar_label(bars, fmt="%.2f")
    axes.axhline(1, color="black", linewidth=1)
    axes.set_ylabel("times faster than lax.scan")
    axes.set_title(f"Gradient of recurrent networks on {results['environment']['device']}")
    axes.tick_params(axis="x", labelsize=7)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(Config, run, show)
