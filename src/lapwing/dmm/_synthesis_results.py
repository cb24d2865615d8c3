"""What a synthesis leaves in its folder: the machines, the best one as text and pictures, and the path to it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lapwing.journal import RunWriter

from ._machine import Machine
from ._picture import picture
from ._plot import plot_answers, save_figure
from ._synthesis import Synthesis
from ._synthesis_examples import Examples, by_field, errors_on, tests_of
from ._text import listing
from ._words import in_words


def write_results(
    synthesis: Synthesis, tests: Mapping[str, Examples], run: RunWriter, **options: Any
) -> None:
    """Writes everything about the machines, and what the best one answers in the `tests`."""
    folder, best = run.folder, synthesis.best
    (folder / "machines").mkdir(exist_ok=True)
    for each in synthesis.machines:
        each.machine.save(folder / "machines" / f"start-{each.start}.json")
    best.save(folder / "machine.json")
    (folder / "machine.txt").write_text(f"{listing(best)}\n\n{in_words(best)}\n", encoding="utf-8")
    rows = [row for name, examples in tests.items() for row in tests_of(best, name, examples, **options)]
    (folder / "results.json").write_text(json.dumps(_results(synthesis, rows), indent=1), encoding="utf-8")
    _draw(best, folder / "machine.png", run)
    plot_path(synthesis.path, folder / "path.png")
    run.add_picture(
        folder / "path.png", "path.png", "links against error, from the first machine to the last"
    )
    for name, examples in tests.items():
        _, answers = errors_on(best, examples, **options)
        ours, theirs = (by_field(examples.fields, table[0]) for table in (answers, examples.targets))
        file = folder / f"answers-{name}.png"
        plot_answers(ours, theirs, file)
        run.add_picture(
            file, file.name, f"the answers to {examples.texts[0]!r} ({name}), over those expected"
        )


def summary(synthesis: Synthesis, tests: Mapping[str, Examples], **options: Any) -> str:
    """What came of it, for the person who watched."""
    lines = [f"{'start':>5}  {'links':>5}  {'error':>9}"]
    for each in synthesis.machines:
        lines.append(
            f"{each.start:>5}  {each.links:>5}  {each.error:>9.3g}" + ("  dropped" if each.dropped else "")
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


def _draw(machine: Machine, file: Path, run: RunWriter) -> None:
    picture(machine, file)
    run.add_picture(file, file.name, f"the machine of {len(machine.soft())} soft links")


def _results(synthesis: Synthesis, rows: list[dict[str, Any]]) -> dict[str, Any]:
    machines = [
        {
            "start": each.start,
            "links": each.links,
            "error": each.error,
            "dropped": each.dropped,
            "tidying": list(each.tidying),
        }
        for each in synthesis.machines
    ]
    return {"machines": machines, "tests": rows, "path": synthesis.path.tolist()}


def plot_path(path: np.ndarray, file: str | Path | None = None) -> Figure:
    """Draws the path of each start, [rounds, starts, 2]: its links against its error.

    >>> import numpy as np
    >>> len(plot_path(np.ones((3, 2, 2))).axes[0].lines)
    2
    """
    figure = Figure(figsize=(8, 4.5), dpi=110, layout="constrained")
    panel = figure.subplots()
    for k in range(path.shape[1]):
        links, errors = path[:, k].T
        there = errors < 1e8
        panel.plot(links[there], np.maximum(errors[there], 1e-8), ".-", lw=1, ms=4, label=f"start {k}")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.invert_xaxis()
    panel.set_xlabel("soft links")
    panel.set_ylabel("squared error of a text")
    panel.grid(alpha=0.25)
    panel.legend(frameon=False, fontsize=8)
    if file is not None:
        save_figure(figure, file)
    return figure
