"""The attacks of AutoAttack one by one: inside ball and box, strong, and as the papers have them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.attacks import AttackError, _square, apgd, dlr, fab_targeted, pgd, square
from lapwing.attacks._apgd import checkpoints
from lapwing.attacks._norms import norm_of
from tests.slow import some

KEY = jax.random.key(5)
SHAPE = (4, 5)
EPS = {"linf": 0.08, "l2": 0.25, "l1": 0.6}
KINDS = {
    "apgd-ce": functools.partial(apgd, steps=12),
    "apgd-t": functools.partial(apgd, loss="dlr", targets=2, steps=12),
    "fab-t": functools.partial(fab_targeted, targets=2, steps=8),
    "square": functools.partial(square, queries=60),
}


def scores(images: jax.Array) -> jax.Array:
    """A small classifier of five classes, with curves in it."""
    flat = images.reshape(images.shape[0], -1)
    weights = np.random.default_rng(0).normal(0, 1, (5, flat.shape[1])).astype(np.float32)
    return jnp.sum(jnp.sin(3 * flat[:, None] * weights) + flat[:, None] * weights, axis=2)


@functools.cache
def batch() -> tuple[jax.Array, jax.Array, jax.Array]:
    images = jax.random.uniform(KEY, (6, *SHAPE)).at[0].set(0.0).at[1].set(1.0)
    return images, jnp.argmax(scores(images), axis=1), jax.random.split(KEY, 6)


@functools.cache
def found(kind: str, norm: str):
    """The attack with an eps that is traced."""
    return jax.jit(lambda x, y, key, eps: KINDS[kind](scores, x, y, key, norm=norm, eps=eps))


QUICK = [("apgd-ce", "l1"), ("apgd-t", "linf"), ("fab-t", "linf"), ("square", "linf")]
ALL = [
    pytest.param(kind, norm, marks=() if (kind, norm) in QUICK else pytest.mark.slow)
    for kind in KINDS
    for norm in EPS
]


def slow_but_linf(*rows: tuple) -> list:
    """Rows of parameters that begin with a norm; only those of L∞ are quick."""
    return [pytest.param(*row, marks=() if row[0] == "linf" else pytest.mark.slow) for row in rows]


@pytest.mark.parametrize(("kind", "norm"), some(ALL, 3, 6, 9))
def test_neither_the_ball_nor_the_box_is_left(kind: str, norm: str):
    images, labels, keys = batch()
    for eps in (EPS[norm], 5 * EPS[norm]):
        result = found(kind, norm)(images, labels, keys, eps)
        assert result.images.min() >= 0
        assert result.images.max() <= 1
        assert norm_of(norm).length(result.images - images).max() <= eps * (1 + 1e-5) + 1e-6
        np.testing.assert_array_equal(jnp.argmax(scores(result.images), axis=1) != labels, result.fooled)
        np.testing.assert_array_equal(result.fooled_after[-1], result.fooled)
    assert result.fooled.any(), "the larger ball should have misclassified images"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "norm"), ALL)
def test_an_image_alone_gives_the_same_bits(kind: str, norm: str):
    images, labels, keys = batch()
    together = found(kind, norm)(images, labels, keys, EPS[norm])
    for i in (0, 3):
        alone = found(kind, norm)(images[i : i + 1], labels[i : i + 1], keys[i : i + 1], EPS[norm])
        np.testing.assert_array_equal(alone.images[0], together.images[i])


def network(images: jax.Array) -> jax.Array:
    first = jax.random.normal(jax.random.key(0), (64, 32)) / 8
    second = jax.random.normal(jax.random.key(1), (32, 5)) / 3
    return jnp.tanh(4 * (images.reshape(images.shape[0], -1) - 0.5) @ first) @ second


@pytest.mark.slow
def test_apgd_fools_at_least_as_many_as_pgd_with_the_same_steps():
    images = jax.random.uniform(jax.random.key(2), (200, 8, 8))
    labels = jnp.argmax(network(images), axis=1)
    plain = pgd(0.02, 20, early_exit=True)
    theirs = jax.jit(lambda: plain(network, images, labels, KEY).fooled)().mean()
    ours = jax.jit(lambda: apgd(network, images, labels, KEY, eps=0.02, steps=20).fooled)().mean()
    assert 0.2 < theirs < 0.9, "the comparison says nothing"
    assert ours >= theirs


def hill(images: jax.Array) -> jax.Array:
    """Three classes; the loss of the first has its only maximum inside the ball, at (0.52, 0.47, 0.51)."""
    away = jnp.sum((images - jnp.array([0.52, 0.47, 0.51])) ** 2 * jnp.array([1.0, 9.0, 30.0]), axis=1)
    return jnp.stack([5 + away, jnp.zeros_like(away), jnp.zeros_like(away)], axis=1)


@jax.jit
def height(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The loss of one image, and its slope."""
    return jax.value_and_grad(lambda x: jax.nn.softplus(jnp.log(2.0) - hill(x[None])[0, 0]))(x)


