"""Requests that no browser would send, to a real board: whatever comes, no answer is a 500 and the board lives.

    python -m tests.board.fuzz --count 10000 --seed 0

Every request is made from its own seed, so one that fails is repeated by `--seed SEED --count 1`.
"""

import argparse
import json
import random
import socket
import string
import tempfile
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import numpy as np

from lapwing.board import Tokens
from lapwing.board._connections import Limits
from lapwing.journal import Image, Table

from .serving import Board, falling, serving, started, timed_laps

TOKENS = Tokens("the-token-to-steer", "the-token-to-watch")
PATHS = [
    *(
        "/",
        "/api/run",
        "/api/sweep",
        "/api/compare",
        "/api/difference",
        "/api/picture",
        "/api/logged",
        "/api/entry",
    ),
    *(
        "/api/media",
        "/api/system",
        "/api/live",
        "/api/steer",
        "/api/sign-in",
        "/static/app.js",
        "/static/",
        "/api",
    ),
]
# What each path needs.
NEEDED = {
    "/api/run": ["run"],
    "/api/logged": ["run"],
    "/api/system": ["run"],
    "/api/live": ["run"],
    "/api/sweep": ["sweep"],
    "/api/compare": ["run", "run"],
    "/api/difference": ["run", "run"],
    "/api/picture": ["run", "name"],
    "/api/entry": ["run", "name", "kind", "step"],
    "/api/media": ["run", "file"],
}
PARAMETERS = ["run", "name", "kind", "step", "file", "sweep", "metric", "x", "tokens"]
METHODS = (
    ["GET"] * 8 + ["POST"] * 4 + ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "get", "G\x00T", ""]
)
KINDS = ["application/json"] * 5 + ["text/plain", "application/json; charset=x", "", "\xff"]
NASTY = [
    *(
        "",
        "\0",
        "../",
        "..%2f",
        "%",
        "%zz",
        "%ff%fe",
        "é",
        "\ud800",
        "𝒳",
        "' OR 1",
        "<b>",
        "$(x)",
        "{}",
        "[]",
        "null",
    ),
    *(
        "1e999",
        "-1",
        "9" * 400,
        "NaN",
        "a" * 5000,
        "\r\nX: y",
        "\n",
        "//evil.example/",
        "\\",
        "~",
        ".",
        "..",
        "/" * 300,
    ),
]


def make_runs(folder: Path) -> dict[str, list[str]]:
    """Runs with everything that can be asked for, and the names of it, by parameter."""
    run = started(folder, falling(40), model={"width": 8})
    run.save_laps(timed_laps())
    run.log(step=1, sample="text", noise=Image(np.zeros((2, 3))), worst=Table([{"word": "a"}]))
    run.add_picture(b"\x89PNG\r\n\x1a\n", "a.png", "a picture")
    grid = folder / "grid"
    grid.mkdir()
    (grid / "sweep.json").write_text('{"experiment": "adding", "grid": {"learning_rate": [0.1]}}')
    point = started(grid, falling(10))
    media = [str(path.relative_to(run.folder)) for path in (run.folder / "media").iterdir()]
    return {
        "run": [run.name, f"grid/{point.name}"],
        "name": ["noise", "sample", "worst", "a.png"],
        "kind": ["image", "text", "table"],
        "step": ["1"],
        "file": media,
        "sweep": ["grid"],
        "metric": ["loss"],
    }


