"""`lapwing dmm show`, `run`, `test` and `prune`: work with a machine in a file or of the library."""

from pathlib import Path
from typing import Annotated, Any

import tyro

from lapwing import trees
from lapwing.core import suggestion
from lapwing.dmm import FUNCTION, Machine, Trace, duplicate_detector, interpret, listing
from lapwing.report import answers_picture, machine_picture
from lapwing.synthesis import Examples, by_field, errors_on, prune, tests_of

from .dmm_library import example_run, list_machines
from .dmm_live import live_machine, replay_journal
from .dmm_repair import repair_machine
from .output import print_json, print_lines, print_rich, table
from .parse import Json, UsageError, parse, sentence

MachineFile = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="FILE",
        help="a machine that Lapwing wrote, a published network matrix, or a name of the library",
    ),
]


def dmm(words: list[str]) -> None:
    """Runs one of the actions on the machine in a file."""
    if words and words[0] in ("-h", "--help"):
        print("usage: lapwing dmm ACTION [FILE] [options]; lapwing dmm ACTION --help shows the options\n")
        print_rich(table(["action", "what it does"], [[name, about] for name, (_, about) in ACTIONS.items()]))
        return
    if not words or words[0] not in ACTIONS:
        found = f"{words[0]!r} is not an action" if words else "expected an action"
        raise UsageError(f"{found}; {suggestion(''.join(words[:1]), ACTIONS)}")
    action, about = ACTIONS[words[0]]
    parse(action, words[1:], f"lapwing dmm {words[0]}", sentence(about))


def show_machine(
    file: MachineFile,
    *,
    drawing: Annotated[Path | None, tyro.conf.arg(name="picture", metavar="FILE")] = None,
    limit: int | None = 8,
    as_json: Json = False,
) -> None:
    """Prints the machine and draws it.

    Args:
        drawing: file to draw it to, .png, .svg or .pdf; by default next to the machine
        limit: number of weights of each field to print, the largest first
    """
    machine = Machine.load(file)
    target = drawing or file.with_suffix(".png")
    machine_picture(machine, target)
    if as_json:
        links = [link._asdict() for link in machine.links()]
        print_json({**_counts(machine), "weights": links, "picture": target})
    else:
        print_lines(listing(machine, limit), f"picture: {target}")


def run_machine(
    file: MachineFile,
    *,
    cycles: int | None = None,
    text: str | None = None,
    governor: float | None = None,
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    as_json: Json = False,
) -> None:
    """Runs the machine and prints its answers whenever one changes or a character is read.

    Args:
        cycles: cycles to run; by default 140, or as many as the library's example of the machine has
        text: the text that the input neuron reads; by default that of the library's example
        governor: the limit of the dot products
        plot: file to plot the answers to; by default next to the machine
    """
    machine = Machine.load(file)
    text, cycles = example_run(file, text, cycles)
    given = {name: value for name, value in (("text", text), ("governor", governor)) if value is not None}
    trace = interpret(machine, cycles, **given)
    target = plot or file.with_suffix(".answers.png")
    answers_picture(trace.answers, file=target)
    if as_json:
        print_json({"cycles": cycles, "answers": trace.answers, "plot": target})
    else:
        header = ["cycle", "read", *trace.answers]
        print_rich(table(header, _moments(trace), numbers=[name for name in header if name != "read"]))
        print_lines(f"plot: {target}")


