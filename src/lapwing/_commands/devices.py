"""Options of `train` and `resume` about devices and processes."""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro

from .lost import replace_last_words
from .parse import UsageError

_LOST = 1


@dataclass
class Devices:
    devices: int | None = None
    """split each batch over N devices; default 1, with --coordinator all devices"""
    coordinator: Annotated[str, tyro.conf.arg(metavar="HOST:PORT")] = ""
    """address of the first of several processes that train together; auto: taken from SLURM, Open MPI or Kubernetes"""
    processes: int | None = None
    """number of processes; known with auto"""
    process_id: int | None = None
    """index of this process, from 0; the first one has the run folder, the others print nothing"""

    def join(self) -> None:
        """Joins the other processes, if there are any."""
        given = self.processes is not None and self.process_id is not None
        if not self.coordinator and (self.processes, self.process_id) != (None, None):
            raise UsageError(
                "--processes and --process-id need --coordinator HOST:PORT, the address of the first process"
            )
        if self.coordinator and self.coordinator != "auto" and not given:
            raise UsageError(f"--coordinator {self.coordinator} needs --processes and --process-id too")
        if self.coordinator:
            from lapwing.train import LostProcessError, is_first, join_processes

            join_processes(self.coordinator, self.processes, self.process_id)
            if not is_first():
                replace_last_words(f"lapwing: {LostProcessError('the first one does not answer')}")

    @property
    def name(self) -> str:
        """The name of the hardware, for the run folder."""
        import jax

        from lapwing.train import device_name

        return device_name(jax.device_count() if self.coordinator else self.devices)


@contextlib.contextmanager
def leaving_without_the_lost() -> Iterator[None]:
    """Exits at once if another process has died: jax would wait for it, and then abort with a traceback."""
    from lapwing.train import LostProcessError

    try:
        yield
    except LostProcessError as error:
        print(f"lapwing: {error}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(_LOST)
