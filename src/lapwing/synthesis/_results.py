"""What a synthesis writes to its run folder: the machines, and the best one as text and pictures."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from lapwing.dmm import in_words, listing
from lapwing.journal import RunWriter
from lapwing.report import answers_picture, machine_picture, pruning_picture

from ._examples import Examples, by_field, errors_on, tests_of
from ._synthesize import Synthesis

SMALL = 40  # Larger machines are far from done, and take long to compile.


def write_results(
    synthesis: Synthesis, tests: Mapping[str, Examples], run: RunWriter, **options: Any
) -> None:
    """Writes all machines, and the answers of the best one in the `tests`."""
    folder, best = run.folder, synthesis.best
    (folder / "machines").mkdir(exist_ok=True)
    for each in synthesis.machines:
        each.machine.save(folder / "machines" / f"start-{each.start}.json")
    best.save(folder / "machine.json")
    (folder / "machine.txt").write_text(f"{listing(best)}\n\n{in_words(best)}\n", encoding="utf-8")
    (folder / "results.json").write_text(
        json.dumps(_results(synthesis, tests, **options), indent=1), encoding="utf-8"
    )
    machine_picture(best, folder / "machine.png")
    run.add_picture(folder / "machine.png", "machine.png", f"the machine of {len(best.soft())} soft links")
    pruning_picture(synthesis.path, folder / "path.png")
    run.add_picture(folder / "path.png", "path.png", "links against error, round by round")
    for name, examples in tests.items():
        _, answers = errors_on(best, examples, **options)
        ours, theirs = (by_field(examples.fields, table[0]) for table in (answers, examples.targets))
        file = folder / f"answers-{name}.png"
        answers_picture(ours, theirs, file)
        run.add_picture(file, file.name, f"answers to {examples.texts[0]!r} ({name}) and those expected")


def summary(synthesis: Synthesis, tests: Mapping[str, Examples], **options: Any) -> str:
    """The results, to print."""
    lines = [f"{'start':>5}  {'restarts':>8}  {'links':>5}  {'error':>9}"]
    for each in synthesis.machines:
        lines.append(
            f"{each.start:>5}  {each.restarts:>8}  {each.links:>5}  {each.error:>9.3g}"
            + ("  dropped" if each.dropped else "")
        )
    count = len(synthesis.machines)
    lines.append(
        f"{synthesis.successes(30, 0.05)} of {count} starts ended with at most 30 links and an error of 0.05"
    )
    lines += ["", listing(synthesis.best), "", in_words(synthesis.best), ""]
    for name, examples in tests.items():
        errors, _ = errors_on(synthesis.best, examples, **options)
        lines.append(
            f"{name}: {len(errors)} texts, {examples.cycles} cycles: squared error {errors.max():.3g} at most, "
            f"{np.median(errors):.3g} usually"
        )
    return "\n".join(lines)


def _results(synthesis: Synthesis, tests: Mapping[str, Examples], **options: Any) -> dict[str, Any]:
    """All machines with the largest error of each on each group of tests, and every test of the best."""
    names = ("start", "restarts", "links", "error", "dropped", "tidying")
    machines = []
    for each in synthesis.machines:
        worst = {
            name: float(errors_on(each.machine, examples, **options)[0].max())
            for name, examples in tests.items()
            if each.links <= SMALL
        }
        machines.append({**{name: getattr(each, name) for name in names}, "worst": worst})
    rows = [
        row for name, examples in tests.items() for row in tests_of(synthesis.best, name, examples, **options)
    ]
    return {"machines": machines, "tests": rows, "path": synthesis.path.tolist()}
