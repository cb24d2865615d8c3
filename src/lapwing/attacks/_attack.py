"""Projected gradient ascent on the pixels, for a whole batch at once.

The seed's attack ran 50 images one after another, 40 steps each, since "they can't be run as a single computation".
They can: the gradient of the *sum* of the examples' losses is each example's own gradient, so one backward pass steps
all images. Steps are one compiled loop and restarts another one around it, so the whole attack is a single call, and
may itself stand inside a compiled training step.

Each example has a key of its own, which makes its perturbation independent of who else is in the batch: one image at a
time gives the same images as all at once. Distances are parts of `eps`, which may be an array: a warm-up or a curve
over eps compiles nothing again.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from lapwing.core import LapwingError

from ._geometry import Norm, project, random_in_ball, steepest
from ._losses import LOSSES, LossName, is_fooled

Predict = Callable[[jax.Array], jax.Array]


class AttackError(LapwingError, ValueError):
    """An attack that makes no sense; the sentence says what should be different."""


class Attacked(NamedTuple):
    """What an attack made of a batch. `loss` is what it made large: the higher, the closer to what the attack wants.

    `fooled` is about the images that are returned, and `fooled_after[r]` about those that would be returned after r + 1
    restarts. With `early_exit` or `keep_best` the image without any perturbation counts as a point that was seen.
    `steps` is how many gradients were computed for the batch: early exits make it smaller.
    """

    images: jax.Array
    deltas: jax.Array
    loss: jax.Array
    fooled: jax.Array
    fooled_after: jax.Array
    steps: jax.Array


@dataclass(frozen=True)
class Attack:
    """How to look for a perturbation of at most `eps` that makes a classifier wrong.

    `attack(predict, images, labels, key)` looks: `predict` gives the scores of the classes, (examples, classes), for
    images of any shape (examples, ...). One call may be jitted, and may be part of a larger computation.

    >>> scores = lambda x: jnp.stack([x[:, 0], x[:, 1]], axis=1)
    >>> images, labels = jnp.array([[0.6, 0.5], [0.9, 0.1]]), jnp.array([0, 0])
    >>> found = Attack(eps=0.2, steps=10)(scores, images, labels, jax.random.key(0))
    >>> found.fooled.tolist(), bool(jnp.max(jnp.abs(found.deltas)) <= 0.2 + 1e-6)
    ([True, False], True)
    """

    _part: ClassVar[str] = "attack."

    eps: float = 0.3
    """the largest perturbation"""
    norm: Norm = "linf"
    """how a perturbation is measured: linf, its largest pixel, or l2, the root of the sum of squares"""
    steps: int = 40
    """gradients in a restart"""
    step_size: float = 0.0
    """the length of a step as a part of eps; 0: 2.5 / steps"""
    random_start: bool = True
    """begin anywhere in the ball instead of at the image"""
    restarts: int = 1
    """how often to begin anew; what is best counts"""
    loss: LossName = "cross_entropy"
    """what rises: cross_entropy, or margin: the score of the best wrong class above that of the right one"""
    targeted: bool = False
    """the labels are what the classifier should say in the end, instead of what it should not"""
    keep_best: bool = False
    """return the point of the largest loss that was seen, image and start included, instead of the last point"""
    early_exit: bool = False
    """an example that is fooled keeps its perturbation, and when all are, the attack ends"""
    box: tuple[float, float] = (0.0, 1.0)
    """the smallest and the largest pixel"""

    def __post_init__(self) -> None:
        self._check("eps", 0 <= self.eps < math.inf, "a number of at least 0")
        for name in ("steps", "restarts"):
            self._check(name, getattr(self, name) >= 1, "at least 1")
        self._check("step_size", 0 <= self.step_size < math.inf, "a part of eps of at least 0")
        self._check("box", self.box[0] < self.box[1], "the smallest and the largest pixel")
        self._check("norm", self.norm in ("linf", "l2"), "linf or l2")
        self._check("loss", self.loss in LOSSES, f"one of {', '.join(LOSSES)}")
        if self.restarts > 1 and not self.random_start:
            raise AttackError(
                "restarts without a random start would all be the same; "
                "set random_start to true, or restarts to 1"
            )

    def _check(self, name: str, good: bool, expected: str) -> None:
        if not good:
            raise AttackError(f"{self._part}{name} should be {expected}, but is {getattr(self, name)}")

    def __call__(
        self,
        predict: Predict,
        images: jax.Array,
        labels: jax.Array,
        key: jax.Array,
        *,
        eps: jax.Array | float | None = None,
        start: jax.Array | None = None,
    ) -> Attacked:
        """Attacks a batch. `key` is one key, or one for each example. `eps`, if given, is used instead of the attack's
        own, and may be traced. `start`, if given, is where the first restart begins: perturbations, as `starts` makes
        them, which are projected first.
        """
        if labels.shape != images.shape[:1]:
            raise AttackError(
                f"expected one label for each image, found images of shape {images.shape} and labels of shape "
                f"{labels.shape}; the first axis is the example"
            )
        radius = jnp.asarray(self.eps if eps is None else eps, images.dtype)
        search = _Search(self, predict, images, labels, radius)
        best, rounds = search.begin(), []
        keys = keys_of(key, images.shape[0])

        def restart(best: _Best, number: jax.Array) -> tuple["_Best", jax.Array]:
            drawn = self.starts(jax.vmap(jax.random.fold_in, (0, None))(keys, number), images, radius)
            best = search.restart(best, drawn)
            return best, best.fooled

        if start is not None:
            best = search.restart(best, self.inside(start.astype(images.dtype), images, radius))
            rounds.append(best.fooled[None])
        numbers = jnp.arange(len(rounds), self.restarts)
        if len(numbers):
            best, fooled = jax.lax.scan(restart, best, numbers)
            rounds.append(fooled)
        # Once more by itself: adding and taking away the image again would lose the last bit of the box.
        attacked = jnp.clip(images + best.deltas, *self.box)
        return Attacked(attacked, best.deltas, best.loss, best.fooled, jnp.concatenate(rounds), best.steps)

    def starts(self, key: jax.Array, images: jax.Array, eps: jax.Array | float | None = None) -> jax.Array:
        """Where restarts begin: perturbations inside the ball and the box."""
        radius = jnp.asarray(self.eps if eps is None else eps, images.dtype)
        if not self.random_start:
            return jnp.zeros_like(images)
        keys = keys_of(key, images.shape[0])
        drawn = random_in_ball(keys, images.shape[1:], radius, self.norm).astype(images.dtype)
        return self.inside(drawn, images, radius)

    def inside(self, deltas: jax.Array, images: jax.Array, eps: jax.Array) -> jax.Array:
        """Perturbations moved into the ball and the box."""
        return project(deltas, images, eps, self.norm, self.box)

    def stepped(self, deltas: jax.Array, slopes: jax.Array, images: jax.Array, eps: jax.Array) -> jax.Array:
        """Perturbations one step on, along the slopes of the loss, and inside again."""
        stride = eps * (self.step_size or 2.5 / self.steps)
        return self.inside(deltas + stride * steepest(slopes, self.norm), images, eps)


def fgsm(eps: float, **options: Any) -> Attack:
    """The fast gradient sign method: one step to the edge of the ball, from the image itself.

    >>> fgsm(0.1).steps, fgsm(0.1).step_size, fgsm(0.1).random_start
    (1, 1.0, False)
    """
    return Attack(**{"eps": eps, "steps": 1, "step_size": 1.0, "random_start": False, **options})


def fast(eps: float, **options: Any) -> Attack:
    """One step of 1.25 eps from a random start: what "fast" adversarial training trains against.

    >>> fast(0.1).random_start
    True
    """
    return Attack(**{"eps": eps, "steps": 1, "step_size": 1.25, **options})


def pgd(eps: float, steps: int = 40, **options: Any) -> Attack:
    """Projected gradient ascent.

    >>> pgd(0.3, 100, restarts=50).restarts
    50
    """
    return Attack(**{"eps": eps, "steps": steps, **options})


def keys_of(key: jax.Array, count: int) -> jax.Array:
    """A key for each example, from one key; keys for each example stay as they are."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.wrap_key_data(key)
    return key if key.ndim else jax.random.split(key, count)


