"""`lapwing think RUN "…"`: a thinker answers one problem, and shows how its answer changes from step to step."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

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
Until = Annotated[
    Literal["settled", "sure"] | None,
    tyro.conf.arg(
        help="stop when the answer has not changed for 8 steps, or when the thinker is sure; default: sure, if it was "
        "trained with --model.halting"
    ),
]
Sure = Annotated[
    float | None,
    tyro.conf.arg(metavar="P", help="how sure it should be to stop: a probability; default: 0.99"),
]


def think(
    run: RunName,
    problem: Text,
    most: Most = 0,
    until: Until = None,
    sure: Sure = None,
    step: Step = None,
    best: Best = False,
    newest: Newest = False,
    runs_dir: RunsFolder = RUNS,
    as_json: Json = False,
) -> None:
    """Lets a thinker answer one problem.

    Prints its answer after each step that changed it, until it has settled or the thinker is sure, and whether it is
    right.
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
    size = config.kind.size_of(inputs)
    config.check_reach(size)
    least = _least(trained.params, found.name, until, sure)
    most = most or 2 * config.thinking(size)
    film = film_of(config.kind, trained.params, inputs, most, least)
    if as_json:
        print_json({"run": found.name, "step": trained.step, **asdict(film), "answer": film.answer})
        return
    for at, answer in film.answers.items():
        share = "" if film.sure is None else f"  {_percent(film.sure[at]):>5}"
        print(f"step {at:>4}{share}{_apart(answer)}")
    if least is None:
        end = (
            f"settled after {film.settled} steps" if film.settled else f"not settled after {film.steps} steps"
        )
    else:
        end = f"sure after {film.halted} steps" if film.halted else f"not sure after {film.steps} steps"
    print(f"{end}: {'right' if film.right else f'wrong, it is{_apart(film.solution, 1)}'}")


def _least(model: Any, run: str, until: str | None, sure: float | None) -> float | None:
    """How sure the thinker should be to stop; None to stop when its answer has settled."""
    if sure is not None and not 0 < sure < 1:
        raise UsageError(f"--sure should be a probability between 0 and 1, but is {sure}")
    if model.halting is None and (until == "sure" or sure is not None):
        raise UsageError(
            f"{run} did not learn when to stop; train with --model.halting, or leave out --until sure and --sure"
        )
    if until == "settled" and sure is not None:
        raise UsageError("--sure is for --until sure; leave one of them out")
    if model.halting is None or until == "settled":
        return None
    from lapwing.experiments._thinker_halting import SURE

    return SURE if sure is None else sure


def _percent(share: float) -> str:
    """In whole percent; what is not certain is not rounded to it."""
    return f"{min(int(100 * share), 99)}%"


def _apart(answer: str, spaces: int = 2) -> str:
    """What is a square begins on a line of its own."""
    return ("\n" if "\n" in answer else " " * spaces) + answer
