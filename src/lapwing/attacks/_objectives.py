"""Objectives: what adversarial training minimizes, given the scores of a batch and of the same batch attacked.

An objective is an object with the interface of `Objective`; a string is its short form. `natural` says whether it
looks at the unperturbed images at all: one that does not costs one pass through the network less. `ascent` is what the
attack maximizes; by default that is the attack's own loss.

All are computed from differences of scores, never from the logarithm of a probability: the published codes add small
constants inside the logarithm instead, which bound the loss of an image that the network is sure about, and end its
gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._attack import AttackError, Losses
from ._losses import Labels, Scores, cross_entropy, margin

ObjectiveName = Literal["cross_entropy", "trades", "mart", "margin", "mail"]
Ascent = Callable[[Scores], Losses]


class Objective(Protocol):
    """What adversarial training asks of an objective. It is part of a config, so it must be hashable.

    >>> @dataclass(frozen=True)
    ... class Half:
    ...     '''The mean loss of the image and of the attacked image.'''
    ...     natural: ClassVar[bool] = True
    ...     def __call__(self, attacked, natural, labels):
    ...         return (cross_entropy(attacked, labels) + cross_entropy(natural, labels)) / 2
    ...     def ascent(self, natural, labels):
    ...         return None
    >>> Half()(jnp.array([[0.0, 0.0]]), jnp.array([[0.0, 0.0]]), jnp.array([0])).round(3).tolist()
    [0.693...]
    """

    natural: ClassVar[bool]

    def __call__(self, attacked: Scores, natural: Scores, labels: Labels) -> Losses:
        """The loss of each example. `natural` are the scores of the unperturbed images, or `attacked` again if the
        objective has no use for them."""
        ...

    def ascent(self, natural: Scores, labels: Labels) -> Ascent | None:
        """What the attack maximizes, as a function of the scores of the attacked images; None: its own loss."""
        ...


class _OwnLoss:
    """An objective whose attack maximizes the loss that the attack names."""

    def ascent(self, natural: Scores, labels: Labels) -> Ascent | None:
        return None


@dataclass(frozen=True)
class CrossEntropy(_OwnLoss):
    """The cross-entropy of the attacked images (Madry et al. 2018).

    >>> scores, labels = jnp.array([[2.0, 0.0]]), jnp.array([0])
    >>> CrossEntropy()(scores, scores, labels).round(3).tolist()
    [0.127...]
    """

    natural: ClassVar[bool] = False

    def __call__(self, attacked: Scores, natural: Scores, labels: Labels) -> Losses:
        return cross_entropy(attacked, labels)


@dataclass(frozen=True)
class Trades:
    """TRADES (Zhang et al. 2019): right on the images, and the same answer for attacked ones. The attack maximizes the
    divergence of the two answers, and does not look at the label.

    >>> scores, labels = jnp.array([[2.0, 0.0]]), jnp.array([0])
    >>> Trades(beta=6.0)(scores, scores, labels).round(3).tolist()
    [0.127...]
    >>> Trades(beta=6.0)(-scores, scores, labels).round(3).tolist()
    [9.266...]
    """

    natural: ClassVar[bool] = True
    beta: float = 6.0

    def __call__(self, attacked: Scores, natural: Scores, labels: Labels) -> Losses:
        return cross_entropy(natural, labels) + self.beta * divergence(natural, attacked)

    def ascent(self, natural: Scores, labels: Labels) -> Ascent | None:
        return lambda attacked: divergence(natural, attacked)


@dataclass(frozen=True)
class Mart(_OwnLoss):
    """MART (Wang et al. 2020): attacked images should have the label and not the best other class, and the same answer
    as the image where the network is unsure of it.

    >>> scores, labels = jnp.array([[2.0, 0.0]]), jnp.array([0])
    >>> Mart()(scores, scores, labels).round(3).tolist()
    [0.254...]
    """

    natural: ClassVar[bool] = True
    beta: float = 5.0

    def __call__(self, attacked: Scores, natural: Scores, labels: Labels) -> Losses:
        other = jnp.argmax(jnp.where(_is(labels, attacked), -jnp.inf, attacked), axis=1)
        # Minus the logarithm of 1 − p of a class is the cross-entropy with all odds reversed.
        boosted = cross_entropy(attacked, labels) + _log_odds_against(attacked, other)
        unsure = -jnp.expm1(-cross_entropy(natural, labels))
        return boosted + self.beta * unsure * divergence(natural, attacked)


@dataclass(frozen=True)
class Margin:
    """The score of the label should be above all others by `least` under attack (the hinge of a multiclass SVM). The
    attack maximizes the same margin, also where the loss is 0 already.

    >>> scores, labels = jnp.array([[2.0, 0.0], [0.5, 0.0]]), jnp.array([0, 0])
    >>> Margin(least=1.0)(scores, scores, labels).tolist()
    [0.0, 0.5]
    """

    natural: ClassVar[bool] = False
    least: float = 1.0

    def __call__(self, attacked: Scores, natural: Scores, labels: Labels) -> Losses:
        return jax.nn.relu(self.least + margin(attacked, labels))

    def ascent(self, natural: Scores, labels: Labels) -> Ascent | None:
        return lambda attacked: margin(attacked, labels)


@dataclass(frozen=True)
class Mail(_OwnLoss):
    """MAIL (Liu et al. 2021): the cross-entropy of attacked images, weighted by how near each is to the other side:
    sigmoid(slope · (bias − margin of probabilities)), with a mean of 1 over the batch. No gradient flows through it.

    >>> scores, labels = jnp.array([[2.0, 0.0], [2.0, 0.0]]), jnp.array([0, 0])
    >>> bool(jnp.allclose(Mail()(scores, scores, labels), CrossEntropy()(scores, scores, labels)))
    True
    """

    natural: ClassVar[bool] = False
    slope: float = 10.0
    bias: float = -0.5

    def __call__(self, attacked: Scores, natural: Scores, labels: Labels) -> Losses:
        near = jax.nn.sigmoid(self.slope * (self.bias + margin(jax.nn.softmax(attacked), labels)))
        weight = jax.lax.stop_gradient(near / jnp.maximum(jnp.mean(near), 1e-12))
        return weight * cross_entropy(attacked, labels)


_BY_NAME: dict[str, type[Objective]] = {
    "cross_entropy": CrossEntropy,
    "trades": Trades,
    "mart": Mart,
    "margin": Margin,
    "mail": Mail,
}
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)


def objective_of(objective: ObjectiveName | Objective, beta: float = 0.0) -> Objective:
    """The objective behind a short form, with this weight of its robust term (0: the published one); an objective
    itself is returned as it is.

    >>> objective_of("trades"), objective_of("mart", beta=2.0)
    (Trades(beta=6.0), Mart(beta=2.0))
    """
    if not isinstance(objective, str):
        return objective
    if objective not in _BY_NAME:
        raise AttackError(f"objectives are {', '.join(OBJECTIVES)}, not {objective!r}")
    kind = _BY_NAME[objective]
    if not beta:
        return kind()
    if not hasattr(kind, "beta"):
        raise AttackError(f"beta is the weight of the robust term of trades and mart; {objective} has none")
    return kind(beta=beta)  # pyright: ignore[reportCallIssue]


def divergence(natural: Scores, attacked: Scores) -> Float[Array, " examples"]:
    """The Kullback-Leibler divergence of the probabilities under attack from the natural ones, per example.

    >>> divergence(jnp.zeros((1, 2)), jnp.zeros((1, 2))).tolist()
    [0.0]
    """
    expected = jax.nn.log_softmax(natural)
    return jnp.sum(jnp.exp(expected) * (expected - jax.nn.log_softmax(attacked)), axis=1)


def _is(classes: Labels, scores: Scores) -> Array:
    return classes[:, None] == jnp.arange(scores.shape[1])


def _log_odds_against(scores: Scores, classes: Labels) -> Losses:
    """−log(1 − p) of one class for each example: softplus of its score against the log-sum-exp of all others."""
    chosen = _is(classes, scores)
    others = jax.nn.logsumexp(jnp.where(chosen, -jnp.inf, scores), axis=1)
    return jax.nn.softplus(jnp.sum(jnp.where(chosen, scores, 0.0), axis=1) - others)
