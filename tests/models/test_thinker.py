"""The thinker: examples are independent, steps are causal, and latents, steps and cache matter."""

import dataclasses
import functools
import itertools
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.plain_thinker import PlainThinker
from lapwing.check import CheckError, batch_independence, causality, dead_parameters
from lapwing.data import Examples, SequenceProblem, cross_entropy
from lapwing.models import Thinker, ThinkerError, ThinkerSize, room_for

TASK = SequenceProblem("add", base=10, below=100)
SMALL = ThinkerSize(latents=3, steps=4, heads=2, width=16, layers=1)


@functools.cache
def examples(seed: int = 1) -> Examples:
    return jax.jit(lambda key: TASK.draw(key, 5))(jax.random.key(seed))


@functools.cache
def thinker(**changes) -> Thinker:
    size = dataclasses.replace(SMALL, **changes)
    made = jax.jit(lambda key: Thinker(size, TASK.vocabulary, TASK.inputs, TASK.outputs, key))
    return made(jax.random.key(0))


@functools.partial(jax.jit, static_argnums=3)
def answers_to(model, tokens, steps=None, most=None):
    return jax.vmap(lambda each: model(each, TASK.outputs, steps, most))(tokens)


def answers(model, steps=None):
    return answers_to(model, examples().inputs, steps)


@functools.partial(jax.jit, static_argnums=2)
def thought(model, x, steps, sees_input=None):
    return model.think(x, steps, sees_input)


@jax.jit
def read(model, x, thoughts, step):
    return model.read(x, thoughts, TASK.outputs, step)


def loss(model, examples):
    return cross_entropy(answers_to(model, examples.inputs), examples.targets)


def with_gains(model: Thinker) -> Thinker:
    """The same with gains that are not 1, which would hide that one of them is forgotten."""

    def changed(path, leaf):
        return (
            leaf * jnp.linspace(0.5, 1.5, leaf.size) if path[-1] == jax.tree_util.GetAttrKey("gain") else leaf
        )

    return jax.tree_util.tree_map_with_path(changed, model)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"layers": 2}, {"tied": True, "steps": 1}])
def test_it_has_the_numbers_of_one_that_is_written_step_by_step(changes):
    model = with_gains(thinker(**changes))
    plain = PlainThinker(model)
    ours, slopes = jax.jit(jax.value_and_grad(loss))(model, examples())

    def plain_loss(model, examples):
        logits = jax.vmap(lambda each: model(each, TASK.outputs))(examples.inputs)
        return cross_entropy(logits, examples.targets)

    theirs, plain_slopes = eqx.filter_jit(eqx.filter_value_and_grad(plain_loss))(plain, examples())
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(slopes.latents, plain_slopes.model.latents, atol=1e-6)
    if not model.size.tied:
        widen = plain_slopes.layers[0].widen.weight
        np.testing.assert_allclose(slopes.layers[0].widen, widen.T, atol=1e-6)


def test_examples_know_nothing_of_each_other():
    model = thinker()
    batch_independence(lambda tokens: answers_to(model, tokens), np.asarray(examples().inputs))


@pytest.mark.slow
def test_batch_and_sequence_swapped_would_be_found():
    """The mistake that cost the journal two weeks, planted: the batch is taken for the sequence."""
    model = Thinker(SMALL, TASK.vocabulary, 9, 9, jax.random.key(0))

    def swapped(tokens):
        return jnp.swapaxes(jax.vmap(lambda each: model(each, len(tokens)))(tokens.T), 0, 1)

    tokens = np.asarray(jax.random.randint(jax.random.key(0), (6, 5), 2, 12))
    with pytest.raises(CheckError, match="change with example"):
        batch_independence(swapped, tokens)


def test_padding_has_no_effect():
    model = thinker()
    tokens = jnp.array([[4, 5, 6, 0, 0, 0]])
    other = eqx.tree_at(lambda m: m.embedding, model, model.embedding.at[0].add(9.0))
    np.testing.assert_array_equal(answers_to(model, tokens), answers_to(other, tokens))


def test_a_step_knows_of_no_later_one():
    """Which steps see the input is a sequence; the answer after a step must not depend on later ones."""
    model = thinker()
    x = model.embed(examples().inputs[0])

    @jax.jit
    def read_at_every_step(shown):
        def one(shown):
            thoughts = model.think(x, 4, shown)
            return jax.vmap(lambda step: model.read(x, thoughts, TASK.outputs, step))(jnp.arange(4))

        return jax.vmap(one)(shown > 0)

    shown = np.array([[1, 1, 0, 1], [0, 1, 0, 0]], np.float32) - 0.5
    causality(read_at_every_step, shown, time_axis=1, cuts=3)
    with pytest.raises(CheckError, match="time 0 changes"):
        causality(lambda shown: read_at_every_step(shown)[:, ::-1], shown, time_axis=1, cuts=3)


