"""The metrics that the points of a sweep will log, known before the first of them is trained.

They are found by tracing a step, in a process of its own without a GPU: the process of the sweep must not take the
memory that its workers need.
"""

import os
import subprocess
import sys

from lapwing.experiments import Source
from lapwing.journal import from_json, to_json

from ._points import Sweep
from ._results import Measure

# Every run has these.
_ALWAYS = ("loss", "gradient_norm", "clipped_norm", "learning_rate")


def check_metric(sweep: Sweep, measure: Measure, source: Source | None) -> None:
    """Refuses a metric that the runs will not have. Where that cannot be found out, the first point will show it."""
    if measure.metric in ("", *_ALWAYS):
        return
    points = sweep.points(sweep.candidates()[:1])
    if not points:
        return
    question = {
        "experiment": sweep.experiment,
        "settings": points[0].settings,
        "source": source and source.to_json(),
    }
    done = subprocess.run(
        [sys.executable, "-m", "lapwing.sweep._metrics"],
        input=to_json(question),
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        measure.for_metrics(from_json(done.stdout.splitlines()[-1]))


def main() -> None:
    """Prints the names of the metrics, for the question on standard input."""
    import jax

    from lapwing.experiments import find
    from lapwing.train import (
        config_from,
        first_feds,
        initial_state,
        make_evaluation,
        make_phases,
        take_step,
    )

    asked = from_json(sys.stdin.read())
    experiment = find(asked["experiment"], Source.from_json(asked["source"]) if asked["source"] else None)
    config = config_from(experiment.Config, asked["settings"])
    task = experiment.build(config)
    state, mask = initial_state(task, config)
    phases = make_phases(task, mask, config)
    (fed,) = first_feds(task, config, 1)
    _, metrics = jax.eval_shape(lambda state, fed: take_step(phases, state, fed), state, fed)
    evaluation = make_evaluation(task, config)
    if task.validation is not None:
        sys.exit("what is measured on validation data is known when they have been read")
    evaluated = jax.eval_shape(evaluation, state) if evaluation else {}
    print(
        to_json([*(name for name in metrics if name != "skipped"), *(f"eval_{name}" for name in evaluated)])
    )


if __name__ == "__main__":
    main()