class _Best(NamedTuple):
    """What is to be returned, as far as it is known."""

    deltas: jax.Array
    loss: jax.Array
    fooled: jax.Array
    steps: jax.Array


@dataclass(frozen=True)
class _Search:
    attack: Attack
    predict: Predict
    images: jax.Array
    labels: jax.Array
    eps: jax.Array

    def begin(self) -> _Best:
        """Before the first restart: any point is better than this one, unless the images themselves count."""
        count, unmoved = self.images.shape[0], jnp.zeros_like(self.images)
        lowest = jnp.full(count, -jnp.inf, self.images.dtype)
        best = _Best(unmoved, lowest, jnp.zeros(count, bool), jnp.int32(0))
        if self.attack.keep_best or self.attack.early_exit:
            _, (loss, fooled) = self.look(unmoved)
            best = self.offer(best, unmoved, loss, fooled)
        return best

    def restart(self, best: _Best, start: jax.Array) -> _Best:
        """Climbs from `start`."""
        attack = self.attack

        def step(at: tuple[jax.Array, _Best, jax.Array]) -> tuple[jax.Array, _Best, jax.Array]:
            deltas, best, number = at
            (_, (loss, fooled)), slopes = jax.value_and_grad(self.look, has_aux=True)(deltas)
            if attack.keep_best or attack.early_exit:
                best = self.offer(best, deltas, loss, fooled, everything=attack.keep_best)
            deltas = attack.stepped(deltas, slopes, self.images, self.eps)
            return deltas, best._replace(steps=best.steps + 1), number + 1

        first = start, best, jnp.int32(0)
        if attack.early_exit:
            end = jax.lax.while_loop(lambda at: (at[2] < attack.steps) & ~jnp.all(at[1].fooled), step, first)
        else:
            end, _ = jax.lax.scan(lambda at, _: (step(at), None), first, length=attack.steps)
        deltas, best, _ = end
        _, (loss, fooled) = self.look(deltas)
        return self.offer(best, deltas, loss, fooled)

    def look(self, deltas: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """The sum of the losses, whose gradient is each example's own; and the losses, and who is fooled."""
        scores = self.predict(self.images + deltas)
        loss = LOSSES[self.attack.loss](scores, self.labels)
        loss = -loss if self.attack.targeted else loss
        return jnp.sum(loss), (loss, is_fooled(scores, self.labels, targeted=self.attack.targeted))

    def offer(
        self, best: _Best, deltas: jax.Array, loss: jax.Array, fooled: jax.Array, everything: bool = True
    ) -> _Best:
        """The better of what is best and a new point, for each example. With early exits what fools is better than
        what does not, and is kept; only such points count unless `everything` does."""
        better = loss > best.loss
        if self.attack.early_exit:
            better = ~best.fooled & (fooled | better if everything else fooled)
        chosen = better.reshape(-1, *[1] * (deltas.ndim - 1))
        return best._replace(
            deltas=jnp.where(chosen, deltas, best.deltas),
            loss=jnp.where(better, loss, best.loss),
            fooled=jnp.where(better, fooled, best.fooled),
        )


def strong(eps: float, norm: Norm = "linf", steps: int = 100, restarts: int = 50) -> Attack:
    """What robustness is reported from: many steps and restarts, and a first step that fools counts.

    >>> strong(0.3).early_exit
    True
    """
    return dataclasses.replace(
        Attack(eps=eps, norm=norm, steps=steps, restarts=restarts), keep_best=True, early_exit=True
    )