def plain_apgd(image: np.ndarray, start: np.ndarray, eps: float, norm: str, steps: int) -> np.ndarray:
    """Algorithm 1 of Croce & Hein (2020), line by line, for one image."""

    def project(x: np.ndarray) -> np.ndarray:
        moved = x - image
        moved = np.clip(moved, -eps, eps) if norm == "linf" else moved * min(1.0, eps / np.linalg.norm(moved))
        return np.clip(image + moved, 0, 1).astype(np.float32)

    def ahead(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
        return project(x + size * (np.sign(slope) if norm == "linf" else slope / np.linalg.norm(slope)))

    size, due, since = 2 * eps, *checkpoints(steps)
    last = x = project(start)
    value, slope = height(x)
    best, best_value, best_slope = x, value, slope
    rises, halved, best_before = 0, True, best_value
    for k in range(steps):
        z, share = ahead(x, slope), 1.0 if k == 0 else 0.75
        last, x = x, project(x + share * (z - x) + (1 - share) * (x - last))
        before, (value, slope) = value, height(x)
        rises += value > before
        if value > best_value:
            best, best_value, best_slope = x, value, slope
        if due[k]:
            halve = rises <= 0.75 * since[k] or (not halved and best_value <= best_before)
            rises, halved, best_before = 0, halve, best_value
            if halve:
                size, x, slope = size / 2, best, best_slope
    return best


@pytest.mark.parametrize("norm", slow_but_linf(("linf",), ("l2",)))
def test_apgd_is_the_algorithm_of_the_paper(norm: str):
    """Both begin at the same start: the random one of the first round."""
    images, eps, steps = jnp.array([[0.45, 0.52, 0.44], [0.3, 0.6, 0.5]]), 0.25, 30
    keys = jax.random.split(KEY, 2)
    run = functools.partial(apgd, hill, labels=jnp.array([0, 0]), eps=eps, norm=norm, steps=steps)
    ours = jax.jit(run)(images=images, key=keys)
    for image, key, end in zip(images, keys, ours.images, strict=True):
        drawn = norm_of(norm).sample(jax.random.fold_in(key, 0), (3,))[None]
        start = image + eps * drawn[0] / norm_of(norm).length(drawn)
        plain = plain_apgd(np.asarray(image), np.asarray(start), eps, norm, steps)
        np.testing.assert_allclose(end, plain, atol=2e-5)


def linear(images: jax.Array) -> jax.Array:
    """Two classes; class 1 leads by a plane through points near the middle of the box."""
    weights = jnp.array(np.random.default_rng(3).normal(0, 1, images[0].size).astype(np.float32))
    lead = (images.reshape(len(images), -1) - 0.5) @ weights - 0.8
    return jnp.stack([-lead, lead], axis=1)


def _distance(norm: str) -> float:
    """From the middle of the box to the plane, whose walls are far enough away."""
    weights = np.random.default_rng(3).normal(0, 1, 16).astype(np.float32)
    return (
        0.8
        / {"linf": np.abs(weights).sum(), "l2": np.linalg.norm(weights), "l1": np.abs(weights).max()}[norm]
    )


@pytest.mark.parametrize("norm", slow_but_linf(("linf",), ("l2",), ("l1",)))
def test_fab_finds_the_distance_to_a_plane(norm: str):
    images, labels = jnp.full((1, 4, 4), 0.5), jnp.array([0])
    attack = jax.jit(
        lambda eps: fab_targeted(linear, images, labels, KEY, eps=eps, norm=norm, targets=1, steps=30).fooled[
            0
        ]
    )
    assert attack(1.02 * _distance(norm))
    assert not attack(0.98 * _distance(norm))


@pytest.mark.parametrize(("norm", "share"), slow_but_linf(("linf", 0.999), ("l2", 0.65), ("l1", 0.6)))
def test_square_climbs_to_the_top_of_a_plane(norm: str, share: float):
    """The highest margin in the ball is known; for L∞ windows of one pixel reach it, patterns only come near."""
    images, labels, eps = jnp.full((2, 4, 4), 0.5), jnp.array([0, 0]), 0.5 * _distance(norm)
    search = functools.partial(square, eps=eps, norm=norm, queries=600, positions="all")
    climb = jax.jit(lambda n: search(linear, images, labels, KEY).loss)(0)
    # Unmoved the margin is -1.6; the plane is reached at twice this eps.
    assert jnp.all(climb >= -1.6 + share * 0.8)
    assert jnp.all(climb <= -0.8 + 1e-3)


@pytest.mark.slow
def test_windows_reach_the_last_row_only_from_all_positions():
    """A margin of the last row alone: from the original's positions it stays that of the first, random stripes."""

    def last_row(images: jax.Array) -> jax.Array:
        lead = images[:, -1] @ jnp.array([1.0, -1.0, 1.0, -1.0]) - 3.0
        return jnp.stack([-lead, lead], axis=1)

    images, labels, top = jnp.full((8, 4, 4), 0.5), jnp.zeros(8, int), 2 * (0.4 - 3.0)
    search = functools.partial(square, last_row, images, labels, KEY, eps=0.1, queries=300)
    np.testing.assert_allclose(search(positions="all").loss, top, atol=1e-5)
    assert jnp.mean(search(positions="original").loss < top - 0.1) > 0.5


@pytest.mark.parametrize("norm", ["linf", pytest.param("l2", marks=pytest.mark.slow)])
def test_windows_drawn_together_are_those_drawn_alone(norm: str, monkeypatch):
    images, labels, keys = batch()
    attack = functools.partial(square, scores, images, labels, norm=norm, queries=30)

    def results():
        # A traced eps, and vmap over two of them.
        return jax.jit(jax.vmap(lambda eps: attack(keys, eps=eps)))(EPS[norm] * jnp.array([0.3, 1.0]))

    together = results()
    monkeypatch.setattr(_square, "_DRAWN", 1)
    alone = results()
    assert alone.steps.max() >= 30, "it should ask more often than windows are drawn"
    np.testing.assert_array_equal(alone.fooled, together.fooled)
    np.testing.assert_allclose(alone.images, together.images, atol=1e-6)
    monkeypatch.setattr(_square, "_DRAWN", 7)  # 30 is no multiple of it.
    np.testing.assert_allclose(results().images, alone.images, atol=1e-6)


def test_the_ratio_of_logits_depends_on_neither_scale_nor_offset():
    said, labels = jax.random.normal(KEY, (7, 5)), jnp.arange(7) % 5
    for targets in (None, (labels + 1) % 5):
        np.testing.assert_allclose(
            dlr(said, labels, targets), dlr(100 * said - 30, labels, targets), rtol=1e-3, atol=1e-5
        )
    one = np.sort(np.asarray(said[0]))[::-1]
    others = np.delete(np.asarray(said[0]), 0).max()
    np.testing.assert_allclose(dlr(said, labels)[0], (others - said[0, 0]) / (one[0] - one[2]), rtol=1e-5)


def test_what_is_wrong_is_said():
    flat = jnp.zeros((2, 3))
    with pytest.raises(
        AttackError, match=r"square needs images of the shape .*, found \(2, 3\); reshape them"
    ):
        square(hill, flat, jnp.zeros(2, int), KEY)
    with pytest.raises(AttackError, match="square: positions should be original or all, but is some"):
        square(hill, jnp.zeros((2, 3, 3)), jnp.zeros(2, int), KEY, positions="some")  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttackError, match="apgd: steps should be at least 1, but is 0"):
        apgd(hill, flat, jnp.zeros(2, int), KEY, steps=0)
    with pytest.raises(AttackError, match="expected one label for each image"):
        apgd(hill, flat, jnp.zeros(3, int), KEY)
