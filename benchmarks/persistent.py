"""One step of a persistent kernel by the clock of a GPU, and what the GPU does in a whole call: for docs/persistent.md.

    python -m benchmarks.persistent --out benchmarks/results     # on a Hopper GPU

Writes persistent-step-gpu.json (the parts of a step of LSTM (16, 1024, 768), medians over the steps of one run) and
persistent-profile-gpu.json (kernels and gaps of one call, for the shapes with the least and the largest gain).
"""

import argparse
import collections
import functools
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lapwing as lw
from lapwing import jaxprs
from lapwing.bench import _gru_models as models
from lapwing.bench.measure import environment, save
from lapwing.loops.persistent import _device, _kernel
from lapwing.loops.persistent._plan import Gpu, plans
from lapwing.loops.persistent._prepare import prepare

SHAPE = (16, 1024, 768)
PROFILED = ("gru,80,50,1000", "lstm,16,256,256", "lstm,16,1024,768")
CLOCK = 1.755e3
"""Ticks a microsecond, of an H200 under load."""


def program(kind: str, *shape: int) -> tuple[Any, tuple[Any, Any]]:
    loss, arguments = models.MODELS[kind]
    return jax.value_and_grad(functools.partial(loss, lw.scan)), arguments(*shape, jnp.bfloat16)


def forward_loop() -> jaxprs.Loop:
    fn, given = program("lstm", *SHAPE)
    closed = jax.make_jaxpr(fn)(*given)
    found = [jaxprs.loop_of(eqn)[0] for eqn in jaxprs.equations(closed.jaxpr) if eqn.primitive.name == "scan"]
    return next(loop for loop in found if not loop.reverse)


def step_us() -> dict[str, float]:
    """Microseconds between the marks of a step, the median of the second half of the steps."""
    loop, gpu = forward_loop(), getattr(_device.device_here(), "gpu", Gpu())
    prepared = prepare(loop)
    plan = plans(prepared.stages, gpu)[0]
    keys = iter(jax.random.split(jax.random.key(0), 99))
    once = [0.05 * jax.random.normal(next(keys), jaxprs.shape(var)) for var in [*loop.consts, *loop.carry]]
    xs = [jax.random.normal(next(keys), (loop.length, *jaxprs.shape(var))) for var in loop.xs]
    given = [
        value.astype(jaxprs.dtype(var)) for var, value in zip(loop.jaxpr.invars, [*once, *xs], strict=True)
    ]
    clocks: list[Any] = []

    def run(*values: Any) -> Any:
        def timed(values: Any) -> list[Any]:
            *out, clock = _kernel.run(prepared.stages, plan, values, timed=True)
            clocks.append(clock)
            return out

        return prepared.run(timed, values), clocks.pop()

    compiled = jax.jit(run)
    jax.block_until_ready(compiled(*given))
    clock = np.asarray(compiled(*given)[1]).astype(np.int64) % 2**32
    between = np.median(np.diff(clock, axis=1)[loop.length // 2 :], axis=0) / CLOCK
    names = (
        "publish",
        "signal and wait",
        "start fetching; outputs leave",
        "multiply",
        "pass on",
        "elementwise",
    )
    whole = float(np.median(np.diff(clock[loop.length // 2 :, 0]))) / CLOCK
    found = {name: round(float(each), 3) for name, each in zip(names, between, strict=True)}
    return found | {"next step": round(whole - float(between.sum()), 3)}


def profile(text: str) -> dict[str, Any]:
    """What the GPU does in one call, in order of the time it takes, and how long it does nothing."""
    kind, *shape = text.split(",")
    fn, given = program(kind, *map(int, shape))
    compiled = jax.jit(fn)
    jax.block_until_ready(compiled(*given))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(compiled(*given))
        (path,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(path))
        planes = [plane for plane in data.planes if "/device:GPU" in plane.name]
        events = [
            (event.start_ns, event.duration_ns, event.name)
            for plane in planes
            for line in plane.lines
            if line.name.startswith("Stream")
            for event in line.events
        ]
    busy: collections.Counter[str] = collections.Counter()
    for _, duration, name in events:
        busy[name] += duration
    start, end = min(event[0] for event in events), max(event[0] + event[1] for event in events)
    found = {name: round(ns / 1e3, 1) for name, ns in busy.most_common(20)}
    return {"shape": text, "us": found, "idle_us": round((end - start - sum(busy.values())) / 1e3, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="benchmarks/results")
    out = parser.parse_args().out
    save({"environment": environment(), "step_us": step_us()}, "persistent-step", out)
    profiles = [profile(text) for text in PROFILED]
    save({"environment": environment(), "profiles": profiles}, "persistent-profile", out)


if __name__ == "__main__":
    main()
