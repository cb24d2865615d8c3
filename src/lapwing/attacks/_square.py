"""The Square Attack: a random search that only asks for scores (Andriushchenko et al. 2020; for L1 Croce & Hein 2021).

Each query changes a square window of the best perturbation so far, and keeps the change if the margin grows. Windows
shrink with the number of queries. As it uses no gradient, a classifier that merely hides its gradients falls to it.

For L∞ a window gets plus or minus eps. For L2 and L1 it gets a pattern of two bumps of opposite sign, and the length
that a second window gives up. Each image has windows of its own. Where they may be is an option: the code with which
published numbers were computed draws a window's first row and column from one fewer than fit, so that the last row and
column of an image are never inside one; the paper draws from all.

Windows are drawn before the queries that use them, for several queries at once, by the keys that each would use alone.
A window is a mask over the image, not a slice, so its size may change inside one compiled loop. Patterns of all sizes
are a table, padded so that a slice of it is the pattern at its place in the image.
"""

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from ._apgd import project_l1
from ._attack import AttackError, AttackResult, Fooled, Images, Keys, Losses, Predict, Radius
from ._losses import Labels, margin
from ._norms import L1, Linf, Norm, NormName, norm_of, per_example
from ._search import Problem, Round, choose, search

Image = Float[Array, "height width channels"]
Positions = Literal["original", "all"]

_SHARE = 0.8  # Of the pixels in the first windows.
_SHRINKS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # Queries after which the share is halved.
_PER_ROUND = 500
_DRAWN = 25  # Queries whose windows are drawn at once: on a GPU each draw is many small kernels.
_TINY = 1e-12


def square(
    predict: Predict,
    images: Images,
    labels: Labels,
    key: Keys,
    *,
    eps: Radius = 0.3,
    norm: NormName | Norm = "linf",
    queries: int = 5000,
    positions: Positions = "original",
    box: tuple[float, float] = (0.0, 1.0),
) -> AttackResult:
    """The Square Attack on a batch, in one computation. Images are (examples, height, width) or (examples, height,
    width, channels). `positions`: where windows may be: original (never in the last row and column) or all.

    >>> scores = lambda x: jnp.stack([x[:, 0, 0], x[:, 1, 1]], axis=1)
    >>> images = jnp.array([[[0.6, 0.5], [0.1, 0.5]], [[0.9, 0.1], [0.1, 0.1]]])
    >>> square(scores, images, jnp.array([0, 0]), jax.random.key(0), eps=0.2, queries=50).fooled.tolist()
    [True, False]
    """
    return search(Square(norm_of(norm), queries, positions), predict, images, labels, key, eps, box)


@dataclass(frozen=True)
class Square:
    """The search: rounds are shares of the queries, each of which continues the one before."""

    norm: Norm
    queries: int = 5000
    positions: Positions = "original"

    def __post_init__(self) -> None:
        if self.queries < 1:
            raise AttackError(f"square: queries should be at least 1, but is {self.queries}")
        if self.positions not in get_args(Positions):
            raise AttackError(f"square: positions should be original or all, but is {self.positions}")

    @property
    def rounds(self) -> int:
        return math.ceil(self.queries / _PER_ROUND)

    def attempt(self, problem: Problem, number: Round, before: Images) -> tuple[Images, Int[Array, ""]]:
        walk = _Walk(self, problem)
        first = walk.project(walk.with_channels(walk.first()))
        point = jnp.where(number == 0, first, before)
        end = walk.run(point, number * _PER_ROUND)
        return end.point, end.number + 1


class _Found(NamedTuple):
    """The best image after `number` queries of this round."""

    point: Images
    margin: Losses
    fooled: Fooled
    number: Int[Array, ""]


