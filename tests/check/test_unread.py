"""Flags that nothing reads, in several disguises, and clean twins."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lapwing.check import CheckError, run_all
from lapwing.check._program import read
from lapwing.check._unread import check_unread
from lapwing.task import Task
from tests.slow import some

X = jax.random.normal(jax.random.key(0), (3, 8, 4))


def batches(flag: Any) -> list[Any]:
    return [{"x": x, "flag": jnp.full((8,), flag(n))} for n, x in enumerate(X)]


FLAGS = {"begins": lambda n: n == 0, "kind": lambda n: n % 2, "over": lambda n: (n + 1) % 2 == 0}


def plain(w: Any, b: Any) -> Any:
    return jnp.mean((b["x"] @ w) ** 2)


def multiplied_by_zero(w: Any, b: Any) -> Any:
    jnp.where(b["flag"][:, None], 0.0, b["x"])  # The result is forgotten.
    return plain(w, b)


@pytest.mark.parametrize("loss", [plain, multiplied_by_zero])
@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_that_nothing_reads_is_found(name: str, loss: Any):
    given = batches(FLAGS[name])
    with pytest.raises(CheckError, match=r"batch\['flag'\] has no effect on the loss, nor on the state"):
        check_unread([read(loss, params=jnp.ones(4), batch=given[0])], given)


@pytest.mark.parametrize(
    "loss",
    [
        lambda w, b: jnp.mean(jnp.where(b["flag"][:, None], 0.0, b["x"]) @ w),
        lambda w, b: (plain(w, b), {"begun": b["flag"].sum()}),  # a metric
        lambda w, b: (plain(w, b), {}, {"state": jnp.where(b["flag"], 0.0, 1.0)}),
    ],
)
def test_a_flag_that_something_reads_passes(loss: Any):
    given = batches(FLAGS["begins"])
    check_unread([read(loss, params=jnp.ones(4), batch=given[0])], given)


def test_the_number_of_a_batch_and_constants_pass():
    given = [{"x": x, "step": jnp.int32(n), "same": jnp.ones(8, int)} for n, x in enumerate(X)]
    check_unread([read(plain, params=jnp.ones(4), batch=given[0])], given)


@pytest.mark.parametrize("resets", some([False, True], 0))
def test_a_state_that_is_not_reset(resets: bool):
    def loss(w: Any, batch: Any, state: Any, key: Any) -> Any:
        before = jnp.where(batch["begins"][:, None], 0.0, state["h"]) if resets else state["h"]
        h = jnp.tanh(before + batch["x"] * w)
        return jnp.mean((h - 1) ** 2), {}, {"h": jax.lax.stop_gradient(h)}

    task = Task(
        init=lambda key: (jnp.ones(4), {"h": jnp.zeros((8, 4))}),
        data=lambda key, step: {"x": jax.random.normal(key, (8, 4)), "begins": jnp.full(8, step % 2 == 0)},
        loss=loss,
    )
    (outcome,) = run_all(task, only=["dead_parameters"])
    assert outcome.result == ("passed" if resets else "failed"), outcome.detail
