"""AutoAttack: the worst case of its attacks, whatever is dropped, batched, resumed, and without compiling again."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.attacks import VERSIONS, AttackError, AutoAttack, Linf
from lapwing.attacks._rounds import _compiled
from tests.slow import some

from .test_searches import scores

KEY = jax.random.key(7)
COUNT = 11
QUICK = AutoAttack(eps=0.08, steps=6, queries=20, batch_size=4)


@functools.cache
def data() -> tuple[np.ndarray, np.ndarray]:
    images = np.asarray(jax.random.uniform(KEY, (COUNT, 4, 5)))
    labels = np.array(jnp.argmax(scores(jnp.asarray(images)), axis=1))
    labels[3] = (labels[3] + 1) % 5  # Wrong before any attack.
    return images, labels


@functools.cache
def result():
    return QUICK(scores, *data(), KEY)


def test_the_result_is_the_worst_case():
    images, labels = data()
    found = result()
    assert found.names == VERSIONS["standard"]
    assert found.fell_to[3] == -2
    assert not found.natural[3]
    assert 0 < found.robust.sum() < COUNT - 1, "some should fall, and some not"
    np.testing.assert_array_equal(found.robust, found.fell_to == -1)
    np.testing.assert_array_equal(found.robust, np.argmax(scores(found.images), axis=1) == labels)
    assert np.abs(found.images - images).max() <= QUICK.eps + 1e-6
    # Images that held are shown with a perturbation too.
    assert (np.abs(found.images - images).reshape(COUNT, -1).max(1)[found.robust] > 0).all()
    for number, share in enumerate(found.accuracy_after):
        fell = (found.fell_to >= 0) & (found.fell_to <= number)
        assert share == pytest.approx(np.mean(found.natural & ~fell))
    assert len(found.seconds) == 4


def test_dropping_changes_nothing():
    """Each attack on all images, and each on those that are left: the same images fall, with the same perturbation."""
    whole = dataclasses.replace(QUICK, individually=True)(scores, *data(), KEY)
    kept = result()
    np.testing.assert_array_equal(whole.fell_to, kept.fell_to)
    np.testing.assert_array_equal(whole.images, kept.images)
    assert whole.alone is not None
    assert kept.alone is None
    assert min(whole.alone) >= whole.accuracy_after[-1]
    assert whole.alone[0] == whole.accuracy_after[0]


def test_an_image_alone_gives_the_same_bits_with_the_same_program():
    """With `deterministic` one image fills a whole batch, so even the compiled program is the same."""
    images, labels = data()
    keys, together = jax.random.split(KEY, COUNT), result()
    compiled = _compiled._cache_size()
    for i in range(COUNT):
        alone = dataclasses.replace(QUICK, deterministic=True)(
            scores, images[i : i + 1], labels[i : i + 1], keys[i : i + 1]
        )
        np.testing.assert_array_equal(alone.images[0], together.images[i])
        assert alone.fell_to[0] == together.fell_to[i]
    assert _compiled._cache_size() == compiled


def rough(images: jax.Array) -> jax.Array:
    """The classifier with rounding errors, which no gradient shows."""
    error = jnp.sin(1e4 * jnp.sum(images, axis=(1, 2)))[:, None] * jnp.arange(5)
    return scores(images) + jax.lax.stop_gradient(0.1 * error)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["apgd-ce", "fab-t", "square"], 0))
def test_with_a_surrogate_the_classifier_decides_what_counts(name: str):
    images, labels = data()
    one = dataclasses.replace(QUICK, attacks=(name,), queries=100, steps=20)
    exact, found = one(scores, images, labels, KEY), one(scores, images, labels, KEY, surrogate=rough)
    wrong = np.argmax(scores(found.images), axis=1) != labels
    np.testing.assert_array_equal(found.robust, ~wrong)
    np.testing.assert_array_equal(found.natural, exact.natural)
    # Where only the surrogate is wrong the search goes on, so no image is lost.
    np.testing.assert_array_equal(found.robust, exact.robust)
    same = one(scores, images, labels, KEY, surrogate=lambda images: scores(images))
    np.testing.assert_array_equal(same.robust, exact.robust)


class _Counted:
    """The classifier, which counts how often it is traced."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, images: Any, *_: Any) -> Any:
        self.count += 1
        return scores(images)


def test_neither_fallen_images_nor_another_eps_compile_again():
    images, labels = data()
    calls = _Counted()
    few = dataclasses.replace(QUICK, attacks=("apgd-t",))
    few(calls, images, labels, KEY)
    traced = calls.count
    # All fall to the one, none to the other, and the last batch has another number of images.
    for eps, count in ((0.6, COUNT), (1e-4, COUNT), (0.08, 9)):
        dataclasses.replace(few, eps=eps)(calls, images[:count], labels[:count], KEY)
    assert calls.count - traced <= 3, "only the shape of the scores is looked up again"


