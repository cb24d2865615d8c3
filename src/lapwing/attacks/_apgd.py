"""Auto-PGD: projected gradient ascent that chooses its own step size (Croce & Hein 2020, and 2021 for L1).

For L∞, L2 and any other `Norm`, a step has momentum and its size begins at 2 eps. At checkpoints, which come ever more
often, the size is halved and the ascent returns to its best point where fewer than three quarters of the steps since
the last checkpoint raised the loss, or where the best loss has not risen and the size was not halved last time.

For L1 a step moves the pixels of the largest gradients, all by the same amount, and is projected onto the intersection
of ball and box: the L1 ball's corners are mostly outside the box, so projecting onto one after the other wastes steps.
How many pixels follows from how many the best perturbation has changed. It starts in balls of 3 and 2 eps.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ._attack import AttackError, AttackResult, Fooled, Images, Keys, Losses, Predict, Radius
from ._losses import Labels, cross_entropy, dlr, targets_of
from ._norms import L1, Norm, NormName, flat, norm_of, per_example, shrink
from ._search import Problem, Round, choose, search

ApgdLoss = Literal["ce", "dlr"]

_RISING = 0.75  # Share of the steps that must raise the loss.
_MOMENTUM = 0.75  # Share of the new step; the rest is the last one.
_BALLS = ((3.0, 0.3), (2.0, 0.3), (1.0, 0.4))  # L1: multiples of eps, and their shares of the steps.
_SPARSER = 1.5  # L1: fewer pixels than the best perturbation has, and shorter steps, by this factor.
_SHORTEST = 10.0  # L1: a step is at least eps divided by this.
_FIRST_PIXELS = 0.2  # L1: share of the pixels that a first step moves.
_STILL_SPARSER = (
    0.95  # L1: the best perturbation is becoming sparser if it changes fewer than this share of before.
)


def apgd(
    predict: Predict,
    images: Images,
    labels: Labels,
    key: Keys,
    *,
    eps: Radius = 0.3,
    norm: NormName | Norm = "linf",
    loss: ApgdLoss = "ce",
    targets: int = 0,
    steps: int = 100,
    restarts: int = 1,
    eot: int = 1,
    box: tuple[float, float] = (0.0, 1.0),
) -> AttackResult:
    """Auto-PGD on a batch, all steps and restarts in one computation, which can be jitted.

    **Arguments**

    - `key`: one key, or one for each example.
    - `eps`: radius of the ball; may be traced.
    - `loss`: ce (cross-entropy), or dlr (the difference of logits ratio).
    - `targets`: number of classes to aim at with the targeted dlr, the likeliest first; 0: no target.
    - `eot`: with a value above 1, gradients are means of this many, and `predict` is called with images and a key for
      each of them: for classifiers that are random.

    >>> scores = lambda x: jnp.stack([x[:, 0], x[:, 1]], axis=1)
    >>> images, labels = jnp.array([[0.6, 0.5], [0.9, 0.1]]), jnp.array([0, 0])
    >>> apgd(scores, images, labels, jax.random.key(0), eps=0.2, steps=10).fooled.tolist()
    [True, False]
    """
    how = Apgd(norm_of(norm), loss, targets, steps, restarts, eot, isinstance(norm_of(norm), L1))
    return search(how, predict, images, labels, key, eps, box, random=eot > 1)


@dataclass(frozen=True)
class Apgd:
    """The search: a round for each target class and restart."""

    norm: Norm
    loss: ApgdLoss = "ce"
    targets: int = 0
    steps: int = 100
    restarts: int = 1
    eot: int = 1
    larger_balls: bool = False

    def __post_init__(self) -> None:
        for name, least in (("targets", 0), ("steps", 1), ("restarts", 1), ("eot", 1)):
            if getattr(self, name) < least:
                raise AttackError(f"apgd: {name} should be at least {least}, but is {getattr(self, name)}")
        if self.loss not in ("ce", "dlr"):
            raise AttackError(f"apgd: loss should be ce or dlr, but is {self.loss}")

    @property
    def rounds(self) -> int:
        return max(1, self.targets) * self.restarts

    def attempt(self, problem: Problem, number: Round, before: Images) -> tuple[Images, Int[Array, ""]]:
        targets = None
        if self.targets:
            scores = problem.scores(problem.images, problem.keys)
            targets = targets_of(scores, problem.labels, number // self.restarts)
        start, calls = self._start(problem), jnp.int32(1)
        *larger, (_, last) = self._balls()
        for factor, steps in larger:
            wide = problem._replace(eps=problem.eps * factor)
            end = _Ascent(self, wide, targets, steps).run(start, stop=False)
            start, calls = end.best.point, calls + self.eot * (1 + end.number)
        end = _Ascent(self, problem, targets, last).run(start, stop=True)
        found = jnp.where(per_example(end.fooled, start), end.fooling, end.best.point)
        return found, calls + self.eot * (1 + end.number)

    def _balls(self) -> list[tuple[float, int]]:
        if not self.larger_balls:
            return [(1.0, self.steps)]
        shares = [math.ceil(share * self.steps) for _, share in _BALLS[:-1]]
        shares.append(max(self.steps - sum(shares), 1))
        return [(factor, steps) for (factor, _), steps in zip(_BALLS, shares, strict=True)]

    def _start(self, problem: Problem) -> Images:
        """A random point, on the surface of the ball before it is clipped to the box."""
        images, shape = problem.images, problem.images.shape[1:]
        if isinstance(self.norm, L1):
            return images + jax.vmap(lambda key: jax.random.normal(key, shape, images.dtype))(problem.keys)
        drawn = jax.vmap(lambda key: self.norm.sample(key, shape))(problem.keys).astype(images.dtype)
        length = per_example(jnp.maximum(self.norm.length(drawn), 1e-12), drawn)
        return images + problem.eps * drawn / length


class _Best(NamedTuple):
    """The visited point of the highest loss, and its gradient."""

    point: Images
    gradient: Images
    loss: Losses


class _State(NamedTuple):
    """An ascent after `number` steps: where it is and was, the best so far, and the rule's own state."""

    point: Images
    last: Images
    gradient: Images
    loss: Losses
    best: _Best
    fooling: Images
    fooled: Fooled
    rule: Any
    number: Int[Array, ""]


