"""Access control, and the security headers of every response.

On the loopback address (the default) no token is needed, but a page of another site in the same browser could send
requests too. So the `Host` header must name this machine (another name that resolves to it is DNS rebinding), and
requests with a foreign `Origin` are refused. On any other address everything needs a token: it is given once in the
printed address and then kept in an HTTP-only cookie.
"""

import hmac
import ipaddress
from http import HTTPStatus
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
_COOKIE = "lapwing-board"


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
    """Middleware around the whole application. Without a token only this machine is served."""

    def __init__(self, app: ASGIApp, token: str | None):
        self._app = app
        self._token = token

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

        answer = self._refusal(Request(scope))
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The response to a request that is refused or redirected; None if it is allowed."""
        host = request.headers.get("host", "")
        if self._token is None and not is_loopback(_name_in(host)):
            return _sentence(
                HTTPStatus.FORBIDDEN,
                f"this board serves 127.0.0.1 and localhost only, but the request is for {host!r}; "
                "start it with --host and --token to serve others",
            )
        origin = request.headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return _sentence(
                HTTPStatus.FORBIDDEN,
                f"requests from {origin!r} are refused: only the board's own pages are allowed",
            )
        return None if self._token is None else self._without_token(request, self._token)

    def _without_token(self, request: Request, token: str) -> Response | None:
        given = request.query_params.get("token")
        if given is not None and request.method == "GET" and _equal(given, token):
            return self._remember(request, token)
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        cookie = request.cookies.get(_COOKIE, "")
        if _equal(cookie, token) or (scheme.lower() == "bearer" and _equal(bearer, token)):
            return None
        return _sentence(
            HTTPStatus.UNAUTHORIZED,
            "this board needs its token; open the address with ?token= that `lapwing board` printed",
        )

    def _remember(self, request: Request, token: str) -> Response:
        """Redirects to the same address without the token, which should not be in the history or on the screen."""
        rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        # With one slash: two would be the address of another host.
        path = "/" + request.url.path.lstrip("/") + ("?" + urlencode(rest) if rest else "")
        answer = RedirectResponse(path, HTTPStatus.SEE_OTHER)
        answer.set_cookie(_COOKIE, token, httponly=True, samesite="lax", path="/")
        return answer


def _equal(given: str, token: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode(), token.encode())


def _name_in(host: str) -> str:
    """The host name of a `Host` header, without its port; empty if the header is invalid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _sentence(status: HTTPStatus, text: str) -> Response:
    return PlainTextResponse(text + "\n", status)
