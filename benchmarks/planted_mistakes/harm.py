"""What each planted mistake costs: it and its twin are trained alike, and both are judged by the twin.

    python -m benchmarks.planted_mistakes.harm [NAME …]

Three numbers for each program, from the evaluation of the task, or else from its loss on new batches: the mistake as it
judges itself, the mistake judged by its twin, and the twin. Where the first is fine and the second is not, the mistake
is one that the curves of a training do not show. Correct programs are trained too, for their first and last losses. The
results are written after each program, to those that are there.

The loop is the shortest one that trains a task, and not that of `lapwing.train`, so that neither its rollbacks nor its
checks change what a mistake does.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing.bench.measure import environment, save
from lapwing.task import Arrays

from .clean_programs import CLEAN
from .silent_bugs import BUGS

_BATCHES = 16


def train(task: Any, settings: Any) -> tuple[Any, Any, jax.Array]:
    """Parameters, state and the losses of all steps."""
    optimizer = task.optimizer
    if not isinstance(optimizer, optax.GradientTransformation | optax.MultiSteps):
        optimizer = optimizer(settings.learning_rate)

    def loss(params: Any, batch: Any, state: Any, key: jax.Array) -> Any:
        more = (state, key) if task.has_state else (key,) if task.has_key else ()
        value, _, *after = task.loss(params, batch, *more)
        return value, after[0] if after else None

    def step(carry: Any, number: jax.Array) -> Any:
        params, state, memory, begin = carry
        k1, k2 = jax.random.split(jax.random.fold_in(begin, number))
        batch = _batch(task.data, k1, number, begin)
        if task.prepare is not None:
            batch = task.prepare(params, batch, jax.random.fold_in(k2, 1))
        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(params, batch, state, k2)
        updates, memory = optimizer.update(grads, memory, params)
        if task.trainable is not None:
            updates = jax.tree.map(lambda u, trained: u * trained, updates, task.trainable(params))
        return (optax.apply_updates(params, updates), state, memory, begin), value

    @jax.jit
    def run(key: jax.Array) -> Any:
        k1, k2 = jax.random.split(key)
        params, state = task.init(k1) if task.has_state else (task.init(k1), None)
        carry = params, state, optimizer.init(params), k2
        (params, state, *_), values = jax.lax.scan(step, carry, jnp.arange(settings.steps))
        return params, state, values

    return run(jax.random.key(settings.seed))


def _batch(data: Any, key: jax.Array, number: jax.Array, begin: jax.Array) -> Any:
    if not isinstance(data, Arrays):
        return data(key, number)
    order = jnp.arange(data.rows)
    if data.shuffle:
        order = jax.random.permutation(jax.random.fold_in(begin, -1 - number // data.batches), order)
    rows = jax.lax.dynamic_slice_in_dim(order, number % data.batches * data.batch_size, data.batch_size)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], data.arrays)


def judge(task: Any, params: Any, state: Any) -> float:
    """The first scalar of the evaluation, or the loss in batches that the training has not seen."""
    kept = (state,) if task.has_state else ()
    if task.validation is not None:
        evaluate = task.evaluate or (lambda params, batch: {"loss": task.loss(params, batch)[0]})
        return _mean(lambda p, b: _first(evaluate(p, b, *kept)), params, _slices(task.validation))
    if task.evaluate is not None:
        keys = jax.random.split(jax.random.key(77), _BATCHES)
        return _mean(lambda p, key: _first(task.evaluate(p, key, *kept)), params, keys)
    batches = _slices(task.data) if isinstance(task.data, Arrays) else _drawn(task.data)
    if task.has_state:
        return _in_turn(task, params, state, batches)
    more = (jax.random.key(5),) if task.has_key else ()
    return _mean(lambda p, b: task.loss(p, b, *more)[0], params, batches)


def _in_turn(task: Any, params: Any, state: Any, batches: Any) -> float:
    """The mean loss where each batch finds the state that the one before has left."""
    loss, values = jax.jit(task.loss), []
    for batch in batches:
        value, _, state = loss(params, batch, state, jax.random.key(5))
        values.append(value)
    return float(np.mean(values))


def _first(metrics: Any) -> Any:
    return next(iter(metrics.values()))


def _mean(judged: Any, params: Any, given: Any) -> float:
    judged = jax.jit(judged)
    return float(np.mean([judged(params, each) for each in given]))


def _slices(arrays: Arrays) -> Any:
    size = arrays.batch_size
    return [
        jax.tree.map(lambda leaf, i=i: leaf[i * size : (i + 1) * size], arrays.arrays)
        for i in range(arrays.batches)
    ]


def _drawn(data: Any) -> Any:
    draw = jax.jit(data)
    return [draw(jax.random.key(1000 + i), i) for i in range(_BATCHES)]


def measure(build: Any) -> dict[str, Any]:
    """The three numbers, and the losses of the twin in training."""
    (wrong, settings), (fixed, _) = build(True), build(False)
    *ruined, _ = train(wrong, settings)
    *right, losses = train(fixed, settings)
    return {
        "mistake by itself": judge(wrong, *ruined),
        "mistake by its twin": judge(fixed, *ruined),
        "twin": judge(fixed, *right),
        "twin, first and last": _ends(losses),
    }


def _ends(losses: jax.Array) -> list[float]:
    return [round(float(each), 4) for each in (losses[:5].mean(), losses[-20:].mean())]


def learn(build: Any) -> dict[str, Any]:
    """The losses of a correct program in training."""
    return {"first and last": _ends(train(*build())[2])}


def main(names: list[str]) -> None:
    path = Path("benchmarks/results/planted-mistakes-harm-cpu.json")
    rows: dict[str, Any] = json.loads(path.read_text())["programs"] if path.is_file() else {}
    for name in names or [*BUGS, *CLEAN]:
        begin = time.perf_counter()
        jax.clear_caches()
        try:
            rows[name] = measure(BUGS[name].build) if name in BUGS else learn(CLEAN[name].build)
        except Exception as error:  # a training that fails is a result too
            rows[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        print(f"{name:40}", rows[name], f"{time.perf_counter() - begin:.1f} s", flush=True)
        save({"environment": environment(), "programs": rows}, "planted-mistakes-harm", "benchmarks/results")


if __name__ == "__main__":
    main(sys.argv[1:])
