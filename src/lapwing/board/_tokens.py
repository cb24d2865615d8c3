"""Tokens: who may watch, who may steer, and how often somebody may be wrong.

A token is compared in constant time. Somebody who guesses gets few tries: a number for each address, and one for all
together, since one person may have many addresses. A guess that comes too soon is refused without being compared.
"""

import hmac
import ipaddress
import re
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple, Self

from lapwing.core import LapwingError

Role = Literal["steer", "view"]
SHORTEST = 16
PER_ADDRESS, IN_ALL, WINDOW_S = 10, 100, 60.0
"""Wrong tokens that are answered in a window of time."""
_MOST_KNOWN = 1000


class BoardError(LapwingError, ValueError):
    """A board that cannot be started."""


class Tokens(NamedTuple):
    """The token of those who may steer, and of those who may only watch. None: nobody may.

    >>> Tokens(steer="a-token-of-some-length").role_of("a-token-of-some-length")
    'steer'
    >>> Tokens(view="short").checked()
    Traceback (most recent call last):
    lapwing.board._tokens.BoardError: a token has at least 16 letters, digits or - _ . ~; ...
    """

    steer: str | None = None
    view: str | None = None

    @classmethod
    def new(cls) -> Self:
        return cls(secrets.token_urlsafe(24), secrets.token_urlsafe(24))

    def checked(self) -> Self:
        """These tokens; an error if they are easy to guess, or cannot be part of an address."""
        for token in self:
            if token is not None and not re.fullmatch(rf"[A-Za-z0-9_.~-]{{{SHORTEST},}}", token):
                raise BoardError(
                    f"a token has at least {SHORTEST} letters, digits or - _ . ~; write a longer one, such as the "
                    "output of: openssl rand -hex 24"
                )
        if self.steer is not None and self.steer == self.view:
            raise BoardError("the token to watch must be another one than the token to steer")
        return self

    def role_of(self, given: str) -> Role | None:
        """What a token allows. Both are compared, whatever the first comparison says."""
        may_steer, may_view = (token is not None and equal(given, token) for token in self)
        return "steer" if may_steer else "view" if may_view else None


def equal(given: str, right: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), right.encode())


class Guesses:
    """The wrong tokens of the last minute.

    >>> guesses = Guesses()
    >>> for _ in range(PER_ADDRESS):
    ...     guesses.wrong("10.0.0.1")
    >>> guesses.wait_s("10.0.0.1") > 50, guesses.wait_s("10.0.0.2")
    (True, 0.0)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._wrong: deque[tuple[float, str]] = deque()
        self._known: dict[str, None] = {}
        """Addresses that had a right token: the wrong ones of others do not lock them out."""

    def wait_s(self, address: str) -> float:
        """How long an address has to wait before its next token is looked at; 0 if it need not."""
        now, place = self._clock(), _place(address)
        while self._wrong and self._wrong[0][0] <= now - WINDOW_S:
            self._wrong.popleft()
        own = [when for when, where in self._wrong if where == place]
        if len(own) >= PER_ADDRESS:
            return own[-PER_ADDRESS] + WINDOW_S - now
        if len(self._wrong) >= IN_ALL and place not in self._known:
            return self._wrong[-IN_ALL][0] + WINDOW_S - now
        return 0.0

    def wrong(self, address: str) -> None:
        self._wrong.append((self._clock(), _place(address)))

    def right(self, address: str) -> None:
        self._known.pop(_place(address), None)
        self._known[_place(address)] = None
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]


def _place(address: str) -> str:
    """An address, or the network of one of IPv6: everybody there has as many addresses as they like."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
