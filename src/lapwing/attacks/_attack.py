"""Projected gradient ascent on the pixels, for a whole batch at once.

The gradient of the *sum* of the examples' losses is each example's own gradient, so one backward pass steps all images.
Steps are one compiled loop and restarts another around it: the whole attack is a single call, and can be part of a
compiled training step.

Each example has its own key, so its perturbation does not depend on the rest of the batch: one image at a time gives
the same images as all at once. Step lengths are fractions of `eps`, which may be traced: a warm-up or a curve over eps
does not recompile.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from lapwing.core import LapwingError

from ._losses import LOSSES, Labels, LossName, Scores, is_fooled
from ._norms import Norm, NormName, is_norm, norm_of

Images = Float[Array, "examples ..."]
Losses = Float[Array, " examples"]
Fooled = Bool[Array, " examples"]
Radius = Float[Array, ""] | float
Keys = Key[Array, ""] | Key[Array, " examples"]
Predict = Callable[[Images], Scores]


class AttackError(LapwingError, ValueError):
    """An attack with invalid options or inputs."""


class AttackResult(NamedTuple):
    """A batch after an attack. `loss` is what the attack maximized.

    `fooled` is about the returned images, and `fooled_after[r]` about those that would be returned after r + 1
    restarts. With `early_exit` or `keep_best` the unperturbed image counts as visited. `steps` is the number of
    gradients computed for the batch: early exits make it smaller.

    >>> scores = lambda x: jnp.stack([x[:, 0], x[:, 1]], axis=1)
    >>> found = fgsm(0.25)(scores, jnp.array([[0.5, 0.25]]), jnp.array([0]), jax.random.key(0))
    >>> found.images.tolist(), found.fooled.tolist()
    ([[0.25, 0.5]], [True])
    """

    images: Images
    deltas: Images
    loss: Losses
    fooled: Fooled
    fooled_after: Bool[Array, "restarts examples"]
    steps: Int[Array, ""]


@dataclass(frozen=True)
class Attack:
    """Searches for a perturbation of norm at most `eps` that makes a classifier wrong.

    Call it as `attack(predict, images, labels, key)`, where `predict` maps images (examples, ...) to scores (examples,
    classes). The call can be jitted.

    >>> scores = lambda x: jnp.stack([x[:, 0], x[:, 1]], axis=1)
    >>> images, labels = jnp.array([[0.6, 0.5], [0.9, 0.1]]), jnp.array([0, 0])
    >>> found = Attack(eps=0.2, steps=10)(scores, images, labels, jax.random.key(0))
    >>> found.fooled.tolist(), bool(jnp.max(jnp.abs(found.deltas)) <= 0.2 + 1e-6)
    ([True, False], True)
    """

    _part: ClassVar[str] = "attack."

    eps: float = 0.3
    """radius of the ball of perturbations"""
    norm: NormName | Norm = "linf"
    """norm of a perturbation: linf (the largest pixel), l2 or l1; in Python any `Norm`"""
    steps: int = 40
    """gradient steps per restart"""
    step_size: float = 0.0
    """length of a step as a fraction of eps; 0: 2.5 / steps"""
    random_start: bool = True
    """start at a random point of the ball instead of the image"""
    restarts: int = 1
    """number of restarts; the best result is kept"""
    loss: LossName = "cross_entropy"
    """loss to maximize: cross_entropy, margin (the best wrong score minus that of the label), or dlr (its ratio)"""
    targeted: bool = False
    """labels are the classes that the attack should reach, not those it should leave"""
    keep_best: bool = False
    """return the visited point of the highest loss, including image and start, instead of the last point"""
    early_exit: bool = False
    """a fooled example keeps its perturbation, and the attack ends when all are fooled"""
    box: tuple[float, float] = (0.0, 1.0)
    """smallest and largest valid pixel"""
    chunk: int = 0
    """images per call of the classifier, whatever the batch, so that its size does not change the bits; 0: all"""

    def __post_init__(self) -> None:
        self._check("eps", 0 <= self.eps < math.inf, "a number of at least 0")
        for name in ("steps", "restarts"):
            self._check(name, getattr(self, name) >= 1, "at least 1")
        self._check("step_size", 0 <= self.step_size < math.inf, "a fraction of eps of at least 0")
        self._check("box", self.box[0] < self.box[1], "the smallest and the largest pixel")
        self._check("chunk", self.chunk >= 0, "at least 0")
        self._check(
            "norm", is_norm(self.norm), "linf, l2, l1 or an object with the methods of lapwing.attacks.Norm"
        )
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
        images: Images,
        labels: Labels,
        key: Keys,
        *,
        eps: Radius | None = None,
        start: Images | None = None,
        loss: Callable[[Scores], Losses] | None = None,
    ) -> AttackResult:
        """Attacks a batch.

        **Arguments**

        - `key`: one key, or one for each example.
        - `eps`: replaces the attack's own radius; may be traced.
        - `start`: perturbations from which the first restart begins, projected first.
        - `loss`: what to maximize instead of the attack's own loss, a function of the scores of the batch.
        """
        if labels.shape != images.shape[:1]:
            raise AttackError(
                f"expected one label for each image, found images of shape {images.shape} and labels of shape "
                f"{labels.shape}; the first axis is the example"
            )
        radius = jnp.asarray(self.eps if eps is None else eps, images.dtype)
        keys = keys_of(key, images.shape[0])
        if self.chunk and loss is not None:
            raise AttackError(
                "a loss of the scores of the whole batch cannot be attacked in chunks; set chunk to 0"
            )
        if self.chunk:
            return self._in_chunks(predict, images, labels, keys, radius, start)
        ascent = _Ascent(self, predict, images, labels, radius, loss)
        best, rounds = ascent.init(), []

        def restart(best: _Best, number: Int[Array, ""]) -> tuple["_Best", Fooled]:
            start = self.starts(jax.vmap(jax.random.fold_in, (0, None))(keys, number), images, radius)
            best = ascent.restart(best, start)
            return best, best.fooled

        if start is not None:
            best = ascent.restart(best, self.project(start.astype(images.dtype), images, radius))
            rounds.append(best.fooled[None])
        numbers = jnp.arange(len(rounds), self.restarts)
        if len(numbers):
            best, fooled = jax.lax.scan(restart, best, numbers)
            rounds.append(fooled)
        # Clipped again: rounding in (image + delta) may leave the box by the last bit.
        attacked = jnp.clip(images + best.deltas, *self.box)
        return AttackResult(
            attacked, best.deltas, best.loss, best.fooled, jnp.concatenate(rounds), best.steps
        )

    def _in_chunks(
        self, predict: Predict, images: Images, labels: Labels, keys: Keys, eps: Radius, start: Images | None
    ) -> AttackResult:
        """The same attack on `chunk` images after another, the last of them filled up.

        How a product of matrices adds up its terms depends on their shapes. With shapes that do not depend on the
        number of images, neither do the bits of a result.
        """
        whole, count = dataclasses.replace(self, chunk=0), images.shape[0]
        chunks = -(-count // self.chunk)
        rows = jnp.arange(chunks * self.chunk).reshape(chunks, self.chunk) % count

        def one(which: Int[Array, " chunk"]) -> AttackResult:
            begin = None if start is None else start[which]
            return whole(predict, images[which], labels[which], keys[which], eps=eps, start=begin)

        found = jax.lax.map(one, rows)
        images, deltas, loss, fooled = (part.reshape(-1, *part.shape[2:])[:count] for part in found[:4])
        after = found.fooled_after.swapaxes(0, 1).reshape(self.restarts, -1)[:, :count]
        return AttackResult(images, deltas, loss, fooled, after, jnp.sum(found.steps))

    def starts(self, key: Keys, images: Images, eps: Radius | None = None) -> Images:
        """The perturbations from which restarts begin, inside the ball and the box."""
        radius = jnp.asarray(self.eps if eps is None else eps, images.dtype)
        if not self.random_start:
            return jnp.zeros_like(images)
        norm, keys = norm_of(self.norm), keys_of(key, images.shape[0])
        drawn = radius * jax.vmap(lambda key: norm.sample(key, images.shape[1:]))(keys)
        return self.project(drawn.astype(images.dtype), images, radius)

    def project(self, deltas: Images, images: Images, eps: Float[Array, ""]) -> Images:
        """Perturbations moved into the ball and the box."""
        return jnp.clip(images + norm_of(self.norm).project(deltas, eps), *self.box) - images

    def step(self, deltas: Images, gradient: Images, images: Images, eps: Float[Array, ""]) -> Images:
        """Perturbations after one step along the gradient of the loss, projected."""
        length = eps * (self.step_size or 2.5 / self.steps)
        return self.project(deltas + length * norm_of(self.norm).steepest(gradient), images, eps)


def fgsm(eps: float, **options: Any) -> Attack:
    """The fast gradient sign method: one step to the edge of the ball, from the image itself.

    >>> fgsm(0.1).steps, fgsm(0.1).step_size, fgsm(0.1).random_start
    (1, 1.0, False)
    """
    return Attack(**{"eps": eps, "steps": 1, "step_size": 1.0, "random_start": False, **options})


def fast(eps: float, **options: Any) -> Attack:
    """One step of 1.25 eps from a random start, as in "fast" adversarial training.

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


