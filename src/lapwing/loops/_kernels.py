"""Which loops of a program are one kernel on a CPU, and why the others are not: for `explain`."""

import dataclasses
from collections.abc import Sequence

from jax.extend import core

from lapwing import jaxprs
from lapwing.loops import _small


@dataclasses.dataclass(frozen=True)
class LoopRow:
    """One loop of the gradient, as it is compiled for a CPU."""

    site: str
    place: jaxprs.Place
    steps: int
    one_kernel: bool
    why: str
    """What keeps it from being one kernel."""

    def __str__(self) -> str:
        verdict = "one kernel" if self.one_kernel else f"not one kernel: {self.why}"
        return f"{self.site}: the {self.place}, {self.steps} steps: {verdict}"


def loop_rows(jaxpr: core.Jaxpr, cotangents: Sequence[core.Var]) -> list[LoopRow]:
    """The loops of a gradient program, without those that are a part of another one's kernel."""
    found = jaxprs.loop_inventory(jaxpr, cotangents)
    kernels = [scan.eqn for scan in found if _against(scan.eqn) is None]
    return [_row(scan) for scan in found if not any(outer is eqn for outer in scan.within for eqn in kernels)]


def _row(scan: jaxprs.Scan) -> LoopRow:
    against = _against(scan.eqn)
    site = jaxprs.file_and_line(scan.eqn)
    return LoopRow(site, scan.place, scan.eqn.params["length"], against is None, against or "")


def _against(eqn: core.JaxprEqn) -> str | None:
    if not _small.INSTALLED:
        return "this version of jax lowers loops in another way"
    if (found := _small.obstacle(jaxprs.loop_of(eqn)[0])) is not None:
        return found
    return None if _small.is_marked(eqn.ctx) else "it runs exactly as it was written"