OTHER = pytest.param({"tied": True, "hide_input_after": 1, "slots": 6}, marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, OTHER])
def test_every_parameter_has_an_effect(changes):
    batches = [examples(seed) for seed in (0, 1)]
    ignore = ["batch.inputs", "batch.targets"]
    dead_parameters(jax.jit(loss), thinker(**changes), batches, ignore=ignore)


@pytest.mark.slow
def test_what_is_said_after_fewer_steps_is_what_a_shorter_thinking_says():
    model = thinker()
    for steps in (1, 3):
        short = eqx.tree_at(lambda m: m.latents, thinker(steps=steps), model.latents)
        np.testing.assert_allclose(answers(model, steps=steps), answers(short), atol=1e-5)
    every = jax.jit(jax.vmap(lambda each: model.at_every_step(each, TASK.outputs)))(examples().inputs)
    np.testing.assert_allclose(every[:, 1], answers(model, steps=2), atol=1e-5)


def test_the_number_of_steps_varies_and_little_is_compiled():
    model, traced = thinker(), []

    def run(tokens, steps, most):
        traced.append(most)
        return answers_to(model, tokens, steps, most)

    compiled = jax.jit(run, static_argnums=2)
    told = [compiled(examples().inputs, steps, room_for(steps)) for steps in range(1, 5)]
    assert traced == [1, 2, 4]
    assert all((a != b).any() for a, b in itertools.pairwise(told))


@pytest.mark.slow
def test_with_fewer_slots_the_oldest_thoughts_are_given_up():
    """With room for two steps, what was thought in the first cannot be read any more after the third."""
    model = thinker(slots=6, hide_input_after=0)
    x = model.embed(examples().inputs[0])
    thoughts = thought(model, x, 4)
    spoilt = thoughts.at[0].add(1.0)
    np.testing.assert_array_equal(read(model, x, thoughts, 2), read(model, x, spoilt, 2))
    assert (read(model, x, thoughts, 1) != read(model, x, spoilt, 1)).any()
    roomy = thought(thinker(hide_input_after=0), x, 4)
    np.testing.assert_allclose(thoughts[:2], roomy[:2], atol=1e-6)
    assert np.abs(thoughts[3] - roomy[3]).max() > 1e-4


def test_a_hidden_input_is_not_seen_any_more():
    model = thinker(hide_input_after=1)
    x = model.embed(examples().inputs[0])
    after = thought(model, x, 4)
    np.testing.assert_allclose(after, thought(model, x, 4, jnp.array([True, True, False, False])), atol=1e-6)
    other = eqx.tree_at(lambda each: each.vectors, x, x.vectors + 1.0)
    np.testing.assert_array_equal(read(model, x, after, 3), read(model, other, after, 3))


@pytest.mark.slow
def test_half_precision_keeps_parameters_and_logits_in_full():
    model = thinker(dtype="bfloat16")
    told = answers(model)
    assert told.dtype == jnp.float32
    assert thought(model, model.embed(examples().inputs[0]), 2).dtype == jnp.bfloat16
    assert all(
        leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(jax.jit(jax.grad(loss))(model, examples()))
    )
    np.testing.assert_allclose(told, answers(thinker()), atol=0.15)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"width": 10, "heads": 3}, r"model.width should be a multiple of the heads \(3\), but is 10"),
        (
            {"slots": 4},
            r"model.slots should be a multiple of the latents \(3\), or 0 for room for all, but is 4",
        ),
        ({"steps": 0}, "model.steps should be at least 1, but is 0"),
        (
            {"hide_input_after": -1},
            "model.hide_input_after should be at least 0, so that a step sees the input, but",
        ),
        ({"width": 15, "heads": 3}, "model.width should be even, but is 15"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(changes, sentence: str):
    with pytest.raises(ThinkerError, match=sentence):
        dataclasses.replace(SMALL, **changes)


@pytest.mark.slow
def test_the_named_axes_are_true():
    """With a type checker at work, a whole answer passes and a batch in the place of an example does not."""
    script = """
import jax, jaxtyping
with jaxtyping.install_import_hook("lapwing.models", "beartype.beartype"):
    from lapwing.models import Thinker, ThinkerSize
model = Thinker(ThinkerSize(2, 2, heads=2, width=8, layers=1, slots=2), 6, 4, 3, jax.random.key(0))
print(jax.eval_shape(lambda tokens: model(tokens, 3), jax.ShapeDtypeStruct((4,), "int32")).shape)
try:
    jax.eval_shape(lambda tokens: model(tokens, 3), jax.ShapeDtypeStruct((5, 4), "int32"))
except jaxtyping.TypeCheckError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout.split("\n")[:2], done.stderr) == (["(3, 6)", "refused"], "")
