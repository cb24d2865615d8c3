"""`lapwing dmm live`: a machine that runs in the browser and is edited there; `replay`: its journal, run again."""

import functools
import itertools
from pathlib import Path
from typing import Annotated, Any

import tyro

from lapwing.dmm import Machine
from lapwing.live import Player, Replay, Session, replay
from lapwing.report import answers_picture

from .board import (
    Certificate,
    Host,
    Key,
    Port,
    Proxy,
    TokenFile,
    ViewTokenFile,
    check_installed,
    print_address,
    tokens_of,
)
from .dmm_library import example_run
from .output import print_json, print_lines, print_rich, table
from .parse import Flag, Json


def live_machine(
    file: Annotated[
        Path,
        tyro.conf.Positional,
        tyro.conf.arg(
            metavar="FILE",
            help="a machine that Lapwing wrote, a published network matrix, or a name of the library",
        ),
    ],
    *,
    text: str | None = None,
    governor: float | None = None,
    speed: float = 10.0,
    play: Flag = False,
    journal: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    host: Host = "127.0.0.1",
    port: Port = 8766,
    token_file: TokenFile = None,
    view_token_file: ViewTokenFile = None,
    certificate: Certificate = None,
    key: Key = None,
    proxy: Proxy = None,
) -> None:
    """Runs the machine on a web page, where it is watched and edited, until Ctrl-C. It does not open a browser.

    Args:
        text: the text that the input neuron reads, by default that of the library's example; more can be typed
        governor: the limit of the dot products
        speed: cycles per second
        play: run at once, not when Play is pressed
        journal: file to write each edit to; by default a new one beside the machine
    """
    check_installed("a live machine")
    machine = Machine.load(file)
    text, _ = example_run(file, text, None)
    given = {name: value for name, value in (("text", text), ("governor", governor)) if value is not None}
    tokens = tokens_of(token_file, view_token_file)
    target = _saved_as(file)
    path = journal or _free(target.with_suffix(".live.jsonl"))
    session = Session(machine, journal=path, **given)
    from lapwing.live import serve

    try:
        player = Player(session, speed)
        if play:
            player.play()
        serve(
            player,
            target,
            host,
            port,
            tokens=tokens,
            certificate=certificate,
            key=key,
            proxy=proxy,
            say=functools.partial(print_address, what="The machine"),
        )
    except KeyboardInterrupt:
        pass
    finally:
        session.close()
    edits = session.journal.edits if session.journal else 0
    if edits:
        print_lines(
            f"The machine has stopped at cycle {session.cycle}; lapwing dmm replay {path} runs it again."
        )
    else:
        print_lines(f"The machine has stopped at cycle {session.cycle}; nothing was edited.")


def _saved_as(file: Path) -> Path:
    """The file to save the machine to; one of the library is saved in this folder."""
    return file if file.suffix == ".json" else file.with_name(file.name + ".json")


def _free(path: Path) -> Path:
    """The path, or one with a number if there is such a file.

    >>> _free(Path("nowhere/detector.live.jsonl")).name
    'detector.live.jsonl'
    """
    numbered = (path.with_name(f"{path.name.removesuffix('.jsonl')}-{n}.jsonl") for n in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not each.exists())


def replay_journal(
    journal: Annotated[
        Path,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="JOURNAL", help="the journal that `lapwing dmm live` wrote"),
    ],
    *,
    cycles: int | None = None,
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    as_json: Json = False,
) -> None:
    """Runs a live machine again with all its edits, to the same values, and prints its answers at each edit.

    Args:
        cycles: cycle to end at after the last edit; by default where the session ended
        plot: file to plot the answers to; by default next to the journal
    """
    again = replay(journal, cycles)
    has_answers = again.session.machine.output in again.session.machine.neurons
    answers = again.trace.answers if has_answers else {}
    target = plot or journal.with_suffix(".answers.png")
    if answers:
        answers_picture(answers, file=target)
    if as_json:
        edits = [{"cycle": cycle, "edit": words, "after": after} for after, cycle, words in again.edits]
        print_json(
            {
                "cycles": again.numbers,
                "answers": answers,
                "edits": edits,
                "compared": again.compared,
                "plot": target if answers else None,
            }
        )
        return
    header = ["cycle", "edit", *answers]
    print_rich(table(header, _rows(again, answers), numbers=[name for name in header if name != "edit"]))
    edits = f"{len(again.edits)} edit{'s' * (len(again.edits) != 1)}"
    print_lines(
        f"{len(again.numbers)} cycles, {edits}; all {again.compared} states that the journal has are the same here, "
        "to the last bit",
        *([f"plot: {target}"] if answers else []),
    )


def _rows(again: Replay, answers: dict[str, list[Any]]) -> list[list[Any]]:
    """Each edit with the answers before it, and the last cycle."""

    def at(position: int) -> list[Any]:
        return [float(f"{series[position - 1]:.5g}") if position else None for series in answers.values()]

    rows = [[cycle, words, *at(after)] for after, cycle, words in again.edits]
    return [*rows, [again.session.cycle, "end", *at(len(again.numbers))]]
