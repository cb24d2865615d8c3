"""The commands to a run, made from the journal's table: `lapwing set`, `pause`, `stop`, `rollback`, `note` and others.

A command is written to the inbox of the run folder, and `lapwing` waits for the answer. A run polls its inbox between
two calls of the device, so the answer can take as long as a step. A command without an answer yet is not lost.
"""

from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Annotated, Any

import tyro

from lapwing.journal import COMMANDS, CommandError, CommandSpec, Run, convert_arguments, find_run

from .output import print_json, print_lines
from .parse import RUNS, Json, RunName, RunsFolder, UsageError, parse, sentence

_STATUS = {"applied": 0, "refused": 1}
_NO_ANSWER = 3
WAIT_S = 10.0

Assignments = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="NAME=VALUE", help="such as learning_rate=0.01 (or lr=0.01) clip=0.5"),
]
Wait = Annotated[float, tyro.conf.arg(metavar="SECONDS", help="how long to wait for the answer")]


def steer(name: str, words: Sequence[str]) -> int:
    """Sends the command `name` of the table, with the arguments in `words`, and prints the answer of the run."""
    spec = COMMANDS[name]
    options = parse(_options(spec), words, f"lapwing {name}", sentence(spec.help))
    run = Run.open(find_run(options.run, options.runs_dir))
    texts = _assigned(run, options.assignments) if spec.sets_controls else _given(spec, options)
    return ask(run, name, convert_arguments(name, texts), getattr(options, "wait", WAIT_S), options.as_json)


def ask(run: Run, name: str, arguments: dict[str, Any], wait: float, as_json: bool) -> int:
    """Sends a command to a run, prints its answer and returns the exit status."""
    try:
        sent = run.send(name, arguments)
    except CommandError as error:
        answer: Any = {"event": "refused", "command": name, "reason": str(error)}
    else:
        if sent is None:
            answer = {
                "event": "applied",
                "command": name,
                "outcome": f"written to {run.folder / 'journal.md'}",
            }
        else:
            answer = run.answer(sent, timeout_s=wait)
    if as_json:
        print_json(answer)
    elif answer is None:
        print_lines(f"{run.name} has not answered within {wait:g} s; it will after its step (`lapwing show`)")
    else:
        print_lines(f"{run.name}: {name} {answer['event']}: {answer.get('outcome') or answer.get('reason')}")
    return _NO_ANSWER if answer is None else _STATUS[answer["event"]]


def _options(spec: CommandSpec) -> type:
    """A dataclass from which tyro makes the options of a command."""
    fields: list[Any] = [("run", RunName)]
    if spec.sets_controls:
        fields.append(("assignments", Assignments))
    for argument in spec.arguments:
        help_ = tyro.conf.arg(metavar=argument.metavar, help=argument.help)
        type_ = tuple[str, ...] if argument.several_words else str
        default = () if argument.default is None else (argument.default,)
        fields.append((argument.name, Annotated[type_, tyro.conf.Positional, help_], *default))
    waits = [("wait", Wait, WAIT_S)] if spec.states else []
    return make_dataclass(
        "Options", [*fields, *waits, ("runs_dir", RunsFolder, RUNS), ("as_json", Json, False)]
    )


def _given(spec: CommandSpec, options: Any) -> dict[str, str]:
    words = {argument.name: getattr(options, argument.name) for argument in spec.arguments}
    return {name: word if isinstance(word, str) else " ".join(word) for name, word in words.items()}


def _assigned(run: Run, assignments: Sequence[str]) -> dict[str, str]:
    if not assignments:
        now = ", ".join(f"{name}={value:g}" for name, value in (run.controls or {}).items())
        raise UsageError(
            "nothing to set; write NAME=VALUE, such as lr=0.01" + (f"; {run.name} has {now}" if now else "")
        )
    pairs = [word.partition("=") for word in assignments]
    for word, (name, equals, _) in zip(assignments, pairs, strict=True):
        if not name or not equals:
            raise UsageError(f"{word!r} sets nothing; write NAME=VALUE, such as lr=0.01")
    return {name: value for name, _, value in pairs}
