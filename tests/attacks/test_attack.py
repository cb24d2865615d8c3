"""Attacks stay where they may be, climb, and treat each example as if it were alone."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing import check
from lapwing.attacks import Attack, AttackError, fast, fgsm, pgd
from lapwing.attacks._losses import cross_entropy
from lapwing.models import Cnn
from tests.slow import some

KEY = jax.random.key(5)
ROUNDING = 1e-6

STRUCTURES = [
    Attack(steps=3),
    Attack(steps=1, step_size=3.0, random_start=False),
    Attack(steps=3, norm="l2", step_size=0.5, restarts=2, keep_best=True),
    Attack(steps=4, loss="margin", early_exit=True, restarts=3),
    Attack(steps=3, norm="l2", loss="margin", targeted=True, keep_best=True, early_exit=True),
    Attack(steps=2, step_size=3.0, box=(-1.0, 3.0), keep_best=True, restarts=2),
]


def scores(images: jax.Array) -> jax.Array:
    """A small classifier with curves in it, which compiles at once."""
    flat = images.reshape(images.shape[0], -1)
    return jnp.stack([jnp.sin(3 * flat).sum(1), jnp.cos(5 * flat).sum(1), (flat**2).sum(1)], axis=1)


@functools.cache
def compiled(attack: Attack):
    return jax.jit(lambda x, y, key, eps: attack(scores, x, y, key, eps=eps))


def run(attack: Attack, predict, images, labels, key=KEY, **options):
    """The attack as one compiled call."""
    return jax.jit(lambda x, y, key: attack(predict, x, y, key, **options))(images, labels, key)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    attack=st.sampled_from(STRUCTURES), eps=st.sampled_from([0.0, 1e-3, 0.1, 2.0]), seed=st.integers(0, 1000)
)
def test_neither_the_ball_nor_the_box_is_left(attack: Attack, eps: float, seed: int):
    random = np.random.default_rng(seed)
    low, high = attack.box
    images = random.uniform(low, high, (4, 3, 2)).astype(np.float32)
    images[0], images[1] = low, high
    labels = random.integers(0, 3, 4)
    found = jax.device_get(compiled(attack)(images, labels, jax.random.key(seed), eps))
    assert found.images.min() >= low
    assert found.images.max() <= high
    moved = (found.images - images).reshape(4, -1)
    longest = np.abs(moved).max() if attack.norm == "linf" else np.sqrt((moved**2).sum(1)).max()
    assert longest <= eps + 4 * ROUNDING
    np.testing.assert_allclose(found.images, images + found.deltas, atol=ROUNDING)
    assert found.fooled_after.shape == (attack.restarts, 4)
    np.testing.assert_array_equal(found.fooled_after[-1], found.fooled)
    said = scores(found.images)
    wanted = np.equal(np.argmax(said, axis=1), labels) == attack.targeted
    assert (wanted == found.fooled)[_is_clear(said)].all()


def _is_clear(said: jax.Array) -> np.ndarray:
    """Where no two classes are so close that rounding may decide between them."""
    second, first = np.sort(said, axis=1)[:, -2:].T
    return first - second > 1e-4


@settings(max_examples=40, deadline=None)
@given(norm=st.sampled_from(["linf", "l2"]), eps=st.sampled_from([0.01, 0.3, 2.0]), seed=st.integers(0, 1000))
def test_the_best_is_kept(norm, eps: float, seed: int):
    """Steps far too long, which end anywhere: what is returned is never below the image or the start."""
    images, labels = jax.random.uniform(jax.random.key(seed), (4, 3, 2)), jnp.array([0, 1, 2, 0])
    unmoved, at_start, kept, last = jax.device_get(_climbs(norm)(images, labels, jax.random.key(seed), eps))
    assert (kept >= unmoved - 1e-5).all()
    assert (kept >= at_start - 1e-5).all()
    assert (kept >= last - 1e-5).all()


@functools.cache
def _climbs(norm):
    long = Attack(norm=norm, steps=3, step_size=3.0)

    def climb(images, labels, key, eps):
        keep, start = dataclasses.replace(long, keep_best=True), long.starts(key, images, eps)
        last, kept = (attack(scores, images, labels, key, eps=eps, start=start) for attack in (long, keep))
        looks = [cross_entropy(scores(x), labels) for x in (images, images + start)]
        return *looks, kept.loss, last.loss

    return jax.jit(climb)


def test_a_network_that_is_surer_than_float32_can_tell_is_attacked_all_the_same():
    """Its probability of the label rounds to 1, so the usual cross-entropy is 0, wherever the attack goes."""

    def sure(images: jax.Array) -> jax.Array:
        return 60.0 * images

    images, labels = jnp.array([[0.9, 0.1, 0.2]]), jnp.array([0])
    assert jax.nn.softmax(sure(images))[0, 0] == 1
    found = run(Attack(0.2, steps=5, keep_best=True), sure, images, labels)
    np.testing.assert_allclose(found.deltas, [[-0.2, 0.2, 0.2]], atol=1e-6)
    np.testing.assert_allclose(found.loss, np.exp(-60 * (0.7 - 0.4)) + np.exp(-60 * (0.7 - 0.3)), rtol=1e-4)


@pytest.mark.slow
def test_without_keeping_the_best_long_steps_can_end_below():
    """So the property above says something."""
    images, labels = jax.random.uniform(KEY, (9, 3, 2)), jnp.arange(9) % 3
    unmoved, _, _, last = _climbs("linf")(images, labels, KEY, 0.3)
    assert (last < unmoved).any()


@pytest.mark.parametrize(
    "attack",
    some(
        [
            pytest.param(pgd(0.1, 3), marks=pytest.mark.slow),
            pgd(0.5, 3, norm="l2", keep_best=True),
            fast(0.1),
        ],
        2,
    ),
    ids=str,
)
def test_no_example_knows_of_another(attack: Attack):
    network = Cnn.init(KEY, (8, 8, 1), width=1)
    images, keys = jax.random.uniform(KEY, (4, 8, 8, 1)), jax.random.split(KEY, 4)
    check.batch_independence(
        lambda images, labels, keys: attack(network, images, labels, keys).images,
        np.asarray(images),
        np.arange(4),
        jax.random.key_data(keys),
    )


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["linf", pytest.param("l2", marks=pytest.mark.slow)])
def test_one_image_at_a_time_gives_the_same(norm):
    attack = Attack(0.1, norm, 3, restarts=2, keep_best=True)
    call = jax.jit(lambda x, y, keys: attack(scores, x, y, keys).images)
    images, labels, keys = jax.random.uniform(KEY, (5, 3, 2)), jnp.arange(5) % 3, jax.random.split(KEY, 5)
    together = call(images, labels, KEY)
    np.testing.assert_array_equal(together, call(images, labels, keys))
    for i in range(5):
        alone = call(images[i : i + 1], labels[i : i + 1], keys[i : i + 1])
        np.testing.assert_allclose(together[i], alone[0], atol=1e-5)


@pytest.mark.slow
def test_more_steps_and_more_restarts_reach_more():
    images, labels = jax.random.uniform(KEY, (40, 3, 2)), jnp.arange(40) % 3

    def reached(**options) -> float:
        attack = Attack(**{"eps": 0.3, "keep_best": True, **options})
        return float(jnp.mean(run(attack, scores, images, labels).loss))

    few = reached(steps=2)
    assert few < reached(steps=20)
    assert few < reached(steps=2, restarts=5)


def test_fgsm_is_one_step_of_the_gradients_sign():
    images, labels = jax.random.uniform(KEY, (6, 3, 2)), jnp.arange(6) % 3
    slopes = jax.jit(jax.grad(lambda x: jnp.sum(cross_entropy(scores(x), labels))))(images)
    found = run(fgsm(0.05), scores, images, labels)
    np.testing.assert_allclose(found.images, jnp.clip(images + 0.05 * jnp.sign(slopes), 0, 1), atol=1e-6)


def linear(images: jax.Array) -> jax.Array:
    """The class is the largest of three pixels, so everybody can be fooled within 0.5."""
    return images


NEAR = jnp.array([[0.6, 0.5, 0.5], [0.4, 0.5, 0.3], [0.2, 0.3, 0.6]])
SHOWN = jnp.array([0, 1, 2])


def test_early_exit_stops_when_all_are_fooled_and_keeps_what_fooled_first():
    attack = Attack(eps=0.5, steps=50, early_exit=True)
    call = jax.jit(lambda y: attack(linear, NEAR, y, KEY))
    found = call(SHOWN)
    assert found.fooled.all()
    assert 0 < int(found.steps) < 50
    wrong = call((SHOWN + 1) % 3)
    assert int(wrong.steps) == 0
    np.testing.assert_array_equal(wrong.images, NEAR)


def test_a_target_is_reached():
    for loss in ("margin", "cross_entropy"):
        found = run(Attack(eps=0.5, steps=20, targeted=True, loss=loss), linear, NEAR, (SHOWN + 1) % 3)
        assert found.fooled.all()
        assert jnp.argmax(found.images, axis=1).tolist() == [1, 2, 0]


def test_eps_may_be_traced_and_scales_the_steps():
    attack, calls = pgd(0.3, 3), 0

    def counted(images: jax.Array) -> jax.Array:
        nonlocal calls
        calls += 1
        return linear(images)

    call = jax.jit(lambda eps: attack(counted, NEAR, SHOWN, KEY, eps=eps).images)
    for eps in (0.0, 0.01, 0.2):
        assert abs(float(jnp.abs(call(eps) - NEAR).max()) - eps) < 1e-6
    traced = calls
    call(0.1)
    assert calls == traced


def test_a_start_is_where_it_begins():
    start = jnp.full_like(NEAR, 0.02)
    found = run(Attack(eps=0.1, steps=1, step_size=1e-6), linear, NEAR, SHOWN, start=start)
    np.testing.assert_allclose(found.deltas, start, atol=1e-5)


def test_a_constant_classifier_is_not_robust():
    """All scores equal: it says 0, so it is right about zeros only."""
    found = run(pgd(0.1, 2), jnp.zeros_like, NEAR, SHOWN)
    assert found.fooled.tolist() == [False, True, True]


@pytest.mark.slow
def test_with_chunks_an_image_alone_gives_the_same_bits():
    """Of a network whose matrix products add up in another order for another number of images."""
    network = Cnn.init(jax.random.key(0), (8, 8, 1), 2)
    images = jax.random.uniform(KEY, (7, 8, 8, 1))
    labels, keys = jnp.argmax(network(images), axis=1), jax.random.split(KEY, 7)
    attack = Attack(eps=0.1, steps=6, restarts=2, keep_best=True, chunk=4)
    call = jax.jit(lambda *batch: attack(network, *batch))
    together = call(images, labels, keys)
    plain = run(dataclasses.replace(attack, chunk=0), network, images, labels, keys)
    np.testing.assert_allclose(together.images, plain.images, atol=1e-5)
    np.testing.assert_array_equal(together.fooled_after, plain.fooled_after)
    for i in range(7):
        alone = call(images[i : i + 1], labels[i : i + 1], keys[i : i + 1])
        for ours, all_of_them in zip(alone[:4], together[:4], strict=True):
            np.testing.assert_array_equal(ours[0], all_of_them[i])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"eps": -0.1}, "attack.eps should be a number of at least 0, but is -0.1"),
        ({"steps": 0}, "attack.steps should be at least 1, but is 0"),
        ({"restarts": 0}, "attack.restarts should be at least 1"),
        ({"chunk": -1}, "attack.chunk should be at least 0, but is -1"),
        (
            {"norm": "l3"},
            "attack.norm should be linf, l2, l1 or an object with the methods of lapwing.attacks.Norm, but is l3",
        ),
        ({"norm": 2}, "attack.norm should be linf, l2, l1 or an object with the methods of .*, but is 2"),
        ({"loss": "hinge"}, "attack.loss should be one of cross_entropy, margin, dlr, but is hinge"),
        ({"box": (1.0, 0.0)}, "attack.box should be the smallest and the largest pixel"),
        ({"restarts": 2, "random_start": False}, "restarts without a random start would all be the same"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, said: str):
    with pytest.raises(AttackError, match=said):
        Attack(**options)


def test_labels_that_are_not_one_for_each_image_are_refused():
    with pytest.raises(AttackError, match=r"one label for each image, found images of shape \(3, 3\)"):
        pgd(0.1)(linear, NEAR, SHOWN[:2], KEY)