class Requests:
    """Requests by their seeds, made of words that the board knows and words that it does not."""

    def __init__(self, names: dict[str, list[str]], access: str):
        self._names, self._access = names, access
        self._words = [word for words in names.values() for word in words]

    def make(self, seed: int) -> bytes:
        chance = random.Random(seed)
        method = chance.choice(METHODS)
        target = self._target(chance, method)
        body = self._body(chance, target) if method != "GET" or chance.random() < 0.1 else b""
        lines = [f"{method} {target} HTTP/1.1", *self._headers(chance, body)]
        text = "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body
        return self._mutated(chance, text) if chance.random() < 0.15 else text

    def _target(self, chance: random.Random, method: str) -> str:
        path = chance.choice(PATHS) if chance.random() < 0.9 else "/" + self._word(chance)
        if method == "POST" and chance.random() < 0.8:
            path = chance.choice(["/api/steer", "/api/steer", "/api/sign-in"])
        asked = list(NEEDED.get(path, []))
        if chance.random() < 0.3:
            asked += [chance.choice(PARAMETERS) for _ in range(chance.choice([1, 2, 20]))]
        if asked and chance.random() < 0.15:
            asked.pop(chance.randrange(len(asked)))
        pairs = [f"{name}={self._word(chance, name)}" for name in asked]
        return path + ("?" + "&".join(pairs) if pairs else "")

    def _word(self, chance: random.Random, name: str = "x") -> str:
        word = (
            chance.choice(self._names.get(name, self._words))
            if chance.random() < 0.92
            else chance.choice(NASTY)
        )
        if chance.random() < 0.05:
            word += chance.choice(NASTY)
        return quote(word, safe="%/") if chance.random() < 0.95 and "\ud800" not in word else word

    def _headers(self, chance: random.Random, body: bytes) -> list[str]:
        host = chance.choice(["127.0.0.1"] * 40 + ["localhost", "evil.example", "[", "", "127.0.0.1:99999"])
        # Guesses from one address would soon be refused unseen.
        address = ".".join(str(chance.randrange(256)) for _ in range(4))
        headers = [f"Host: {host}", "Connection: close", f"X-Forwarded-For: {address}"]
        if body or chance.random() < 0.1:
            length = len(body) if chance.random() < 0.95 else chance.choice([0, 5, 10**6, -1])
            headers.append(f"Content-Length: {length}")
        if chance.random() < 0.95:
            headers.append(self._access)
        if chance.random() < 0.05:
            wrong = ["Bearer \xff", "Bearer", "Basic x", "", "Bearer a b"]
            headers.append(f"Authorization: {chance.choice(wrong)}")
        if chance.random() < 0.6:
            headers.append(f"Content-Type: {chance.choice(KINDS)}")
        for name in (
            "Origin",
            "Cookie",
            "Accept",
            "If-None-Match",
            "Range",
            "Last-Event-ID",
            "Expect",
            "X-Forwarded-For",
        ):
            if chance.random() < 0.02:
                word = chance.choice(
                    ["http://127.0.0.1", "a=b; c", "*/*", "100-continue", "bytes=0-5", *NASTY]
                )
                headers.append(f"{name}: {word}")
        return headers

    def _body(self, chance: random.Random, target: str) -> bytes:
        if chance.random() < 0.15:
            return chance.choice([b"", b"[" * 60_000, b'{"a":' * 20_000, b"\xff\xfe", b"x" * 70_000, b"nul"])
        commands = [
            "set",
            "pause",
            "stop",
            "note",
            "rollback",
            "checkpoint",
            "resume",
            "tag",
            "nothing",
            *NASTY,
        ]
        message = {
            "run": chance.choice(self._names["run"]) if chance.random() < 0.8 else self._value(chance),
            "command": chance.choice(commands) if chance.random() < 0.9 else self._value(chance),
            "arguments": {chance.choice(["learning_rate", "text", "x"]): self._value(chance)},
        }
        if chance.random() < 0.2:
            message[chance.choice(["run", "command", "arguments", "more"])] = self._value(chance)
        if target.startswith("/api/sign-in"):
            message = {"token": self._value(chance)}
        return json.dumps(message).encode()

    def _value(self, chance: random.Random, depth: int = 0) -> object:
        plain = [None, True, 0, -1, 10**400, 1e300, float("nan"), float("inf"), "", "0.1", *NASTY]
        if depth < 3 and chance.random() < 0.3:
            items = [self._value(chance, depth + 1) for _ in range(chance.randrange(3))]
            return (
                items if chance.random() < 0.5 else {str(number): item for number, item in enumerate(items)}
            )
        return chance.choice(plain)

    def _mutated(self, chance: random.Random, text: bytes) -> bytes:
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(text) + 1)
            match chance.randrange(4):
                case 0:
                    text = text[:at] + bytes([chance.randrange(256)]) + text[at + 1 :]
                case 1:
                    text = text[:at] + text[at + chance.randrange(1, 9) :]
                case 2:
                    text = text[:at] + text[chance.randrange(len(text) + 1) :][:40] + text[at:]
                case _:
                    text = (
                        text[:at]
                        + chance.choice(string.printable).encode() * chance.randrange(1, 50)
                        + text[at:]
                    )
        return text


def answer_to(port: int, request: bytes, wait_s: float = 5.0) -> bytes:
    """The first line of the answer; empty if the board hangs up without one, or waits for more."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait_s) as client:
        try:
            client.sendall(request)
            return client.recv(4096).partition(b"\r\n")[0]
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            return b""


def access_to(board: Board, tokens: Tokens | None) -> str:
    """The header of somebody who may steer."""
    if tokens is None:
        return "Accept: */*"
    answer = board.ask(
        "/api/sign-in",
        method="POST",
        body=json.dumps({"token": tokens.steer}),
        Content_Type="application/json",
    )
    return "Cookie: " + answer.headers["set-cookie"].partition(";")[0]


def fuzz(folder: Path, names: dict[str, list[str]], seeds: range, tokens: Tokens | None) -> Counter[str]:
    """How often each status was answered; an error for the first request that is answered by a 500, or not in time."""
    # A request that stays incomplete is dropped soon, since the fuzzer waits for it.
    with serving(folder, tokens, proxy="127.0.0.1", limited=Limits(request_s=0.3, look_s=0.05)) as board:
        return _fuzz(board, Requests(names, access_to(board, tokens)), seeds)


def _fuzz(board: Board, requests: Requests, seeds: range) -> Counter[str]:
    found = Counter[str]()
    for seed in seeds:
        began = time.monotonic()
        line = answer_to(board.port, requests.make(seed)).decode("latin-1")
        status = line.split(" ")[1] if " " in line else "none"
        assert not status.startswith("5"), (
            f"{line!r} to the request of seed {seed}: {requests.make(seed)[:500]!r}"
        )
        assert time.monotonic() - began < 5, (
            f"no answer to the request of seed {seed}: {requests.make(seed)[:500]!r}"
        )
        found[status] += 1
    alive = answer_to(board.port, b"GET /static/board.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert alive == b"HTTP/1.1 200 OK"
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--count", type=int, default=10_000, help="number of requests")
    options.add_argument("--seed", type=int, default=0, help="seed of the first request")
    chosen = options.parse_args()
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    with tempfile.TemporaryDirectory() as folder:
        names = make_runs(Path(folder))
        began = time.monotonic()
        for name, tokens in (("without tokens", None), ("with tokens", TOKENS)):
            found = fuzz(Path(folder), names, seeds[1::2] if tokens else seeds[::2], tokens)
            print(f"{name}: {dict(sorted(found.items()))}")
        print(f"{chosen.count} requests in {time.monotonic() - began:.0f} s, none was answered by a 500")


if __name__ == "__main__":
    main()
