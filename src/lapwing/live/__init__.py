"""Livecoding: a machine that runs in the browser, its drawing with values flowing, edited while it runs.

`Session` is a running machine with edits, undo and a journal; `replay` runs a journal again to the same bits; `Player`
runs a session in a thread; `serve` shows it on a page, with the server, the access rules and the style of the board.
`lapwing dmm live` and `lapwing dmm replay` are the commands. `_edits` lists the edits.
"""

from ._journal import LiveError
from ._replay import Replay, replay
from ._session import Session

__all__ = ["LiveError", "Replay", "Session", "replay"]
