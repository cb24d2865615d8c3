"""The time to trace the gradient of a loop, by the number of equations of its step."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import lapwing as lw

SIZES = (50, 200, 800)


def elementwise(scan: Callable[..., Any], equations: int) -> Callable[..., Any]:
    """The loss of a loop whose step has this many elementwise equations, in which values meet again later on."""

    def step(w, h, x):
        before = h
        for number in range(equations // 4):
            now = jnp.sin(w * h + x)
            h, before = now - before if number % 2 else now + before, h
        return h

    def loss(w, xs):
        last, _ = scan(lambda h, x: (step(w, h, x), None), jnp.zeros(xs.shape[1:]), xs)
        return jnp.sum(last)

    return loss


def tracing_rows(rounds: int = 3) -> list[dict[str, Any]]:
    """Median seconds of the processor to trace the gradient with each scan, in turns."""
    arguments = jnp.full(8, 0.5), jnp.ones((10, 8))
    rows = []
    for equations in SIZES:
        taken: list[list[float]] = [[], []]
        for _ in range(rounds):
            for scan, seconds in zip((jax.lax.scan, lw.scan), taken, strict=True):
                begin = time.process_time()
                jax.make_jaxpr(jax.grad(elementwise(scan, equations)))(*arguments)
                seconds.append(time.process_time() - begin)
        rows.append({"equations": equations, "trace_s": [statistics.median(each) for each in taken]})
    return rows
