"""Clients that are slow, or many, and a board that has few file descriptors."""

import contextlib
import http.client
import json
import resource
import select
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lapwing.board._connections import Limits, limits
from tests.slow import some

from .serving import serving, started, until

PARTS = [
    b"",
    b"GET / HT",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    b"POST /api/steer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
]
QUICK = Limits(most=12, request_s=0.6, stall_s=0.8, look_s=0.1)


@contextlib.contextmanager
def slow(port: int, count: int, parts: list[bytes] = PARTS) -> Iterator[list[socket.socket]]:
    """Connections that send the first part of a request, and then nothing."""
    with contextlib.ExitStack() as stack:
        found = []
        for number in range(count):
            found.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)))
            with contextlib.suppress(OSError):  # It may have been dropped already.
                found[-1].sendall(parts[number % len(parts)])
        yield found


def dropped(connections: list[socket.socket]) -> int:
    ready = select.poll()
    for each in connections:
        ready.register(each, select.POLLIN)
    return len(ready.poll(0))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    started(runs, [1.0]).folder.rename(runs / "good")
    return runs


def test_a_request_that_is_not_complete_in_time_is_dropped(runs: Path):
    with serving(runs, limited=QUICK) as board, slow(board.port, 8) as connections:
        began = time.monotonic()
        # A byte now and then does not help.
        while dropped(connections) < 8 and time.monotonic() < began + 60:
            for each in connections[4:]:
                with contextlib.suppress(OSError):
                    each.sendall(b"x")
            time.sleep(0.05)
        assert QUICK.request_s / 2 < time.monotonic() - began < 30


def test_a_client_that_is_dropped_is_no_error(runs: Path, caplog):
    """A log that anybody can fill fills a disk."""
    with serving(runs, limited=QUICK) as board:
        with slow(board.port, 4, [PARTS[-1]]) as connections:
            until(lambda: dropped(connections) == 4)
        with slow(board.port, 4, [PARTS[-1], b"nonsense\r\n\r\n"]):
            pass
        assert board.get("run", run="good").status == 200
    assert not caplog.records


def test_an_open_stream_and_a_connection_in_use_stay(runs: Path):
    limited = QUICK._replace(request_s=1.2)  # A busy machine may take half a second for a request.
    with serving(runs, limited=limited) as board, board.listen() as messages:
        next(messages)
        connection = http.client.HTTPConnection("127.0.0.1", board.port, timeout=60)
        end = time.monotonic() + 1.5 * limited.request_s
        while time.monotonic() < end:
            connection.request("GET", "/api/run?run=good")
            assert connection.getresponse().read()
            time.sleep(0.1)
        connection.close()
        started(runs, [2.0])
        assert next(messages)["rows"]


