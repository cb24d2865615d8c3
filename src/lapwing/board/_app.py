"""The web application: routes and responses.

Plain functions respond in threads, so that a long file does not block other requests; only the streams of server-sent
events are coroutines, and they too make their messages in a thread. An error is a sentence in JSON.
"""

import asyncio
import contextlib
import importlib.util
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

from lapwing.core import UnreadableError, read_regular
from lapwing.journal import CommandError, JournalError, Run, convert_arguments

from ._compare import differences, first_difference
from ._details import PICTURES, details, pictures_of, system_columns
from ._guard import MAY_STEER, Guard
from ._live import MOST_RUNS, RunNews, TableNews
from ._logged import logged_entry, logged_image, logged_names
from ._shelf import Shelf, UnknownError
from ._sweeps import sweep_details
from ._tokens import Tokens
from ._web import (
    MOST_STREAMS,
    STATIC,
    Pages,
    RequestError,
    Streams,
    answers_to,
    json_response,
    read_message,
)

LARGEST_PICTURE = 16 << 20
TABLE_TICK_S, RUN_TICK_S = 1.0, 0.25
"""Time between two messages to a page."""
# A picture that is opened by its own address is a page, and may be a malicious one.
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


_ERRORS = {CommandError: HTTPStatus.BAD_REQUEST, JournalError: HTTPStatus.CONFLICT}


def make_app(
    shelf: Shelf,
    tokens: Tokens | None = None,
    ending: asyncio.Event | None = None,
    most_streams: int = MOST_STREAMS,
) -> Starlette:
    """The application for the runs of a shelf.

    **Arguments:** one of the `tokens` is required from every client if they are given; streams last until `ending` is
    set.

    >>> sorted({route.path for route in make_app(Shelf("runs")).routes})[:4]
    ['/', '/api/compare', '/api/difference', '/api/entry']
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        shelf.start()
        yield
        await run_in_threadpool(shelf.stop)

    pages = Pages([*STATIC.iterdir(), _plotly()])
    api = _Api(shelf, Streams(ending or asyncio.Event(), most_streams))
    routes = [
        Route("/", pages.index),
        Route("/static/{name}", pages.file),
        Route("/api/run", api.run),
        Route("/api/sweep", api.sweep),
        Route("/api/compare", api.compare),
        Route("/api/difference", api.difference),
        Route("/api/picture", api.picture),
        Route("/api/logged", api.logged),
        Route("/api/entry", api.entry),
        Route("/api/media", api.media),
        Route("/api/system", api.system),
        Route("/api/live", api.live),
        Route("/api/steer", api.steer, methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, tokens=tokens)],
        exception_handlers=answers_to(_ERRORS),
        lifespan=lifespan,
    )


class _Api:
    """The requests of the page."""

    def __init__(self, shelf: Shelf, streams: Streams):
        self._shelf = shelf
        self._streams = streams
        self._comparing = asyncio.Lock()
        """A comparison needs all numbers of two runs in memory, so there is one at a time. Who waits for it does not
        occupy a thread."""

    def run(self, request: Request) -> Response:
        kept = self._shelf.get(_one(request, "run"))
        may_steer = request.scope[MAY_STEER] and self._shelf.read_only is None
        return json_response({**details(kept.name, kept.run.folder), "may_steer": may_steer})

    def sweep(self, request: Request) -> Response:
        return json_response(sweep_details(_one(request, "sweep"), self._shelf.sweeps()))

    def compare(self, request: Request) -> Response:
        return json_response(differences([self._folder(name) for name in _several(request, "run")]))

    async def difference(self, request: Request) -> Response:
        names = _several(request, "run")
        if len(names) != 2:
            raise RequestError(f"expected two runs to compare, but got {len(names)}")

        def compare() -> Response:
            return json_response(first_difference(*map(self._folder, names)))

        async with self._comparing:
            return await run_in_threadpool(compare)

    def picture(self, request: Request) -> Response:
        name, folder = _one(request, "name"), self._folder(_one(request, "run"))
        return _picture(name, pictures_of(folder / "pictures").get(name))

    def logged(self, request: Request) -> Response:
        return json_response(logged_names(self._shelf.get(_one(request, "run")).logged))

    def entry(self, request: Request) -> Response:
        kept = self._shelf.get(_one(request, "run"))
        name, kind, step = (_one(request, key) for key in ("name", "kind", "step"))
        return json_response(logged_entry(kept.run.folder, kept.logged, name, kind, step))

    def media(self, request: Request) -> Response:
        kept, file = self._shelf.get(_one(request, "run")), _one(request, "file")
        return _picture(file, logged_image(kept.run.folder, kept.logged, file))

    def system(self, request: Request) -> Response:
        return json_response(system_columns(self._folder(_one(request, "run"))))

    async def live(self, request: Request) -> Response:
        self._streams.check_room()
        names, metrics = (request.query_params.getlist(key) for key in ("run", "metric"))
        if names:
            for name in names[:MOST_RUNS]:
                await run_in_threadpool(self._shelf.get, name)
            return self._streams.answer(RunNews(self._shelf, names, metrics).message, RUN_TICK_S)
        return self._streams.answer(TableNews(self._shelf).message, TABLE_TICK_S)

    async def steer(self, request: Request) -> Response:
        name, command, arguments = _command(await read_message(request))
        if self._shelf.read_only:
            raise JournalError(self._shelf.read_only)

        def send() -> str | None:
            return Run.open(self._folder(name)).send(command, convert_arguments(command, arguments))

        return json_response({"id": await run_in_threadpool(send)})

    def _folder(self, name: str) -> Path:
        return self._shelf.get(name).run.folder


def _plotly() -> Path:
    """The JavaScript that plotly brings."""
    plotly = importlib.util.find_spec("plotly")
    assert plotly is not None
    assert plotly.submodule_search_locations is not None
    return Path(plotly.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


def _picture(name: str, path: Path | None) -> Response:
    """A picture, with the type of its suffix and no other."""
    if path is None:
        raise UnknownError(f"there is no picture {name!r} there")
    try:
        content = read_regular(path, LARGEST_PICTURE, within=path.parent)
    except (OSError, UnreadableError) as error:
        raise UnknownError(f"the picture {name!r} cannot be read: {error}") from None
    headers = {"Content-Security-Policy": _PICTURE_POLICY, "Cache-Control": "no-cache"}
    return Response(content, media_type=PICTURES[path.suffix.lower()], headers=headers)


def _command(body: bytes) -> tuple[str, str, dict[str, Any]]:
    """The run, the name and the arguments of a command. The run folder's own table checks them."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        message = None
    match message:
        case {"run": str(run), "command": str(name), **more} if isinstance(more.get("arguments", {}), dict):
            return run, name, more.get("arguments", {})
    raise RequestError(
        'expected a command such as {"run": "NAME", "command": "set", "arguments": {"learning_rate": 0.01}}'
    )


def _one(request: Request, key: str) -> str:
    value = request.query_params.get(key)
    if value is None:
        raise RequestError(f"the request lacks {key}=NAME")
    return value


def _several(request: Request, key: str) -> list[str]:
    return list(dict.fromkeys(request.query_params.getlist(key)))[:MOST_RUNS]
