"""`lapwing think RUN "…"`: a thinker answers one problem, and shows how its answer changes from step to step."""

from dataclasses import asdict
from typing import Annotated

import tyro

from lapwing.experiments import find, load_trained, read_source
from lapwing.journal import Run, find_run

from .output import print_json
from .parse import RUNS, Json, RunName, RunsFolder, UsageError
from .which import Best, Newest, Step, chosen

Text = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="PROBLEM",
        help='such as "95+39", bits such as 110101, the rows of a maze such as "S#E .#. ...", or 81 cells of a Sudoku',
    ),
]
Most = Annotated[
    int, tyro.conf.arg(metavar="N", help="think for at most this many steps; 0: as in training, by its size")
]


def think(
    run: RunName,
    problem: Text,
    most: Most = 0,
    step: Step = None,
    best: Best = False,
    newest: Newest = False,
    runs_dir: RunsFolder = RUNS,
    as_json: Json = False,
) -> None:
    """Lets a thinker answer one problem.

    Prints its answer after each step that changed it, until it has settled, and whether it is right.
    """
    found = Run.open(find_run(run, runs_dir))
    target, source = read_source(found, None)
    experiment = find(target, source)
    if experiment.name != "thinker":
        raise UsageError(
            f"{found.name} is a run of {experiment.name}; only a thinker thinks (lapwing train thinker)"
        )
    from lapwing.experiments._thinker_answer import film_of

    trained = load_trained(found, experiment, chosen(step, best, newest))
    config = trained.config
    inputs = config.kind.parse(problem, config.size if config.model.mixer == "dense" else None)
    film = film_of(config.kind, trained.params, inputs, most or 2 * config.thinking(inputs.shape[0]))
    if as_json:
        print_json({"run": found.name, "step": trained.step, **asdict(film), "answer": film.answer})
        return
    for at, answer in film.answers.items():
        print(f"step {at:>4}{_apart(answer)}")
    end = f"settled after {film.settled} steps" if film.settled else f"not settled after {film.steps} steps"
    print(f"{end}: {'right' if film.right else f'wrong, it is{_apart(film.solution, 1)}'}")


def _apart(answer: str, spaces: int = 2) -> str:
    """What is a square begins on a line of its own."""
    return ("\n" if "\n" in answer else " " * spaces) + answer
