"""Which loops of a program are one kernel, on a CPU and on a Hopper GPU, and why the others are not: for `explain`."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from jax.extend import core

from lapwing import jaxprs
from lapwing.loops import _lowering, _small, persistent
from lapwing.loops._marks import mark_of

Processor = Literal["CPU", "Hopper GPU"]


@dataclasses.dataclass(frozen=True)
class LoopRow:
    """One loop of the gradient, as it is compiled for a processor."""

    site: str
    place: jaxprs.Place
    steps: int
    processor: Processor
    why: str
    """What keeps it from being one kernel; empty if it is one."""
    plan: dict[str, Any] | None = None
    """Of a kernel on a GPU: its blocks, and the units and rows of each."""

    @property
    def one_kernel(self) -> bool:
        return not self.why

    def __str__(self) -> str:
        where = "" if self.processor == "CPU" else f", on a {self.processor}"
        verdict = f"not one kernel: {self.why}" if self.why else "one kernel"
        if self.plan:
            verdict += ": {blocks} blocks, each of {units} units and {rows} rows".format_map(self.plan)
        return f"{self.site}: the {self.place}, {self.steps} steps{where}: {verdict}"

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "one_kernel": self.one_kernel}


def cpu_rows(jaxpr: core.Jaxpr, cotangents: Sequence[core.Var]) -> list[LoopRow]:
    """The loops of a gradient program, without those that are a part of another one's kernel."""
    found = jaxprs.loop_inventory(jaxpr, cotangents)
    rows = [_row(scan, "CPU", _against_small(scan.eqn)) for scan in found]
    kernels = [scan.eqn for scan, row in zip(found, rows, strict=True) if row.one_kernel]
    within = [any(outer is eqn for outer in scan.within for eqn in kernels) for scan in found]
    return [row for row, inner in zip(rows, within, strict=True) if not inner]


def gpu_rows(jaxpr: core.Jaxpr, cotangents: Sequence[core.Var]) -> list[LoopRow]:
    """The loops that hold products: the others are no recurrent networks, and nobody expects a kernel of them."""
    found = [
        scan
        for scan in jaxprs.loop_inventory(jaxpr, cotangents)
        if any(map(jaxprs.holds_products, jaxprs.loop_of(scan.eqn)[0].eqns))
    ]
    return [_gpu_row(scan) for scan in found]


def _gpu_row(scan: jaxprs.Scan) -> LoopRow:
    mode = mark_of(scan.eqn.ctx)
    if against := _against_any(scan.eqn):
        return _row(scan, "Hopper GPU", against)
    if mode == "off":
        return _row(scan, "Hopper GPU", "persistent kernels are off")
    return _row(scan, "Hopper GPU", *persistent.described(jaxprs.loop_of(scan.eqn)[0]))


def _row(scan: jaxprs.Scan, processor: Processor, why: str, plan: dict[str, Any] | None = None) -> LoopRow:
    site, steps = jaxprs.file_and_line(scan.eqn), scan.eqn.params["length"]
    return LoopRow(site, scan.place, steps, processor, why, plan)


def _against_small(eqn: core.JaxprEqn) -> str:
    if not _lowering.INSTALLED:
        return _against_any(eqn)
    return _small.obstacle(jaxprs.loop_of(eqn)[0]) or _against_any(eqn)


def _against_any(eqn: core.JaxprEqn) -> str:
    if not _lowering.INSTALLED:
        return "this version of jax lowers loops in another way"
    return "" if mark_of(eqn.ctx) else "it runs exactly as it was written"
