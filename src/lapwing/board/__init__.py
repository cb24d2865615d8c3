"""The board: a live web page of all runs in a folder, to watch and to steer them (the extra `lapwing[board]`).

It reads run folders and nothing else, so it can be started before, during or after the runs, on any machine that sees
the folder; it does not import jax. `lapwing board` calls `serve`. Three layers: data in memory (`_series`, `_digest`,
`_shelf`), responses (`_details`, `_logged`, `_compare`, `_sweeps`, `_live`, `_app`) and access (`_guard`, `_tokens`,
`_connections`). The page is in `static`: plain HTML, CSS and modules of JavaScript.
"""

from ._app import make_app
from ._serve import HOST, PORT, Address, listening, make_server, serve
from ._shelf import Shelf
from ._tokens import BoardError, Tokens

__all__ = [
    "HOST",
    "PORT",
    "Address",
    "BoardError",
    "Shelf",
    "Tokens",
    "listening",
    "make_app",
    "make_server",
    "serve",
]