@dataclass(frozen=True)
class _Ascent:
    search: Apgd
    problem: Problem
    targets: Labels | None
    steps: int

    def run(self, start: Images, stop: bool) -> _State:
        """From `start`, moved into the ball; `stop`: until all examples are fooled."""
        rule = (_Sparse if isinstance(self.search.norm, L1) else _Halving)(self)
        start = rule.project(start)
        loss, fooled, gradient = self.evaluate(start, jnp.int32(0))
        state = _State(
            start, start, gradient, loss, _Best(start, gradient, loss), start, fooled, rule.init(start, loss),
            jnp.int32(0),
        )  # fmt: skip
        last = jnp.int32(self.steps)
        return jax.lax.while_loop(
            lambda at: (at.number < last) & ~(stop & jnp.all(at.fooled)),
            lambda at: self.step(rule, at),
            state,
        )

    def step(self, rule: Any, at: _State) -> _State:
        point = rule.step(at)
        loss, fooled, gradient = self.evaluate(point, at.number + 1)
        best = choose(loss > at.best.loss, _Best(point, gradient, loss), at.best)
        fooling = jnp.where(per_example(fooled & ~at.fooled, point), point, at.fooling)
        rises = loss > at.loss
        new = _State(
            point, at.point, gradient, loss, best, fooling, fooled | at.fooled, at.rule, at.number + 1
        )
        kept, back = rule.check(new, rises)
        point, gradient = choose(back, (best.point, best.gradient), (point, gradient))
        return new._replace(point=point, gradient=gradient, rule=kept)

    def evaluate(self, point: Images, number: Int[Array, ""]) -> tuple[Losses, Fooled, Images]:
        """Loss, whether fooled, and gradient; with `eot` means of several, and the last of the answers."""
        problem, eot = self.problem.with_keys(number), self.search.eot

        def looked(point: Images, draw: Int[Array, ""] | int) -> tuple[Array, tuple[Losses, Fooled]]:
            keys = problem.with_keys(draw).keys if problem.random else problem.keys
            scores = problem.scores(point, keys)
            loss = self.loss(scores)
            return jnp.sum(loss), (loss, problem.fooled(scores))

        slope = jax.value_and_grad(looked, has_aux=True)
        if eot == 1:
            (_, (loss, fooled)), gradient = slope(point, 0)
            return loss, fooled, gradient

        def draw(sums: tuple[Losses, Images], number: Int[Array, ""]) -> Any:
            (_, (loss, fooled)), gradient = slope(point, number)
            return (sums[0] + loss / eot, sums[1] + gradient / eot), fooled

        nothing = jnp.zeros(len(problem.labels), point.dtype), jnp.zeros_like(point)
        (loss, gradient), fooled = jax.lax.scan(draw, nothing, jnp.arange(eot))
        return loss, fooled[-1], gradient

    def loss(self, scores: Array) -> Losses:
        if self.targets is not None:
            return dlr(scores, self.problem.labels, self.targets)
        return (cross_entropy if self.search.loss == "ce" else dlr)(scores, self.problem.labels)


class _Halved(NamedTuple):
    """Step sizes, the steps that raised the loss since the last checkpoint, and what was so at that checkpoint."""

    size: Float[Array, " examples"]
    rises: Int[Array, " examples"]
    halved: Bool[Array, " examples"]
    best_loss: Losses


