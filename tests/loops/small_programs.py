"""Random loops around the bounds of `lapwing.loops._small`, run in a process of their own, since a kernel may end it.

    python -m tests.loops.small_programs FIRST LAST [--time]

prints, for every seed, `SEED kernels=N error=E` (N: loops lowered as one kernel; E: the largest relative difference of
values and gradients from `jax.lax.scan`, over what the dtype allows), with `--time` also `value=R gradient=R`, the time
of `jax.lax.scan` over that of `lapwing.scan`.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lapwing as lw

SHAPES = [
    *[(), (3,), (5,), (4, 4), (1, 16), (2, 8), (2, 3, 4), (7, 1)] * 4,
    (200,),
    (300,),
    (16, 16),
    (1, 40),
]
DTYPES = [*["float32", "float64", "int32", "bool"] * 8, "bfloat16"]
ALLOWED = {"float32": 2e-5, "float64": 1e-12, "bfloat16": 0.3}


def _unary(rng: np.random.Generator) -> Callable[[Any], Any]:
    choices: list[Callable[[Any], Any]] = [
        jnp.tanh, jnp.sin, jnp.cos, jax.nn.sigmoid, jax.nn.relu, jax.nn.softplus, jnp.square, jnp.abs,
        lambda x: jnp.exp(-jnp.abs(x)), lambda x: jnp.log1p(jnp.abs(x)), lambda x: jnp.sqrt(1 + x * x),
        lambda x: x**3, lambda x: 1 / (1 + x * x), lambda x: jnp.where(x > 0.2, x, 0.5 * x),
        lambda x: jnp.maximum(x, 0.1), lambda x: jnp.clip(x, -0.5, 0.5), lambda x: jnp.arctan2(x, 1 + x * x),
        lambda x: x + jnp.sum(x), lambda x: x - jnp.mean(x), lambda x: x * jnp.max(x), lambda x: jnp.expm1(x) - x,
        lambda x: jax.lax.cond(jnp.sum(x) > 0, jnp.tanh, lambda y: 0.5 * y, x), jax.lax.stop_gradient,
        lambda x: jax.lax.scan(lambda c, _: (jnp.tanh(c + 0.1), None), x, None, length=3)[0],
        lambda x: jax.lax.fori_loop(0, 3, lambda i, y: 0.9 * y + 0.1, x), jax.checkpoint(lambda x: jnp.sin(x) * x),
        lambda x: jnp.roll(x, 1), lambda x: jnp.flip(x), lambda x: jnp.cumsum(x.reshape(-1)).reshape(x.shape),
        lambda x: x.at[0].add(1.0) if x.ndim else x, lambda x: jnp.sort(x, axis=None).reshape(x.shape),
        lambda x: x.reshape(-1)[jnp.argmax(x)] * x, lambda x: x * (x.reshape(-1)[:1].sum()),
        lambda x: jnp.concatenate([x[1:], x[:1]]) if x.ndim else x, jnp.transpose,
        lambda x: jax.nn.softmax(x.reshape(-1)).reshape(x.shape),
    ]  # fmt: skip
    return choices[rng.integers(len(choices))]


def _product(a: Any, rng: np.random.Generator) -> Any:
    """A product of `a` with a weight, plain or batched, of a width near the bound."""
    wide = a.shape[-1] if a.ndim else 1
    weight = jnp.asarray(rng.normal(size=(wide, wide)) / np.sqrt(wide), a.dtype)
    return (a @ weight) if a.ndim else a * weight[0, 0]


def _to_shape(value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    if value.shape != shape:
        flat = value.reshape(-1)
        size = int(np.prod(shape, dtype=int))
        flat = jnp.tile(flat, -(-size // flat.shape[0]))[:size] if flat.shape[0] < size else flat[:size]
        value = flat.reshape(shape)
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.tanh(value.astype(dtype))
    return value > 0 if dtype == jnp.bool_ else jnp.clip(value, -100, 100).astype(dtype)


def program(seed: int, length: int = 40) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A loss of (scan, weights, xs), and the arguments after the scan."""
    rng = np.random.default_rng(seed)
    kinds = [
        (SHAPES[rng.integers(len(SHAPES))], jnp.dtype(DTYPES[rng.integers(len(DTYPES))]))
        for _ in range(rng.integers(1, 5))
    ]
    base = "float64" if any(dtype == jnp.float64 for _, dtype in kinds) else "float32"
    weights = [jnp.asarray(rng.normal(size=shape), base) for shape, _ in kinds]
    init = [jnp.asarray(rng.normal(size=shape) > 0).astype(dtype) for shape, dtype in kinds]
    plan = int(rng.integers(1 << 30))
    count = int(rng.integers(2, 14))
    batch = int(rng.choice([0, 0, 0, 0, 0, 2, 7, 60]))

    def loss(scan: Callable[..., Any], weights: list[Any], xs: Any) -> Any:
        def step(carry, x):
            rng = np.random.default_rng(plan)
            pool = [(c.astype(base) * w + x) for c, w in zip(carry, weights, strict=True)]
            for _ in range(count):
                a = pool[rng.integers(len(pool))]
                kind = rng.random()
                if kind < 0.6:
                    pool.append(_unary(rng)(a))
                elif kind < 0.75:
                    pool.append(_product(a, rng))
                else:
                    b = pool[rng.integers(len(pool))]
                    pool.append(a * _to_shape(b, a.shape, a.dtype) + 0.1)
            used = [pool[-1 - i % len(pool)] for i in range(len(carry))]
            new = [_to_shape(u, c.shape, c.dtype) for u, c in zip(used, carry, strict=True)]
            return new, [jnp.sum(n.astype(base)) for n in new]

        last, ys = scan(step, init, xs)
        return sum(jnp.sum(y) for y in ys) + sum(jnp.sum(c.astype(base)) for c in last)

    def batched(scan, weights, xs):
        if not batch:
            return loss(scan, weights, xs)
        factors = jnp.linspace(0.5, 1.0, batch, dtype=base)
        each = jax.vmap(lambda factor: loss(scan, [factor * w for w in weights], xs))
        return jnp.sum(each(factors))

    return batched, (weights, jnp.asarray(rng.normal(size=length), base))


