"""The robustness of a trained network under AutoAttack: what to report, a curve over eps, and the signs of masking.

This takes minutes, so it is done in parts (an attack, a point of the curve, a point of the checklist), and what is done
is written into the run folder after each: interrupted at any moment, the same evaluation continues there.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from lapwing.attacks import MASKING_POINTS, AutoAttack, AutoAttackResult, MaskingCheck, Share, masking_checks
from lapwing.core import png_of
from lapwing.journal import Checkpoint, CheckpointError, read_arrays, read_checkpoint, write_checkpoint

from ._adversarial_evaluation import CURVE
from ._adversarial_pictures import Attacked, curve_figure, image_figure

_CURVE_ATTACKS = ("apgd-ce", "apgd-t")  # The first two of AutoAttack, which find nearly all there is.
_SHOWN = 8

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Robust:
    """What AutoAttack found, the accuracy at other eps, and the checklist of gradient masking."""

    settings: AutoAttack
    found: AutoAttackResult
    curve: tuple[tuple[float, Share], ...]
    checks: tuple[MaskingCheck, ...]

    @property
    def natural(self) -> Share:
        return _share(self.found.natural)

    @property
    def robust(self) -> Share:
        return _share(self.found.robust)

    @property
    def after(self) -> list[tuple[str, Share]]:
        """Accuracy before any attack and after each."""
        count = len(self.found.robust)
        shares = [Share(round(accuracy * count), count) for accuracy in self.found.accuracy_after]
        return [("natural", self.natural), *zip(self.found.names, shares, strict=True)]

    def to_json(self) -> dict[str, Any]:
        return {
            "attack": {"name": "autoattack", **dataclasses.asdict(self.settings)},
            "eps": self.settings.eps,
            "natural": self.natural.to_json(),
            "robust": self.robust.to_json(),
            "after": {name: share.to_json() for name, share in self.after[1:]},
            "seconds": dict(zip(self.found.names, self.found.seconds, strict=True)),
            "curve": [{"eps": eps, "robust": share.to_json()} for eps, share in self.curve],
            "masking": [dataclasses.asdict(check) for check in self.checks],
        }


def evaluate_autoattack(
    network: Any,
    images: Float[Array | np.ndarray, "examples height width channels"],
    labels: Int[np.ndarray, " examples"],
    settings: AutoAttack,
    seed: int,
    *,
    curve: bool = True,
    masking: int = 200,
    place: Path | None = None,
    progress: Progress = lambda *_: None,
) -> Robust:
    """Attacks all images.

    **Arguments**

    - `curve`: also attack at other eps.
    - `masking`: number of images for the checklist of gradient masking; 0: leave it out.
    - `place`: file in which what is done is kept; removed at the end.
    - `progress`: called with the name of a part, what is done of it and what there is to do.
    """
    images, key = np.asarray(images), jax.random.key(seed)
    kept = Kept.open(place, _identity(network, images, labels, settings, seed))
    found = settings(
        network,
        images,
        labels,
        key,
        progress=progress,
        finished=kept.state,
        on_attack=kept.keep_state,
    )
    points = _curve(network, images, labels, settings, found, key, kept, progress) if curve else ()
    checks = []
    if masking and found.natural.any():
        checks = [MaskingCheck(**check) for check in kept.record["checks"]]
        rest = masking_checks(
            network, images, labels, settings, key, result=found, examples=masking, skip=len(checks)
        )
        progress("masking", len(checks), MASKING_POINTS)
        for check in rest:
            checks.append(check)
            kept.add("checks", dataclasses.asdict(check))
            progress("masking", len(checks), MASKING_POINTS)
    kept.remove()
    return Robust(settings, found, tuple(points), tuple(checks))


def _curve(
    network: Any,
    images: np.ndarray,
    labels: np.ndarray,
    settings: AutoAttack,
    found: AutoAttackResult,
    key: Array,
    kept: "Kept",
    progress: Progress,
) -> list[tuple[float, Share]]:
    points = [(eps, Share(right, count)) for eps, right, count in kept.record["curve"]]
    for factor in CURVE[len(points) :]:
        eps = factor * settings.eps
        if factor == 0:
            share = _share(found.natural)
        elif factor == 1 and found.names[:2] == _CURVE_ATTACKS:
            share = _share((found.fell_to == -1) | (found.fell_to >= 2))
        else:
            few = dataclasses.replace(settings, eps=eps, attacks=_CURVE_ATTACKS)
            result = few(
                network, images, labels, key, progress=lambda _, *at, eps=eps: progress(f"eps {eps:g}", *at)
            )
            share = _share(result.robust)
        points.append((eps, share))
        kept.add("curve", (eps, share.right, share.count))
    return points


@dataclass
class Kept:
    """What an interrupted evaluation has found so far, in a file that is replaced whole."""

    path: Path | None
    record: dict[str, Any]
    state: dict[str, np.ndarray] | None = None

    @classmethod
    def open(cls, path: Path | None, identity: str) -> "Kept":
        """What is in the file, if it is of the same evaluation; otherwise nothing yet."""
        fresh = cls(path, {"identity": identity, "fingerprint": "", "curve": [], "checks": []})
        if path is None or not path.is_file():
            return fresh
        try:
            found = read_checkpoint(path)
            if found.record.get("identity") != identity:
                return fresh
            arrays = read_arrays(found)
        except CheckpointError:  # Damaged: it is measured again.
            return fresh
        state = {**arrays, "fingerprint": np.array(found.record["fingerprint"])}
        return cls(path, dict(found.record), state)

    def keep_state(self, state: Mapping[str, np.ndarray]) -> None:
        self.state = dict(state)
        self.record["fingerprint"] = str(state["fingerprint"])
        self._write()

    def add(self, part: str, value: Any) -> None:
        self.record[part] = [*self.record[part], value]
        self._write()

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        if self.path is not None and self.state is not None:
            arrays = {name: values for name, values in self.state.items() if name != "fingerprint"}
            write_checkpoint(Checkpoint(int(self.state["done"]), self.path, self.record), arrays)


def _identity(network: Any, images: np.ndarray, labels: np.ndarray, settings: AutoAttack, seed: int) -> str:
    """What the results are of: parameters, images and attack."""
    digest = hashlib.sha256(repr((settings, seed, images.shape)).encode())
    for array in (*jax.tree.leaves(network), images, labels):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _share(right: np.ndarray) -> Share:
    return Share(int(right.sum()), len(right))


def pictures(
    network: Any, images: Float[Array | np.ndarray, "examples ..."], labels: np.ndarray, robust: Robust
) -> dict[str, bytes]:
    """PNG files by name: accuracy over eps and after each attack; images that fell, and images that held with the
    perturbation that came closest."""
    found, images = robust.found, np.asarray(images)

    def group(name: str, which: np.ndarray, titles: list[str]) -> Attacked:
        attacked = found.images[which]
        # The whole batch of pictures has one size, so that this compiles once.
        filled = np.resize(attacked, (_SHOWN, *attacked.shape[1:])) if len(which) else attacked
        predicted = np.asarray(jnp.argmax(network(jnp.asarray(filled)), axis=1)) if len(which) else which
        return Attacked(name, images[which], attacked, labels[which], predicted[: len(which)], titles)

    fell, held = np.flatnonzero(found.fell_to >= 0)[:_SHOWN], np.flatnonzero(found.robust)[:_SHOWN]
    groups = [
        group("fell", fell, [found.names[number] for number in found.fell_to[fell]]),
        group("held", held, [f"margin {-margin:.2g}" for margin in found.margin[held]]),
    ]
    curve = robust.curve or ((robust.settings.eps, robust.robust),)
    return {
        "robustness.png": png_of(lambda: curve_figure(curve, robust.settings.eps, robust.after), dpi=130),
        "attacked.png": png_of(lambda: image_figure(groups), dpi=130),
    }
