"""Members of an ensemble that are one, and running statistics that are those of the last batch."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from lapwing import check
from lapwing.check import CheckError, CheckInputError
from lapwing.check._running import check_running

KEY = jax.random.key(0)
X = jax.random.normal(jax.random.key(1), (8, 3))
KEYS = jax.random.split(KEY, 4)
ONE = jnp.stack([KEY] * 4)


def member(key: jax.Array) -> Any:
    k1, k2 = jax.random.split(key)
    return {"w": jax.random.normal(k1, (3, 6)), "b": jnp.zeros(6), "out": jax.random.normal(k2, (6, 2))}


def answers(members: Any, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda p: jnp.tanh(x @ p["w"] + p["b"]) @ p["out"])(members)


def of(
    params: Any, loss: Any = lambda p, b: jnp.mean((answers(p, b["x"]) - 1) ** 2), batch: Any = None
) -> Any:
    return check.symmetry(eqx.filter_grad(loss), params, batch or {"x": X})


def on_a_trunk(params: Any, batch: Any) -> Any:
    return jnp.mean((answers(params["heads"], batch["x"] @ params["trunk"]) - 1) ** 2)


@pytest.mark.parametrize(
    ("params", "loss"),
    [
        (jax.vmap(member)(ONE), None),
        ({"trunk": jnp.eye(3), "heads": jax.vmap(member)(ONE)}, on_a_trunk),
        (jax.tree.map(lambda leaf: jnp.tile(leaf[None], (3,) + (1,) * leaf.ndim), member(KEY)), None),
        (
            eqx.filter_vmap(lambda key: eqx.nn.MLP(3, 2, 4, 1, key=key))(ONE),
            lambda p, b: jnp.mean(eqx.filter_vmap(lambda model: jax.vmap(model)(b["x"]))(p) ** 2),
        ),
    ],
    ids=["one key", "heads on a trunk", "tiled", "equinox"],
)
def test_members_that_are_equal_are_found(params: Any, loss: Any):
    with pytest.raises(
        CheckError, match=r"the \d members that are stacked in params.* are equal, and so are their"
    ):
        of(params, *([loss] if loss else []))


def test_members_that_differ_are_not():
    with pytest.raises(CheckInputError, match="no parameters are stacked"):
        of(jax.vmap(member)(KEYS))
    constant = {"w": jnp.zeros((4, 3, 6)), "b": jnp.zeros((4, 6)), "out": jnp.ones((4, 6, 2))}
    with pytest.raises(CheckInputError, match="no parameters are stacked"):
        of(constant)


def test_members_with_examples_of_their_own_are_not():
    """Copies, one for each device, or members that see different data."""
    apart = {"x": jax.random.normal(KEY, (4, 8, 3))}
    loss = lambda p, b: jnp.mean(jax.vmap(lambda q, x: answers(q, x))(p, b["x"]) ** 2)  # noqa: E731
    of(jax.vmap(member)(ONE), lambda p, b: loss(jax.tree.map(lambda leaf: leaf[:, None], p), b), apart)


def test_layers_that_start_equal_and_have_different_gradients_are_not():
    layers = {"w": jnp.stack([jax.random.normal(KEY, (3, 3))] * 4), "b": jnp.zeros((4, 3))}

    def loss(params: Any, batch: Any) -> Any:
        return jnp.mean(
            jax.lax.scan(lambda h, p: (jnp.tanh(h @ p["w"] + p["b"]), None), batch["x"], params)[0] ** 2
        )

    assert "gradients that differ" in of(layers, loss).message


BATCHES = [jax.random.normal(key, (8, 3)) + number for number, key in enumerate(jax.random.split(KEY, 6))]
START = {"norm": {"mean": jnp.zeros(3), "var": jnp.ones(3)}}


def average(keep: float) -> Any:
    def step(state: Any, x: Any) -> Any:
        own = {"mean": x.mean(0), "var": x.var(0)}
        return {"norm": jax.tree.map(lambda old, new: keep * old + (1 - keep) * new, state["norm"], own)}

    return step


def added(state: Any, x: Any) -> Any:
    """The momentum is the wrong way round in a formula that adds a difference, and a count beside it is none."""
    return {"running": state["running"] + 0.95 * (x.mean(0) - state["running"]), "count": state["count"] + 1}


@pytest.mark.parametrize(
    ("step", "state", "left"),
    [
        (average(0.1), START, "10%"),
        (average(0.01), START, "1%"),
        (added, {"running": jnp.zeros(3), "count": jnp.zeros(())}, "5%"),
        (lambda s, x: (0.2 * s[0] + 0.8 * x.mean(0), s[1] + 1), (jnp.zeros(3), jnp.zeros((), int)), "20%"),
    ],
    ids=["momentum", "less", "difference", "no names"],
)
def test_an_average_that_forgets_at_once_is_found(step: Any, state: Any, left: str):
    with pytest.raises(CheckError, match=f"keep {left} of what they were in each batch"):
        check_running(step, state, BATCHES)


def counted(state: Any, x: Any) -> Any:
    """The mean of all examples so far."""
    count = state["count"] + len(x)
    return {"mean": state["mean"] + (x.sum(0) - len(x) * state["mean"]) / count, "count": count}


def begun(state: Any, x: Any) -> Any:
    """The first batch sets the statistics."""
    own = x.mean(0)
    return {"mean": jnp.where(state["n"] == 0, own, 0.9 * state["mean"] + 0.1 * own), "n": state["n"] + 1}


def power(state: Any, x: Any) -> Any:
    """A power iteration, in a collection that is called statistics."""
    w = jnp.arange(9.0).reshape(3, 3)
    u = w @ state["batch_stats"]["u"]
    return {"batch_stats": {"u": u / jnp.linalg.norm(u)}}


@pytest.mark.parametrize(
    ("step", "state"),
    [
        (average(0.9), START),
        (average(0.99), START),
        (counted, {"mean": jnp.zeros(3), "count": jnp.asarray(1e-4)}),
        (begun, {"mean": jnp.zeros(3), "n": jnp.zeros((), int)}),
        (power, {"batch_stats": {"u": jnp.ones(3)}}),
        (lambda s, x: {"last_mean": x.mean(0)}, {"last_mean": jnp.zeros(3)}),
        (lambda s, x: {"hidden": 0.2 * s["hidden"] + x}, {"hidden": jnp.zeros((8, 3))}),
        (lambda s, x: (0.2 * s[0] + x,), (jnp.zeros((8, 3)),)),
    ],
    ids=["momentum", "more", "all", "first", "power", "last", "hidden", "hidden without a name"],
)
def test_an_average_of_many_batches_is_not(step: Any, state: Any):
    check_running(step, state, BATCHES)
