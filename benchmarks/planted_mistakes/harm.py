"""What each planted mistake costs: it and its twin are trained alike, and both are judged by the twin.

    python -m benchmarks.planted_mistakes.harm [NAME …]

Three numbers for each program, from the evaluation of the task, or else from its loss on new batches: the mistake as it
judges itself, the mistake judged by its twin, and the twin. Where the first is fine and the second is not, the mistake
is one that the curves of a training do not show.
"""

import sys
import time
from typing import Any

import jax
import numpy as np

from lapwing.bench.measure import environment, save
from lapwing.task import Arrays
from lapwing.train import fit

from .silent_bugs import BUGS

_BATCHES = 16


def judge(task: Any, trained: Any) -> float:
    """The first scalar of the evaluation, or the loss in batches that the training has not seen."""
    params, state = trained.params, (trained.model,) if task.has_state else ()
    if task.validation is not None:
        evaluate = task.evaluate or (lambda params, batch: {"loss": task.loss(params, batch)[0]})
        batches = _slices(task.validation)
        return _mean(jax.jit(lambda p, b: _first(evaluate(p, b, *state))), params, batches)
    if task.evaluate is not None:
        keys = jax.random.split(jax.random.key(77), _BATCHES)
        return _mean(jax.jit(lambda p, key: _first(task.evaluate(p, key, *state))), params, keys)
    batches = _slices(task.data) if isinstance(task.data, Arrays) else _drawn(task.data)
    more = (*state, jax.random.key(5)) if task.has_state else (jax.random.key(5),) if task.has_key else ()
    return _mean(jax.jit(lambda p, b: task.loss(p, b, *more)[0]), params, batches)


def _first(metrics: Any) -> Any:
    return next(iter(metrics.values()))


def _mean(judged: Any, params: Any, given: Any) -> float:
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


def measure(build: Any) -> dict[str, float]:
    """The three numbers."""
    (wrong, settings), (fixed, same) = build(True), build(False)
    ruined, right = fit(wrong, settings, quiet=True), fit(fixed, same, quiet=True)
    return {
        "mistake by itself": judge(wrong, ruined.state),
        "mistake by its twin": judge(fixed, ruined.state),
        "twin": judge(fixed, right.state),
        "twin at first": float(right.metrics["loss"][0]),
    }


def main(names: list[str]) -> None:
    rows: dict[str, Any] = {}
    for name in names or BUGS:
        begin = time.perf_counter()
        jax.clear_caches()
        try:
            rows[name] = measure(BUGS[name].build)
        except Exception as error:  # a training that fails is a result too
            rows[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        print(f"{name:40}", rows[name], f"{time.perf_counter() - begin:.1f} s", flush=True)
    if not names:
        save({"environment": environment(), "programs": rows}, "planted-mistakes-harm", "benchmarks/results")


if __name__ == "__main__":
    main(sys.argv[1:])
