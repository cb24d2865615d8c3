"""How AutoAttack runs its attacks: all images on the host, and compiled rounds on batches of those that are left.

A round of an attack (a restart, a target class, a share of the queries) is one compiled call for a batch. Between
rounds the images that fell are dropped, and the others fill batches of the same size again.
"""

import dataclasses
import functools
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32

from ._attack import AttackError
from ._fab import Fab
from ._search import Problem, Search, Tried, look, try_round

if TYPE_CHECKING:
    from ._autoattack import AutoAttack

State = Mapping[str, np.ndarray]
Progress = Callable[[str, int, int], None]

NAMES = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square")
ROBUST, WRONG = -1, -2


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
class Rounds:
    """All images, on the host, and the batches made of them."""

    settings: "AutoAttack"
    predict: Callable[..., Any]
    images: np.ndarray
    labels: np.ndarray
    keys: Array
    surrogate: Callable[..., Any] | None = None

    @functools.cached_property
    def _split(self) -> tuple["_Static", list[Any]]:
        leaves, tree = jax.tree.flatten((self.predict, self.surrogate))
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
        margins, wrong = self._look()
        return {
            "fingerprint": np.array(self._fingerprint),
            "done": np.array(0),
            "images": self.images.copy(),
            "margin": margins,
            "fell_to": np.where(wrong, WRONG, ROBUST).astype(np.int32),
            "fell_alone": np.zeros((attacks, count), bool),
            "seconds": np.zeros(attacks),
        }

    def _look(self) -> tuple[np.ndarray, np.ndarray]:
        """The margins of the images, and which are wrong."""
        margins, wrong = np.empty(len(self.labels), np.float32), np.empty(len(self.labels), bool)
        for which, batch in self._batches(np.arange(len(self.labels))):
            found = self._call(None, batch, 0, self.images[batch])
            margins[which], wrong[which] = found.margin[: len(which)], found.fooled[: len(which)]
        return margins, wrong

    @functools.cached_property
    def _doubt(self) -> np.float32:
        """The largest difference of a margin by the surrogate."""
        if self.surrogate is None:
            return np.float32(0)
        other = dataclasses.replace(self, predict=self.surrogate, surrogate=None)
        return np.max(np.abs(other._look()[0] - self._look()[0]))

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
            np.float32(0) if how is None else self._doubt,
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

    def join(self, arrays: list[Any]) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
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
    doubt: Array,
) -> Tried:
    """One round on a batch; without an attack, what the classifier says about the images."""
    predict, surrogate = static.join(arrays)
    problem = Problem(predict, images, labels, keys, eps, box, random).with_keys(name)
    # FAB walks along the boundary, which the surrogate has elsewhere.
    if surrogate is not None and not isinstance(how, Fab):
        problem = problem._replace(predict=surrogate, judge=predict, doubt=doubt)
    if how is None:
        return look(problem, images)
    tried = Tried(before, margins, jnp.zeros(len(labels), bool))
    return try_round(how, problem, number, tried)[0]
