"""The hyperparameters in the state of an optimizer, by name.

`optax.inject_hyperparams` keeps hyperparameters as arrays in an `InjectHyperparamsState`, anywhere in the state of an
optimizer. Each is a control of the run: `lapwing set RUN b1=0.8`. One that follows a schedule of its own is not, since
the next update would overwrite it.

A hyperparameter of a group of `optax.multi_transform` has the label of the group in front (`slow.learning_rate`). A
name that is not unique then, or that Lapwing uses itself, gets a number at its end (`b1_2`).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import DictKey, GetAttrKey

Path = tuple[Any, ...]
_STATES = (optax.InjectHyperparamsState, optax.InjectStatefulHyperparamsState)


def hyperparams_by_name(
    state: optax.OptState, taken: Collection[str] = ()
) -> dict[str, tuple[Path, jax.Array]]:
    """Each hyperparameter with its path in the state; `taken` are the names that are in use.

    >>> optimizer = optax.chain(*[optax.inject_hyperparams(optax.scale)(x) for x in (0.5, 2.0)])
    >>> {name: float(value) for name, (_, value) in hyperparams_by_name(optimizer.init(jnp.zeros(2))).items()}
    {'step_size': 0.5, 'step_size_2': 2.0}
    """
    named: dict[str, tuple[Path, jax.Array]] = {}
    for path, value in _injected(state):
        name = ".".join(str(key.key) for key in path if isinstance(key, DictKey))
        number, unique = 2, name
        while unique in named or unique in taken:
            number, unique = number + 1, f"{name}_{number}"
        named[unique] = path, value
    return named


def with_hyperparams(state: optax.OptState, values: Mapping[Path, jax.Array]) -> optax.OptState:
    """The state with other values at some paths."""
    return (
        jax.tree_util.tree_map_with_path(lambda path, leaf: values.get(path, leaf), state)
        if values
        else state
    )


def _injected(state: optax.OptState, at: Path = ()) -> Iterator[tuple[Path, jax.Array]]:
    for path, node in jax.tree_util.tree_leaves_with_path(state, is_leaf=_is_injected):
        if not _is_injected(node):
            continue
        here, scheduled = (*at, *path), getattr(node, "hyperparams_states", {})
        for name, value in node.hyperparams.items():
            if name not in scheduled and jnp.ndim(value) == 0 and _is_number(value):
                yield (*here, GetAttrKey("hyperparams"), DictKey(name)), value
        yield from _injected(node.inner_state, (*here, GetAttrKey("inner_state")))


def _is_injected(node: Any) -> bool:
    return isinstance(node, _STATES)


def _is_number(value: Any) -> bool:
    kind = jnp.result_type(value)
    return jnp.issubdtype(kind, jnp.integer) or jnp.issubdtype(kind, jnp.floating)
