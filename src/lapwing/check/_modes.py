"""The two modes of a model: what is on in training must be off in evaluation, and the other way round.

Everything is read from programs: which of them draw a mask for dropout, which read the running statistics, and whether
a step changes them.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from lapwing import jaxprs
from lapwing.core import format_list

from ._jaxprs import place
from ._keys import dropouts
from ._partition import by_path, is_float
from ._program import Program, among, read
from ._report import Report, fail

_STATISTICS = re.compile(r"mean|var|stat|running|moving", re.IGNORECASE)


def modes(
    train: Callable[..., Any],
    evaluate: Callable[..., Any],
    params: PyTree,
    batch: PyTree,
    state: PyTree = None,
) -> Report:
    """The mode of a model in training and in evaluation; nothing is computed.

    **Arguments**

    - `train(params, batch, state)` returns the loss, or a tuple that ends with the next state.
    - `evaluate(params, batch, state)` returns predictions or metrics.
    - `state`: the running statistics; without it the two functions take params and batch.

    It finds dropout that is on in evaluation, statistics that training never updates, and statistics that evaluation
    never reads, because it uses those of the batch.

    >>> import jax, jax.numpy as jnp
    >>> def model(w, x):
    ...     return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.9, x.shape), x * w / 0.9, 0)
    >>> modes(lambda w, x: jnp.sum(model(w, x)), model, jnp.ones(3), jnp.ones(3))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the evaluation draws random numbers and sets outputs of the model to zero with ...
    """
    given: dict[str, Any] = {"params": params, "batch": batch}
    if jax.tree.leaves(state):
        given["state"] = state
    evaluation = read(evaluate, **given)
    check_dropout(evaluation, "the evaluation")
    if "state" in given:
        training = read(train, **given)
        check_statistics(training, evaluation, state)
    return Report("modes", "dropout is off in evaluation" + (_BOTH if "state" in given else ""))


_BOTH = "; training updates the statistics and evaluation reads them"


def check_dropout(evaluation: Program, what: str) -> None:
    drawn = dropouts(evaluation)
    if drawn:
        fail(
            "modes",
            f"{what} draws random numbers and sets outputs of the model to zero with them at {place(drawn[0])}: "
            "dropout is on",
            "the mode of the model: eqx.nn.inference_mode(model), model.eval() for nnx, deterministic=True for Linen, "
            "or a flag of your own",
            [place(drawn[0])],
        )


def check_statistics(training: Program, evaluation: Program | None, state: Any) -> None:
    """The last outputs of the training program are the next state, leaf by leaf."""
    before = training.inputs["state"]
    after = training.closed.jaxpr.outvars[-len(before) :]
    paths = list(before)
    chosen = statistics_in(state)
    changed = [
        path for path, out in zip(paths, after, strict=True) if not _is_same(training, out, before[path])
    ]
    if chosen and not set(chosen) & set(changed):
        if _is_kept_from_before(training, chosen, state):
            return
        fail(
            "modes",
            f"a step of training changes none of the statistics {format_list(chosen, 4)}: the evaluation will use "
            "those of the beginning",
            "the mode of the model in the loss (it is in inference mode), and whether the loss returns the next state",
            chosen,
        )
    if evaluation is not None and set(chosen) & set(changed):
        outputs = evaluation.closed.jaxpr.outvars
        read_there = [
            path
            for path in chosen
            if any(
                out in _behind(evaluation, evaluation.inputs["state"][path])
                for out in outputs
                if _is_var(out)
            )
        ]
        if not read_there:
            fail(
                "modes",
                f"the evaluation reads none of the statistics {format_list(chosen, 4)} that training updates: it "
                "normalizes with those of its own batch",
                "the mode of the model in evaluation: eqx.nn.inference_mode, model.eval(), use_running_average=True",
                chosen,
            )


def statistics_in(state: Any) -> list[str]:
    """The paths of the running statistics: floating-point leaves that are called so, or all if leaves have no names."""
    leaves = by_path(state, "state")
    floats = [path for path, leaf in leaves.items() if is_float(leaf)]
    named = [path for path in floats if is_named(path)]
    return named or ([] if any("'" in path for path in leaves) else floats)


def is_named(path: str) -> bool:
    """Whether a leaf of the state is called a running statistic."""
    return _STATISTICS.search(path.removeprefix("state")) is not None


def _is_kept_from_before(training: Program, chosen: list[str], state: Any) -> bool:
    """Whether the loss uses statistics that are those of an earlier training, as in fine-tuning: at the beginning of a
    training they are zeros and ones."""
    leaves = by_path(state, "state")
    if not any(
        np.size(leaves[path]) > 1 and np.ptp(np.asarray(leaves[path], np.float64)) > 0 for path in chosen
    ):
        return False
    outputs = training.closed.jaxpr.outvars[: -len(training.inputs["state"])]
    return any(among(out, training.dependent("state")) for out in outputs)


def _is_var(atom: Any) -> bool:
    return isinstance(atom, core.Var)


def _is_same(program: Program, out: Any, before: core.Var) -> bool:
    return program.source(out) is before


def _behind(program: Program, source: core.Var) -> set[core.Var]:
    return jaxprs.depends_on(program.eqns, [source])
