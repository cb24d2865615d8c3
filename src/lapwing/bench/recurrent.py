"""Any recurrent cell: `lw.scan` against `jax.lax.scan`, against itself without persistent kernels, and against cuDNN.

Loss and gradient for the weights, of GRUs, LSTMs and of cells that nobody has a kernel for. Rivals take turns in one
process. Each jax rival is also compared with `jax.lax.scan` in float64, since one that is fast may be wrong, and the
usual one may be: in bfloat16 `jax.lax.scan` adds the gradients of the weights step by step (docs/loops.md).

Results are written after each row, so that a run that is killed keeps what it measured, and `--resume` adds the rest.
On a CPU there are no persistent kernels, and thus no rival without.
"""

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import lapwing as lw
from lapwing.bench import _gru_models as models
from lapwing.bench._accuracy import reference, relative_errors
from lapwing.bench._cells import CELLS, HEADS
from lapwing.bench._recurrent_report import picture, show, summary
from lapwing.bench.gru import GPU_SHAPES as NETWORK_SHAPES
from lapwing.bench.gru import parse_shape
from lapwing.bench.measure import BenchError, alternate, environment, main, progress, save

KINDS = {**models.MODELS, **CELLS}
GPU_SHAPES = (*NETWORK_SHAPES, *(f"{kind},16,256,768" for kind in CELLS))
CPU_SHAPES = (
    "gru,16,200,256",
    "lstm,16,256,256",
    "lstm,16,1024,128",
    *(f"{kind},16,100,128" for kind in CELLS),
)
DTYPES = ("bfloat16", "float32", "float16")
# cuDNN's persistent algorithm takes float16 alone, so it is the rival of both.
TORCH_DTYPES = {"float32": ("float32",), "bfloat16": ("bfloat16", "float16"), "float16": ("float16",)}


@dataclass(frozen=True)
class Config:
    """Shapes are written kind,batch,steps,width, such as lstm,16,1024,768 or slstm,16,256,768."""

    shapes: tuple[str, ...] = ()
    """shapes to time; default: the whole table"""
    kinds: tuple[str, ...] = ()
    """only the shapes of these kinds: gru, lstm, layer_norm_lstm, peephole_lstm, slstm, oscillator"""
    dtypes: tuple[str, ...] = ("bfloat16", "float32")
    """bfloat16, float32, float16"""
    rounds: int = 9
    """runs of each rival; the median counts"""
    seconds: float = 5.0
    """time limit for the rounds of one row"""
    budget: float = 420.0
    """time limit for all; rows that would not fit are left out, and --resume measures them"""
    peers: bool = True
    """also time PyTorch (cuDNN), if installed"""
    accuracy: bool = True
    """compare with float64"""
    resume: bool = False
    """keep the rows that are already in the file of results, and measure the others"""
    out: str = "benchmarks/results"
    """folder for the results as JSON and the picture; empty for none"""


@dataclass(frozen=True)
class Row:
    """One row of the table: a network or a cell at a size and a dtype."""

    kind: str
    shape: tuple[int, int, int]
    dtype: str

    @property
    def key(self) -> dict[str, Any]:
        return {"kind": self.kind, "shape": list(self.shape), "dtype": self.dtype}

    def __str__(self) -> str:
        return f"{self.kind} {self.shape} {self.dtype}"


def run(config: Config) -> dict[str, Any]:
    begin = time.perf_counter()
    rows = choose(config, jax.default_backend())
    results: dict[str, Any] = {
        "environment": environment(),
        # With one, what was compiled before takes no time.
        "compilation_cache": bool(jax.config.values["jax_compilation_cache_dir"]),
        "table": _kept(config),
    }
    there = [row.key for row in rows if any(row.key.items() <= old.items() for old in results["table"])]
    missing = [row for row in rows if row.key not in there]
    longest = 0.0
    try:
        for number, row in enumerate(missing):
            since = time.perf_counter()
            if number and since - begin + longest > config.budget:
                break
            results["table"].append(measure(row, config, number))
            longest = max(longest, time.perf_counter() - since)
            results["summary"] = summary(results["table"])
            results["left_out"] = [str(row) for row in missing[number + 1 :]]
            save(results, "recurrent", config.out)
    except KeyboardInterrupt:
        results["interrupted"] = True
    results["summary"] = summary(results["table"])
    path = save(results, "recurrent", config.out)
    if path is not None and results["table"]:
        picture(results, str(path.with_suffix(".png")))
    return results


