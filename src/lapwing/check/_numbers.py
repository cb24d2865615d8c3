"""Losses whose numbers are wrong by the way they are written, read from the program of the loss.

A softmax of probabilities, a softmax along the batch, targets given as logits, predictions of shape [n, 1] compared
with targets of shape [n], the logarithm of a softmax, long sums in a narrow dtype, and integers that are divided before
they are made floating: none of them raises, and most of them learn a little.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import PyTree

from lapwing import jaxprs

from ._critic import check_critic
from ._floored import check_floored
from ._integers import check_integers
from ._jaxprs import place
from ._lookups import check_lookups
from ._noise import check_noise
from ._program import SHAPES, Program, among, probabilities, read, softmaxes
from ._reductions import check_reductions
from ._report import Report, fail
from ._signs import check_signs
from ._sizes import Pair, doubled, resized

_SCALED = SHAPES | {"mul", "div", "neg"}
_PICKED = SHAPES | {"gather", "slice", "dynamic_slice"}
_LONG = 256  # bfloat16 has 8 bits: beyond 256 terms of one size, a sum stops growing.
_NARROW = ("bfloat16", "float16")


def numbers(
    loss: Callable[..., Any],
    params: PyTree,
    batch: PyTree,
    *,
    batch_axis: PyTree[int] = 0,
    time_axis: PyTree[int] = None,
) -> Report:
    """`loss(params, batch)` must not contain the usual numerical mistakes; nothing is computed but where it is unsure.

    It finds a softmax (or sigmoid) of a softmax, a softmax along the batch axis, targets in the place of logits,
    predictions [n, 1] compared with targets [n], log(softmax(x)) without log_softmax, sums over 256 terms or more in
    bfloat16 or float16, integers divided as integers, rows that a table of the parameters does not have, and a part
    of the loss that is summed over examples (or time) while another is averaged.

    **Arguments**

    - `batch_axis`, `time_axis`: the axis of the examples (and of time) in the batch: an int or a prefix tree of ints,
      as for `jax.vmap`.

    >>> import jax, jax.numpy as jnp
    >>> x, y = jnp.ones((4, 3)), jnp.arange(4) % 3
    >>> def loss(w, batch):
    ...     odds = jax.nn.softmax(batch[0] @ w)
    ...     return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(odds), batch[1][:, None], 1))
    >>> numbers(loss, jnp.ones((3, 3)), (x, y))
    Traceback (most recent call last):
    lapwing.check._report.CheckError: the softmax at ... is taken of probabilities, the output of the softmax at ...
    """
    program = read(loss, params=params, batch=batch)
    _check_softmax_twice(program)
    _check_swapped(program)
    _check_logarithm(program)
    check_floored(program, params, batch)
    _check_narrow(program)
    check_integers(program, (params, batch))
    check_noise(program)
    check_lookups(program, params, batch)
    check_signs(program, params, batch)
    check_critic(program)
    pair = doubled(loss, batch_axis, params=params, batch=batch)
    if pair is not None:
        _check_batch_axis(pair)
        check_reductions(pair, "examples")
        _check_time_axis(pair, loss, params, batch, time_axis)
    return Report(
        "numbers",
        f"{len(softmaxes(program))} softmaxes and {len(program.eqns)} equations read"
        + (
            ""
            if pair is not None
            else "; the loss takes no other number of examples, so its batch axis was not followed"
        ),
        {"equations": len(program.eqns)},
    )


def _check_softmax_twice(program: Program) -> None:
    made = probabilities(program)
    inner = [(each.x, each.exp) for each in softmaxes(program)]
    inner += [(eqn.invars[0], eqn) for eqn in program.eqns if eqn.primitive.name in ("logistic", "log1p")]
    for x, eqn in inner:
        through = _SCALED if eqn.primitive.name != "log1p" else _SCALED | {"exp", "abs", "sub"}
        source = _nearest(program, x, made, through)
        if source is not None and made[source] is not eqn and jaxprs.size(source) == jaxprs.size(x):
            kind = "softmax" if eqn.primitive.name == "exp" else "sigmoid"
            was = "sigmoid" if made[source].primitive.name == "logistic" else "softmax"
            fail(
                "numbers",
                f"the {kind} at {place(eqn)} is taken of probabilities, the output of the {was} at "
                f"{place(made[source])}: a {kind} of a {was} is nearly uniform, and so the loss can hardly fall",
                "the last layer of the model: losses such as optax.softmax_cross_entropy take logits",
                [place(eqn)],
            )


def _nearest(program: Program, atom: Any, wanted: Any, through: Any) -> Any:
    """The first of the wanted values behind one, on the way through these equations."""
    while not among(atom, wanted):
        made = program.makers.get(atom) if isinstance(atom, core.Var) else None
        if made is None or made.primitive.name not in through:
            return None
        atom = made.invars[0]
    return atom


def _check_swapped(program: Program) -> None:
    """A product of something of the parameters and the log_softmax of something that is not of them."""
    of_params = program.dependent("params")
    for eqn in program.eqns:
        if eqn.primitive.name != "mul":
            continue
        for mine, other in (eqn.invars, eqn.invars[::-1]):
            if not among(mine, of_params) or among(other, of_params) or not isinstance(other, core.Var):
                continue
            behind = program.ancestors(other, SHAPES | {"neg", "select_n"})
            if any(_is_log_of_sum(program, each) for each in behind) and not _is_log(program, mine):
                fail(
                    "numbers",
                    f"at {place(eqn)} the outputs of the model are multiplied by the logarithm of a softmax or sigmoid "
                    "of the targets: the arguments of the loss are swapped",
                    "the order of its arguments: logits first, then labels, in optax.softmax_cross_entropy and "
                    "optax.sigmoid_binary_cross_entropy",
                    [place(eqn)],
                )


def _is_log_of_sum(program: Program, eqn: core.JaxprEqn) -> bool:
    """x − log Σ exp, or max + log1p(exp): a log_softmax or a log_sigmoid."""
    if eqn.primitive.name not in ("sub", "add"):
        return False
    logs = [program.origin(each) for each in eqn.invars]
    return any(each is not None and each.primitive.name in ("log", "log1p") for each in logs)


def _is_log(program: Program, atom: Any) -> bool:
    made = program.origin(atom, SHAPES | {"neg"})
    return made is not None and (made.primitive.name == "log" or _is_log_of_sum(program, made))


def _check_logarithm(program: Program) -> None:
    made, of_params = probabilities(program), program.dependent("params")
    for eqn in program.eqns:
        if eqn.primitive.name != "log" or eqn.outvars[0] not in of_params:
            continue
        source = program.source(eqn.invars[0], _PICKED)
        complement = program.origin(eqn.invars[0], _PICKED)
        if complement is not None and complement.primitive.name == "sub":
            source = program.source(complement.invars[1], _PICKED)
        if among(source, made):
            kind = "sigmoid" if made[source].primitive.name == "logistic" else "softmax"
            fail(
                "numbers",
                f"the logarithm at {place(eqn)} is taken of a {kind} ({place(made[source])}): a probability that "
                "underflows to 0 has the logarithm −inf, and no gradient",
                f"jax.nn.log_{kind} of the logits, which cannot underflow",
                [place(eqn)],
            )


def _check_narrow(program: Program) -> None:
    for eqn in jaxprs.equations(program.closed.jaxpr):
        name = eqn.primitive.name
        if name in ("reduce_sum", "cumsum") and str(jaxprs.dtype(eqn.invars[0])) in _NARROW:
            axes = eqn.params["axes"] if name == "reduce_sum" else (eqn.params["axis"],)
            terms = int(np.prod([jaxprs.shape(eqn.invars[0])[axis] for axis in axes]))
            if terms >= _LONG:
                _fail_narrow(eqn, f"a sum of {terms} terms")
        if name == "scan":
            loop, _ = jaxprs.loop_of(eqn)
            makers = {var: each for each in loop.eqns for var in each.outvars}
            for carried, after in zip(loop.carry, loop.carry_out, strict=True):
                made = makers.get(after) if isinstance(after, core.Var) else None
                is_sum = made is not None and made.primitive.name == "add" and carried in made.invars
                if is_sum and loop.length >= _LONG and str(jaxprs.dtype(carried)) in _NARROW:
                    _fail_narrow(made, f"a running sum over {loop.length} steps")


def _fail_narrow(eqn: Any, what: str) -> None:
    dtype = jaxprs.dtype(eqn.outvars[0])
    fail(
        "numbers",
        f"{what} is computed in {dtype} at {place(eqn)}, which keeps {jnp.finfo(dtype).nmant + 1} bits: terms that are "
        "small beside the sum are lost",
        "the dtype of the sum: add in float32, as in jnp.sum(x, dtype=jnp.float32), and cast the result",
        [place(eqn)],
    )


def _check_time_axis(pair: Pair, loss: Any, params: Any, batch: Any, time_axis: Any) -> None:
    if time_axis is None:
        return
    shorter = resized(loss, lambda size: max(size // 2, 1), time_axis, params=params, batch=batch)
    if shorter is not None and shorter.size != shorter.other_size:
        check_reductions(shorter, "time steps", pair)


def _check_batch_axis(pair: Pair) -> None:
    """With twice as many examples, the axes that double are those of the examples."""
    program = pair.program

    def of_examples(atom: Any) -> list[bool]:
        return [axis in pair.axes(atom) for axis in range(len(jaxprs.shape(atom)))]

    of_params = program.dependent("params")
    for each in softmaxes(program):
        doubles = of_examples(each.exp.outvars[0])
        others = [size for size, yes in zip(jaxprs.shape(each.x), doubles, strict=True) if not yes]
        if all(doubles[axis] for axis in each.axes) and max(others, default=1) > 1 and each.x in of_params:
            fail(
                "numbers",
                f"the softmax at {place(each.exp)} is taken along the examples (axis {each.axes[0]} of shape "
                f"{jaxprs.shape(each.x)}), so that the examples of a batch compete",
                "the axis of softmax, log_softmax or logsumexp: that of the classes, often -1",
                [place(each.exp)],
            )
    for eqn in program.eqns:
        if eqn.primitive.name not in ("sub", "mul") or len(jaxprs.shape(eqn.outvars[0])) != 2:
            continue
        mine = [among(atom, of_params) for atom in eqn.invars]
        if all(of_examples(eqn.outvars[0])) and sum(mine) == 1 and _is_outer(program, eqn):
            rows = jaxprs.shape(eqn.outvars[0])[0]
            what, every = "predictions and targets", "prediction is compared with every target"
            if eqn.primitive.name == "mul":
                what, every = "outputs or losses, and weights or targets,", "one is multiplied by every other"
            fail(
                "numbers",
                f"at {place(eqn)} {what} are broadcast against each other: [{rows}, 1] with [{rows}] is "
                f"[{rows}, {rows}], so that every {every}",
                "the shapes of predictions, targets and weights, which should be equal; squeeze the last axis of one",
                [place(eqn)],
            )


def _is_outer(program: Program, eqn: core.JaxprEqn) -> bool:
    """Whether both operands were spread out: neither has a number of its own for each pair."""
    rows = jaxprs.shape(eqn.outvars[0])[0]
    sizes = [jaxprs.size(program.source(each, {"broadcast_in_dim", "reshape"})) for each in eqn.invars]
    return rows > 1 and sizes == [rows, rows]
