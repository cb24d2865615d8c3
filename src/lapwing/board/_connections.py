"""Connections that are slow, or too many: dropped, so that the board keeps answering the others.

uvicorn waits without end for a request to become complete and for a client to read its answer. Every connection holds a
file descriptor, of which a process may have 1,024 on most systems; when they are used up, nobody is answered. So there
is a bound well below it. At the bound a new connection replaces the one that has waited longest without a complete
request, and a watchdog drops those that do not send, or do not read, for some seconds. A stream, whose request is
complete, is never dropped for a new connection.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 1024
_LEAST_READ = 4096
"""Bytes that a client reads within `stall_s`, if the board has that many for it."""


class Limits(NamedTuple):
    """What a client may take."""

    most: int = MOST_CONNECTIONS
    request_s: float = 15.0
    """Time until a request is complete, from the connection or the response before it."""
    stall_s: float = 20.0
    """Time for which a client may read nothing."""

    look_s: float = 1.0
    """Time between two looks of the watchdog."""

    @property
    def backlog(self) -> int:
        """Connections that are accepted in one turn of the event loop. The crowd gets them some turns later, so a few
        times as many may be open in excess of the bound."""
        return max(2, self.most // 20)

    @property
    def streams(self) -> int:
        """Some connections are left for everything else."""
        return self.most - max(2, self.most // 8)


def limits() -> Limits:
    """The limits for the file descriptors that this process may have; the rest of them is for files.

    >>> limits().most <= MOST_CONNECTIONS
    True
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return Limits()
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return Limits()
    return Limits(most=max(8, min(MOST_CONNECTIONS, descriptors * 5 // 8)))


class Member(Protocol):
    """A connection as the crowd sees it."""

    def waits_since(self) -> float | None:
        """When it began to wait for a complete request; None if it has one."""
        ...

    def has_stalled(self, now: float, stall_s: float) -> bool: ...

    def drop(self) -> None: ...


class Crowd:
    """All open connections, and the watchdog over them."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._members: dict[Member, None] = {}
        """Those that began to wait first are first."""
        self._watchdog: asyncio.TimerHandle | None = None

    def enter(self, member: Member) -> bool:
        """Takes a connection, if there is room or can be made; whether it was taken."""
        if len(self._members) >= self.limits.most:
            longest = next((each for each in self._members if each.waits_since() is not None), None)
            if longest is None:
                return False
            self._drop(longest)
        self._members[member] = None
        if self._watchdog is None:
            self._watchdog = asyncio.get_running_loop().call_later(self.limits.look_s, self._look)
        return True

    def waits_again(self, member: Member) -> None:
        """A connection that was answered waits for its next request."""
        if member in self._members:
            del self._members[member]
            self._members[member] = None

    def leave(self, member: Member) -> None:
        self._members.pop(member, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now, (_, request_s, stall_s, _) = loop.time(), self.limits
        for each in list(self._members):
            since = each.waits_since()
            if (since is not None and now - since > request_s) or each.has_stalled(now, stall_s):
                self._drop(each)
        self._watchdog = loop.call_later(self.limits.look_s, self._look) if self._members else None

    def _drop(self, member: Member) -> None:
        self.leave(member)
        member.drop()


class Connection(H11Protocol):
    """uvicorn's connection, as a member of the crowd."""

    def __init__(self, *arguments: Any, crowd: Crowd, **more: Any):
        super().__init__(*arguments, **more)
        self._crowd = crowd
        self._idle_since = self.loop.time()
        self._unread: tuple[int, float] | None = (
            None  # Bytes that wait to be read, and when they last were fewer.
        )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._crowd.enter(self):
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.leave(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        self._crowd.waits_again(self)
        super().on_response_complete()

    def resume_writing(self) -> None:
        self._unread = None
        super().resume_writing()

    def waits_since(self) -> float | None:
        is_answering = self.cycle is not None and not self._has_answered and not self.cycle.more_body
        return None if is_answering or self.transport.get_write_buffer_size() else self._idle_since

    def has_stalled(self, now: float, stall_s: float) -> bool:
        left = self.transport.get_write_buffer_size()
        # While nothing is added, fewer bytes mean that the client has read some.
        if not left or not (self.flow.write_paused or self._has_answered):
            self._unread = None
            return False
        self._idle_since = now
        if self._unread is None or left <= self._unread[0] - _LEAST_READ:
            self._unread = left, now
        return now - self._unread[1] > stall_s

    @property
    def _has_answered(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete

    def drop(self) -> None:
        self.transport.abort()  # Closing would wait for what was not read.


class Handshake(asyncio.Protocol):
    """A connection that becomes one of TLS. It is a member of the crowd before, since a client may be slow here too."""

    def __init__(self, make: Callable[[], Connection], context: ssl.SSLContext, crowd: Crowd):
        self._make, self._context, self._crowd = make, context, crowd
        self._since = asyncio.get_running_loop().time()
        self._early = b""  # What arrives between the handshake and the connection that is made for it.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        if not self._crowd.enter(self):
            self.drop()
            return
        transport.pause_reading()
        self._task = asyncio.get_running_loop().create_task(self._upgrade())

    async def _upgrade(self) -> None:
        secure = None
        with contextlib.suppress(OSError, ConnectionError):  # Errors of TLS are among them.
            secure = await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._crowd.limits.request_s,
            )
        self._crowd.leave(self)
        if secure is None:
            self.drop()
            return
        connection = self._make()
        secure.set_protocol(connection)
        connection.connection_made(secure)
        if self._early:
            connection.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.leave(self)

    def waits_since(self) -> float | None:
        return self._since

    def has_stalled(self, now: float, stall_s: float) -> bool:
        return False

    def drop(self) -> None:
        self._transport.abort()


def protocol(crowd: Crowd, context: ssl.SSLContext | None) -> Callable[..., asyncio.Protocol]:
    """What uvicorn calls for each connection."""

    def make(**options: Any) -> asyncio.Protocol:
        if context is None:
            return Connection(crowd=crowd, **options)
        return Handshake(lambda: Connection(crowd=crowd, **options), context, crowd)

    return make