@dataclass(frozen=True)
class _Halving:
    """Steps with momentum; their size is halved at checkpoints."""

    ascent: _Ascent

    def init(self, start: Images, loss: Losses) -> _Halved:
        size = jnp.full(len(loss), 2.0, loss.dtype) * self.ascent.problem.eps
        return _Halved(size, jnp.zeros(len(loss), jnp.int32), jnp.ones(len(loss), bool), loss)

    def project(self, point: Images) -> Images:
        problem = self.ascent.problem
        deltas = self.ascent.search.norm.project(point - problem.images, problem.eps)
        return jnp.clip(problem.images + deltas, *problem.box)

    def step(self, at: _State) -> Images:
        direction = self.ascent.search.norm.steepest(at.gradient)
        ahead = self.project(at.point + per_example(at.rule.size, at.point) * direction)
        share = jnp.where(at.number == 0, 1.0, _MOMENTUM)
        return self.project(at.point + share * (ahead - at.point) + (1 - share) * (at.point - at.last))

    def check(self, at: _State, rises: Bool[Array, " examples"]) -> tuple[_Halved, Bool[Array, " examples"]]:
        """The rule's state after a step, and which examples return to their best point."""
        due, since = checkpoints(self.ascent.steps)
        rule = at.rule._replace(rises=at.rule.rises + rises)
        oscillates = rule.rises <= _RISING * jnp.asarray(since)[at.number - 1]
        stuck = ~rule.halved & (at.best.loss <= rule.best_loss)
        halve = oscillates | stuck
        checked = _Halved(
            jnp.where(halve, rule.size / 2, rule.size), jnp.zeros_like(rule.rises), halve, at.best.loss
        )
        now = jnp.asarray(due)[at.number - 1]
        return jax.tree.map(lambda new, old: jnp.where(now, new, old), checked, rule), halve & now


def checkpoints(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """For each step whether a checkpoint follows it, and the number of steps since the last one.

    >>> [int(step) + 1 for step in np.flatnonzero(checkpoints(100)[0])]
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    due, since = np.zeros(steps, bool), np.ones(steps, np.int32)
    period, shorter, shortest = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    step = period
    while step <= steps:
        due[step - 1], since[step - 1] = True, period
        period = max(period - shorter, shortest)
        step += period
    return due, since


class _Pixels(NamedTuple):
    """L1: the share of pixels to move, step sizes, and the number of pixels the best perturbation had changed."""

    share: Float[Array, " examples"]
    size: Float[Array, " examples"]
    changed: Float[Array, " examples"]


@dataclass(frozen=True)
class _Sparse:
    """L1: steps along the largest entries of the gradient."""

    ascent: _Ascent

    def init(self, start: Images, loss: Losses) -> _Pixels:
        count = math.prod(start.shape[1:])
        size = jnp.broadcast_to(self.ascent.problem.eps, loss.shape)
        if not self.ascent.search.larger_balls:
            whole = jnp.full_like(loss, count)
            return _Pixels(jnp.full_like(loss, _FIRST_PIXELS), size, whole)
        changed = self._changed(start)
        return _Pixels(changed / count / _SPARSER, size, changed)

    def project(self, point: Images) -> Images:
        problem = self.ascent.problem
        deltas = project_l1(problem.images, point - problem.images, problem.eps, problem.box)
        return jnp.clip(problem.images + deltas, *problem.box)

    def step(self, at: _State) -> Images:
        gradient = flat(at.gradient)
        sizes = jnp.abs(gradient)
        count = sizes.shape[1]
        rank = jnp.clip(((1 - at.rule.share) * count).astype(jnp.int32), 0, count - 1)
        least = jnp.take_along_axis(jnp.sort(sizes, axis=1), rank[:, None], axis=1)
        signs = jnp.where(sizes >= least, jnp.sign(gradient), 0.0)
        moved = jnp.maximum(jnp.sum(jnp.abs(signs), axis=1), 1.0)
        return self.project(at.point + ((at.rule.size / moved)[:, None] * signs).reshape(at.point.shape))

    def check(self, at: _State, rises: Bool[Array, " examples"]) -> tuple[_Pixels, Bool[Array, " examples"]]:
        period = max(int(0.04 * self.ascent.steps), 1)
        rule, eps = at.rule, self.ascent.problem.eps
        changed = self._changed(at.best.point)
        sparser = changed < _STILL_SPARSER * rule.changed
        size = jnp.where(sparser, eps, jnp.maximum(rule.size / _SPARSER, eps / _SHORTEST))
        share = changed / math.prod(at.point.shape[1:]) / _SPARSER
        now = at.number % period == 0
        checked = _Pixels(share, size, changed)
        return jax.tree.map(lambda new, old: jnp.where(now, new, old), checked, rule), sparser & now

    def _changed(self, points: Images) -> Float[Array, " examples"]:
        """The number of pixels that differ from the image's."""
        return jnp.sum(flat(points - self.ascent.problem.images) != 0, axis=1).astype(points.dtype)


def project_l1(images: Images, deltas: Images, eps: Radius, box: tuple[float, float]) -> Images:
    """The perturbations closest to `deltas` in the L1 ball that keep the images inside the box.

    >>> project_l1(jnp.array([[0.9, 0.5]]), jnp.array([[0.5, 0.4]]), 0.4, (0.0, 1.0)).round(3).tolist()
    [[0.1..., 0.3...]]
    """
    moved, rows = flat(deltas), flat(images)
    room = jnp.where(moved > 0, box[1] - rows, rows - box[0])
    sizes = shrink(jnp.abs(moved), jnp.maximum(room, 0.0), jnp.asarray(eps, deltas.dtype))
    return (jnp.sign(moved) * sizes).reshape(deltas.shape)