def strong(eps: float, norm: NormName | Norm = "linf", steps: int = 100, restarts: int = 50) -> Attack:
    """PGD to report robustness with: many steps and restarts, every visited point counts.

    >>> strong(0.3).early_exit
    True
    """
    return Attack(eps=eps, norm=norm, steps=steps, restarts=restarts, keep_best=True, early_exit=True)


def keys_of(key: Keys, count: int) -> Key[Array, " examples"]:
    """A key for each example: one key is split, keys for each example are returned as they are."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.wrap_key_data(key)
    return key if key.ndim else jax.random.split(key, count)


class _Best(NamedTuple):
    """The result so far."""

    deltas: Images
    loss: Losses
    fooled: Fooled
    steps: Int[Array, ""]


@dataclass(frozen=True)
class _Ascent:
    attack: Attack
    predict: Predict
    images: Images
    labels: Labels
    eps: Float[Array, ""]
    loss: Callable[[Scores], Losses] | None = None

    def init(self) -> _Best:
        """Before the first restart: every point is better than this one, unless the images themselves count."""
        count, unmoved = self.images.shape[0], jnp.zeros_like(self.images)
        lowest = jnp.full(count, -jnp.inf, self.images.dtype)
        best = _Best(unmoved, lowest, jnp.zeros(count, bool), jnp.int32(0))
        if self.attack.keep_best or self.attack.early_exit:
            _, (loss, fooled) = self.evaluate(unmoved)
            best = self.update(best, unmoved, loss, fooled)
        return best

    def restart(self, best: _Best, start: Images) -> _Best:
        attack = self.attack

        def step(carry: tuple[Images, _Best, Int[Array, ""]]) -> tuple[Images, _Best, Int[Array, ""]]:
            deltas, best, number = carry
            (_, (loss, fooled)), gradient = jax.value_and_grad(self.evaluate, has_aux=True)(deltas)
            if attack.keep_best or attack.early_exit:
                best = self.update(best, deltas, loss, fooled, only_fooled=not attack.keep_best)
            deltas = attack.step(deltas, gradient, self.images, self.eps)
            return deltas, best._replace(steps=best.steps + 1), number + 1

        first = start, best, jnp.int32(0)
        if attack.early_exit:
            end = jax.lax.while_loop(lambda at: (at[2] < attack.steps) & ~jnp.all(at[1].fooled), step, first)
        else:
            end, _ = jax.lax.scan(lambda at, _: (step(at), None), first, length=attack.steps)
        deltas, best, _ = end
        _, (loss, fooled) = self.evaluate(deltas)
        return self.update(best, deltas, loss, fooled)

    def evaluate(self, deltas: Images) -> tuple[Float[Array, ""], tuple[Losses, Fooled]]:
        """The sum of the losses, whose gradient is each example's own; the losses; and who is fooled."""
        scores = self.predict(self.images + deltas)
        loss = self.loss(scores) if self.loss else LOSSES[self.attack.loss](scores, self.labels)
        loss = -loss if self.attack.targeted else loss
        return jnp.sum(loss), (loss, is_fooled(scores, self.labels, targeted=self.attack.targeted))

    def update(
        self, best: _Best, deltas: Images, loss: Losses, fooled: Fooled, only_fooled: bool = False
    ) -> _Best:
        """The better of the best so far and a new point, for each example. With early exits a point that fools is
        better than one that does not, and is kept."""
        better = loss > best.loss
        if self.attack.early_exit:
            better = ~best.fooled & (fooled if only_fooled else fooled | better)
        chosen = better.reshape(-1, *[1] * (deltas.ndim - 1))
        return best._replace(
            deltas=jnp.where(chosen, deltas, best.deltas),
            loss=jnp.where(better, loss, best.loss),
            fooled=jnp.where(better, fooled, best.fooled),
        )