def check(seed: int, timed: bool) -> str:
    loss, args = program(seed)
    text = str(jax.make_jaxpr(lambda *args: loss(jax.lax.scan, *args))(*args))
    dtype = "bfloat16" if "bf16" in text else str(args[1].dtype)
    runs, kernels = {}, 0
    for name, scan in (("lax", jax.lax.scan), ("lw", lw.scan)):
        both = jax.value_and_grad(lambda *args, scan=scan: loss(scan, *args))
        lowered = jax.jit(both).lower(*args)
        if name == "lw":
            kernels = lowered.as_text().count('xla_cpu_small_call = "true"')
        runs[name, "gradient"] = lowered.compile()
        if timed:
            runs[name, "value"] = jax.jit(lambda *args, scan=scan: loss(scan, *args)).lower(*args).compile()
    found, expected = (jax.tree.leaves(runs[name, "gradient"](*args)) for name in ("lw", "lax"))
    # Gradients that cancel are small differences of large numbers, so each array is measured by its largest entry.
    error = max(
        float(np.max(np.abs(np.asarray(a, float) - np.asarray(b, float))) / (np.max(np.abs(b)) + 1e-3))
        for a, b in zip(found, expected, strict=True)
    )
    line = f"{seed} kernels={kernels} error={error / ALLOWED[dtype]:.3g}"
    if timed:
        for kind in ("value", "gradient"):
            line += f" {kind}={_ratio(runs['lax', kind], runs['lw', kind], args):.2f}"
    return line


def _ratio(a: Callable[..., Any], b: Callable[..., Any], args: tuple[Any, ...], times: int = 60) -> float:
    """The time of `a` over that of `b`, each the shortest of many that take turns."""
    best = [np.inf, np.inf]
    for _ in range(times):
        for i, run in enumerate((a, b)):
            start = time.perf_counter()
            jax.block_until_ready(run(*args))
            best[i] = min(best[i], time.perf_counter() - start)
    return best[0] / best[1]


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        print(f"{seed} begins", flush=True)
        print(check(seed, "--time" in sys.argv), flush=True)
