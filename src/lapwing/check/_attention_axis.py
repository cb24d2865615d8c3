"""A softmax of attention along the queries: the weights of each key sum to one, and not those of each query.

With weights along the keys, an output is an average of values. Along the other axis it is a sum that may be of any
size, and each output depends on all other queries. Where the weights are divided once more by their sum (slot
attention), they are averages again.
"""

from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import place
from ._program import SHAPES, Program, Softmax, among
from ._report import fail

_SCORES = SHAPES | {"mul", "div", "add", "sub", "select_n", "max", "min", "tanh"}
_MOVES = frozenset(["transpose", "convert_element_type", "mul", "div", "select_n", "stop_gradient", "copy"])


def check_axis(program: Program, softmax: Softmax) -> None:
    """Raises if weights of products of two activations are summed along another axis than they were normalized."""
    of_params, of_batch = program.dependent("params"), program.dependent("batch")
    products = [eqn for eqn in program.ancestors(softmax.x, _SCORES) if eqn.primitive.name == "dot_general"]
    active = [
        eqn
        for eqn in products
        if all(among(atom, of_params) and among(atom, of_batch) for atom in eqn.invars)
    ]
    if not active or len(softmax.axes) != 1:
        return
    weights, axis = softmax.exp.outvars[0], softmax.axes[0]
    waiting, normalized = [(weights, axis)], 0
    while waiting:
        var, at = waiting.pop()
        for eqn in program.readers.get(var, []):
            name, out = eqn.primitive.name, eqn.outvars[0]
            if name == "reduce_sum":
                normalized += tuple(eqn.params["axes"]) != (at,)
            elif name == "transpose":
                waiting.append((out, eqn.params["permutation"].index(at)))
            elif name in _MOVES and jaxprs.shape(out) == jaxprs.shape(var):
                waiting.append((out, at))
            elif name == "dot_general" and not normalized:
                _check_contracted(eqn, var, at, softmax)


def _check_contracted(eqn: core.JaxprEqn, var: core.Var, axis: int, softmax: Softmax) -> None:
    contracted, _ = eqn.params["dimension_numbers"]
    side = 0 if eqn.invars[0] is var else 1
    if axis in contracted[side] or len(contracted[side]) != 1 or eqn.invars[1 - side] is var:
        return
    fail(
        "attention",
        f"the softmax of the attention at {place(softmax.exp)} is taken along the queries (axis {softmax.axes[0]} of "
        f"{list(jaxprs.shape(softmax.x))}), and its weights are summed along the keys ({place(eqn)}): those of a query "
        "do not sum to one",
        "the axis of the softmax: that of the keys, over which the values are summed, often -1",
        [place(softmax.exp)],
    )
