"""What the attacks of AutoAttack have in common: a search is a number of rounds, each of which tries all images.

A round is a restart, a target class, or a share of the queries. `search` runs all rounds as one computation;
`AutoAttack` runs one at a time, and drops the images that fell in between. A round returns an image for each example;
whether it fools the classifier is checked in one place, on the returned image.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ._attack import AttackError, AttackResult, Fooled, Images, Keys, Losses, Radius, keys_of
from ._losses import Labels, Scores, is_fooled, margin
from ._norms import per_example

Round = Int[Array, ""]


class Problem(NamedTuple):
    """A batch to attack. `predict` gets images, and a key for each of them if it is `random`.

    The search asks `predict`. If that stands in for a `judge`, what counts is decided by the judge, once a round.
    """

    predict: Callable[..., Scores]
    images: Images
    labels: Labels
    keys: Key[Array, " examples"]
    eps: Float[Array, ""]
    box: tuple[float, float] = (0.0, 1.0)
    random: bool = False
    judge: Callable[..., Scores] | None = None
    doubt: Float[Array, ""] | None = None
    """with a judge: a misclassification by less than this margin is not yet one, and the search goes on"""

    def scores(self, images: Images, keys: Key[Array, " examples"]) -> Scores:
        return self.predict(images, keys) if self.random else self.predict(images)

    def fooled(self, scores: Scores) -> Fooled:
        """Whether these scores are surely wrong."""
        if self.doubt is None:
            return is_fooled(scores, self.labels, targeted=False)
        return margin(scores, self.labels) > self.doubt

    def with_keys(self, number: Round | int) -> "Problem":
        """The same problem with other keys, one for each example and number."""
        return self._replace(keys=jax.vmap(jax.random.fold_in, (0, None))(self.keys, number))


class Tried(NamedTuple):
    """The image that a search would return for each example, its margin, and whether it is misclassified."""

    images: Images
    margin: Losses
    fooled: Fooled


class Search(Protocol):
    """An attack in rounds. Searches are static arguments of compiled functions, so they must be hashable."""

    @property
    def rounds(self) -> int: ...

    def attempt(self, problem: Problem, number: Round, before: Images) -> tuple[Images, Int[Array, ""]]:
        """An image inside the ball and the box for each example, and the number of calls of the classifier on the
        batch. `before` are the images of the round before, or those of the problem in the first."""
        ...


def try_round(search: Search, problem: Problem, number: Round, before: Tried) -> tuple[Tried, Int[Array, ""]]:
    """One round: for each example the better of the image before and the new one, and the number of calls.

    An image that fools is better than one that does not, and is kept; of others the one of the higher margin.
    """
    images, calls = search.attempt(problem.with_keys(number), number, before.images)
    found = look(problem.with_keys(-1 - number), images)
    better = ~before.fooled & (found.fooled | (found.margin > before.margin))
    return choose(better, found, before), calls + 1


def look(problem: Problem, images: Images) -> Tried:
    """What the classifier that counts says about images."""
    if problem.judge is not None:
        problem = problem._replace(predict=problem.judge)
    scores = problem.scores(images, problem.keys)
    return Tried(images, margin(scores, problem.labels), is_fooled(scores, problem.labels, targeted=False))


def choose(which: Bool[Array, " examples"], new: Any, old: Any) -> Any:
    """The rows of `new` where `which`, else those of `old`, in each array of two pytrees."""
    return jax.tree.map(lambda a, b: jnp.where(per_example(which, a), a, b), new, old)


def search(
    how: Search,
    predict: Callable[..., Scores],
    images: Images,
    labels: Labels,
    key: Keys,
    eps: Radius,
    box: tuple[float, float],
    random: bool = False,
) -> AttackResult:
    """All rounds in one computation, which ends when all images are fooled. `loss` is the margin of the result."""
    check_batch(images, labels)
    radius = jnp.asarray(eps, images.dtype)
    problem = Problem(predict, images, labels, keys_of(key, images.shape[0]), radius, box, random)
    first = look(problem, images)

    def one(carry: tuple[Tried, Int[Array, ""], Round, Array]) -> Any:
        tried, calls, number, after = carry
        tried, more = try_round(how, problem, number, tried)
        # Rounds that are not needed any more have the result of the last one.
        after = jnp.where(jnp.arange(how.rounds)[:, None] >= number, tried.fooled, after)
        return tried, calls + more, number + 1, after

    start = first, jnp.int32(1), jnp.int32(0), jnp.broadcast_to(first.fooled, (how.rounds, len(labels)))
    tried, calls, _, after = jax.lax.while_loop(
        lambda carry: (carry[2] < how.rounds) & ~jnp.all(carry[0].fooled), one, start
    )
    return AttackResult(tried.images, tried.images - images, tried.margin, tried.fooled, after, calls)


def check_batch(images: Any, labels: Any) -> None:
    """Refuses labels that do not fit the images."""
    if tuple(labels.shape) != tuple(images.shape[:1]):
        raise AttackError(
            f"expected one label for each image, found images of shape {images.shape} and labels of shape "
            f"{labels.shape}; the first axis is the example"
        )
