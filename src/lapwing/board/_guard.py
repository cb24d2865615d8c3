"""Access control, and the security headers of every response.

On the loopback address (the default) no token is needed, but a page of another site in the same browser could send
requests too. So the `Host` header must name this machine (another name that resolves to it is DNS rebinding), and
requests with a foreign `Origin` are refused. On any other address everything needs a token, which says what its holder
may do: steer, or only watch.

A token is never part of a requested address, where logs and the `Referer` header would show it. The printed address has
it after `#`, which browsers do not send; a small page sends it once in the body of a request and gets a cookie. The
cookie has a random number of this process, not the token, so it cannot be guessed and ends with the board.
"""

import ipaddress
import json
import math
import secrets
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._tokens import Guesses, Role, Tokens, equal

# Our scripts may set styles, since plotly does; scripts are loaded from here only and never inline.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
MAY_STEER = "lapwing.may_steer"
"""The entry of a request's scope that says whether its sender may steer."""
_SIGN_IN = "/api/sign-in"
# What the page that asks for the token needs. Nothing in it comes from a run.
_PUBLIC = ("/static/sign-in.js", "/static/session.js", "/static/board.css", "/static/lapwing.svg")
_LARGEST_SIGN_IN = 4096
_NEEDS_TOKEN = (
    "this board needs its token; open the address with #token= that `lapwing` printed, or send the header "
    "Authorization: Bearer TOKEN"
)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is the loopback of this machine.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "10.0.0.1", "example.org")]
    [True, True, True, False, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Middleware around the whole application. Without tokens only this machine is served."""

    def __init__(self, app: ASGIApp, tokens: Tokens | None):
        self._app = app
        self._tokens = tokens
        self._guesses = Guesses()
        self._sessions: dict[Role, str] = {
            "steer": secrets.token_urlsafe(32),
            "view": secrets.token_urlsafe(32),
        }
        self._page = (Path(__file__).parent / "static" / "sign-in.html").read_text()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in more if pair[0] not in present)]
            await send(message)

        answer = await self._answer(Request(scope, receive))
        await (answer or self._app)(scope, receive, send_with_headers)

    async def _answer(self, request: Request) -> Response | None:
        """The response to a request that is refused or signs in; None if it is allowed."""
        if foreign := self._foreign(request):
            return foreign
        if self._tokens is None:
            request.scope[MAY_STEER] = True
            return None
        if "token" in request.query_params:
            return _sentence(
                HTTPStatus.BAD_REQUEST,
                "a token in the address would be logged; open the address with #token= in place of ?token=, or send "
                "the header Authorization: Bearer TOKEN",
            )
        if request.url.path == _SIGN_IN and request.method == "POST":
            return await self._sign_in(request, self._tokens)
        if request.url.path in _PUBLIC:
            return None
        role = self._role(request, self._tokens)
        if isinstance(role, Response):
            return role
        if role == "view" and request.method not in ("GET", "HEAD"):
            return _sentence(HTTPStatus.FORBIDDEN, "this token is for watching; to steer, use the other one")
        request.scope[MAY_STEER] = role == "steer"
        return None

    def _foreign(self, request: Request) -> Response | None:
        """The refusal of a request for another host, or from a page of another site."""
        host = request.headers.get("host", "")
        if self._tokens is None and not is_loopback(_name_in(host)):
            return _sentence(
                HTTPStatus.FORBIDDEN,
                f"this board serves 127.0.0.1 and localhost only, but the request is for {host!r}; "
                "start it with --host or --token-file to serve others",
            )
        origin = request.headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return _sentence(
                HTTPStatus.FORBIDDEN,
                f"requests from {origin!r} are refused: only the board's own pages are allowed",
            )
        return None

    def _role(self, request: Request, tokens: Tokens) -> Role | Response:
        """What the sender of a request may do, or a refusal."""
        cookie = request.cookies.get(_cookie_name(request), "")
        for role, session in self._sessions.items():
            if equal(cookie, session):
                return role
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._judge(request, bearer, tokens)
        if request.url.path == "/" and "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(self._page, HTTPStatus.UNAUTHORIZED, {"Cache-Control": "no-store"})
        return _sentence(HTTPStatus.UNAUTHORIZED, _NEEDS_TOKEN)

    def _judge(self, request: Request, given: str, tokens: Tokens) -> Role | Response:
        """What a token allows, or a refusal: of a wrong one, and of any after too many wrong ones."""
        address = request.client.host if request.client else ""
        if wait_s := self._guesses.wait_s(address):
            seconds = math.ceil(wait_s)
            return _sentence(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"too many wrong tokens; try again in {seconds} s",
                {"Retry-After": str(seconds)},
            )
        role = tokens.role_of(given)
        if role is None:
            self._guesses.wrong(address)
            return _sentence(HTTPStatus.UNAUTHORIZED, f"this is not the token; {_NEEDS_TOKEN}")
        self._guesses.right(address)
        return role

    async def _sign_in(self, request: Request, tokens: Tokens) -> Response:
        """Exchanges the token in the body of a request for a cookie."""
        token = await _given_token(request)
        if token is None:
            return _sentence(HTTPStatus.BAD_REQUEST, 'expected {"token": "WORD"} as application/json')
        role = self._judge(request, token, tokens)
        if isinstance(role, Response):
            return role
        answer = JSONResponse({"may_steer": role == "steer"}, headers={"Cache-Control": "no-store"})
        answer.set_cookie(
            _cookie_name(request),
            self._sessions[role],
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
            path="/",
        )
        return answer


async def _given_token(request: Request) -> str | None:
    """The token in the body of a request; None if there is none."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return None
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > _LARGEST_SIGN_IN:
                return None
        message: Any = json.loads(body)
    except (ClientDisconnect, ValueError, RecursionError):
        return None
    token = message.get("token") if isinstance(message, dict) else None
    return token if isinstance(token, str) else None


def _cookie_name(request: Request) -> str:
    """Browsers keep cookies by host: the boards at two ports of one machine need two names."""
    return f"lapwing-board-{request.scope['server'][1]}"


def _name_in(host: str) -> str:
    """The host name of a `Host` header, without its port; empty if the header is invalid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _sentence(status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(text + "\n", status, headers)
