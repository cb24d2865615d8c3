"""From a folder and an address to a board that answers, until Ctrl-C."""

import asyncio
import contextlib
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import uvicorn
from sse_starlette.sse import AppStatus

from lapwing.core import LapwingError

from ._app import make_app
from ._guard import is_loopback
from ._shelf import Shelf

HOST, PORT = "127.0.0.1", 8765


class BoardError(LapwingError, ValueError):
    """A board that cannot be started like this."""


class Address(NamedTuple):
    """Where a board listens, and what has to be known to ask it."""

    host: str
    port: int
    token: str | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def serve(
    runs_dir: str | Path = "runs",
    host: str = HOST,
    port: int = PORT,
    token: str | None = None,
    *,
    say: Callable[[Address], object] = print,
) -> None:
    """Serves the board until Ctrl-C. `say` is told the address as soon as somebody can ask there.

    On an address that others can reach a token is needed, and made if none is given. Port 0 is any that is free.
    """
    with listening(host, port) as connection:
        needed = token if token is not None else None if is_loopback(host) else secrets.token_urlsafe(24)
        if needed is not None and not re.fullmatch(r"[A-Za-z0-9_.~-]+", needed):
            raise BoardError(
                "a token is made of letters, digits and - _ . ~, so that it can stand in an address"
            )
        # An address that means all of this machine's own means nothing elsewhere.
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
        say(Address(shown, connection.getsockname()[1], needed))
        make_server(Shelf(runs_dir), needed).run(sockets=[connection])


class _Server(uvicorn.Server):
    """One that tells its streams, which would never end by themselves, when it is to end."""

    def __init__(self, config: uvicorn.Config, ending: asyncio.Event):
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending.set()
        await super().shutdown(sockets)


def make_server(shelf: Shelf, token: str | None = None) -> uvicorn.Server:
    """The server of a board, to be run with a socket that listens."""
    # The library of the streams would cut them off at a signal, in the middle of an answer; ours end by themselves.
    AppStatus.enable_automatic_graceful_drain = False
    ending = asyncio.Event()
    config = uvicorn.Config(
        make_app(shelf, token, ending),
        log_level="warning",
        access_log=False,  # It would show the token.
        server_header=False,
        ws="none",
        # A browser that is slow to hang up need not be waited for.
        timeout_graceful_shutdown=2,
    )
    return _Server(config, ending)


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens at an address."""
    if not 0 <= port < 1 << 16:
        raise BoardError(f"a port is a number from 0 to 65535, not {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        connection = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        # A name that nobody knows has an error of its own, which is not among those of the system.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise BoardError(
            f"cannot listen at {host}, port {port}: {reason}; name another with --host and --port"
        ) from error
    with connection:
        yield connection
