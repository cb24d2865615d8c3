"""`lapwing evaluate RUN`: the robustness of the network of a run, by default under a strong attack."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from lapwing.experiments import REGISTRY
from lapwing.journal import Run, find_run

from .output import print_json, print_rich, table
from .parse import RUNS, Json, RunName, RunsFolder, UsageError

if TYPE_CHECKING:
    from lapwing.attacks import Attack, Robustness
    from lapwing.train import Checkpoint

_EXPERIMENT = "adversarial"
_RESTARTS_SHOWN = (1, 2, 5, 10, 20, 50)

Kind = Annotated[Literal["pgd", "fgsm"], tyro.conf.arg(help="pgd, or fgsm (one step, a weak attack)")]
Steps = Annotated[int, tyro.conf.arg(help="gradient steps per restart")]
Restarts = Annotated[int, tyro.conf.arg(help="number of restarts")]
Eps = Annotated[float | None, tyro.conf.arg(help="radius of the ball; default: that of the training")]
Norm = Annotated[
    Literal["linf", "l2"] | None, tyro.conf.arg(help="norm of a perturbation; default: that of the training")
]
Loss = Annotated[Literal["cross_entropy", "margin"], tyro.conf.arg(help="loss to maximize")]
Examples = Annotated[int, tyro.conf.arg(help="number of test images to attack; 0: all")]
Curve = Annotated[bool, tyro.conf.arg(help="also attack at other eps, with two restarts")]
Step = Annotated[int | None, tyro.conf.arg(help="step of the checkpoint; default: the newest")]


def evaluate(
    run: RunName,
    *,
    attack: Kind = "pgd",
    steps: Steps = 100,
    restarts: Restarts = 50,
    eps: Eps = None,
    norm: Norm = None,
    loss: Loss = "cross_entropy",
    examples: Examples = 0,
    curve: Curve = True,
    step: Step = None,
    seed: int = 0,
    runs_dir: RunsFolder = RUNS,
    as_json: Json = False,
) -> None:
    """Attacks the network of a run of `adversarial` on test images, and draws the result."""
    chosen = Run.open(find_run(run, runs_dir))
    if chosen.experiment != _EXPERIMENT:
        raise UsageError(
            f"expected a run of {_EXPERIMENT}, found one of {chosen.experiment}, which has no classifier to attack"
        )
    import jax

    from lapwing.attacks import fgsm, strong
    from lapwing.experiments._adversarial_evaluation import CURVE, network_of, pictures
    from lapwing.experiments._adversarial_evaluation import evaluate as evaluated
    from lapwing.train import Checkpoints, config_from

    config = config_from(REGISTRY.load(_EXPERIMENT).Config, chosen.config)
    reader = Checkpoints(chosen.folder / "checkpoints")
    checkpoint = _checkpoint(chosen, reader.all(), step)
    trained = config.attack
    options = {"norm": norm or trained.norm, "loss": loss, "box": trained.box}
    radius = trained.eps if eps is None else eps
    strongest = strong(radius, options["norm"], steps, restarts)
    wanted = dataclasses.replace(strongest, **options) if attack == "pgd" else fgsm(radius, **options)
    test = REGISTRY.load(_EXPERIMENT).splits_of(config).test
    count = examples or len(test.labels)
    found = evaluated(
        network_of(reader.arrays(checkpoint)),
        test.pixels(slice(count)),
        test.labels[:count],
        wanted,
        jax.random.key(seed),
        curve=CURVE if curve else (),
    )
    report = {"run": chosen.name, "step": checkpoint.step, "seed": seed, **found.to_json()}
    drawn = [chosen.put(f"pictures/{name}", content) for name, content in pictures(found).items()]
    _write(chosen, report, found.found)
    if as_json:
        print_json(report)
        return
    print_rich(table(["", "accuracy (95% interval)"], _rows(found.found)))
    if found.curve:
        rows = [[point.eps, str(point.robust)] for point in found.curve]
        print_rich("", table(["eps", f"accuracy, {len(found.curve[0].after)} restarts"], rows))
    print("\n".join(["", *map(str, drawn)]))


def _checkpoint(run: Run, there: "list[Checkpoint]", step: int | None) -> "Checkpoint":
    fitting = [each for each in there if step is None or each.step == step]
    if not fitting:
        steps = ", ".join(str(number) for number in sorted({each.step for each in there})) or "none"
        which = "" if step is None else f" of step {step}"
        raise UsageError(f"{run.name} has no checkpoint{which}; there are: {steps}")
    return max(fitting, key=lambda each: each.serial)


def _rows(found: "Robustness") -> list[list[Any]]:
    shown = [number for number in _RESTARTS_SHOWN if number < len(found.after)] + [len(found.after)]
    return [
        ["natural", str(found.natural)],
        *(
            [
                f"{_name(found.attack)}, {number} restart{'s' if number > 1 else ''}",
                str(found.after[number - 1]),
            ]
            for number in dict.fromkeys(shown)
        ),
    ]


def _name(attack: "Attack") -> str:
    kind = f"PGD, {attack.steps} steps" if attack.steps > 1 else "FGSM"
    return f"{kind}, {attack.norm} {attack.eps:g}"


def _write(run: Run, report: dict[str, Any], found: "Robustness") -> None:
    from lapwing.journal import to_json

    run.put("evaluation.json", to_json(report) + "\n")
    run.note(
        f"evaluated at step {report['step']}: natural {found.natural}, {_name(found.attack)}, "
        f"{len(found.after)} restarts: {found.robust}"
    )
