"""Tasks of models written with Equinox, Flax NNX or Flax Linen.

The loss takes the model where that of a plain `Task` takes parameters: `loss(model, batch)`, `loss(model, batch, key)`,
or for Equinox with `eqx.nn.State` `loss(model, batch, state, key)`. It may return the loss alone, or with a dict of
metrics. Evaluations see the model in inference mode. Everything else is an argument of `Task`.

Each function imports its library when it is called.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ._sources import positional
from ._task import Batch, Key, Metrics, ModelState, Params, Task, TaskError

Model = Any


def equinox(model: Model | Callable[[Key], Model], loss: Callable[..., Any], **fields: Any) -> Task:
    """A task of an Equinox module.

    **Arguments:**

    - `model`: a module, or a function of a key that makes one. With state, the pair that `eqx.nn.make_with_state`
      returns.
    - `loss(model, batch)`, `loss(model, batch, key)`, or with state `loss(model, batch, state, key)`, which also
      returns the next state.
    - `fields`: those of `Task`; `data` is required. `evaluate` and `predict` take the model too.

    All floating-point arrays of the module are trained.

    >>> import equinox as eqx
    >>> task = equinox(
    ...     lambda key: eqx.nn.Linear(3, 1, key=key),
    ...     lambda model, x: jnp.mean(jax.vmap(model)(x) ** 2),
    ...     data=lambda key, step: jax.random.normal(key, (8, 3)),
    ... )
    >>> sorted(leaf.shape for leaf in jax.tree.leaves(task.init(jax.random.key(0))))
    [(1,), (1, 3)]
    """
    import equinox as eqx

    made: list[Any] = []  # The parts of the model that are not trained, which are the same for every key.

    def parts(key: Key) -> tuple[Params, ModelState]:
        whole = model(key) if _makes_models(model, eqx.Module) else model
        module, state = whole if isinstance(whole, tuple) else (whole, None)
        params, static = eqx.partition(module, eqx.is_inexact_array)
        made[:] = [static]
        # A counter that starts as a Python number would be another type after the first step, which compiles again.
        return params, jax.tree.map(_strongly_typed, state)

    def combined(params: Params) -> Model:
        if not made:
            jax.eval_shape(lambda key: parts(key)[0], jax.random.key(0))
        return eqx.combine(params, made[0])

    has_state = positional(loss) == 4
    return _task(
        loss,
        fields,
        init=parts if has_state else lambda key: parts(key)[0],
        train=lambda params, state, key: combined(params),
        evaluate=lambda params, state: eqx.nn.inference_mode(combined(params)),
    )


def nnx(model: Model | Callable[[Any], Model], loss: Callable[..., Any], **fields: Any) -> Task:
    """A task of a Flax NNX module: its `Param` variables are trained, all others (statistics of batch normalization,
    random streams) are the state of the model. The loss gets the module in training mode, `evaluate` and `predict` in
    inference mode; a part that was made with a mode of its own keeps it while it trains.

    **Arguments:**

    - `model`: a module, or a function of `nnx.Rngs` that makes one.
    - `loss(model, batch)` or `loss(model, batch, key)`; what it changes in the model is kept.
    - `fields`: those of `Task`; `data` is required. `evaluate` and `predict` take the model too.

    >>> from flax import nnx as flax_nnx
    >>> task = nnx(
    ...     lambda rngs: flax_nnx.Linear(3, 1, rngs=rngs),
    ...     lambda model, x: jnp.mean(model(x) ** 2),
    ...     data=lambda key, step: jax.random.normal(key, (8, 3)),
    ... )
    >>> sorted(leaf.shape for leaf in jax.tree.leaves(task.init(jax.random.key(0))[0]))
    [(1,), (3, 1)]
    """
    from flax import nnx as flax_nnx

    made: list[Any] = []  # The graph of the module, and what its two kinds of variables are.

    def parts(key: Key) -> tuple[Params, ModelState]:
        whole = model(flax_nnx.Rngs(key)) if _makes_models(model, flax_nnx.Module) else model
        graph, params, rest = flax_nnx.split(whole, flax_nnx.Param, ...)
        made[:] = graph, *jax.tree.map(_shape_of, (params, rest))
        return flax_nnx.to_pure_dict(params), _without_keys(flax_nnx.to_pure_dict(rest))

    def merged(params: Params, state: ModelState) -> Model:
        if not made:
            jax.eval_shape(parts, jax.random.key(0))
        graph, *kinds = made
        states = [jax.tree.map(lambda leaf: leaf, kind) for kind in kinds]
        for variables, values in zip(states, (params, _with_keys(state, kinds[1])), strict=True):
            flax_nnx.replace_by_pure_dict(variables, values)
        return flax_nnx.merge(graph, *states)

    def trained(params: Params, state: ModelState) -> Model:
        module = merged(params, state)
        # A module that was made with another mode keeps it; attention is made with none, and refuses to run.
        for _, part in flax_nnx.iter_modules(module):
            for name in ("deterministic", "use_running_average"):
                if getattr(part, name, False) is None:
                    setattr(part, name, False)
        return module

    def evaluated(params: Params, state: ModelState) -> Model:
        module = merged(params, state)
        module.eval()
        return module

    return _task(
        loss,
        fields,
        init=parts,
        train=lambda params, state, key: trained(params, state),
        evaluate=evaluated,
        state_of=lambda module: _without_keys(
            flax_nnx.to_pure_dict(flax_nnx.state(module, flax_nnx.Not(flax_nnx.Param)))
        ),
    )


def linen(module: Any, loss: Callable[..., Any], example: Any, **fields: Any) -> Task:
    """A task of a Flax Linen module: its collection `params` is trained, all others are the state of the model.

    **Arguments:**

    - `loss(model, batch)` or `loss(model, batch, key)`. `model(x)` applies the module with the present variables, keeps
      what it changes, and gives it a key for dropout. An argument of the module that is called `train`, `training`,
      `deterministic` or `use_running_average` is set unless it is given.
    - `example`: an input with which the module is initialized, or a tuple of them.
    - `fields`: those of `Task`; `data` is required. `evaluate` and `predict` take the model too.

    >>> from flax import linen as flax_linen
    >>> task = linen(
    ...     flax_linen.Dense(1),
    ...     lambda model, x: jnp.mean(model(x) ** 2),
    ...     jnp.ones((1, 3)),
    ...     data=lambda key, step: jax.random.normal(key, (8, 3)),
    ... )
    >>> jax.tree.map(jnp.shape, task.init(jax.random.key(0))[0])
    {'bias': (1,), 'kernel': (3, 1)}
    """

    def init(key: Key) -> tuple[Params, ModelState]:
        inputs = example if isinstance(example, tuple) else (example,)
        rngs = dict(zip(_RNGS, jax.random.split(key, len(_RNGS)), strict=True))
        variables = dict(module.init(rngs, *inputs, **_mode(module, train=False)))
        return variables.pop("params"), variables

    return _task(
        loss,
        fields,
        init=init,
        train=lambda params, state, key: _Applied(module, params, state, key),
        evaluate=lambda params, state: _Applied(module, params, state, None),
        state_of=lambda applied: applied.state,
    )


_RNGS = ("params", "dropout")
_MODES = {"train": True, "training": True, "deterministic": False, "use_running_average": False}


def _mode(module: Any, *, train: bool) -> dict[str, bool]:
    """The arguments that say whether the module is being trained."""
    names = inspect.signature(type(module).__call__).parameters
    return {name: train == value for name, value in _MODES.items() if name in names}


class _Applied:
    """A Linen module with its variables, which calls change. Without a key, it is in inference mode."""

    def __init__(self, module: Any, params: Params, state: ModelState, key: Key | None):
        self._module, self._params, self._key = module, params, key
        self.state = state

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if "method" not in options:
            options = {**_mode(self._module, train=self._key is not None), **options}
        variables = {"params": self._params, **self.state}
        if self._key is None:
            return self._module.apply(variables, *inputs, **options)
        self._key, key = jax.random.split(self._key)
        output, changed = self._module.apply(
            variables, *inputs, rngs={"dropout": key}, mutable=list(self.state), **options
        )
        self.state = {**self.state, **changed}
        return output


def _task(
    loss: Callable[..., Any],
    fields: dict[str, Any],
    *,
    init: Callable[[Key], Any],
    train: Callable[[Params, ModelState, Key], Model],
    evaluate: Callable[[Params, ModelState], Model],
    state_of: Callable[[Model], ModelState] | None = None,
) -> Task:
    """A task whose functions take models. `state_of` reads the state of a model that changes itself; without it, the
    loss returns the next state, if it takes one."""
    count = positional(loss) or 2
    explicit = count == 4

    def run(model: Model, batch: Batch, state: ModelState, key: Any) -> tuple[Any, Metrics, ModelState]:
        more = {2: (), 3: (key,), 4: (state, key)}[count]
        value, metrics, after = _complete(loss(model, batch, *more), explicit)
        return value, metrics, state_of(model) if state_of else after

    def with_state(params: Params, batch: Batch, state: ModelState, key: Key) -> Any:
        return run(train(params, state, key), batch, state, key)

    def with_key(params: Params, batch: Batch, key: Key) -> Any:
        return run(train(params, None, key), batch, None, key)[:2]

    def plain(params: Params, batch: Batch) -> Any:
        return run(train(params, None, jnp.zeros(())), batch, None, None)[:2]

    def default_evaluation(params: Params, batch: Batch, state: ModelState = None) -> Metrics:
        value, metrics, _ = run(evaluate(params, state), batch, state, jax.random.key(0))
        return {"loss": value, **metrics}

    def on_model(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(params: Params, given: Any, *state: Any) -> Any:
            return function(
                evaluate(params, state[0] if state else None), given, *(state if explicit else ())
            )

        return called

    has_state = explicit or state_of is not None
    fields = {name: on_model(f) if name in _OF_MODELS and f else f for name, f in fields.items()}
    if fields.get("validation") is not None:
        fields.setdefault("evaluate", default_evaluation)
    chosen = with_state if has_state else with_key if count == 3 else plain
    if count not in (2, 3, 4):
        raise TaskError(f"loss should take model, batch and perhaps a key, but it takes {count} arguments")
    return Task(init=init, loss=chosen, **fields)


_OF_MODELS = ("evaluate", "predict")


def _complete(result: Any, has_state: bool) -> tuple[Any, Metrics, ModelState]:
    """Loss, metrics and state from what the loss returns, which may leave out the metrics."""
    values = result if isinstance(result, tuple) else (result,)
    *values, state = values if has_state else (*values, None)
    if len(values) == 1:
        values = [*values, {}]
    if len(values) != 2 or not isinstance(values[1], Mapping):
        expected = "(loss, metrics, state)" if has_state else "the loss, or (loss, metrics)"
        raise TaskError(f"loss should return {expected}, but returned {len(values)} values")
    return values[0], values[1], state


def _makes_models(model: Any, kind: type) -> bool:
    return callable(model) and not isinstance(model, kind | tuple)


def _shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype)


def _strongly_typed(leaf: Any) -> Any:
    return jax.lax.convert_element_type(leaf, leaf.dtype) if getattr(leaf, "weak_type", False) else leaf


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_keys(tree: Any) -> Any:
    """Random keys as plain arrays, which checkpoints hold."""
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else jnp.asarray(leaf), tree)


def _with_keys(tree: Any, like: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    kinds = jax.tree.leaves(like)
    wrapped = [
        jax.random.wrap_key_data(leaf) if _is_key(kind) else leaf
        for leaf, kind in zip(leaves, kinds, strict=True)
    ]
    return jax.tree.unflatten(structure, wrapped)
