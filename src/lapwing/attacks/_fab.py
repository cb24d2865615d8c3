"""The fast adaptive boundary attack (Croce & Hein 2020, "Minimally distorted adversarial examples").

It looks for the nearest misclassified point, not for the highest loss in a ball, and does not depend on the scale of
the scores. Each step replaces the boundary to another class by its tangent plane, and moves to the plane's nearest
point inside the box, seen from the present point and, with a smaller weight, from the image. A misclassified point is
pulled back towards the image, across the boundary.

The nearest point of a plane inside a box moves pixels in proportion to `speed` (1 for L∞, the slope for L2) until each
reaches the wall, so that the distance covered is a concave, piecewise linear function of time. Newton's method finds
where it is long enough from below, exactly and in a few steps, without the sort of the papers. For L1 the pixels of the
steepest slopes go to the wall first.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._attack import AttackError, AttackResult, Images, Keys, Predict, Radius
from ._losses import Labels, targets_of
from ._norms import L1, Linf, Norm, NormName, flat, norm_of, per_example
from ._search import Problem, Round, choose, search

Rows = Float[Array, "examples values"]

_TOWARDS_IMAGE = 0.1  # Largest weight of the step that is seen from the image.
_BEYOND = 1.05  # Steps go beyond the plane by this factor.
_BACK = 0.9  # A misclassified point keeps this share of its perturbation.
_MOST = 50  # Newton's steps; it has needed no more than 12.
_FLAT = 1e-8  # A slope below this moves no pixel.


def fab_targeted(
    predict: Predict,
    images: Images,
    labels: Labels,
    key: Keys,
    *,
    eps: Radius = 0.3,
    norm: NormName | Norm = "linf",
    targets: int = 9,
    steps: int = 100,
    restarts: int = 1,
    box: tuple[float, float] = (0.0, 1.0),
) -> AttackResult:
    """The fast adaptive boundary attack on a batch, in one computation, towards each of the `targets` likeliest other
    classes. It ends for an example as soon as a misclassified point within `eps` is found.

    >>> scores = lambda x: jnp.stack([x[:, 0], x[:, 1]], axis=1)
    >>> images, labels = jnp.array([[0.6, 0.5], [0.9, 0.1]]), jnp.array([0, 0])
    >>> fab_targeted(scores, images, labels, jax.random.key(0), eps=0.2, targets=1, steps=10).fooled.tolist()
    [True, False]
    """
    return search(Fab(norm_of(norm), targets, steps, restarts), predict, images, labels, key, eps, box)


@dataclass(frozen=True)
class Fab:
    """The search: a round for each target class and restart. Without targets, each step goes towards the nearest of all
    tangent planes, which takes a gradient for each class."""

    norm: Norm
    targets: int = 9
    steps: int = 100
    restarts: int = 1

    def __post_init__(self) -> None:
        for name, least in (("targets", 0), ("steps", 1), ("restarts", 1)):
            if getattr(self, name) < least:
                raise AttackError(f"fab: {name} should be at least {least}, but is {getattr(self, name)}")

    @property
    def rounds(self) -> int:
        return max(1, self.targets) * self.restarts

    def attempt(self, problem: Problem, number: Round, before: Images) -> tuple[Images, Int[Array, ""]]:
        targets = None
        if self.targets:
            scores = problem.scores(problem.images, problem.keys)
            targets = targets_of(scores, problem.labels, number // self.restarts)
        walk = _Walk(self, problem, targets)
        drawn = jax.vmap(lambda key: self.norm.sample(key, problem.images.shape[1:]))(problem.keys)
        length = per_example(jnp.maximum(self.norm.length(drawn), 1e-12), drawn)
        start = jnp.clip(problem.images + problem.eps / 2 * drawn / length, *problem.box)
        # The first of the restarts begins at the image.
        end = walk.run(jnp.where(number % self.restarts == 0, problem.images, start))
        found = jnp.where(per_example(end.distance < jnp.inf, end.point), end.nearest, end.point)
        deltas = self.norm.project(found - problem.images, problem.eps)
        # Not by way of the difference where it is near enough, which rounding may put back across the boundary.
        near = per_example(end.distance <= problem.eps, found)
        return jnp.where(near, found, jnp.clip(problem.images + deltas, *problem.box)), 3 * end.number + 1


class _Found(NamedTuple):
    """A walk after `number` steps: where it is, and the nearest misclassified point."""

    point: Images
    nearest: Images
    distance: Float[Array, " examples"]
    number: Int[Array, ""]


@dataclass(frozen=True)
class _Walk:
    search: Fab
    problem: Problem
    targets: Labels | None

    def run(self, start: Images) -> _Found:
        far = jnp.full(len(self.problem.labels), jnp.inf, start.dtype)
        return jax.lax.while_loop(
            lambda at: (at.number < self.search.steps) & ~jnp.all(at.distance <= self.problem.eps),
            self.step,
            _Found(start, start, far, jnp.int32(0)),
        )

    def step(self, at: _Found) -> _Found:
        problem, norm = self.problem, self.search.norm
        point = self.move(at.point)
        wrong = problem.fooled(problem.scores(point, problem.keys))
        distance = jnp.where(wrong, norm.length(point - problem.images), jnp.inf)
        # An example that is near enough stays as it is, so that it does not depend on how long others take.
        nearer = (distance < at.distance) & (at.distance > problem.eps)
        nearest, distance = choose(nearer, (point, distance), (at.nearest, at.distance))
        pulled = problem.images + _BACK * (point - problem.images)
        return _Found(choose(wrong, pulled, point), nearest, distance, at.number + 1)

    def move(self, point: Images) -> Images:
        """The point after a step towards the tangent plane."""
        images, box, norm = self.problem.images, self.problem.box, self.search.norm
        ahead, slope = self.plane(point)
        rows, begin, slopes = flat(point), flat(images), flat(slope)
        behind = ahead + jnp.sum(slopes * (begin - rows), axis=1)
        both = jnp.concatenate([rows, begin]), jnp.tile(slopes, (2, 1)), jnp.concatenate([ahead, behind])
        here, there = to_plane(*both, norm, box).reshape(2, *point.shape)
        near, far = (jnp.maximum(norm.length(moved), 1e-8) for moved in (here, there))
        weight = per_example(jnp.minimum(near / (near + far), _TOWARDS_IMAGE), point)
        return jnp.clip((1 - weight) * (point + _BEYOND * here) + weight * (images + _BEYOND * there), *box)

    def plane(self, point: Images) -> tuple[Float[Array, " examples"], Images]:
        """How far another class is ahead of the label, and the slope of that: of the target, or of the class whose
        tangent plane is nearest."""
        problem, labels = self.problem, self.problem.labels
        rows = jnp.arange(len(labels))

        def ahead(point: Images, others: Labels) -> tuple[Array, Array]:
            scores = problem.scores(point, problem.keys)
            is_other, is_label = (
                classes[:, None] == jnp.arange(scores.shape[1]) for classes in (others, labels)
            )
            lead = jnp.sum(scores * (is_other.astype(scores.dtype) - is_label), axis=1)
            return jnp.sum(lead), lead

        if self.targets is not None:
            slope, lead = jax.grad(ahead, has_aux=True)(point, self.targets)
            return lead, slope
        classes = jax.eval_shape(problem.scores, point, problem.keys).shape[1]
        # The other classes are numbered from that of the label on, so that no gradient is of the label itself.
        others = (labels[None] + jnp.arange(1, classes)[:, None]) % classes
        slopes, leads = jax.lax.map(lambda other: jax.grad(ahead, has_aux=True)(point, other), others)
        sizes = jax.vmap(_dual(self.search.norm))(slopes)
        nearest = jnp.argmin(jnp.abs(leads) / (sizes + 1e-12), axis=0)
        return leads[nearest, rows], slopes[nearest, rows]


def _dual(norm: Norm):
    """The length of slopes: the change of a function along the steepest direction of length 1."""
    return lambda slopes: jnp.sum(flat(slopes) * flat(norm.steepest(slopes)), axis=1)


def to_plane(
    points: Rows, slopes: Rows, offset: Float[Array, " examples"], norm: Norm, box: tuple[float, float]
) -> Rows:
    """The shortest moves, measured by `norm`, after which `offset + slopes · move` is 0 and the points are still inside
    the box. Where there is none, the moves that come closest.

    >>> half, slopes = jnp.array([[0.5, 0.5]]), jnp.array([[1.0, 3.0]])
    >>> to_plane(half, slopes, jnp.array([0.8]), norm_of("linf"), (0.0, 1.0)).round(3).tolist()
    [[-0.2..., -0.2...]]
    >>> to_plane(half, slopes, jnp.array([0.9]), norm_of("l1"), (0.0, 1.0)).round(3).tolist()
    [[-0.0, -0.3...]]
    """
    sign = jnp.where(offset >= 0, 1.0, -1.0)[:, None]
    down = sign * slopes > 0
    sizes = jnp.where(jnp.abs(slopes) > _FLAT, jnp.abs(slopes), 0.0)
    room = jnp.where(sizes > 0, jnp.where(down, points - box[0], box[1] - points), 0.0)
    if isinstance(norm, L1):
        moved = _steepest_first(sizes, room, jnp.abs(offset))
    else:
        speed = jnp.ones_like(sizes) if isinstance(norm, Linf) else sizes
        moved = jnp.minimum(_time(sizes, speed, room, jnp.abs(offset))[:, None] * speed, room)
    return jnp.where(down, -moved, moved)


def _time(sizes: Rows, speed: Rows, room: Rows, distance: Float[Array, " examples"]) -> Array:
    """The time t at which `sum(sizes * min(t * speed, room))` is `distance`, or after which it grows no more."""

    def step(carry: tuple[Array, Bool[Array, " examples"], Int[Array, ""]]) -> tuple[Array, Array, Array]:
        time, done, number = carry
        reached = time[:, None] * speed
        free = reached < room
        covered = jnp.sum(sizes * jnp.minimum(reached, room), axis=1)
        pace = jnp.sum(jnp.where(free, sizes * speed, 0.0), axis=1)
        later = time + jnp.where(pace > 0, (distance - covered) / jnp.where(pace > 0, pace, 1.0), 0.0)
        # No further pixel has reached its wall, so the function was linear up to there, and the solution is exact.
        same = jnp.sum((later[:, None] * speed < room) != free, axis=1) == 0
        return jnp.where(done, time, later), done | same, number + 1

    start = jnp.zeros_like(distance), jnp.zeros(len(distance), bool), jnp.int32(0)
    return jax.lax.while_loop(lambda at: ~jnp.all(at[1]) & (at[2] < _MOST), step, start)[0]


def _steepest_first(sizes: Rows, room: Rows, distance: Float[Array, " examples"]) -> Rows:
    """Moves along the largest slopes, each up to its wall, until the distance is covered."""
    order = jnp.argsort(-sizes, axis=1)
    slope, space = (jnp.take_along_axis(values, order, axis=1) for values in (sizes, room))
    covered = jnp.cumsum(slope * space, axis=1) - slope * space
    left = (distance[:, None] - covered) / jnp.where(slope > 0, slope, 1.0)
    moved = jnp.where(slope > 0, jnp.clip(left, 0.0, space), 0.0)
    return jnp.take_along_axis(moved, jnp.argsort(order, axis=1), axis=1)
