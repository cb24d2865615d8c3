"""The board: a live web page of all runs in a folder, to watch and to steer them (the extra `lapwing[board]`).

It reads run folders and nothing else, so it can be started before, during or after the runs, on any machine that sees
the folder; it does not import jax. `lapwing board` calls `serve`. Three layers: data in memory (`_series`, `_digest`,
`_shelf`), responses (`_details`, `_logged`, `_compare`, `_sweeps`, `_live`, `_app`) and access (`_guard`, `_tokens`,
`_connections`). `_web` and `serve_app` serve other pages too, such as that of `lapwing.live`. The page is in `static`:
plain HTML, CSS and modules of JavaScript.
"""

from ._app import make_app
from ._guard import MAY_STEER, Guard
from ._serve import HOST, PORT, Address, listening, make_server, serve, serve_app, server_of
from ._shelf import Shelf
from ._tokens import BoardError, Tokens
from ._web import STATIC, Pages, RequestError, Streams, answers_to, json_response, read_message

__all__ = [
    "HOST",
    "MAY_STEER",
    "PORT",
    "STATIC",
    "Address",
    "BoardError",
    "Guard",
    "Pages",
    "RequestError",
    "Shelf",
    "Streams",
    "Tokens",
    "answers_to",
    "json_response",
    "listening",
    "make_app",
    "make_server",
    "read_message",
    "serve",
    "serve_app",
    "server_of",
]
