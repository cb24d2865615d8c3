"""`lapwing evaluate` of an adversarial run: its robustness under a strong attack, in numbers, words and pictures."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import jax

from lapwing.attacks import Attack, Robustness, fgsm, strong
from lapwing.data import LabelledImages

from ._adversarial_evaluation import CURVE, evaluate, pictures
from ._evaluate import Evaluated, Trained

_RESTARTS_SHOWN = (1, 2, 5, 10, 20, 50)


@dataclass(frozen=True)
class Evaluation:
    """The attack on the test images."""

    attack: Literal["pgd", "fgsm"] = "pgd"
    """pgd, or fgsm (one step, a weak attack)"""
    steps: int = 100
    """gradient steps per restart"""
    restarts: int = 50
    """number of restarts"""
    eps: float | None = None
    """radius of the ball; default: that of the training"""
    norm: Literal["linf", "l2"] | None = None
    """norm of a perturbation; default: that of the training"""
    loss: Literal["cross_entropy", "margin"] = "cross_entropy"
    """loss to maximize"""
    examples: int = 0
    """number of test images to attack; 0: all"""
    curve: bool = True
    """also attack at other eps, with two restarts"""
    seed: int = 0
    """seed of the attack"""


def evaluate_robustness(trained: Trained, test: LabelledImages, options: Evaluation) -> Evaluated:
    """Attacks the network of a run on test images, and draws the result into its folder."""
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