def test_other_parameters_of_a_classifier_that_is_a_pytree_do_not_compile_again():
    images, labels = data()
    traced = []

    def scaled(scale: jax.Array, images: jax.Array) -> jax.Array:
        traced.append(scale)
        return scale * scores(images)

    attack = AutoAttack(eps=0.08, steps=4, attacks=("apgd-ce",), batch_size=4)
    first = attack(jax.tree_util.Partial(scaled, jnp.float32(1.0)), images, labels, KEY)
    before = len(traced)
    attack(jax.tree_util.Partial(scaled, jnp.float32(2.0)), images, labels, KEY)
    assert len(traced) - before <= 1
    assert first.robust.any()


def test_what_is_finished_is_not_run_again():
    images, labels = data()
    states: list[dict[str, np.ndarray]] = []
    seen: list[tuple[str, int, int]] = []
    whole = QUICK(scores, images, labels, KEY, on_attack=states.append, progress=lambda *at: seen.append(at))
    assert [int(state["done"]) for state in states] == [1, 2, 3, 4]
    for name in QUICK.names:
        done = [done for which, done, _ in seen if which == name]
        assert done == sorted(done)
        assert done[-1] == next(total for which, _, total in seen if which == name)
    again: list[str] = []
    resumed = QUICK(
        scores, images, labels, KEY, finished=states[1], progress=lambda name, *_: again.append(name)
    )
    assert {*again} <= {"fab-t", "square"}
    np.testing.assert_array_equal(resumed.images, whole.images)
    np.testing.assert_array_equal(resumed.fell_to, whole.fell_to)
    assert resumed.seconds[:2] == whole.seconds[:2]
    with pytest.raises(
        AttackError, match="the finished attacks were for other images, labels, keys or settings"
    ):
        QUICK(scores, images + 0.01, labels, KEY, finished=states[1])


@pytest.mark.slow
def test_a_random_classifier_gets_a_key_for_each_image():
    images, labels = data()

    def noisy(images: jax.Array, keys: jax.Array) -> jax.Array:
        return scores(images) + 0.1 * jax.vmap(lambda key: jax.random.normal(key, (5,)))(keys)

    attack = AutoAttack(eps=0.2, version="rand", steps=3, attacks=("apgd-dlr",), batch_size=4)
    found = attack(noisy, images, labels, KEY)
    assert found.accuracy_after[0] < np.mean(found.natural)


@pytest.mark.slow
def test_apgd_takes_any_norm_and_the_others_say_which_they_know():
    class Mine:
        length = staticmethod(Linf().length)
        project = staticmethod(Linf().project)
        steepest = staticmethod(Linf().steepest)
        sample = staticmethod(Linf().sample)

    images, labels = data()
    attack = AutoAttack(eps=0.08, norm=Mine(), attacks=("apgd-ce",), steps=6, batch_size=4)
    same = dataclasses.replace(attack, norm="linf")
    np.testing.assert_array_equal(
        attack(scores, images, labels, KEY).images, same(scores, images, labels, KEY).images
    )
    with pytest.raises(
        AttackError, match=r"fab-t knows the norms linf, l2 and l1, found .*; for other norms"
    ):
        AutoAttack(norm=Mine())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": 0.0}, "autoattack: eps should be a positive number, but is 0.0"),
        ({"norm": "l3"}, "autoattack: norm should be linf, l2, l1 or an object"),
        ({"version": "custom"}, "autoattack: version should be one of standard, plus, rand, but is custom"),
        ({"attacks": ("pgd",)}, "autoattack: attacks should be different names among apgd-ce, .*, but is"),
        ({"attacks": ()}, "autoattack: attacks should be different names"),
        ({"batch_size": 0}, "autoattack: batch_size should be at least 1, but is 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(AttackError, match=message):
        AutoAttack(**options)


def test_too_few_classes_are_said():
    with pytest.raises(
        AttackError, match="apgd-t needs at least 4 classes, found 2; leave it out of attacks"
    ):
        AutoAttack(attacks=("apgd-t",))(
            lambda x: x[:, :2], np.zeros((2, 3), np.float32), np.zeros(2, int), KEY
        )


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("version", ["standard", "plus"])
def test_all_versions_and_norms(version: Any, norm: Any):
    images, labels = data()
    eps = {"linf": 0.08, "l2": 0.25, "l1": 0.6}[norm]
    attack = AutoAttack(eps=eps, norm=norm, version=version, steps=10, queries=40, batch_size=4)
    found = attack(scores, images, labels, KEY)
    assert found.names == VERSIONS[version]
    np.testing.assert_array_equal(found.robust, np.argmax(scores(found.images), axis=1) == labels)
    assert found.robust.sum() < found.natural.sum()
