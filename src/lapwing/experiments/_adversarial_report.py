"""`lapwing evaluate` of an adversarial run: its robustness under a strong attack, in numbers, words and pictures."""

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import Any, Literal

import jax

from lapwing.attacks import Attack, AutoAttack, Robustness, fgsm, strong
from lapwing.data import LabelledImages
from lapwing.train import ConfigError

from . import _adversarial_autoattack as autoattack
from ._adversarial_evaluation import CURVE, evaluate, pictures
from ._evaluate import Evaluated, Trained

_RESTARTS_SHOWN = (1, 2, 5, 10, 20, 50)
_SAY_EVERY_S = 10.0
_STATE = "evaluation.safetensors"


@dataclass(frozen=True)
class Evaluation:
    """The attack on the test images."""

    attack: Literal["autoattack", "pgd", "fgsm"] = "autoattack"
    """autoattack (what to report), pgd with restarts, or fgsm (one step, a weak attack)"""
    version: Literal["standard", "plus"] = "standard"
    """autoattack: standard, or plus (more attacks and restarts)"""
    steps: int = 100
    """gradient steps: per restart of pgd, per round of autoattack"""
    queries: int = 5000
    """autoattack: queries of Square"""
    restarts: int = 50
    """pgd: number of restarts"""
    eps: float | None = None
    """radius of the ball; default: that of the training"""
    norm: Literal["linf", "l2", "l1"] | None = None
    """norm of a perturbation; default: that of the training"""
    loss: Literal["cross_entropy", "margin"] = "cross_entropy"
    """pgd and fgsm: loss to maximize"""
    examples: int = 0
    """number of test images to attack; 0: all"""
    batch_size: int = 500
    """autoattack: images attacked at once"""
    curve: bool = True
    """also attack at other eps, with fewer attacks or two restarts"""
    masking: int = 200
    """autoattack: images on which the signs of gradient masking are measured; 0: none"""
    seed: int = 0
    """seed of the attack"""

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("queries", 1), ("restarts", 1), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} should be at least {least}, but is {getattr(self, name)}")
        if self.eps is not None and not 0 < self.eps < math.inf:
            raise ConfigError(f"eps should be a positive number, but is {self.eps:g}")
        for name in ("examples", "masking"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} should be at least 0, but is {getattr(self, name)}")


def evaluate_robustness(trained: Trained, test: LabelledImages, options: Evaluation) -> Evaluated:
    """Attacks the network of a run on test images, and draws the result into its folder."""
    if options.attack == "autoattack":
        return _autoattack(trained, test, options)
    count = options.examples or len(test.labels)
    found = evaluate(
        trained.params,
        test.pixels(slice(count)),
        test.labels[:count],
        _attack(options, trained.config.attack),
        jax.random.key(options.seed),
        curve=CURVE if options.curve else (),
    )
    drawn = [trained.run.put(f"pictures/{name}", content) for name, content in pictures(found).items()]
    tables = [_table("", "accuracy (95% interval)", _rows(found.found))]
    if found.curve:
        rows = [[f"{point.eps:g}", str(point.robust)] for point in found.curve]
        tables.append(_table("eps", f"accuracy, {len(found.curve[0].after)} restarts", rows))
    summary = (
        f"natural {found.found.natural}, {_name(found.found.attack)}, {len(found.found.after)} restarts: "
        f"{found.found.robust}"
    )
    text = "\n\n".join([*tables, "\n".join(map(str, drawn))])
    return Evaluated({"seed": options.seed, **found.to_json()}, summary, text)


