"""Units and attention of a model, found in the jaxpr of its loss: nothing in the model has to be changed.

A layer of units is a relu (`max(x, 0)`), a tanh or a logistic function with at least two axes; the last axis is that of
the units. A unit is alive in a batch if it is above 0 somewhere, or, for the other two, not saturated everywhere.

Attention is a softmax (`exp(x) / sum(exp(x))`) whose result goes into a matrix product. What runs inside one kernel
(flash attention) or inside `cond` and `while` is not seen.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing.jaxprs import bind, called_by, loop_of, place_of

_SATURATED = 1e-4
# Through these, what a softmax returned reaches the product: casts, dropout, masks, changes of shape.
_CARRIES = frozenset(
    {
        "convert_element_type",
        "mul",
        "div",
        "select_n",
        "transpose",
        "reshape",
        "broadcast_in_dim",
        "copy",
        "squeeze",
    }
)
_MOVES = frozenset({"broadcast_in_dim", "reshape", "convert_element_type", "squeeze", "stop_gradient"})


class Layer(NamedTuple):
    """A layer of units: what it is, where, how many units, and the number of values that each of them had."""

    kind: str
    place: str
    units: int
    values: int


class Attention(NamedTuple):
    """A softmax over some positions, and where it is."""

    place: str
    positions: int


class Seen(NamedTuple):
    """What a batch showed: for each layer which units are alive; for each attention the entropy of a query's weights,
    and that of their mean over all queries (both as a share of the largest), and the position of most weight."""

    layers: list[Layer]
    alive: list[jax.Array]
    attentions: list[Attention]
    weights: list[jax.Array]


def look_at_units(closed: core.ClosedJaxpr, values: Sequence[Any]) -> Seen:
    """Runs a program on its flat inputs and looks at its units and attention. To be traced.

    >>> closed = jax.make_jaxpr(lambda x: jax.nn.relu(x).sum())(jnp.ones((4, 3)))
    >>> seen = look_at_units(closed, [jnp.array([[1.0, -1.0, -1.0], [0.0, -1.0, 2.0]] * 2)])
    >>> seen.layers[0].kind, seen.layers[0].units, seen.alive[0].tolist()
    ('relu', 3, [True, False, True])
    """
    looker = _Looker()
    looker.run(closed.jaxpr, [*closed.consts, *values], ())
    return looker.seen()


class _Looker:
    def __init__(self) -> None:
        self._layers: list[tuple[Layer, Any]] = []
        self._softmaxes: list[tuple[Attention, Any]] = []
        self._used: set[int] = set()  # Which softmaxes go into a product.
        self._exps: dict[int, int] = {}  # By the id of a value: of which exp it is, or is the sum.
        self._sums: dict[int, tuple[int, int]] = {}
        self._weights: dict[int, int] = {}  # By the id of a value: of which softmax it comes.
        self._values: list[Any] = []  # Keeps what has an id alive.

    def seen(self) -> Seen:
        used = [pair for at, pair in enumerate(self._softmaxes) if at in self._used]
        return Seen(
            [layer for layer, _ in self._layers],
            [alive for _, alive in self._layers],
            [attention for attention, _ in used],
            [weights for _, weights in used],
        )

    def run(self, jaxpr: core.Jaxpr, values: Sequence[Any], calls: tuple[core.JaxprEqn, ...]) -> list[Any]:
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], values, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else env[atom]

        for eqn in jaxpr.eqns:
            inputs = list(map(read, eqn.invars))
            if not eqn.outvars and eqn.effects:
                continue
            if (called := called_by(eqn)) is not None:
                outputs = self.run(called.jaxpr, [*called.consts, *inputs], (*calls, eqn))
            elif eqn.primitive is p.scan_p:
                outputs = self._scan(eqn, inputs)
            else:
                outputs = bind(eqn, inputs)
                self._values += [inputs, outputs]
                self._see_units(eqn, inputs, outputs[0], calls)
                self._see_softmax(eqn, inputs, outputs[0], calls)
            env.update(zip(eqn.outvars, outputs, strict=True))
        return list(map(read, jaxpr.outvars))

    def _see_units(self, eqn: core.JaxprEqn, inputs: list[Any], out: Any, calls: Any) -> None:
        kind = eqn.primitive.name
        if (
            kind not in ("max", "tanh", "logistic")
            or out.ndim < 2
            or not jnp.issubdtype(out.dtype, jnp.floating)
        ):
            return
        if kind == "max" and not any(_is_zero(value) for value in inputs):
            return
        if kind == "tanh":
            is_alive = jnp.abs(out) < 1 - _SATURATED
        elif kind == "logistic":
            is_alive = (out > _SATURATED) & (out < 1 - _SATURATED)
        else:
            is_alive = out > 0
        layer = Layer(
            "relu" if kind == "max" else kind, place_of(eqn, calls), out.shape[-1], out.size // out.shape[-1]
        )
        self._layers.append((layer, is_alive.any(tuple(range(out.ndim - 1)))))

    def _see_softmax(self, eqn: core.JaxprEqn, inputs: list[Any], out: Any, calls: Any) -> None:
        name, first = eqn.primitive.name, id(inputs[0]) if inputs else 0
        if name == "exp":
            self._exps[id(out)] = id(out)
        elif name == "reduce_sum" and first in self._exps and len(eqn.params["axes"]) == 1:
            self._sums[id(out)] = first, eqn.params["axes"][0]
        elif name in _MOVES and first in self._sums:
            self._sums[id(out)] = self._sums[first]
        elif name == "div" and first in self._exps and self._sums.get(id(inputs[1]), (0, 0))[0] == first:
            axis = self._sums[id(inputs[1])][1]
            if out.ndim >= 2 and out.shape[axis] >= 4:
                self._weights[id(out)] = len(self._softmaxes)
                attention = Attention(place_of(eqn, calls), out.shape[axis])
                self._softmaxes.append((attention, _entropies(jnp.moveaxis(out, axis, -1))))
        elif name == "dot_general":
            self._used |= {self._weights[id(value)] for value in inputs if id(value) in self._weights}
        elif name in _CARRIES:
            for value in inputs:
                if id(value) in self._weights:
                    self._weights[id(out)] = self._weights[id(value)]

    def _scan(self, eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any]:
        """A unit of a loop is alive if it is in any iteration; of attention, the iteration of least entropy counts."""
        loop, closed_over = loop_of(eqn)
        consts, init, xs = loop.split_inputs([*closed_over, *inputs])
        inside: list[Seen] = []

        def step(carry: Any, x: Any) -> tuple[Any, Any]:
            looker = _Looker()
            outputs = looker.run(loop.jaxpr, [*consts, *carry, *x], ())
            inside[:] = [looker.seen()]
            return outputs[: loop.num_carry], [outputs[loop.num_carry :], inside[0].alive, inside[0].weights]

        carry, ys = loop.iterate(step, init, xs)
        outputs, alive, weights = ys
        self._layers += [
            (layer._replace(values=layer.values * loop.length), each.any(0))
            for layer, each in zip(inside[0].layers, alive, strict=True)
        ]
        for attention, each in zip(inside[0].attentions, weights, strict=True):
            self._used.add(len(self._softmaxes))
            self._softmaxes.append((attention, each[jnp.argmin(each[:, 1])]))
        return [*carry, *outputs]


def _is_zero(value: Any) -> bool:
    return (
        isinstance(value, float | int | np.ndarray | np.generic)
        and np.ndim(value) == 0
        and float(value) == 0.0
    )


def _entropies(weights: jax.Array) -> jax.Array:
    """Of weights along the last axis: the mean entropy, that of the mean weights, and the position of most weight."""
    weights = weights.astype(jnp.float32)
    mean = weights.reshape(-1, weights.shape[-1]).mean(0)
    most = jnp.log(jnp.float32(weights.shape[-1]))
    entropy = jax.scipy.special.entr(weights).sum(-1).mean() / most
    return jnp.stack(
        [entropy, jax.scipy.special.entr(mean).sum() / most, jnp.argmax(mean).astype(jnp.float32)]
    )
