"""What a superfluid synthesis writes at its end: the machines, and for every start what became of it."""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from lapwing.dmm import Machine
from lapwing.task import Callback, CallbackEvent, Task
from lapwing.train import FitResult

from ._examples import Examples, errors_on
from ._results import summary, write_results
from ._superfluid import FLUID, Superfluid
from ._synthesize import Synthesis, outcome

FEW_LINKS = 15
RIGHT = 1e-3  # the largest error of a single answer, in a machine that is right


def superfluid_task(superfluid: Superfluid, tests: Mapping[str, Examples]) -> Task:
    """The synthesis as a task that writes its machines, and how they do in the `tests`, to the run folder.

    >>> from lapwing import dmm, synthesis
    >>> def nothing(text, cycles):
    ...     return {"dict-1": [0.0] * cycles, "dict-2": [0.0] * cycles}
    >>> examples = Examples.from_function(nothing, ["ab"], 20)
    >>> students = dmm.fluid_student(), dmm.plain_student()
    >>> parts = Superfluid([examples], students, synthesis.SuperfluidConfig(starts=1))
    >>> task = superfluid_task(parts, {"seen": examples})      # for lw.train.fit
    >>> len(parts.task().callbacks), len(task.callbacks)
    (0, 1)
    """
    return dataclasses.replace(superfluid.task(), callbacks=[WriteSuperfluid(superfluid, tests)])


def starts_of(synthesis: Synthesis, tests: Mapping[str, Examples], **options: Any) -> list[dict[str, Any]]:
    """For each start its links, the functions of its neurons, and the largest error of an answer in the tests. Links
    are all but the two of the clock."""
    rows = []
    for each in synthesis.machines:
        worst = {name: _worst(each.machine, examples, **options) for name, examples in tests.items()}
        right = max(worst.values()) < RIGHT
        rows.append(
            {
                "start": each.start,
                "restarts": each.restarts,
                "links": each.links,
                "functions": _functions(each.machine),
                "error": each.error,
                "worst_error": worst,
                "dropped": each.dropped,
                "right": right,
                "meets": right and each.links <= FEW_LINKS,
            }
        )
    return sorted(rows, key=lambda row: row["start"])


def _worst(machine: Machine, examples: Examples, **options: Any) -> float:
    found = float(np.max(np.abs(errors_on(machine, examples, **options)[1] - examples.targets)))
    return found if np.isfinite(found) else np.inf


def _functions(machine: Machine) -> dict[str, int]:
    """How many neurons of each function contribute to an answer, without the fixed ones."""
    inside = [
        name for name in machine.used() if machine.neurons[name].inputs and machine.neurons[name].outputs
    ]
    names = [machine.neurons[name].functions[0].name for name in inside]
    return dict(sorted(Counter(name for name in names if name not in ("timer", "input")).items()))


def _without(result: FitResult, fluid: np.ndarray, soft: np.ndarray) -> FitResult:
    """The result in which machines that still mix functions have no links, and are dropped."""
    params = dict(result.params)
    params["kept"] = np.asarray(params["kept"]) & ~(fluid[:, None] & soft)
    params["alive"] = np.asarray(params["alive"]) & ~fluid
    return dataclasses.replace(result, state=result.state._replace(params=params))


class WriteSuperfluid(Callback):
    """Writes the machines to the run folder at the end, and prints a summary."""

    def __init__(self, superfluid: Superfluid, tests: Mapping[str, Examples]):
        self._superfluid, self._tests = superfluid, tests

    def on_end(self, event: CallbackEvent) -> str:
        superfluid, result = self._superfluid, event.result
        fluid = np.asarray(result.params["active"]) & (int(result.params["stage"]) == FLUID)
        if fluid.all():
            return "It ended before every neuron had one function, so there is no machine to write; `lapwing resume`"
        config = superfluid.pruning_config
        synthesis = outcome(superfluid.wirings, config, _without(result, fluid, superfluid.wirings.soft))
        options = {"governor": config.governor}
        rows = starts_of(synthesis, self._tests, **options)
        if event.run is not None:
            write_results(synthesis, self._tests, event.run, **options)
            (event.run.folder / "starts.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        count = sum(row["meets"] for row in rows)
        verdict = (
            f"{count} of {len(rows)} starts ended with at most {FEW_LINKS} links, one function a neuron, and answers "
            f"within {RIGHT:g} of the expected ones in all tests"
        )
        return f"{summary(synthesis, self._tests, **options)}\n{verdict}"
