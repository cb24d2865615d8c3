"""`lapwing compare A B`: the first step at which two runs differ, and what differs between them."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import RenderableType

from lapwing.journal import Run, find_run

from .output import cell, print_json, print_rich, table
from .parse import RUNS, Flag, Json, RunName, UsageError
from .storing import RunsPlace, runs_folder

if TYPE_CHECKING:
    from lapwing.report import Comparison, FirstDifference, ParamsComparison

MOST_LEAVES = 20

First = Annotated[RunName, tyro.conf.arg(metavar="A", help="name of a run, a part of one, a path, or latest")]
Second = Annotated[RunName, tyro.conf.arg(metavar="B", help="the other run")]
Params = Annotated[Flag, tyro.conf.arg(help="also compare the parameters, at the checkpoints that both have")]


def compare(
    a: First, b: Second, *, params: Params = False, place: RunsPlace = str(RUNS), as_json: Json = False
) -> None:
    """Finds the first step at which two runs differ, in which metric and by how much, and the settings that differ."""
    from lapwing.report import compare_params, compare_runs

    runs_dir = runs_folder(place)
    runs = [Run.open(find_run(name, runs_dir)) for name in (a, b)]
    found = compare_runs(*runs)
    leaves = compare_params(_checkpoints(*runs)) if params else None
    if as_json:
        print_json({**found.to_json(), **({"params": leaves.to_json()} if leaves else {})})
    else:
        print_rich(*_pages(found, runs), *(_pages_of_params(leaves) if leaves else []))


def _checkpoints(a: Run, b: Run) -> Iterator[tuple[int, Mapping[str, Any], Mapping[str, Any]]]:
    """The parameters at the steps of which both have a checkpoint; of several of one step, the newest."""
    from lapwing.train import Checkpoints

    readers = [Checkpoints(run.folder / "checkpoints") for run in (a, b)]
    in_a, in_b = ({each.step: each for each in reader.all()} for reader in readers)
    steps = sorted(in_a.keys() & in_b.keys())
    if not steps:
        raise UsageError(
            f"{a.name} has checkpoints of the steps {_listed(in_a)} and {b.name} of {_listed(in_b)}, so there are no "
            "common ones to compare; train both with the same --checkpoint.every and --checkpoint.keep-every"
        )
    for step in steps:
        pair = zip(readers, (in_a[step], in_b[step]), strict=True)
        of_a, of_b = (_params(reader.arrays(checkpoint)) for reader, checkpoint in pair)
        yield step, of_a, of_b


def _params(state: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a state, without the optimizer's state and the keys."""
    return {name: array for name, array in state.items() if name.partition("/")[0] == "params"}


def _listed(steps: Mapping[int, Any]) -> str:
    return ", ".join(map(str, sorted(steps))) or "none"


def _pages(found: "Comparison", runs: list[Run]) -> list[RenderableType]:
    ends = zip("AB", (found.a, found.b), found.last_steps, strict=True)
    pages: list[RenderableType] = [
        table(["", "run", "last step"], ends, ["last step"]),
        "",
        cell(_verdict(found)),
    ]
    if found.metrics:
        pages += ["", _difference_table("metric", found.metrics)]
    for name, only in ((found.a, found.only_in_a), (found.b, found.only_in_b)):
        if only:
            pages.append(cell(f"Only {name} has logged {', '.join(only)}."))
    if found.source:
        pages += ["", cell(_source_line(*runs))]
    differences = [[path, *pair] for path, pair in {**found.config, **found.environment}.items()]
    if differences:
        return [*pages, "", table(["what differs", "A", "B"], differences)]
    return [*pages, "", "Nothing differs in config, versions and device."]


def _source_line(a: Run, b: Run) -> str:
    copies = [run.folder / str(run.source.get("copy")) if run.source else None for run in (a, b)]
    if all(copies):
        return f"They were trained from different files: diff {copies[0]} {copies[1]}"
    own = a if copies[0] else b
    return f"Only {own.name} was trained from a file: {(own.source or {}).get('path')}"


def _verdict(found: "Comparison") -> str:
    over = f"the {found.steps} steps that both have ({found.first_step} to {found.last_step})"
    if not found.metrics:
        return f"They never differ: {', '.join(found.compared)} are equal at {over}."
    first = found.metrics[0]
    return (
        f"They first differ at step {first.step}, in {first.name}: {first.a:.9g} and {first.b:.9g}, "
        f"a difference of {_size(first)}. Compared: {over}."
    )


def _pages_of_params(found: "ParamsComparison") -> list[RenderableType]:
    steps = ", ".join(map(str, found.steps))
    if found.differs_at is None:
        return ["", f"The parameters never differ, at the checkpoints of step {steps}."]
    several = (
        f"the checkpoints of step {steps} were compared"
        if len(found.steps) > 1
        else "no earlier one is shared"
    )
    pages: list[RenderableType] = [
        "",
        f"Parameters first differ at the checkpoint of step {found.differs_at}; {several}.",
    ]
    if found.leaves:
        pages += ["", _difference_table("parameter", found.leaves[:MOST_LEAVES])]
    if len(found.leaves) > MOST_LEAVES:
        pages.append(f"{len(found.leaves) - MOST_LEAVES} more differ; --json names them all.")
    rest = {"Only in A": found.only_in_a, "Only in B": found.only_in_b, "Of another shape": found.other_shape}
    return [*pages, *(cell(f"{what}: {', '.join(names)}.") for what, names in rest.items() if names)]


def _difference_table(kind: str, differences: "tuple[FirstDifference, ...]") -> RenderableType:
    rows = [
        [each.name, each.step, f"{each.a:.9g}", f"{each.b:.9g}", each.difference, f"{each.relative:.3g}"]
        for each in differences
    ]
    header = [kind, "from step", "A", "B", "difference", "relative"]
    return table(header, rows, header[1:])


def _size(difference: "FirstDifference") -> str:
    return f"{difference.difference:.3g}, or {difference.relative:.2g} of the larger one"
