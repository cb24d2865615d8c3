"""Signs of gradient masking: a classifier that hides its gradient looks robust to the attacks that follow it.

The usual checklist (Athalye et al. 2018, Carlini et al. 2019), each point measured on the images that are right before
any attack, and reported in one sentence: what was measured, and what an honest classifier shows. A point that is
flagged does not prove masking, and none that is flagged does not exclude it; but an accuracy under attack should not be
reported without them.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ._attack import Attack, AttackError, keys_of
from ._autoattack import AutoAttack
from ._losses import cross_entropy
from ._norms import norm_of
from ._rounds import AutoAttackResult

Predict = Callable[[Float[Array, "examples ..."]], Float[Array, "examples classes"]]

_GAP = 0.05  # Points of accuracy above which a difference is flagged, if it is two images or more.
_FLAT = 0.1  # Share of images with a flat loss above which it is flagged.
_SMALL_STEP = 0.01  # Of eps: the loss of an honest classifier rises along its gradient.
_MORE_STEPS = 4
_DRAWS = 100


@dataclass(frozen=True)
class MaskingCheck:
    """One point of the checklist: whether it is a sign of masking, in one sentence, with the numbers behind it.

    >>> print(MaskingCheck("restarts", True, "a tenth restart still finds 3 images of 100", {"found": 3.0}))
    MASKED?  a tenth restart still finds 3 images of 100
    """

    name: str
    flagged: bool
    sentence: str
    numbers: dict[str, float]

    def __str__(self) -> str:
        return f"{'MASKED?' if self.flagged else 'ok':7}  {self.sentence}"


@dataclass(frozen=True)
class _Subject:
    """What is examined: a classifier, and images that it has right."""

    predict: Predict
    images: Float[np.ndarray, "examples ..."]
    labels: Int[np.ndarray, " examples"]
    settings: AutoAttack
    key: Key[Array, ""]

    @property
    def count(self) -> int:
        return len(self.labels)

    def left(self, name: str, **changes: Any) -> int:
        """The number of images that hold against one attack alone."""
        attack = dataclasses.replace(
            self.settings, attacks=(name,), individually=False, batch_size=self.count, **changes
        )
        return int(attack(self.predict, self.images, self.labels, self.key).robust.sum())

    @functools.cached_property
    def left_by_gradient(self) -> int:
        """Against APGD-CE, which several points compare with."""
        return self.left("apgd-ce")

    def share(self, number: int) -> str:
        return f"{number / self.count:.1%}"

    def is_gap(self, more: int, fewer: int) -> bool:
        """Whether one accuracy is above another by more than chance and rounding explain."""
        return more - fewer >= 2 and (more - fewer) / self.count > _GAP


def masking_checks(
    predict: Predict,
    images: Float[Array | np.ndarray, "examples ..."],
    labels: Int[Array | np.ndarray, " examples"],
    settings: AutoAttack,
    key: Key[Array, ""],
    *,
    result: AutoAttackResult | None = None,
    examples: int = 200,
    skip: int = 0,
) -> Iterator[MaskingCheck]:
    """Measures the points of the checklist one after the other.

    **Arguments**

    - `settings`: the attack whose result is in doubt: its norm, eps and steps are used.
    - `result`: what it found for these images; without it, it is run on those that are examined.
    - `examples`: examine at most this many images, the first that are right before any attack.
    - `skip`: leave out this many points, which an interrupted evaluation has already.

    >>> from lapwing.attacks import AutoAttack
    >>> weights = jax.random.normal(jax.random.key(0), (16, 10))
    >>> images = jax.random.uniform(jax.random.key(1), (20, 4, 4, 1))
    >>> scores = lambda x: x.reshape(len(x), -1) @ weights
    >>> labels = jnp.argmax(scores(images), axis=1)
    >>> attack = AutoAttack(eps=0.05, attacks=("apgd-ce", "square"), steps=5, queries=20)
    >>> first = next(masking_checks(scores, images, labels, attack, jax.random.key(2)))
    >>> first.name, first.flagged
    ('square_after_gradients', False)
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if result is None:
        images, labels = images[:examples], labels[:examples]
        result = settings(predict, images, labels, key)
    right = np.flatnonzero(result.natural)[:examples]
    if not len(right):
        raise AttackError("no image is right before any attack, so there is nothing to examine")
    subject = _Subject(predict, images[right], labels[right], settings, key)
    for point in _POINTS[skip:]:
        yield point(subject, result)


def _square_after_gradients(subject: _Subject, result: AutoAttackResult) -> MaskingCheck:
    if "square" not in result.names:
        both = dataclasses.replace(subject.settings, attacks=("apgd-ce", "square"), batch_size=subject.count)
        result = both(subject.predict, subject.images, subject.labels, subject.key)
    number, count = result.names.index("square"), len(result.fell_to)
    held = int(((result.fell_to == -1) | (result.fell_to >= number)).sum())
    fell = int((result.fell_to == number).sum())
    flagged = fell >= 2 and fell / count > _GAP
    return MaskingCheck(
        "square_after_gradients",
        flagged,
        f"Square makes {fell} of the {held} images fall that the attacks before it left, {fell / count:.1%} of all"
        f" (flagged above {_GAP:.0%}): it follows no gradient, so it should find little that they miss.",
        {"held_before": held, "fell_to_square": fell, "share": fell / count},
    )