def compare_answers(
    file: MachineFile,
    *,
    text: tuple[str, ...] = (),
    cycles: int = 140,
    teacher: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    examples: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    governor: float | None = None,
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    as_json: Json = False,
) -> None:
    """Compares the machine's answers with those expected, text by text: the sum of squared errors, and the worst cycle.

    Args:
        text: one or more texts for the machine to read
        cycles: cycles to run
        teacher: a machine with the expected answers; by default the handcrafted duplicate detector
        examples: a JSON file of texts with their targets, instead of texts and a teacher
        governor: the limit of the machine's dot products
        plot: file to plot the answers to the worst text to; by default next to the machine
    """
    if bool(text) == bool(examples):
        raise UsageError("expected texts to test with: --text 'test string.' 'aab.', or --examples FILE")
    machine = Machine.load(file)
    given = {} if governor is None else {"governor": governor}
    source = Machine.load(teacher) if teacher else duplicate_detector()
    expected = Examples.load(examples) if examples else Examples.from_teacher(source, text, cycles)
    tests = tests_of(machine, file.stem, expected, **given)
    worst = max(range(len(tests)), key=lambda i: tests[i]["error"])
    _, answers = errors_on(machine, expected, **given)
    target = plot or file.with_suffix(".test.png")
    ours, theirs = (by_field(expected.fields, each[worst]) for each in (answers, expected.targets))
    answers_picture(ours, theirs, target)
    if as_json:
        print_json({"tests": tests, "plot": target})
        return
    names = ["text", "cycles", "error", "worst_cycle", "worst_error"]
    rows = [[repr(each["text"]), *(_short(each[name]) for name in names[1:])] for each in tests]
    print_rich(
        table(
            [name.replace("_", " ") for name in names],
            rows,
            numbers=["cycles", "error", "worst cycle", "worst error"],
        )
    )
    print_lines(f"plot of {tests[worst]['text']!r}: {target}")


def prune_machine(
    file: MachineFile,
    *,
    below: float,
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    as_json: Json = False,
) -> None:
    """Writes the machine without its weak links.

    Args:
        below: soft links with a smaller |weight| are removed
        out: file to write the machine to; by default next to the old one
    """
    if not below >= 0:
        raise UsageError(f"--below takes a |weight|, a number that is not negative, but got {below:g}")
    machine = Machine.load(file)
    pruned = prune(machine, below)
    target = out or file.with_suffix(".pruned.json")
    pruned.save(target)
    before, after = _counts(machine), _counts(pruned)
    if as_json:
        print_json({"below": below, "before": before, "after": after, "file": target})
    else:
        rows = [[name, before[name], after[name]] for name in before]
        print_rich(table(["", "before", "after"], rows, numbers=["before", "after"]))
        print_lines(f"machine: {target}")


ACTIONS = {
    "list": (list_machines, "lists the machines of the library, which can be named instead of a file"),
    "show": (show_machine, "prints a machine, one line per neuron, and draws it"),
    "run": (run_machine, "runs a machine, prints its answers over time and plots them"),
    "test": (compare_answers, "compares a machine's answers with those expected, text by text"),
    "repair": (repair_machine, "trains a broken machine until its answers to examples are right"),
    "prune": (prune_machine, "writes a machine without its weak links"),
    "live": (live_machine, "runs a machine on a web page, to watch and to edit it while it runs"),
    "replay": (replay_journal, "runs a live machine again from the journal of its edits"),
}


def _counts(machine: Machine) -> dict[str, int]:
    links = machine.links()
    return {
        "links": len(links),
        "soft": sum(not link.hard for link in links),
        "dead": sum(link.dead for link in links),
    }


def _short(number: float) -> float:
    return float(f"{number:.5g}") if isinstance(number, float) else number


def _moments(trace: Trace) -> list[list[Any]]:
    """The first and the last cycle, and those in which an answer changes or a character is read."""
    answers = list(zip(*trace.answers.values(), strict=True))
    neurons = trace.machine.neurons.items()
    readers = [name for name, neuron in neurons if any("text" in f.options for f in neuron.functions)]
    rows = []
    for cycle, (seen, now) in enumerate(zip(trace.cycles, answers, strict=True), start=1):
        read = "".join(key for name in readers for key in _keys(seen.outputs.get(name, {})))
        changed = cycle == 1 or [f"{x:.5g}" for x in now] != [f"{x:.5g}" for x in answers[cycle - 2]]
        if changed or read or cycle == len(answers):
            rows.append([cycle, repr(read) if read else None, *(float(f"{x:.5g}") for x in now)])
    return rows


def _keys(outputs: trees.Tree) -> list[str]:
    """The keys of what a neuron has read."""
    return [key for field, value in outputs.items() if field != FUNCTION for key in trees.prune(value, 0.5)]