def choose(config: Config, platform: str) -> list[Row]:
    """The rows that are asked for, those of the first dtype first."""
    for given, known, name in ((config.kinds, KINDS, "kind"), (config.dtypes, DTYPES, "dtype")):
        for word in given:
            if word not in known:
                raise BenchError(f"{name}s are {', '.join(known)}, not {word!r}")
    shapes = [parse_shape(text, KINDS) for text in config.shapes or _shapes(platform)]
    if (
        odd := next((shape for shape in shapes if shape[0] == "slstm" and shape[3] % HEADS), None)
    ) is not None:
        raise BenchError(f"an slstm has {HEADS} heads, so its width is a multiple of {HEADS}, not {odd[3]}")
    rows = [
        Row(kind, (batch, steps, width), dtype)
        for dtype in config.dtypes
        for kind, batch, steps, width in shapes
        if not config.kinds or kind in config.kinds
    ]
    if not rows:
        raise BenchError(f"no shape is of the kinds {', '.join(config.kinds)}; name some with --shapes")
    return rows


def _shapes(platform: str) -> tuple[str, ...]:
    return GPU_SHAPES if platform == "gpu" else CPU_SHAPES


def _kept(config: Config) -> list[dict[str, Any]]:
    """The rows of an earlier run on the same device with the same versions, if asked for."""
    path = Path(config.out) / f"recurrent-{jax.default_backend()}.json"
    if not (config.resume and config.out and path.exists()):
        return []
    try:
        old = json.loads(path.read_text())
    except ValueError:
        raise BenchError(f"{path} is not JSON; remove it, or leave out --resume") from None
    if old["environment"] != environment():
        raise BenchError(
            f"{path} is from another device or other versions; move it away, or leave out --resume"
        )
    return old["table"]


Rival = tuple[Callable[..., Any], contextlib.AbstractContextManager[Any]]


def scans(platform: str) -> dict[str, Rival]:
    """The jax rivals: a scan, and under what it is traced and compiled."""
    found: dict[str, Rival] = {"lax.scan": (jax.lax.scan, contextlib.nullcontext())}
    if platform == "gpu":
        found["lw.scan off"] = (lw.scan, lw.loops.use_persistent("off"))
    return {**found, "lw.scan": (lw.scan, contextlib.nullcontext())}


def measure(row: Row, config: Config, number: int = 0) -> dict[str, Any]:
    """Milliseconds, compile seconds and errors of each rival. One that fails is named with the reason."""
    loss, arguments = KINDS[row.kind]
    weights, xs = arguments(*row.shape, jnp.dtype(row.dtype))
    wanted = reference(loss, weights, xs) if config.accuracy else None
    found: dict[str, Any] = {**row.key, "ms": {}, "compile_s": {}, "error": {}, "failed": {}}
    rivals: dict[str, Callable[[], Any]] = {}
    for name, (scan, context) in _rotated(scans(jax.default_backend()), number):
        with _failure(found, name):
            with context:
                begin = time.perf_counter()
                compiled = _gradient(loss, scan).lower(weights, xs).compile()
                found["compile_s"][name] = time.perf_counter() - begin
            out = jax.block_until_ready(compiled(weights, xs))
            rivals[name] = functools.partial(compiled, weights, xs)
            if wanted is not None:
                found["error"][name] = relative_errors(out, wanted)
    if config.peers and row.kind in models.MODELS:
        rivals |= _torch(row, found)
    times = alternate(rivals, config.rounds, config.seconds)
    progress(str(row), times)
    order = [*scans(jax.default_backend()), *times]
    found["ms"] = {name: times[name] * 1e3 for name in dict.fromkeys(order) if name in times}
    return found


def _rotated(rivals: dict[str, Any], number: int) -> list[tuple[str, Any]]:
    """Another one first in each row: who compiles first also chooses the algorithms of products that all have."""
    pairs = list(rivals.items())
    return pairs[number % len(pairs) :] + pairs[: number % len(pairs)]


def _gradient(loss: Callable[..., Any], scan: Callable[..., Any]) -> Any:
    return jax.jit(jax.value_and_grad(lambda weights, xs: loss(scan, weights, xs)))


def _torch(row: Row, found: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    peers = {}
    for dtype in TORCH_DTYPES[row.dtype]:
        with _failure(found, f"torch {dtype}"):
            if (peer := models.torch_peer(row.kind, *row.shape, jnp.dtype(dtype))) is not None:
                peer()
                peers[f"torch {dtype}"] = peer
    return peers


@contextlib.contextmanager
def _failure(found: dict[str, Any], name: str) -> Iterator[None]:
    """Keeps the reason of a rival that fails; the others go on."""
    try:
        yield
    except Exception as error:
        found["failed"][name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        print(f"{name} failed: {found['failed'][name]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Config, run, show)
