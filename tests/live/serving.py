"""A live machine on a free port of this machine."""

import contextlib
import functools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lapwing import dmm
from lapwing.board import Tokens, listening, server_of
from lapwing.live import Player, Session
from lapwing.live._app import make_app
from tests.board.serving import Answer, Board, until


class Live(NamedTuple):
    """A machine that is served."""

    board: Board
    player: Player
    file: Path

    def do(self, what: str, **more: Any) -> Answer:
        message = json.dumps({"do": what, **more})
        return self.board.ask("/api/steer", method="POST", body=message, Content_Type="application/json")

    def edit(self, kind: str, **more: Any) -> Answer:
        return self.do("edit", edit={"edit": kind, **more})

    @property
    def cycle(self) -> int:
        with self.player.held() as session:
            return session.cycle

    @property
    def weights(self) -> dict[tuple[str, str], float]:
        with self.player.held() as session:
            links = session.machine.links()
        return {
            (f"{link.to}.{link.to_field}", f"{link.source}.{link.source_field}"): link.weight
            for link in links
        }


@contextlib.contextmanager
def live(
    folder: Path, machine: dmm.Machine | None = None, tokens: Tokens | None = None, **options: Any
) -> Iterator[Live]:
    """A served machine, by default the duplicate detector, with its journal beside it."""
    file = folder / "machine.json"
    made = machine or dmm.duplicate_detector()
    made.save(file)
    text = {} if machine else {"text": "test string."}
    player = Player(Session(made, journal=folder / "machine.live.jsonl", **{**text, **options}))
    with listening("127.0.0.1", 0) as connection:
        server = server_of(functools.partial(make_app, player, file), tokens)
        thread = threading.Thread(target=server.run, args=([connection],))
        thread.start()
        try:
            until(lambda: server.started)
            port = connection.getsockname()[1]
            yield Live(Board(port, None), player, file)  # type: ignore[arg-type]
        finally:
            server.should_exit = True
            thread.join(60)