def test_somebody_who_does_not_read_is_dropped(runs: Path):
    """What the operating system has taken arrives, and no more."""
    with serving(runs, limited=QUICK) as board:
        whole = len(board.ask("/static/plotly.min.js").body)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", board.port))
            client.sendall(b"GET /static/plotly.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            time.sleep(QUICK.stall_s + 1)
            client.settimeout(60)
            assert sum(map(len, iter(lambda: client.recv(1 << 16), b""))) < whole


def test_a_slow_reader_gets_everything(runs: Path):
    """Slower than `stall_s` in all, but it reads."""
    limited = QUICK._replace(stall_s=1.6)
    with serving(runs, limited=limited) as board, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.connect(("127.0.0.1", board.port))
        client.sendall(b"GET /static/plotly.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        client.settimeout(60)
        size, began = 0, time.monotonic()
        while part := client.recv(1 << 16):
            size += len(part)
            if time.monotonic() - began < 1.5 * limited.stall_s:
                time.sleep(0.1)
        assert size > 1_000_000


def test_at_the_bound_a_new_connection_replaces_the_one_that_waited_longest(runs: Path):
    with serving(runs, limited=Limits(most=12, request_s=60.0)) as board, slow(board.port, 12) as connections:
        time.sleep(0.1)
        assert dropped(connections) == 0
        assert board.get("run", run="good").status == 200
        until(lambda: dropped(connections[:1]) == 1)
        assert dropped(connections) == 1


def test_streams_leave_room_for_others(runs: Path):
    limited = Limits(most=12)
    with serving(runs, limited=limited) as board, contextlib.ExitStack() as stack:
        for _ in range(limited.streams):
            next(stack.enter_context(board.listen()))
        refused = board.ask("/api/live")
        assert (refused.status, refused.json["error"]) == (
            503,
            f"{limited.streams} pages are open; close one and load this page again",
        )
        assert board.get("run", run="good").status == 200
        stack.pop_all().close()

        def is_open() -> bool:
            with contextlib.suppress(AssertionError), board.listen() as messages:
                return bool(next(messages))
            return False

        until(is_open)


def test_the_bound_leaves_descriptors_for_files(monkeypatch):
    for descriptors, most in ((1024, 640), (256, 160), (1 << 20, 1024), (4, 8)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, given=descriptors: (given, given))
        assert limits().most == most
        assert descriptors < 100 or limits().most + 6 * limits().backlog < 0.85 * descriptors
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert limits().most == 1024


def test_a_handshake_that_is_not_complete_is_dropped_too(runs: Path, certificate: Path):
    from lapwing.board._serve import _context

    context = _context(certificate / "certificate.pem", certificate / "key.pem")
    trusting = ssl.create_default_context(cafile=str(certificate / "certificate.pem"))
    hello = b"\x16\x03\x01\x02\x00"
    with (
        serving(runs, context=context, limited=QUICK) as board,
        slow(board.port, 30, [b"", hello, b"GET /"]) as all_of,
    ):
        secure = http.client.HTTPSConnection("127.0.0.1", board.port, context=trusting, timeout=60)
        secure.request("GET", "/api/run?run=good")
        assert secure.getresponse().status == 200
        secure.close()
        until(lambda: dropped(all_of) == 30)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    from .test_tokens import make_certificate

    return make_certificate(tmp_path_factory.mktemp("certificate"))


BOARD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from lapwing.board import Tokens, serve
tokens = Tokens(sys.argv[2]) if len(sys.argv) > 2 else None
serve(sys.argv[1], port=0, tokens=tokens, say=lambda address: print(address.port, flush=True))
"""


@contextlib.contextmanager
def with_few_descriptors(folder: Path, *token: str) -> Iterator[int]:
    """The port of a real board that may have 1,024 file descriptors."""
    command = [sys.executable, "-c", BOARD, str(folder), *token]
    board = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert board.stdout is not None
        yield int(board.stdout.readline())
        assert board.poll() is None
    finally:
        board.terminate()
        _, said = board.communicate(timeout=60)
    assert said == "", said


def answered_within(port: int, path: str, **headers: str) -> float:
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    answer.read()
    connection.close()
    return time.monotonic() - began


@pytest.mark.parametrize("count", some([500, 1500], 0))
def test_slow_connections_starve_nobody(tmp_path: Path, count: int):
    """Of strangers without a token: 500 fit, and 1,500 are more than there are descriptors."""
    started(tmp_path, [1.0]).folder.rename(tmp_path / "good")
    bearer = {"Authorization": "Bearer a-token-of-some-length"}
    with with_few_descriptors(tmp_path, "a-token-of-some-length") as port:
        answered_within(port, "/api/run?run=good", **bearer)
        with slow(port, count):
            behind_the_burst, *times = [
                answered_within(port, path, **bearer) for path in ("/api/run?run=good", "/") * 5
            ]
    # Who is starved waits until the slow ones are dropped; a busy machine takes its time for one answer, not for all.
    assert behind_the_burst < Limits().request_s / 2
    assert max(times) < Limits().request_s / 2
    assert statistics.median(times) < 1.0


@pytest.mark.slow
def test_a_thousand_runs_and_slow_connections(tmp_path: Path):
    run = started(tmp_path, [1.0, 0.5])
    run.end("finished", "")
    for number in range(1000):
        shutil.copytree(run.folder, tmp_path / f"copy-{number:04}")
    with with_few_descriptors(tmp_path) as port, slow(port, 500) as connections:
        stream = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        stream.request("GET", "/api/live")
        answer, names = stream.getresponse(), set()
        while len(names) < 1001:
            line = answer.readline()
            if line.startswith(b"data: "):
                names |= {row["run"] for row in json.loads(line[6:])["rows"]}
        times = []
        end = time.monotonic() + 20
        while time.monotonic() < end:
            times.append(answered_within(port, "/api/run?run=copy-0500"))
            time.sleep(0.1)
        assert dropped(connections) == 500
        answer.close()
        stream.close()
    print(f"{len(times)} answers, longest {max(times):.2f} s")
    assert max(times) < 1.0