def _black_box(subject: _Subject, _: AutoAttackResult) -> MaskingCheck:
    black, white = subject.left("square"), subject.left_by_gradient
    return MaskingCheck(
        "black_box",
        subject.is_gap(white, black),
        f"Alone, Square (black-box) leaves {subject.share(black)} and APGD-CE (white-box) {subject.share(white)} of"
        f" {subject.count} images (flagged if Square leaves {100 * _GAP:.0f} points fewer): a gradient should help.",
        {"square": black / subject.count, "apgd_ce": white / subject.count},
    )


def _flat_loss(subject: _Subject, _: AutoAttackResult) -> MaskingCheck:
    norm, settings = norm_of(subject.settings.norm), subject.settings
    labels = jnp.asarray(subject.labels)

    @jax.jit
    def rises(images: Array) -> Array:
        def losses(at: Array) -> tuple[Array, Array]:
            each = cross_entropy(subject.predict(at), labels)
            return jnp.sum(each), each

        slopes, before = jax.grad(losses, has_aux=True)(images)
        moved = images + _SMALL_STEP * settings.eps * norm.steepest(slopes)
        return losses(jnp.clip(moved, *settings.box))[1] > before

    flat = int(np.sum(~np.asarray(rises(jnp.asarray(subject.images)))))
    return MaskingCheck(
        "flat_loss",
        flat / subject.count > _FLAT,
        f"Around {flat} of {subject.count} images the loss is flat: a step of {_SMALL_STEP:g} eps along its gradient"
        f" does not raise it (flagged above {_FLAT:.0%}), and an attack on such an image has nothing to follow.",
        {"flat": flat / subject.count},
    )


def _large_eps(subject: _Subject, _: AutoAttackResult) -> MaskingCheck:
    low, high = subject.settings.box
    # The length of a perturbation from one corner of the box to the opposite one: it reaches every image.
    everything = jnp.full((1, *subject.images.shape[1:]), high - low, jnp.float32)
    eps = float(norm_of(subject.settings.norm).length(everything)[0])
    left = subject.left("apgd-ce", eps=eps)
    return MaskingCheck(
        "large_eps",
        left >= 2 and left / subject.count > _GAP,
        f"With eps {eps:g}, which allows every image, APGD-CE leaves {subject.share(left)} of {subject.count} (flagged"
        f" above {_GAP:.0%}): it should leave none.",
        {"eps": eps, "left": left / subject.count},
    )


def _more_steps(subject: _Subject, _: AutoAttackResult) -> MaskingCheck:
    steps = subject.settings.steps
    few, many = subject.left_by_gradient, subject.left("apgd-ce", steps=_MORE_STEPS * steps)
    return MaskingCheck(
        "more_steps",
        subject.is_gap(few, many),
        f"APGD-CE leaves {subject.share(few)} of {subject.count} after {steps} steps and {subject.share(many)} after"
        f" {_MORE_STEPS * steps} (flagged if that is {100 * _GAP:.0f} points fewer): an attack that has converged gains"
        " little.",
        {"steps": few / subject.count, "more_steps": many / subject.count},
    )


def _noise(subject: _Subject, _: AutoAttackResult) -> MaskingCheck:
    settings, labels = subject.settings, jnp.asarray(subject.labels)
    images = jnp.asarray(subject.images)
    ball = Attack(eps=settings.eps, norm=settings.norm, box=settings.box)

    @jax.jit
    def holds() -> Array:
        def draw(held: Array, number: Array) -> tuple[Array, None]:
            keys = keys_of(jax.random.fold_in(subject.key, number), subject.count)
            scores = subject.predict(images + ball.starts(keys, images))
            return held & (jnp.argmax(scores, axis=1) == labels), None

        return jax.lax.scan(draw, jnp.ones(subject.count, bool), jnp.arange(_DRAWS))[0]

    noise, gradient = int(np.sum(np.asarray(holds()))), subject.left_by_gradient
    # Where neither makes an image fall, there is nothing to compare.
    flagged = noise < subject.count and gradient >= noise
    return MaskingCheck(
        "noise",
        flagged,
        f"{_DRAWS} random perturbations of this eps leave {subject.share(noise)} and APGD-CE {subject.share(gradient)}"
        f" of {subject.count} (flagged if APGD-CE leaves as many or more, and noise not all): the gradient should be"
        " far stronger than noise.",
        {"noise": noise / subject.count, "apgd_ce": gradient / subject.count},
    )


_POINTS = (_square_after_gradients, _black_box, _flat_loss, _large_eps, _more_steps, _noise)
MASKING_POINTS = len(_POINTS)
