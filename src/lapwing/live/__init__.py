"""Livecoding: a machine that runs in the browser, its drawing with values flowing, edited while it runs.

`Session` is a running machine with edits, undo and a journal; `replay` runs a journal again to the same bits; `Player`
runs a session in a thread; `serve` shows it on a page, with the server, the access rules and the style of the board.
`lapwing dmm live` and `lapwing dmm replay` are the commands. `_edits` lists the edits.
"""

from typing import TYPE_CHECKING, Any

from ._journal import LiveError
from ._player import Player
from ._replay import Replay, replay
from ._session import Session

if TYPE_CHECKING:
    from ._app import serve

__all__ = ["LiveError", "Player", "Replay", "Session", "replay", "serve"]


def __getattr__(name: str) -> Any:
    """`serve` needs the extra `lapwing[board]`; sessions and journals do not."""
    if name == "serve":
        from ._app import serve

        return serve
    raise AttributeError(f"module 'lapwing.live' has no attribute {name!r}; it has {', '.join(__all__)}")
