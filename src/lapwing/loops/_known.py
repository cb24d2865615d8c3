"""What the passes know. A loop with anything else in it runs exactly as it came.

The passes run equations in another order, for all steps at once, and linearized: for that they must know what each
means, and what its values are. An operation that somebody else defined may look at the batch it is mapped over (such
as Equinox's `unvmap_any`), a type may have another addition, a sharding in a type is lost when shapes are traced. So
this is a list of what is known, not of what is not: a new thing is left alone until somebody has thought about it.
"""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.extend.core import primitives as p
from jax.sharding import AxisType

from lapwing import jaxprs
from lapwing.jaxprs import Loop

_LISTED = frozenset(each.name for each in vars(p).values() if isinstance(each, core.Primitive))
# What jax.extend does not list, but means nothing more than its name says. Not every release of jax has all of them.
_OTHERS = frozenset(
    {
        "broadcast_to", "cholesky_update", "composite", "debug_callback", "debug_print", "empty", "expand_dims",
        "ffi_call", "geqp3", "geqrf", "io_callback", "iota_2x32_shape", "lu_pivots_to_permutation", "mulhi",
        "one_minus_square", "optimization_barrier", "ormqr", "philox2x32", "philox4x32", "platform_index",
        "pure_callback", "ragged_dot_general", "random_clone", "random_unwrap", "random_wrap", "scaled_dot",
        "scatter-sub", "split", "stack", "symmetric_product", "threefry4x32", "tile", "unstack", "zeros_like",
    }
)  # fmt: skip
_REFS = frozenset({"get", "swap"})
_KNOWN = (_LISTED | _OTHERS) - _REFS - {p.custom_vjp_call_p.name}


@functools.lru_cache(maxsize=256)
def unknown(loop: Loop) -> str | None:
    """Why the passes leave a loop alone; None where they know all that is in it.

    >>> import jax.numpy as jnp
    >>> @jax.custom_vjp
    ... def double(x):
    ...     return 2 * x
    >>> double.defvjp(lambda x: (2 * x, None), lambda _, g: (2 * g,))
    >>> step = lambda h, x: (double(h), None)
    >>> closed = jax.make_jaxpr(lambda h: jax.lax.scan(step, h, length=3))(jnp.ones(2))
    >>> unknown(jaxprs.loop_of(closed.eqns[0])[0])
    'it calls a function with a custom_vjp'
    """
    return unknown_types(loop) or unknown_operations(loop)


@functools.lru_cache(maxsize=256)
def unknown_types(loop: Loop) -> str | None:
    """The same for effects and for the types of values: nothing at all can be done with such a loop."""
    if loop.jaxpr.effects:
        return "it has side effects"
    if not isinstance(loop.length, int):
        return f"its length is {loop.length}, which is no number yet"
    return next(filter(None, map(unknown_type, {var.aval for var in _variables(loop.jaxpr)})), None)


@functools.lru_cache(maxsize=256)
def unknown_operations(loop: Loop) -> str | None:
    """The same for what is done in a step: such a loop can still be cut into segments."""
    return next(filter(None, map(_unknown_operation, jaxprs.equations(loop.jaxpr))), None)


def unknown_inputs(inputs: Any) -> bool:
    """Whether a pytree has a leaf of a type that the passes do not know, or of none that jax knows."""
    try:
        avals = [jax.typeof(leaf) for leaf in jax.tree.leaves(inputs)]
    except TypeError:
        return True
    return any(map(unknown_type, avals))


def unknown_type(aval: Any) -> str | None:
    """Why values of a type are left alone; None for arrays of numbers and random keys."""
    if type(aval) is not jax.core.ShapedArray:
        return f"it has values of type {aval}, which are not arrays"
    dtype = aval.dtype
    if dtype == jax.dtypes.float0:
        return "it has values of type float0"
    if not isinstance(dtype, np.dtype) and not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return f"it has values of the extended type {dtype}"
    if not all(isinstance(n, int) for n in aval.shape):
        return f"it has values of shape {aval.shape}, which has no numbers yet"
    if AxisType.Explicit in aval.sharding.mesh.axis_types:
        return "its types have an explicit sharding"
    if _varies(aval):
        return "its values vary over the devices of a shard_map"
    if "Device" not in str(getattr(aval, "memory_space", "Device")):
        return "it has values in the memory of the host"
    return None


def _varies(aval: Any) -> bool:
    """Inside `shard_map`; jax keeps it under another name since 0.10."""
    manual = getattr(aval, "manual_axis_type", None)
    if manual is None:
        return bool(getattr(aval, "vma", None))
    return bool(manual.varying or manual.unreduced or manual.reduced)


def _unknown_operation(eqn: core.JaxprEqn) -> str | None:
    name = eqn.primitive.name
    if eqn.primitive is p.custom_vjp_call_p:
        return "it calls a function with a custom_vjp"
    if eqn.primitive is p.cond_p and any(jnp.issubdtype(jaxprs.dtype(v), jnp.inexact) for v in eqn.outvars):
        # Mapped over its predicate after it was differentiated, a branch becomes a selection that jax cannot transpose.
        return "it holds a cond, which jax must map before it differentiates"
    if eqn.primitive is p.device_put_p and any(where is not None for where in eqn.params["devices"]):
        return "it moves values between devices"
    return None if name in _KNOWN else f"it calls {name}, which is not an operation that the passes know"


def _variables(jaxpr: core.Jaxpr) -> Iterator[core.Var]:
    yield from [*jaxpr.constvars, *jaxpr.invars]
    for eqn in jaxprs.equations(jaxpr):
        yield from eqn.outvars
        for inner in jaxprs.inner_jaxprs(eqn):
            yield from [*inner.constvars, *inner.invars]


@functools.lru_cache(maxsize=256)
def is_checkpointed(loop: Loop) -> bool:
    """Whether a step has products in `jax.checkpoint`, so that its author says what is kept of it.

    The same memory could hold the loop in segments, with a product per segment for the gradient of a weight. For an
    LSTM on a CPU that is 0.9 to 1.1 times as fast, which is no reason.
    """
    return any(eqn.primitive is p.remat_p and jaxprs.holds_products(eqn) for eqn in loop.eqns)
