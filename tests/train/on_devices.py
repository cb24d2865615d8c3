"""Trainings on eight devices that one CPU is split into: `python on_devices.py RUNS few` prints what came out as JSON.

In a process of its own, since the number of devices is fixed when jax starts."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from lapwing.experiments import adding, adversarial
from lapwing.experiments import latent_thinker as thinker
from lapwing.journal import Run, to_json
from lapwing.task import Task
from lapwing.train import ConfigError, Fed, FitConfig, FitResult, Rollback, Schedule, Watch, fit
from lapwing.train._fit import Alone

ADDING = adding.Config(width=8, length=6, batch_size=16, steps=40, laps_every=0, log_every=10)
_SIZE = dataclasses.replace(thinker.Config().model, width=8, heads=2, latents=2, steps=2)
THINKER = thinker.Config(
    task="copy", length=4, base=4, model=_SIZE, batch_size=16, evaluated=8, steps=12, laps_every=0
)
ADVERSARIAL = adversarial.Config(
    width=1, batch_size=16, pretrain=2, eps_warmup=4, validation=8, validation_steps=2, steps=12, laps_every=0
)


def outcome_of(result: FitResult) -> Any:
    return {"metrics": result.metrics, "evaluation": result.evaluation, "ended": result.ended}


def compared(experiment: Any, config: Any, counts: list[int | None]) -> dict[str, Any]:
    task = experiment.build(config)
    return {str(count): outcome_of(fit(task, config, quiet=True, devices=count)) for count in counts}


def loss(params: jax.Array, batch: jax.Array) -> Any:
    return jnp.mean((batch @ (params - 1)) ** 2), {}


def batch(key: jax.Array, step: jax.Array) -> jax.Array:
    accident = (step == 23) & (jax.random.uniform(key) < 0.99)
    return jnp.where(accident, jnp.nan, jax.random.normal(key, (16, 3)))


LINE = Task(init=lambda key: jnp.zeros(3), data=batch, loss=loss)


def moved(runs: Path) -> Any:
    """On eight devices, then on two, then on one, with what the host changes on the way."""
    config = FitConfig(
        steps=20,
        learning_rate=0.1,
        log_every=5,
        laps_every=0,
        schedule=Schedule("plateau", patience=5),
        weight_decay=0.1,
    )
    folder = None
    for devices in (8, 2, None):
        run = Run.reopen(folder) if folder else Run.create("moved", config, runs_dir=runs)
        folder = run.folder
        if devices:
            Run.open(folder).post("stop")
        result = fit(LINE, config, run, quiet=True, devices=devices)
    return {
        "whole": outcome_of(fit(LINE, config, quiet=True)),
        "moved": outcome_of(result),
        "events": Run.open(folder).events(),
    }


def steered(runs: Path) -> Any:
    """What a command changes stays on the devices; an accident takes the run back."""
    config = FitConfig(
        steps=40,
        learning_rate=0.1,
        log_every=5,
        laps_every=10,
        rollback=Rollback(times=100),
        watch=Watch(every=5),
    )
    results, events = [], []
    for devices in (4, None):
        with Run.create("steered", config, runs_dir=runs) as run:
            Run.open(run.folder).post("set", lr=0.05)
            results.append(outcome_of(fit(LINE, config, run, quiet=True, devices=devices)))
        events.append([event for event in run.events() if event["event"] == "watch"])
    return results, events


def split() -> str:
    """The compiled step of one device."""
    alone = Alone(adding.build(ADDING), ADDING, 8)
    carry = alone.program.load(None, alone.states[0], 1, Fed())
    return alone.program.steps(carry, 1).as_text()


def uneven() -> str:
    config = dataclasses.replace(ADDING, batch_size=10)
    try:
        fit(adding.build(config), config, quiet=True, devices=4)
    except ConfigError as error:
        return str(error)
    return "no error"


def main(runs: Path, wanted: str) -> None:
    found = {}
    if wanted == "few":
        found["adding"] = compared(adding, ADDING, [None, 8])
        found["split"] = split()
        found["uneven"] = uneven()
    elif wanted == "runs":
        found["moved"] = moved(runs)
        found["steered"], found["watched"] = steered(runs)
    else:
        found["thinker"] = compared(thinker, THINKER, [None, 4])
        found["adversarial"] = compared(adversarial, ADVERSARIAL, [None, 4])
    print(to_json(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
