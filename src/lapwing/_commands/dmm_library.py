"""`lapwing dmm list`: the machines of the library."""

from pathlib import Path

from lapwing.dmm import library

from .output import print_json, print_lines, print_rich, table
from .parse import Json

CYCLES = 140


def list_machines(as_json: Json = False) -> None:
    """Lists the machines of the library."""
    rows = [
        {
            "name": name,
            "answers": each.about,
            "links": len(each.build().links()),
            "reads": each.alphabet,
            "published": each.published,
            "examples": each.targets(),
        }
        for name, each in library().items()
    ]
    if as_json:
        print_json(rows)
        return
    names = ["name", "links", "reads", "answers"]
    print_rich(table(names, [[row[name] for name in names] for row in rows], numbers=["links"]))
    print_lines("`lapwing dmm show NAME` draws one; `lapwing dmm run NAME` runs it on its first example")


def example_run(file: Path, text: str | None, cycles: int | None) -> tuple[str | None, int]:
    """What to read and for how long if nothing else is asked: the first example, for a machine of the library. A text
    of one's own is read to its end."""
    known = library().get(str(file))
    if known is None or not known.examples or file.exists():
        return text, CYCLES if cycles is None else cycles
    example = known.targets()[0]
    length = len(example["targets"]["dict-1"])
    if text is None:
        return example["text"] or None, length if cycles is None else cycles
    longer = known.period * (len(text) - len(example["text"]))
    return text, max(1, length + longer) if cycles is None else cycles