def _autoattack(trained: Trained, test: LabelledImages, options: Evaluation) -> Evaluated:
    usual: Attack = trained.config.attack
    settings = AutoAttack(
        eps=usual.eps if options.eps is None else options.eps,
        norm=options.norm or usual.norm,
        version=options.version,
        batch_size=options.batch_size,
        box=usual.box,
        steps=options.steps,
        queries=options.queries,
    )
    count = options.examples or len(test.labels)
    images, labels = test.pixels(slice(count)), test.labels[:count]
    with _Shown(trained.run.name) as shown:
        robust = autoattack.evaluate_autoattack(
            trained.params,
            images,
            labels,
            settings,
            options.seed,
            curve=options.curve,
            masking=options.masking,
            place=trained.run.file(_STATE),
            progress=shown.show,
        )
    drawn = autoattack.pictures(trained.params, images, labels, robust)
    paths = [trained.run.put(f"pictures/{name}", content) for name, content in drawn.items()]
    about = f"{settings.norm} {settings.eps:g}"
    tables = [
        _table(
            f"AutoAttack {settings.version}, {about}",
            "accuracy (95% interval)",
            [[name if name == "natural" else f"after {name}", str(share)] for name, share in robust.after],
        )
    ]
    if robust.curve:
        rows = [[f"{eps:g}", str(share)] for eps, share in robust.curve]
        tables.append(_table("eps", "accuracy, apgd-ce and apgd-t", rows))
    if robust.checks:
        tables.append("\n".join(["signs of gradient masking", *map(str, robust.checks)]))
    masked = [check.name for check in robust.checks if check.flagged]
    summary = f"natural {robust.natural}, AutoAttack {settings.version}, {about}: {robust.robust}" + (
        f"; signs of gradient masking: {', '.join(masked)}" if masked else ""
    )
    text = "\n\n".join([*tables, "\n".join(map(str, paths))])
    return Evaluated({"seed": options.seed, **robust.to_json()}, summary, text)


class _Shown:
    """The progress of an evaluation on standard error: bars on a terminal, a line now and then elsewhere."""

    def __init__(self, run: str) -> None:
        # Not at the top: trainings, which import this, do without rich.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._run = run
        console = Console(stderr=True, highlight=False)
        columns = [TextColumn("{task.description:>9}"), BarColumn(bar_width=30), MofNCompleteColumn()]
        self._bars = Bars(*columns, TimeElapsedColumn(), console=console, auto_refresh=False, transient=True)
        self._is_terminal = console.is_terminal
        self._tasks: dict[str, Any] = {}
        self._next = time.monotonic() + _SAY_EVERY_S

    def __enter__(self) -> "_Shown":
        if self._is_terminal:
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bars.stop()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._bars.console.print(
                f"what is done is kept; the same `lapwing evaluate {self._run}` continues", markup=False
            )

    def show(self, part: str, done: int, total: int) -> None:
        if self._is_terminal:
            if part not in self._tasks:
                self._tasks[part] = self._bars.add_task(part, total=total)
            self._bars.update(self._tasks[part], completed=done, total=total, refresh=True)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + _SAY_EVERY_S
            self._bars.console.print(f"{part}: {done} of {total}", markup=False)


def _attack(options: Evaluation, trained: Attack) -> Attack:
    shared: dict[str, Any] = {
        "norm": options.norm or trained.norm,
        "loss": options.loss,
        "box": trained.box,
    }
    radius = trained.eps if options.eps is None else options.eps
    if options.attack == "fgsm":
        return fgsm(radius, **shared)
    return dataclasses.replace(strong(radius, shared["norm"], options.steps, options.restarts), **shared)


def _rows(found: Robustness) -> list[list[str]]:
    shown = [number for number in _RESTARTS_SHOWN if number < len(found.after)] + [len(found.after)]
    attacked = [
        [f"{_name(found.attack)}, {number} restart{'s' if number > 1 else ''}", str(found.after[number - 1])]
        for number in dict.fromkeys(shown)
    ]
    return [["natural", str(found.natural)], *attacked]


def _name(attack: Attack) -> str:
    kind = f"PGD, {attack.steps} steps" if attack.steps > 1 else "FGSM"
    return f"{kind}, {attack.norm} {attack.eps:g}"


def _table(left: str, right: str, rows: list[list[str]]) -> str:
    width = max(len(name) for name, _ in [[left, right], *rows])
    return "\n".join(f"{name:{width}}  {value}" for name, value in [[left, right], *rows])
