"""Adversarial examples for any JAX classifier: AutoAttack, FGSM, PGD, and a replay buffer of perturbations.

An `Attack` is called with a classifier and a batch, and attacks the whole batch, all steps and all restarts in one
computation. `AutoAttack` is what to report: several attacks in turn, the worst of them for each image. A `Norm`
measures perturbations. A `ReplayBuffer` stores what was found for each training example, so that the next attack on it
starts there and needs few steps.
"""

from ._apgd import apgd
from ._attack import Attack, AttackError, AttackResult, fast, fgsm, pgd, strong
from ._autoattack import VERSIONS, AutoAttack, Version
from ._fab import fab_targeted
from ._losses import cross_entropy, dlr, margin
from ._masking import MASKING_POINTS, MaskingCheck, masking_checks
from ._norms import L1, L2, Linf, Norm, NormName
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
from ._rounds import AutoAttackResult
from ._square import square

__all__ = [
    "L1",
    "L2",
    "MASKING_POINTS",
    "POLICIES",
    "VERSIONS",
    "Attack",
    "AttackError",
    "AttackResult",
    "AutoAttack",
    "AutoAttackResult",
    "CrossEntropy",
    "Linf",
    "Mail",
    "Margin",
    "Mart",
    "MaskingCheck",
    "Norm",
    "NormName",
    "Objective",
    "ObjectiveName",
    "Policy",
    "ReplayBuffer",
    "Robustness",
    "Share",
    "Trades",
    "Version",
    "apgd",
    "cross_entropy",
    "divergence",
    "dlr",
    "fab_targeted",
    "fast",
    "fgsm",
    "margin",
    "masking_checks",
    "objective_of",
    "pgd",
    "robustness",
    "square",
    "strong",
]
