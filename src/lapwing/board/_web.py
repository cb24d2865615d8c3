"""What every page of Lapwing's server is made of: files, JSON, errors of one sentence, streams, messages from the page.

The board uses it, and so does livecoding (`lapwing.live`).
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from sse_starlette import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lapwing.core import LapwingError
from lapwing.journal import to_json

from ._shelf import UnknownError

LARGEST_MESSAGE = 1 << 16
MOST_STREAMS = 512
STATIC = Path(__file__).parent / "static"
"""The files of the board's page, of which others use the style and the modules."""
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class RequestError(LapwingError, ValueError):
    """A request that makes no sense."""


class BusyError(LapwingError):
    """More than the board can serve."""


def answers_to(errors: Mapping[type[Exception], HTTPStatus]) -> dict[Any, Any]:
    """Exception handlers, each with an error's sentence as JSON; those of this module are among them."""
    own = {
        BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
        UnknownError: HTTPStatus.NOT_FOUND,
        RequestError: HTTPStatus.BAD_REQUEST,
        ClientDisconnect: HTTPStatus.BAD_REQUEST,  # Nobody reads it, and nothing is logged.
    }
    return {kind: _answer_error(status) for kind, status in {**own, **errors}.items()}


def _answer_error(status: HTTPStatus) -> Any:
    def answer(_: Request, error: Exception) -> Response:
        return Response(to_json({"error": str(error)}), status, media_type="application/json")

    return answer


def json_response(content: Any) -> Response:
    return Response(to_json(content), media_type="application/json", headers={"Cache-Control": "no-store"})


async def read_message(request: Request) -> bytes:
    """The body of a request, if it is JSON and not too large for a command."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise RequestError("a command is sent as application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_MESSAGE:
            raise RequestError(f"a command has at most {LARGEST_MESSAGE} bytes")
    return body


class Pages:
    """The files of a page, read once, with an ETag. Requested names are looked up, never joined to a path."""

    def __init__(self, files: Iterable[Path], index: str = "index.html") -> None:
        self._index = index
        self._files = {file.name: file.read_bytes() for file in files if file.suffix in _TYPES}
        self._tags = {name: f'"{hashlib.sha256(each).hexdigest()}"' for name, each in self._files.items()}

    def index(self, request: Request) -> Response:
        return self._answer(request, self._index)

    def file(self, request: Request) -> Response:
        return self._answer(request, request.path_params["name"])

    def _answer(self, request: Request, name: str) -> Response:
        if name not in self._files:
            raise UnknownError(f"there is no file {name!r}")
        headers = {"ETag": self._tags[name], "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == self._tags[name]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(self._files[name], media_type=_TYPES[Path(name).suffix], headers=headers)


class Streams:
    """The open streams of server-sent events; they last until `ending` is set."""

    def __init__(self, ending: asyncio.Event, most: int = MOST_STREAMS):
        self._ending = ending
        self._open, self._most = 0, most

    def check_room(self) -> None:
        if self._open >= self._most:
            raise BusyError(f"{self._open} pages are open; close one and load this page again")

    def answer(self, news: Callable[[], str | None], tick_s: float) -> Response:
        """A stream of what is new, asked for in a thread every `tick_s` seconds."""
        messages = self._messages(news, tick_s)
        return EventSourceResponse(messages, ping=15, headers={"Cache-Control": "no-store"})

    async def _messages(self, news: Callable[[], str | None], tick_s: float) -> AsyncIterator[dict[str, str]]:
        """It ends with an event `gone` if the run no longer exists."""
        self._open += 1
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
            self._open -= 1
