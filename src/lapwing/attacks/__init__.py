"""Adversarial examples for any JAX classifier: FGSM, PGD, and a replay buffer of perturbations.

An `Attack` is called with a classifier and a batch, and attacks the whole batch, all steps and all restarts in one
computation. A `Norm` measures perturbations. A `ReplayBuffer` stores what was found for each training example, so that
the next attack on it starts there and needs few steps.
"""

from ._attack import Attack, AttackError, AttackResult, fast, fgsm, pgd, strong
from ._losses import cross_entropy
from ._norms import L2, Linf, Norm, NormName
from ._objectives import (
    CrossEntropy,
    Mail,
    Margin,
    Mart,
    Objective,
    ObjectiveName,
    Trades,
    divergence,
    objective_of,
)
from ._replay import POLICIES, Policy, ReplayBuffer
from ._robustness import Robustness, Share, robustness

__all__ = [
    "L2",
    "POLICIES",
    "Attack",
    "AttackError",
    "AttackResult",
    "CrossEntropy",
    "Linf",
    "Mail",
    "Margin",
    "Mart",
    "Norm",
    "NormName",
    "Objective",
    "ObjectiveName",
    "Policy",
    "ReplayBuffer",
    "Robustness",
    "Share",
    "Trades",
    "cross_entropy",
    "divergence",
    "fast",
    "fgsm",
    "objective_of",
    "pgd",
    "robustness",
    "strong",
]