@dataclass(frozen=True)
class _Walk:
    search: Square
    problem: Problem

    def __post_init__(self) -> None:
        shape = self.problem.images.shape
        if len(shape) not in (3, 4):
            raise AttackError(
                "square needs images of the shape (examples, height, width) or (examples, height, width, channels), "
                f"found {shape}; reshape them, and undo it in the classifier, or leave square out of the attacks"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        shape = self.problem.images.shape[1:]
        return (shape[0], shape[1], shape[2]) if len(shape) == 3 else (shape[0], shape[1], 1)

    def with_channels(self, images: Array) -> Array:
        return images.reshape(self.problem.images.shape)

    def run(self, start: Images, asked: Int[Array, ""]) -> _Found:
        # Queries beyond the given number are not made in the last round.
        last = jnp.minimum(_PER_ROUND, self.search.queries - asked)

        def continues(at: _Found, end: Int[Array, ""]) -> Array:
            return (at.number < end) & ~jnp.all(at.fooled)

        def several(at: _Found) -> _Found:
            first, end = at.number, jnp.minimum(at.number + _DRAWN, last)
            windows = self.draw(asked, first + jnp.arange(_DRAWN))

            def step(at: _Found) -> _Found:
                window = jax.tree.map(lambda drawn: drawn[at.number - first], windows)
                new = self.look(self.propose(at.point, window))
                better = ~at.fooled & (new.fooled | (new.margin > at.margin))
                point, value, fooled = choose(better, new[:3], at[:3])
                return _Found(point, value, fooled, at.number + 1)

            return jax.lax.while_loop(lambda at: continues(at, end), step, at)

        return jax.lax.while_loop(lambda at: continues(at, last), several, self.look(start))

    def draw(self, asked: Int[Array, ""], numbers: Int[Array, " queries"]) -> "_Windows":
        """The windows of these queries of a round, for each query and image."""
        sizes, two = jnp.asarray(self.sizes()), not isinstance(self.search.norm, Linf)

        def one(number: Int[Array, ""]) -> _Windows:
            size = sizes[jnp.minimum(asked + number, self.search.queries - 1)]
            draw = functools.partial(_draw, self.shape, size, self.search.positions, two)
            return jax.vmap(draw)(self.problem.with_keys(number).keys)

        return jax.vmap(one)(numbers)

    def look(self, images: Images) -> _Found:
        scores = self.problem.scores(images, self.problem.keys)
        return _Found(images, margin(scores, self.problem.labels), self.problem.fooled(scores), jnp.int32(0))

    def project(self, points: Images) -> Images:
        """The points inside ball and box. For L2 they are on the surface of the ball, before they are clipped."""
        problem, norm = self.problem, self.search.norm
        deltas = points - problem.images
        if isinstance(norm, L1):
            deltas = project_l1(problem.images, deltas, problem.eps, problem.box)
        elif isinstance(norm, Linf):
            deltas = norm.project(deltas, problem.eps)
        else:
            deltas = problem.eps * deltas / per_example(norm.length(deltas) + _TINY, deltas)
        return jnp.clip(problem.images + deltas, *problem.box)

    def first(self) -> Images:
        """The images with their first perturbation: vertical stripes for L∞, tiles of the pattern for the others."""
        _, width, channels = self.shape
        eps, keys = self.problem.eps, self.problem.keys
        if isinstance(self.search.norm, Linf):
            stripes = jax.vmap(lambda key: jax.random.rademacher(key, (1, width, channels)))(keys)
            deltas = jnp.broadcast_to(eps * stripes, (len(stripes), *self.shape))
        else:
            deltas = jax.vmap(functools.partial(_tiles, self.shape, self.power))(keys)
        return self.problem.images + self.with_channels(deltas)

    def propose(self, points: Images, windows: "_Windows") -> Images:
        """The best images with one window changed."""
        deltas = (points - self.problem.images).reshape(len(points), *self.shape)
        if isinstance(self.search.norm, Linf):
            change = functools.partial(_recolour, self.problem.eps)
        else:
            kinds, patterns = self.patterns()
            pattern = jnp.asarray(patterns)[jnp.searchsorted(jnp.asarray(kinds), windows.size[0])]
            change = functools.partial(_transfer, self.problem.eps, pattern, self.search.norm)
        return self.project(self.problem.images + self.with_channels(jax.vmap(change)(deltas, windows)))

    @property
    def power(self) -> int:
        """How fast the bumps of a pattern fall off."""
        return 4 if isinstance(self.search.norm, L1) else 2

    def sizes(self) -> np.ndarray:
        """The side of the window of each query."""
        height, width, _ = self.shape
        halvings = np.searchsorted(_SHRINKS, np.arange(self.search.queries), side="left")
        sides = np.round(np.sqrt(_SHARE / 2.0**halvings * height * width)).astype(np.int32)
        if isinstance(self.search.norm, Linf):
            sides = np.maximum(sides, 1)
        else:  # The pattern has a middle, so the side is odd.
            sides = np.maximum(sides, 3)
            sides += sides % 2 == 0
        return np.minimum(sides, min(height, width)).astype(np.int32)

    def patterns(self) -> tuple[np.ndarray, np.ndarray]:
        """The sides of windows, and the pattern of each, at the lower right of a picture twice the size."""
        height, width, _ = self.shape
        kinds = np.unique(self.sizes())
        table = np.zeros((len(kinds), 2 * height, 2 * width), np.float32)
        for place, side in zip(table, kinds, strict=True):
            place[height : height + side, width : width + side] = pattern_of(int(side), self.power)
        return kinds, table


class _Windows(NamedTuple):
    """What is random in a query of an image."""

    size: Int[Array, ""]
    corner: Int[Array, "2"]
    sign: Float[Array, "1 1 channels"]
    second: Int[Array, "2"] | None = None
    """L2 and L1: the upper left of the window that gives up its length"""
    upright: Bool[Array, ""] | None = None
    """whether the pattern is not transposed"""


def _draw(
    shape: tuple[int, ...], size: Any, positions: Positions, two: bool, key: Key[Array, ""]
) -> _Windows:
    corner = functools.partial(_corner, shape, size, positions)
    keys = jax.random.split(key, 4 if two else 2)
    sign = jax.random.rademacher(keys[-1], (1, 1, shape[2]), jnp.float32)
    if not two:
        return _Windows(size, corner(keys[0]), sign)
    return _Windows(size, corner(keys[0]), sign, corner(keys[1]), jax.random.bernoulli(keys[2]))


def _recolour(eps: Any, deltas: Image, window: _Windows) -> Image:
    """L∞: a window of plus or minus 2 eps is added, which the projection makes plus or minus eps."""
    mask = _window(deltas.shape, window.size, window.corner)
    return deltas + 2 * eps * jnp.where(mask, window.sign.astype(deltas.dtype), 0.0)


def _transfer(eps: Any, pattern: Any, norm: Norm, deltas: Image, window: _Windows) -> Image:
    """L2 and L1: a window gets more of its pattern, and the length of a second one, which becomes 0."""
    first, second, upright = window.corner, window.second, window.upright
    assert second is not None
    assert upright is not None
    here, there = (_window(deltas.shape, window.size, corner) for corner in (first, second))

    def length(values: Image) -> Float[Array, "1 1 channels"]:
        return norm.length(jnp.moveaxis(values, 2, 0))[None, None]

    height, width, channels = deltas.shape
    turned = jnp.where(upright, pattern, _turn(pattern, height, width))
    placed = jax.lax.dynamic_slice(turned, (height - first[0], width - first[1]), (height, width))[..., None]
    old = jnp.where(here, deltas, 0.0)
    new = placed * window.sign.astype(deltas.dtype) + old / (length(old) + _TINY)
    both, whole = length(jnp.where(here | there, deltas, 0.0)), norm.length(deltas[None])[0]
    if isinstance(norm, L1):
        to_give = jnp.maximum(eps - whole, 0.0) + both * channels
    else:
        to_give = jnp.sqrt(jnp.maximum(eps**2 - whole**2, 0.0) / channels + both**2)
    return jnp.where(here, new / (length(new) + _TINY) * to_give, jnp.where(there, 0.0, deltas))


def _turn(pattern: Any, height: int, width: int) -> Any:
    """The pattern transposed, in a picture of the same size."""
    side = min(height, width)
    inner = pattern[height : height + side, width : width + side]
    return pattern.at[height : height + side, width : width + side].set(inner.T)


def _corner(shape: tuple[int, ...], size: Any, positions: Positions, key: Key[Array, ""]) -> Int[Array, "2"]:
    """The upper left of a window inside the image."""
    room = jnp.array(shape[:2]) - size
    return jax.random.randint(key, (2,), 0, room + 1 if positions == "all" else jnp.maximum(room, 1))


def _window(shape: tuple[int, ...], size: Any, corner: Int[Array, "2"]) -> Array:
    rows, columns = (jnp.arange(extent) - first for extent, first in zip(shape[:2], corner, strict=True))
    inside = ((rows >= 0) & (rows < size))[:, None] & ((columns >= 0) & (columns < size))
    return inside[..., None]


def _tiles(shape: tuple[int, int, int], power: int, key: Key[Array, ""]) -> Image:
    """About 5×5 tiles of the pattern, each turned or not and of a random sign."""
    height, width, channels = shape
    side = max(height // 5, 1)
    margin = max((height - 5 * side) // 2, 0)
    sign_key, turn_key = jax.random.split(key)
    pattern = jnp.asarray(pattern_of(side, power))
    counts = height // side, width // side
    signs = jax.random.rademacher(sign_key, (*counts, channels), pattern.dtype)
    turned = jax.random.bernoulli(turn_key, shape=counts)
    tiles = jnp.where(turned[..., None, None], pattern, pattern.T)[..., None] * signs[:, :, None, None]
    whole = tiles.swapaxes(1, 2).reshape(counts[0] * side, counts[1] * side, channels)
    placed = jnp.zeros((height + margin, width + margin, channels), whole.dtype)
    return jax.lax.dynamic_update_slice(placed, whole, (margin, margin, 0))[:height, :width]


def pattern_of(side: int, power: int) -> np.ndarray:
    """Two bumps of opposite sign, one above the other, in a square window; its norm is 1: L2 for power 2, L1 for 4.

    >>> pattern_of(3, 2).round(2)
    array([[ 0.14,  0.68,  0.14],
           [-0.13, -0.13, -0.13],
           [-0.13, -0.65, -0.13]], dtype=float32)
    """
    whole = np.concatenate([_bump(side // 2, side, power), -_bump(side - side // 2, side, power)])
    return (whole / _length(whole, power)).astype(np.float32)


def _bump(height: int, width: int, power: int) -> np.ndarray:
    """Rings around the middle: the sum of 1 / (r + 1)^power over those r that are at least the distance to it."""
    if not height:
        return np.zeros((0, width))
    rows, columns = np.abs(np.arange(height) - height // 2), np.abs(np.arange(width) - width // 2)
    distance = np.maximum(rows[:, None], columns)
    rings = max(height // 2, width // 2) + 1
    tails = list(itertools.accumulate((r + 1.0) ** -power for r in reversed(range(rings))))[::-1]
    bump = np.array(tails)[distance]
    return bump / _length(bump, power)


def _length(values: np.ndarray, power: int) -> float:
    return float(np.sqrt((values**2).sum()) if power == 2 else np.abs(values).sum())
