"""AutoAttack: several parameter-free attacks in turn, and for each image the worst of them (Croce & Hein 2020).

This is what the field reports. The attacks fail for different reasons, so that a classifier which hides its gradients
from one of them is still found out by another, and none has a parameter to choose badly.

Dropping the images that fell never recompiles, and neither does another `eps`. Each image has its own random numbers,
so its result depends on no other image.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Array, Float, Int, Key

from ._apgd import Apgd
from ._attack import AttackError, keys_of
from ._fab import Fab
from ._norms import L1, L2, Linf, Norm, NormName, is_norm, norm_of
from ._rounds import NAMES, AutoAttackResult, Progress, Rounds, State
from ._search import Search, check_batch
from ._square import Positions, Square

Version = Literal["standard", "plus", "rand"]

VERSIONS: dict[Version, tuple[str, ...]] = {
    "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "plus": ("apgd-ce", "apgd-dlr", "fab", "square", "apgd-t", "fab-t"),
    "rand": ("apgd-ce", "apgd-dlr"),
}

_TARGETS, _TARGETS_L1 = 9, 5
_RESTARTS = 5
_EOT = 20


@dataclass(frozen=True)
class AutoAttack:
    """The attacks of AutoAttack in turn, on the images that none before has made fall.

    Call it as `AutoAttack(...)(predict, images, labels, key)`, where `predict` maps images (examples, ...) to scores
    (examples, classes). Images of `square` have the shape (examples, height, width) or (examples, height, width,
    channels).

    >>> import jax
    >>> import jax.numpy as jnp
    >>> scores = lambda x: jnp.stack([x[:, 0, 0], x[:, 0, 1], x[:, 1, 0], x[:, 1, 1]], axis=1)
    >>> images = jnp.array([[[0.6, 0.5], [0.1, 0.0]], [[0.9, 0.1], [0.1, 0.1]]])
    >>> attack = AutoAttack(eps=0.2, attacks=("apgd-ce",), steps=10)
    >>> found = attack(scores, images, jnp.array([0, 0]), jax.random.key(0))
    >>> found.robust.tolist(), found.fell_to.tolist(), found.accuracy_after
    ([False, True], [0, -1], (0.5,))
    """

    eps: float = 0.3
    """radius of the ball of perturbations"""
    norm: NormName | Norm = "linf"
    """norm of a perturbation: linf (the largest pixel), l2 or l1; for the apgd attacks any `Norm`"""
    version: Version = "standard"
    """standard; plus (more attacks and restarts); or rand, for classifiers that are random: predict(images, keys)"""
    attacks: tuple[str, ...] | None = None
    """names of the attacks to run, with the parameters of the version; default: those of the version"""
    batch_size: int = 500
    """images attacked at once"""
    box: tuple[float, float] = (0.0, 1.0)
    """smallest and largest valid pixel"""
    steps: int = 100
    """gradient steps per round of apgd and fab"""
    queries: int = 5000
    """queries of square"""
    positions: Positions = "original"
    """where square's windows may be: original (never in the last row and column, as in the code that published numbers
    come from) or all (as in the paper: stronger on small images)"""
    individually: bool = False
    """run each attack on all images, not only on those that none before has made fall"""
    deterministic: bool = False
    """never make batches smaller: with few images too, the classifier is called with `batch_size` images, so that the
    compiled program, and with it the result for an image, is the same for any number of images"""

    def __post_init__(self) -> None:
        self._check("eps", 0 < self.eps < np.inf, "a positive number")
        self._check(
            "norm", is_norm(self.norm), "linf, l2, l1 or an object with the methods of lapwing.attacks.Norm"
        )
        self._check("version", self.version in VERSIONS, f"one of {', '.join(VERSIONS)}")
        self._check("box", self.box[0] < self.box[1], "the smallest and the largest pixel")
        for name in ("batch_size", "steps", "queries"):
            self._check(name, getattr(self, name) >= 1, "at least 1")
        known = bool(self.names) and len({*self.names}) == len(self.names) and {*self.names} <= {*NAMES}
        self._check("attacks", known, f"different names among {', '.join(NAMES)}")
        needy = [name for name in self.names if not name.startswith("apgd")]
        if needy and not isinstance(norm_of(self.norm), Linf | L2 | L1):
            raise AttackError(
                f"{needy[0]} knows the norms linf, l2 and l1, found {self.norm}; "
                "for other norms set attacks to apgd attacks only"
            )

    def _check(self, name: str, good: bool, expected: str) -> None:
        if not good:
            raise AttackError(f"autoattack: {name} should be {expected}, but is {getattr(self, name)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The attacks that are run, in their order."""
        return VERSIONS[self.version] if self.attacks is None else tuple(self.attacks)

    def search(self, name: str, classes: int) -> Search:
        """The attack of this name, as the version has it, for a classifier with this number of classes."""
        norm, plus = norm_of(self.norm), self.version == "plus"
        sparse = isinstance(norm, L1)
        many = _RESTARTS if plus or (sparse and self.version == "standard") else 1
        if name.startswith("apgd"):
            least = {"apgd-ce": 2, "apgd-dlr": 3, "apgd-t": 4}[name]
            if classes < least:
                raise AttackError(
                    f"{name} needs at least {least} classes, found {classes}; leave it out of attacks"
                )
            eot = _EOT if self.version == "rand" else 1
            if name == "apgd-t":
                targets = min(_TARGETS_L1 if sparse and not plus else _TARGETS, classes - 1)
                return Apgd(norm, "dlr", targets, self.steps, 1, eot, sparse)
            return Apgd(norm, "ce" if name == "apgd-ce" else "dlr", 0, self.steps, many, eot, sparse)
        if name == "square":
            return Square(norm, self.queries, self.positions)
        targets = min(_TARGETS, classes - 1) if name == "fab-t" else 0
        return Fab(norm, targets, self.steps, 1 if targets else many)

    def __call__(
        self,
        predict: Callable[..., Float[Array, "examples classes"]],
        images: Float[Array | np.ndarray, "examples ..."],
        labels: Int[Array | np.ndarray, " examples"],
        key: Key[Array, ""] | Key[Array, " examples"],
        *,
        surrogate: Callable[..., Float[Array, "examples classes"]] | None = None,
        progress: Progress | None = None,
        finished: State | None = None,
        on_attack: Callable[[dict[str, np.ndarray]], None] | None = None,
    ) -> AutoAttackResult:
        """Attacks all images.

        **Arguments**

        - `predict`: a function, or a pytree that is one, such as an Equinox module or
          `jax.tree_util.Partial(f, params)`: then other parameters do not recompile. With the version rand, a
          function of images and a key for each.
        - `key`: one key, or one for each example.
        - `surrogate`: a faster `predict` with almost the same scores, such as the same network in bfloat16. Searches
          but FAB ask it, and end for an image when its margin is larger than the two differ; `predict` decides what
          counts.
        - `progress`: called with the name of the attack, what is done of it and what there is to do, after each batch.
        - `on_attack`: called after each attack with all results so far, a dict of NumPy arrays. Given to a later call
          as `finished`, these attacks are not run again.
        """
        check_batch(images, labels)
        keys = keys_of(key, len(labels))
        rounds = Rounds(self, predict, np.asarray(images), np.asarray(labels), keys, surrogate)
        state = rounds.start() if finished is None else rounds.resumed(finished)
        for number in range(int(state["done"]), len(self.names)):
            state = rounds.attack(state, number, progress or (lambda *_: None))
            if on_attack is not None:
                on_attack(dict(state))
        return rounds.result(state)
