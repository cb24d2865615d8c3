"""AutoAttack: several parameter-free attacks in turn, and for each image the worst of them (Croce & Hein 2020).

This is what the field reports. The attacks fail for different reasons, so that a classifier which hides its gradients
from one of them is still found out by another, and none has a parameter to choose badly.

Each round of an attack (a restart, a target class, a share of the queries) is one compiled call for a batch. Between
rounds the images that fell are dropped, and the others fill batches of the same size again: dropping never recompiles,
and neither does another `eps`. Each image has its own random numbers, so its result depends on no other image.
"""

import dataclasses
import functools
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, Key

from ._apgd import Apgd
from ._attack import AttackError, keys_of
from ._fab import Fab
from ._norms import L1, L2, Linf, Norm, NormName, is_norm, norm_of
from ._search import Problem, Search, Tried, check_batch, look, try_round
from ._square import Positions, Square

Version = Literal["standard", "plus", "rand"]
State = Mapping[str, np.ndarray]
Progress = Callable[[str, int, int], None]

VERSIONS: dict[Version, tuple[str, ...]] = {
    "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "plus": ("apgd-ce", "apgd-dlr", "fab", "square", "apgd-t", "fab-t"),
    "rand": ("apgd-ce", "apgd-dlr"),
}
NAMES = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square")
ROBUST, WRONG = -1, -2

_TARGETS, _TARGETS_L1 = 9, 5
_RESTARTS = 5
_EOT = 20


class AutoAttackResult(NamedTuple):
    """The images after all attacks. For `names[i]` there are `seconds[i]`, with compilation, and the accuracy after it,
    `accuracy_after[i]`, in which an image counts only if no attack so far has made it fall.

    >>> kept = np.zeros((2, 1), np.float32)
    >>> found = AutoAttackResult(
    ...     images=kept, robust=np.array([True, False]), natural=np.array([True, True]), fell_to=np.array([-1, 1]),
    ...     margin=np.array([-0.3, 0.1]), names=("apgd-ce", "square"), seconds=(9.0, 4.0), accuracy_after=(1.0, 0.5),
    ... )
    >>> dict(zip(found.names, found.accuracy_after)), [found.names[i] for i in found.fell_to[~found.robust]]
    ({'apgd-ce': 1.0, 'square': 0.5}, ['square'])
    """

    images: Float[np.ndarray, "examples ..."]
    """misclassified where one was found, else the one tried that came closest: of the highest margin"""
    robust: Bool[np.ndarray, " examples"]
    """right whatever was tried"""
    natural: Bool[np.ndarray, " examples"]
    """right before any attack"""
    fell_to: Int32[np.ndarray, " examples"]
    """index into `names` of the first attack that succeeded; -1: robust, -2: wrong before any attack"""
    margin: Float[np.ndarray, " examples"]
    """best other score minus that of the label, for `images`: positive where misclassified"""
    names: tuple[str, ...]
    seconds: tuple[float, ...]
    accuracy_after: tuple[float, ...]
    alone: tuple[float, ...] | None = None
    """with `individually`: accuracy under each attack alone"""


@dataclass(frozen=True)
class AutoAttack:
    """The attacks of AutoAttack in turn, on the images that none before has made fall.

    Call it as `AutoAttack(...)(predict, images, labels, key)`, where `predict` maps images (examples, ...) to scores
    (examples, classes). Images of `square` have the shape (examples, height, width) or (examples, height, width,
    channels).

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
        - `progress`: called with the name of the attack, what is done of it and what there is to do, after each batch.
        - `on_attack`: called after each attack with all results so far, a dict of NumPy arrays. Given to a later call
          as `finished`, these attacks are not run again.
        """
        check_batch(images, labels)
        whole = _Whole(self, predict, np.asarray(images), np.asarray(labels), keys_of(key, len(labels)))
        state = whole.start() if finished is None else whole.resumed(finished)
        for number in range(int(state["done"]), len(self.names)):
            state = whole.attack(state, number, progress or (lambda *_: None))
            if on_attack is not None:
                on_attack(dict(state))
        return whole.result(state)


