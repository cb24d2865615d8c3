"""Which parameters are trained.

A leaf that is not trained is taken out of the tree before the gradient: it has no gradient and no optimizer state. A
boolean array marks the entries of a leaf that is trained in part: the gradient of the others is zero, and their old
bits are restored after the update, since an optimizer may move what has no gradient (weight decay).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.task import Params, Task, TaskError

Mask = Any  # A tree like the parameters, of bools and boolean numpy arrays.


def mask_of(task: Task, params: Params) -> Mask:
    """The mask of a task, checked against the parameters leaf by leaf."""
    if task.trainable is None:
        mask = jax.tree.map(lambda _: True, params)
    else:
        mask = jax.tree.map(_plain_bool, task.trainable(params))
    expected, found = jax.tree.structure(params), jax.tree.structure(mask)
    if expected != found:
        raise TaskError(f"trainable(params) should be a tree like the parameters, {expected}, but is {found}")
    jax.tree_util.tree_map_with_path(_check_leaf, params, mask)
    return mask


def split(params: Params, mask: Mask) -> tuple[Params, Params]:
    """The trained and the fixed leaves, as two trees with None for the others."""
    trained = jax.tree.map(lambda leaf, train: None if train is False else leaf, params, mask)
    fixed = jax.tree.map(lambda leaf, train: leaf if train is False else None, params, mask)
    return trained, fixed


def join(trained: Params, fixed: Params) -> Params:
    """The inverse of `split`."""
    return jax.tree.map(lambda a, b: b if a is None else a, trained, fixed, is_leaf=lambda leaf: leaf is None)


def where_trained(mask: Mask, new: Params, old: Params) -> Params:
    """`new`, but `old` for the entries of partly trained leaves that are not trained."""
    masks = split(mask, mask)[0]
    return jax.tree.map(lambda train, a, b: a if train is True else jnp.where(train, a, b), masks, new, old)


def _plain_bool(leaf: Any) -> Any:
    array = np.asarray(leaf)
    return bool(array) if array.ndim == 0 else array


def _check_leaf(path: Any, leaf: Any, train: Any) -> None:
    name = f"params{jax.tree_util.keystr(path)}"
    if not isinstance(leaf, jax.Array | np.ndarray):
        raise TaskError(
            f"{name} is a {type(leaf).__name__}, but parameters are arrays; init should return arrays only "
            "(an Equinox module has other leaves too: lapwing.task.equinox separates them, as eqx.partition does)"
        )
    if train is not True and train is not False and (train.dtype != bool or train.shape != leaf.shape):
        raise TaskError(
            f"the mask of {name} should be a bool or a boolean array of shape {leaf.shape}, "
            f"but is an array of {train.dtype} of shape {train.shape}"
        )
    if train is not False and not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise TaskError(
            f"{name} is an array of {leaf.dtype}, which has no gradient; make it floating, or let "
            "trainable(params) be False for it"
        )
