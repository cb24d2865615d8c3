"""The web application: routes and responses.

Plain functions respond in threads, so that a long file does not block other requests; only the streams of server-sent
events are coroutines, and they too make their messages in a thread. An error is a sentence in JSON.
"""

import asyncio
import contextlib
import hashlib
import importlib.util
import json
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from lapwing.core import LapwingError, UnreadableError, read_regular
from lapwing.journal import CommandError, JournalError, Run, convert_arguments, to_json

from ._compare import differences, first_difference
from ._details import PICTURES, details, pictures_of, system_columns
from ._guard import MAY_STEER, Guard
from ._live import MOST_RUNS, RunNews, TableNews
from ._logged import logged_entry, logged_image, logged_names
from ._shelf import Shelf, UnknownError
from ._sweeps import sweep_details
from ._tokens import Tokens

MOST_STREAMS = 512
LARGEST_MESSAGE = 1 << 16
LARGEST_PICTURE = 16 << 20
TABLE_TICK_S, RUN_TICK_S = 1.0, 0.25
"""Time between two messages to a page."""
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# A picture that is opened by its own address is a page, and may be a malicious one.
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


class RequestError(LapwingError, ValueError):
    """A request that makes no sense."""


class BusyError(LapwingError):
    """More than the board can serve."""


_ERRORS = {
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    CommandError: HTTPStatus.BAD_REQUEST,
    UnknownError: HTTPStatus.NOT_FOUND,
    RequestError: HTTPStatus.BAD_REQUEST,
    JournalError: HTTPStatus.CONFLICT,
    ClientDisconnect: HTTPStatus.BAD_REQUEST,  # Nobody reads it, and nothing is logged.
}


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

    pages, api = _Pages(), _Api(shelf, ending or asyncio.Event(), most_streams)
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
        exception_handlers={kind: _answer_error(status) for kind, status in _ERRORS.items()},
        lifespan=lifespan,
    )


class _Api:
    """The requests of the page."""

    def __init__(self, shelf: Shelf, ending: asyncio.Event, most_streams: int):
        self._shelf = shelf
        self._ending = ending
        self._streams, self._most_streams = 0, most_streams
        self._comparing = asyncio.Lock()
        """A comparison needs all numbers of two runs in memory, so there is one at a time. Who waits for it does not
        occupy a thread."""

    def run(self, request: Request) -> Response:
        kept = self._shelf.get(_one(request, "run"))
        may_steer = request.scope[MAY_STEER] and self._shelf.read_only is None
        return _json({**details(kept.name, kept.run.folder), "may_steer": may_steer})

    def sweep(self, request: Request) -> Response:
        return _json(sweep_details(_one(request, "sweep"), self._shelf.sweeps()))

    def compare(self, request: Request) -> Response:
        return _json(differences([self._folder(name) for name in _several(request, "run")]))

    async def difference(self, request: Request) -> Response:
        names = _several(request, "run")
        if len(names) != 2:
            raise RequestError(f"expected two runs to compare, but got {len(names)}")

        def compare() -> Response:
            return _json(first_difference(*map(self._folder, names)))

        async with self._comparing:
            return await run_in_threadpool(compare)

    def picture(self, request: Request) -> Response:
        name, folder = _one(request, "name"), self._folder(_one(request, "run"))
        return _picture(name, pictures_of(folder / "pictures").get(name))

    def logged(self, request: Request) -> Response:
        return _json(logged_names(self._shelf.get(_one(request, "run")).logged))

    def entry(self, request: Request) -> Response:
        kept = self._shelf.get(_one(request, "run"))
        name, kind, step = (_one(request, key) for key in ("name", "kind", "step"))
        return _json(logged_entry(kept.run.folder, kept.logged, name, kind, step))

    def media(self, request: Request) -> Response:
        kept, file = self._shelf.get(_one(request, "run")), _one(request, "file")
        return _picture(file, logged_image(kept.run.folder, kept.logged, file))

    def system(self, request: Request) -> Response:
        return _json(system_columns(self._folder(_one(request, "run"))))

    async def live(self, request: Request) -> Response:
        if self._streams >= self._most_streams:
            raise BusyError(f"{self._streams} pages are open; close one and load this page again")
        names, metrics = (request.query_params.getlist(key) for key in ("run", "metric"))
        if names:
            for name in names[:MOST_RUNS]:
                await run_in_threadpool(self._shelf.get, name)
            messages = self._messages(RunNews(self._shelf, names, metrics).message, RUN_TICK_S)
        else:
            messages = self._messages(TableNews(self._shelf).message, TABLE_TICK_S)
        return EventSourceResponse(messages, ping=15, headers={"Cache-Control": "no-store"})

    async def steer(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise RequestError("a command is sent as application/json")
        name, command, arguments = _command(await _body(request))
        if self._shelf.read_only:
            raise JournalError(self._shelf.read_only)

        def send() -> str | None:
            return Run.open(self._folder(name)).send(command, convert_arguments(command, arguments))

        return _json({"id": await run_in_threadpool(send)})

    async def _messages(self, news: Callable[[], str | None], tick_s: float) -> AsyncIterator[dict[str, str]]:
        """A stream of what is new. It ends with an event `gone` if the run no longer exists."""
        self._streams += 1
        try:
            while not self._ending.is_set():
                try:
                    message = await run_in_threadpool(news)
                except UnknownError as error:
                    yield {"event": "gone", "data": to_json({"error": str(error)})}
                    return
                if message:
                    yield {"data": message}
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), tick_s)
        finally:
            self._streams -= 1

    def _folder(self, name: str) -> Path:
        return self._shelf.get(name).run.folder


class _Pages:
    """The files of the page, read once, with an ETag. Requested names are looked up, never joined to a path."""

    def __init__(self) -> None:
        here = Path(__file__).parent / "static"
        plotly = importlib.util.find_spec("plotly")
        assert plotly is not None
        assert plotly.submodule_search_locations is not None
        files = [
            *here.iterdir(),
            Path(plotly.submodule_search_locations[0]) / "package_data" / "plotly.min.js",
        ]
        self._files = {file.name: file.read_bytes() for file in files if file.suffix in _TYPES}
        self._tags = {name: f'"{hashlib.sha256(each).hexdigest()}"' for name, each in self._files.items()}

    def index(self, request: Request) -> Response:
        return self._answer(request, "index.html")

    def file(self, request: Request) -> Response:
        return self._answer(request, request.path_params["name"])

    def _answer(self, request: Request, name: str) -> Response:
        if name not in self._files:
            raise UnknownError(f"there is no file {name!r}")
        headers = {"ETag": self._tags[name], "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == self._tags[name]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(self._files[name], media_type=_TYPES[Path(name).suffix], headers=headers)


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


async def _body(request: Request) -> bytes:
    """The body of a request, if it is not too large for a command."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_MESSAGE:
            raise RequestError(f"a command has at most {LARGEST_MESSAGE} bytes")
    return body


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


def _json(content: Any) -> Response:
    return Response(to_json(content), media_type="application/json", headers={"Cache-Control": "no-store"})


def _answer_error(status: HTTPStatus) -> Any:
    def answer(_: Request, error: Exception) -> Response:
        return Response(to_json({"error": str(error)}), status, media_type="application/json")

    return answer