@dataclass(frozen=True)
class _Whole:
    """All images, on the host, and the batches made of them."""

    settings: AutoAttack
    predict: Callable[..., Any]
    images: np.ndarray
    labels: np.ndarray
    keys: Array

    @functools.cached_property
    def _split(self) -> tuple["_Static", list[Any]]:
        leaves, tree = jax.tree.flatten(self.predict)
        arrays = [leaf if isinstance(leaf, jax.Array | np.ndarray) else None for leaf in leaves]
        rest = tuple(None if array is not None else leaf for array, leaf in zip(arrays, leaves, strict=True))
        return _Static(tree, rest), arrays

    @functools.cached_property
    def _fingerprint(self) -> str:
        """What results are for: they must not be continued with other images or settings."""
        said = dataclasses.replace(self.settings, batch_size=1, deterministic=False)
        parts = repr(said).encode(), self.images.tobytes(), self.labels.tobytes()
        keys = np.asarray(jax.random.key_data(self.keys)).tobytes()
        return hashlib.sha256(b"".join((*parts, keys))).hexdigest()

    def start(self) -> dict[str, np.ndarray]:
        """The state before any attack."""
        count, attacks = len(self.labels), len(self.settings.names)
        margins, wrong = np.empty(count, np.float32), np.empty(count, bool)
        for which, batch in self._batches(np.arange(count)):
            found = self._call(None, batch, 0, self.images[batch])
            margins[which], wrong[which] = found.margin[: len(which)], found.fooled[: len(which)]
        return {
            "fingerprint": np.array(self._fingerprint),
            "done": np.array(0),
            "images": self.images.copy(),
            "margin": margins,
            "fell_to": np.where(wrong, WRONG, ROBUST).astype(np.int32),
            "fell_alone": np.zeros((attacks, count), bool),
            "seconds": np.zeros(attacks),
        }

    def resumed(self, finished: State) -> dict[str, np.ndarray]:
        if str(finished["fingerprint"]) != self._fingerprint:
            raise AttackError(
                "the finished attacks were for other images, labels, keys or settings; "
                "leave `finished` out to start from the beginning"
            )
        return {name: np.array(values) for name, values in finished.items()}

    def attack(self, state: State, number: int, progress: Progress) -> dict[str, np.ndarray]:
        """The state after one more attack."""
        began, name = time.perf_counter(), self.settings.names[number]
        new = {key: values.copy() for key, values in state.items()}
        natural = state["fell_to"] != WRONG
        todo = np.flatnonzero(natural if self.settings.individually else state["fell_to"] == ROBUST)
        images, margins, fell = self._rounds(name, todo, progress)
        new["fell_alone"][number, todo] = fell
        standing = state["fell_to"][todo] == ROBUST
        better = standing & (fell | (margins > state["margin"][todo]))
        new["images"][todo[better]], new["margin"][todo[better]] = images[better], margins[better]
        new["fell_to"][todo[standing & fell]] = number
        new["seconds"][number] = time.perf_counter() - began
        new["done"] = np.array(number + 1)
        return new

    def _rounds(
        self, name: str, todo: np.ndarray, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All rounds of an attack on the images `todo`: the images found, their margins, and which fell."""
        images, count = self.images[todo].copy(), len(todo)
        margins, fell = np.full(count, -np.inf, np.float32), np.zeros(count, bool)
        how = self.settings.search(name, self._classes)
        for number in range(how.rounds):
            left = np.flatnonzero(~fell)
            done = number * count + count - len(left)
            for which, batch in self._batches(left):
                found = self._call(how, todo[batch], number, images[batch], margins[batch], NAMES.index(name))
                some = slice(len(which))
                images[which], margins[which] = found.images[some], found.margin[some]
                fell[which] = found.fooled[some]
                done += len(which)
                progress(name, done, how.rounds * count)
        if count and fell.all():  # Rounds that were not needed are done too.
            progress(name, how.rounds * count, how.rounds * count)
        return images, margins, fell

    def _batches(self, which: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The rows of each batch, and the same filled up to the size of all batches, from the first rows."""
        size = self._size
        parts = [which[first : first + size] for first in range(0, len(which), size)]
        return [(part, np.resize(part, size)) for part in parts]

    @property
    def _size(self) -> int:
        size = self.settings.batch_size
        return size if self.settings.deterministic else min(size, len(self.labels))

    def _call(
        self,
        how: Search | None,
        rows: np.ndarray,
        number: int,
        before: np.ndarray,
        margins: np.ndarray | None = None,
        name: int = 0,
    ) -> Tried:
        settings, (static, arrays) = self.settings, self._split
        if margins is None:
            margins = np.full(len(rows), -np.inf, np.float32)
        found = _compiled(
            how, static, arrays, self.images[rows], self.labels[rows], self.keys[rows], np.int32(name),
            np.int32(number), np.float32(settings.eps), before, margins, settings.box, settings.version == "rand",
        )  # fmt: skip
        return jax.device_get(found)

    @functools.cached_property
    def _classes(self) -> int:
        problem = self._problem_shape()
        return problem.shape[1]

    def _problem_shape(self) -> Any:
        size, random = self._size, self.settings.version == "rand"
        images = jax.ShapeDtypeStruct((size, *self.images.shape[1:]), self.images.dtype)
        keys = jax.eval_shape(lambda keys: jax.random.split(keys[0], size), self.keys)
        return jax.eval_shape(self.predict, images, keys) if random else jax.eval_shape(self.predict, images)

    def result(self, state: State) -> AutoAttackResult:
        names, fell_to = self.settings.names, state["fell_to"]
        after = [float(np.mean((fell_to == ROBUST) | (fell_to > number))) for number in range(len(names))]
        natural = fell_to != WRONG
        alone = [float(np.mean(natural & ~fell)) for fell in state["fell_alone"]]
        return AutoAttackResult(
            images=state["images"],
            robust=fell_to == ROBUST,
            natural=natural,
            fell_to=fell_to,
            margin=state["margin"],
            names=names,
            seconds=tuple(map(float, state["seconds"])),
            accuracy_after=tuple(after),
            alone=tuple(alone) if self.settings.individually else None,
        )


class _Static(NamedTuple):
    """The part of a classifier that is not arrays."""

    tree: Any
    rest: tuple[Any, ...]

    def join(self, arrays: list[Any]) -> Callable[..., Any]:
        leaves = [old if new is None else new for new, old in zip(arrays, self.rest, strict=True)]
        return jax.tree.unflatten(self.tree, leaves)


@functools.partial(jax.jit, static_argnums=(0, 1, 11, 12))
def _compiled(
    how: Search | None,
    static: _Static,
    arrays: list[Any],
    images: Array,
    labels: Array,
    keys: Array,
    name: Array,
    number: Array,
    eps: Array,
    before: Array,
    margins: Array,
    box: tuple[float, float],
    random: bool,
) -> Tried:
    """One round on a batch; without an attack, what the classifier says about the images."""
    problem = Problem(static.join(arrays), images, labels, keys, eps, box, random).with_keys(name)
    if how is None:
        return look(problem, images)
    tried = Tried(before, margins, jnp.zeros(len(labels), bool))
    return try_round(how, problem, number, tried)[0]
