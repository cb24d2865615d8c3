"""What a training runs on: options of `train` and `resume` about devices and processes, not about the experiment."""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro

from .parse import UsageError

_LOST = 1


@dataclass
class Devices:
    devices: int | None = None
    """split each batch over so many devices; without it: one, or all of all processes"""
    coordinator: Annotated[str, tyro.conf.arg(metavar="HOST:PORT")] = ""
    """train together with other processes: where the first one is; auto: as SLURM, Open MPI or Kubernetes tell"""
    processes: int | None = None
    """how many processes there are; with auto it is known"""
    process_id: int | None = None
    """which one this is, from 0; the first one has the run folder, and the others say nothing"""

    def join(self) -> None:
        """Joins the other processes, if there are some."""
        given = self.processes is not None and self.process_id is not None
        if not self.coordinator and (self.processes, self.process_id) != (None, None):
            raise UsageError(
                "--processes and --process-id need --coordinator HOST:PORT, the address of the first process"
            )
        if self.coordinator and self.coordinator != "auto" and not given:
            raise UsageError(f"--coordinator {self.coordinator} needs --processes and --process-id too")
        if self.coordinator:
            from lapwing.train import join_processes

            join_processes(self.coordinator, self.processes, self.process_id)

    @property
    def name(self) -> str:
        """For the run folder."""
        import jax

        from lapwing.train import device_name

        return device_name(jax.device_count() if self.coordinator else self.devices)


@contextlib.contextmanager
def leaving_without_the_lost() -> Iterator[None]:
    """A process whose partner has died ends at once: jax would wait for it, and then abort with a trace."""
    from lapwing.train import LostProcessError

    try:
        yield
    except LostProcessError as error:
        print(f"lapwing: {error}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(_LOST)
