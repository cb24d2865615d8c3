"""Two weeks lost to swapped axes (docs/story.md), and an attack that returns another image's perturbation."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lapwing.check import CheckError, CheckInputError, batch_independence, run_all
from lapwing.task import Task
from tests.slow import some

from .models import pgd, tokens, transformer, transformer_params

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def params():
    return transformer_params()


@pytest.mark.parametrize("causal", [True, False])
def test_swapped_axes_of_a_transformer_are_found_and_named(params, causal):
    with pytest.raises(CheckError) as caught:
        batch_independence(lambda x: transformer(params, x, swapped=True, causal=causal), tokens(6, 6))
    message = str(caught.value)
    assert "with example 0 (axis 0): an output depends on the same position of other examples" in message
    assert "so axes 0 and 1 seem to be swapped" in message


@pytest.mark.parametrize("causal", [True, False])
def test_the_transformer_with_its_axes_in_order_passes(params, causal):
    report = batch_independence(lambda x: transformer(params, x, causal=causal), tokens(6, 6))
    assert report.facts == {"examples": 6, "replaced": 6}


def test_an_attack_that_keeps_the_best_image_of_another_is_found():
    weights, images = jax.random.normal(jax.random.key(0), (3, 4)), jnp.asarray(X)
    batch_independence(lambda x: pgd(weights, x, best_outside=False), images)
    with pytest.raises(CheckError, match="something is carried from one example to the next") as caught:
        batch_independence(lambda x: pgd(weights, x, best_outside=True), images)
    assert "a best value that is initialized before the loop over examples" in str(caught.value)


def test_a_state_that_is_carried_from_example_to_example_is_found():
    def summed(x):
        return jax.lax.scan(lambda best, row: (best + row.sum(), best + row.sum()), 0.0, x)[1]

    with pytest.raises(
        CheckError, match="a later example that changes, so something is carried from one example"
    ):
        batch_independence(summed, X)


def test_batch_statistics_are_reported_as_what_they_are_in_flax():
    norm = nnx.BatchNorm(4, rngs=nnx.Rngs(0))
    model = nnx.Sequential(nnx.Linear(4, 4, rngs=nnx.Rngs(0)), norm)
    with pytest.raises(
        CheckError, match=r"the model has batch statistics at .*, which make every example depend on all"
    ):
        batch_independence(model, X)
    model.eval()
    batch_independence(model, X)
    assert np.array_equal(norm.mean[...], np.zeros(4)), "the check must leave the model as it was"


def test_batch_statistics_are_reported_as_what_they_are_in_equinox():
    model, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, axis_name="batch", mode="batch")

    class Net(eqx.Module):
        norm: eqx.nn.BatchNorm

        def __call__(self, x):
            return jax.vmap(self.norm, in_axes=(0, None), out_axes=(0, None), axis_name="batch")(x, state)[0]

    with pytest.raises(CheckError, match=r"the model has batch statistics at \.norm"):
        batch_independence(Net(model), X)


def test_an_index_off_by_one_is_found():
    with pytest.raises(CheckError, match=r"the output of example 1 changes with example 0 .* off by one"):
        batch_independence(lambda x: jnp.roll(x, 1, axis=0) * 2, X)


def test_a_mean_over_the_batch_is_found():
    with pytest.raises(
        CheckError, match="every example changes with every other, as with batch statistics or attention"
    ):
        batch_independence(lambda x: jnp.sum(x, axis=1) - jnp.mean(x), X)


def test_each_input_has_its_own_axis():
    def predict(inputs, sums):
        return inputs.sum((0, 2)) - sums

    inputs = np.random.default_rng(0).normal(size=(7, 5, 2)).astype(np.float32)
    batch_independence(predict, inputs, np.arange(5.0), batch_axis=(1, 0))
    with pytest.raises(
        CheckInputError, match=r"expected the same size along batch_axis everywhere, found \{'\[0\]': 7"
    ):
        batch_independence(predict, inputs, np.arange(5.0))


def test_what_all_examples_share_has_no_axis():
    batch_independence(lambda x, table: x @ table, X, np.eye(4, dtype=np.float32), batch_axis=(0, None))


def test_a_function_that_cannot_be_traced_is_called_as_it_is():
    batch_independence(lambda x: np.array([row.sum() if row[0] > 0 else 0.0 for row in np.asarray(x)]), X)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: batch_independence(lambda x: x, X, batch_axis=2),
            r"batch_axis=2 needs an array of 3 axes or more",
        ),
        (
            lambda: batch_independence(lambda x: x, X[:1]),
            "expected a batch of two examples or more .* found 1",
        ),
        (
            lambda: batch_independence(lambda x: x.mean(), X),
            r"out_axis=0 needs an array of 1 axes or more, but it has",
        ),
        (
            lambda: batch_independence(lambda x: x[:2], X),
            r"expected outputs for 5 examples along out_axis=0, found",
        ),
        (
            lambda: batch_independence(lambda x: x, np.ones((3, 2), int)),
            "the inputs have one value everywhere",
        ),
    ],
)
def test_what_cannot_be_checked_is_refused_in_a_sentence(call, message):
    with pytest.raises(CheckInputError, match=message):
        call()


def test_few_examples_are_drawn_from_a_large_batch():
    assert (
        batch_independence(lambda x: x, np.random.default_rng(0).normal(size=(1000, 2))).facts["replaced"]
        == 8
    )


def mixing(prepare) -> Task:
    """A classifier of sequences [batch, time, width] whose batch goes through `prepare`."""

    def data(key, step):
        k1, k2 = jax.random.split(key)
        return {"x": jax.random.normal(k1, (12, 6, 3)), "y": jax.random.normal(k2, (12,))}

    def predict(params, batch):
        return batch["x"].mean(1) @ params

    return Task(
        init=lambda key: jax.random.normal(key, (3,)),
        data=data,
        prepare=prepare,
        loss=lambda params, batch: (jnp.mean((predict(params, batch) - batch["y"]) ** 2), {}),
        predict=predict,
    )


def mixup(params, batch, key):
    k1, k2 = jax.random.split(key)
    other, share = jax.random.permutation(k1, 12), jax.random.beta(k2, 1.0, 1.0)
    return jax.tree.map(lambda leaf: share * leaf + (1 - share) * leaf[other], batch)


def cutmix(params, batch, key):
    k1, k2 = jax.random.split(key)
    other, cut = jax.random.permutation(k1, 12), jax.random.randint(k2, (), 1, 6)
    kept = jnp.arange(6)[:, None] < cut
    mixed = jnp.where(kept, batch["x"], batch["x"][other])
    return {"x": mixed, "y": cut / 6 * batch["y"] + (1 - cut / 6) * batch["y"][other]}


@pytest.mark.parametrize("prepare", some([mixup, cutmix], 1))
def test_examples_that_are_mixed_on_purpose_are_reported(prepare):
    (outcome,) = run_all(mixing(prepare), only=["batch_independence"])
    assert outcome.result == "passed"
    mixed = "prepare mixes each example with one other, drawn at random: batch['x'], batch['y']"
    assert outcome.detail.endswith(mixed)


def smoothed(axis):
    """Each entry is averaged with the one before, along time or, by mistake, along the batch; with noise."""

    def prepare(params, batch, key):
        noise = 0.1 * jax.random.normal(key, batch["x"].shape)
        return batch | {"x": (batch["x"] + jnp.roll(batch["x"], 1, axis)) / 2 + noise}

    return prepare


def attended(axis):
    def prepare(params, batch, key):
        x = jnp.swapaxes(batch["x"], 0, axis)
        x = x + 0.1 * jax.random.normal(key, x.shape)
        return batch | {"x": jnp.swapaxes(jnp.einsum("bst,tbw->sbw", jax.nn.softmax(_scores(x)), x), 0, axis)}

    return prepare


def _scores(x):
    return jnp.einsum("sbw,tbw->bst", x, x)


def shuffled(params, batch, key):
    return batch | {"x": jax.random.permutation(key, batch["x"])}


def centered(params, batch, key):
    noisy = batch["x"] * jax.random.uniform(key, (), minval=0.5)
    return batch | {"x": noisy - noisy.mean(0)}


@pytest.mark.parametrize(
    ("prepare", "message"),
    some(
        [
            (smoothed(0), "axes 0 and 1 seem to be swapped"),
            (attended(0), "axes 0 and 1 seem to be swapped"),
            (shuffled, "changes? with example"),
            (centered, "change with example"),
        ],
        0,
        2,
    ),
)
def test_other_mixtures_of_examples_in_prepare_are_found(prepare, message):
    (outcome,) = run_all(mixing(prepare), only=["batch_independence"])
    assert outcome.result == "failed"
    assert re.search(message, outcome.detail)


@pytest.mark.parametrize("prepare", some([smoothed(1), attended(1)], 0))
def test_what_prepare_mixes_along_time_passes(prepare):
    (outcome,) = run_all(mixing(prepare), only=["batch_independence"])
    assert (outcome.result, "mixes" in outcome.detail) == ("passed", False)
