"""Adversarial examples for any JAX classifier: FGSM, PGD, and a memory of perturbations across steps.

`Attack` says how to look for a perturbation, and calling it looks, for the whole batch, all steps and all restarts in
one computation. `Replay` remembers what was found for each training example, so that the next attack on it starts
there and needs few steps.
"""

from ._attack import Attack, Attacked, AttackError, fast, fgsm, pgd, strong
from ._losses import cross_entropy
from ._replay import POLICIES, Policy, Replay, empty, recall, sample, store
from ._robustness import Robustness, Share, robustness

__all__ = [
    "POLICIES",
    "Attack",
    "AttackError",
    "Attacked",
    "Policy",
    "Replay",
    "Robustness",
    "Share",
    "cross_entropy",
    "empty",
    "fast",
    "fgsm",
    "pgd",
    "recall",
    "robustness",
    "sample",
    "store",
    "strong",
]
