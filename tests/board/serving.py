"""A real board on a free port of this machine, and runs for it to show."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import numpy as np

from lapwing.board import Shelf, Tokens, listening, make_server
from lapwing.journal import Run, RunWriter
from lapwing.timing import Laps
from tests.report.runs import falling as falling


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Board(NamedTuple):
    """A board that runs."""

    port: int
    shelf: Shelf

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(self, path: str, *, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
        """One request, with its path exactly as it is given: no browser tidies it up. `Host_` is `Host`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        named = {name.rstrip("_").replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        found = Answer(
            answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        )
        connection.close()
        return found

    def get(self, what: str, **parameters: Any) -> Answer:
        return self.ask(f"/api/{what}?{urlencode(parameters, doseq=True, quote_via=quote)}")

    def steer(self, run: str, command: str, **arguments: Any) -> Answer:
        message = json.dumps({"run": run, "command": command, "arguments": arguments})
        return self.ask("/api/steer", method="POST", body=message, Content_Type="application/json")

    @contextlib.contextmanager
    def listen(self, **parameters: Any) -> Iterator[Iterator[Any]]:
        """The messages of a stream, as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", f"/api/live?{urlencode(parameters, doseq=True)}")
        answer = connection.getresponse()
        assert answer.status == 200
        try:
            yield _messages(answer)
        finally:
            answer.close()
            connection.close()


def _messages(answer: http.client.HTTPResponse, seconds: float = 60.0) -> Iterator[Any]:
    deadline = time.monotonic() + seconds
    for line in answer:
        assert time.monotonic() < deadline, "it did not come in time"
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


@contextlib.contextmanager
def serving(folder: Path, tokens: Tokens | None = None, **options: Any) -> Iterator[Board]:
    with listening("127.0.0.1", 0) as connection:
        shelf = Shelf(folder)
        server = make_server(shelf, tokens, **options)
        thread = threading.Thread(target=server.run, args=([connection],))
        thread.start()
        try:
            until(lambda: server.started)
            yield Board(connection.getsockname()[1], shelf)
        finally:
            server.should_exit = True
            thread.join(60)


def until(holds: Any, seconds: float = 60.0) -> Any:
    """Waits for something to become true, and returns it."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def started(folder: Path, losses: Any, **settings: Any) -> RunWriter:
    """A run that has logged these losses, ten steps a second, and still runs."""
    run = Run.create(
        "adding", {"learning_rate": 0.1, "steps": 1000, **settings}, runs_dir=folder, device="cpu"
    )
    company = {"gradient_norm": 2.0, "clipped_norm": 1.0, "learning_rate": 0.1}
    times = run.created + np.arange(len(losses)) / 10
    run.log(
        *(
            {"step": step, "loss": float(loss), **company, "time": float(time)}
            for step, (loss, time) in enumerate(zip(losses, times, strict=True))
        )
    )
    return run


def timed_laps() -> dict[str, Any]:
    """Two phases of four steady steps, and some time that neither accounts for."""
    now = 0.0
    laps = Laps(clock=lambda: now)
    laps.step()
    for _ in range(5):
        for name in ("data", "forward"):
            with laps(name):
                now += 0.25
        now += 0.125
        laps.step()
    return laps.summary().to_json()
