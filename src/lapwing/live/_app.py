"""The web application of a session: the page, a stream of what it shows, and the commands that it sends.

The board's parts do the rest: its guard (token, `Host`, `Origin`, headers), its streams, its style and modules. A
command is `{"do": "play"}`, `pause`, `step`, `{"do": "speed", "speed": 10}`, `{"do": "edit", "edit": {…}}` or
`{"do": "save", "file": "name.json", "overwrite": false}`.
"""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lapwing.board import (
    HOST,
    MAY_STEER,
    STATIC,
    Guard,
    Pages,
    RequestError,
    Streams,
    Tokens,
    answers_to,
    json_response,
    read_message,
    serve_app,
)
from lapwing.core import LapwingError, replace_file

from ._journal import LiveError
from ._news import News
from ._player import Player

PORT = 8766
TICK_S = 0.1
"""Time between two messages to a page."""
_OWN = Path(__file__).parent / "static"


class ExistsError(LapwingError):
    """A file that would be overwritten."""


def serve(player: Player, file: str | Path, host: str = HOST, port: int = PORT, **options: Any) -> None:
    """Serves the page of a session until Ctrl-C.

    **Arguments**: `file` of the machine, beside which it is saved; the others as for `lapwing.board.serve_app`.

    >>> from lapwing import dmm
    >>> from lapwing.live import Session
    >>> player = Player(Session(dmm.duplicate_detector(), text="aab"))
    >>> serve(player, "detector.json")  # doctest: +SKIP
    """
    serve_app(functools.partial(make_app, player, Path(file)), host, port, **options)


def make_app(
    player: Player,
    file: Path,
    tokens: Tokens | None = None,
    ending: asyncio.Event | None = None,
    most_streams: int = 512,
) -> Starlette:
    """The application for a player; it plays from the application's start to its end."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        player.start()
        yield
        await run_in_threadpool(player.stop)

    pages = Pages([*STATIC.iterdir(), *_OWN.iterdir()], index="dmm.html")
    api = _Api(player, file, Streams(ending or asyncio.Event(), most_streams))
    routes = [
        Route("/", pages.index),
        Route("/static/{name}", pages.file),
        Route("/api/live", api.live),
        Route("/api/steer", api.steer, methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, tokens=tokens)],
        exception_handlers=answers_to(
            {ExistsError: HTTPStatus.CONFLICT, LapwingError: HTTPStatus.BAD_REQUEST}
        ),
        lifespan=lifespan,
    )


class _Api:
    """The requests of the page."""

    def __init__(self, player: Player, file: Path, streams: Streams):
        self._player = player
        self._file = file
        self._streams = streams

    async def live(self, request: Request) -> Response:
        self._streams.check_room()
        news = News(self._player, self._file.name, may_edit=request.scope[MAY_STEER])
        return self._streams.answer(news.message, TICK_S)

    async def steer(self, request: Request) -> Response:
        body = await read_message(request)
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            message = None
        return json_response(await run_in_threadpool(self._do, message))

    def _do(self, message: Any) -> dict[str, Any]:
        match message:
            case {"do": "play"}:
                self._player.play()
            case {"do": "pause"}:
                self._player.pause()
            case {"do": "step"}:
                self._player.step()
            case {"do": "speed", "speed": speed}:
                self._player.set_speed(speed)
            case {"do": "edit", "edit": edit}:
                self._player.apply(edit)
            case {"do": "save", "file": str(name), **more}:
                return {
                    "saved": save(
                        self._player, self._file.parent / _file_name(name), more.get("overwrite") is True
                    )
                }
            case _:
                raise RequestError('expected a command such as {"do": "play"}')
        return {}


def save(player: Player, path: Path, overwrite: bool) -> str:
    """Writes the machine as edited to a file, and returns its name."""
    with player.held() as session:
        text = session.machine.to_json()
    try:
        if overwrite:
            replace_file(path, text)
        else:
            with path.open("x", encoding="utf-8") as new:
                new.write(text)
    except FileExistsError:
        raise ExistsError(f"there is already a file {path.name!r}; save once more to overwrite it") from None
    except OSError as error:
        raise LiveError(
            f"cannot write the machine to {path.name!r}: {error.strerror}; name another file"
        ) from None
    return path.name


def _file_name(name: str) -> str:
    """A name without a folder: the page writes beside the machine, and nowhere else."""
    if (
        name != Path(name).name
        or name.startswith(".")
        or not name.endswith(".json")
        or not name.isprintable()
    ):
        raise LiveError(
            f"expected the name of a file beside the machine, like 'mine.json', but got {name!r:.80}"
        )
    return name
