"""The board: a live web page of all runs in a folder, to look at them and to steer them (the extra `lapwing[board]`).

It reads run folders and nothing else, so it can be started before, during or after the runs, on any machine that sees
the folder; and it imports no jax. `serve` is what `lapwing board` calls. Three layers, each in files of its own: what
is read and kept in memory (`_series`, `_digest`, `_shelf`), what is answered (`_details`, `_compare`, `_sweeps`,
`_steer`, `_live`, `_app`) and to whom (`_guard`). The page is in `static`: plain HTML, CSS and modules of JavaScript.
"""

from ._app import make_app
from ._serve import HOST, PORT, Address, BoardError, listening, make_server, serve
from ._shelf import Shelf

__all__ = ["HOST", "PORT", "Address", "BoardError", "Shelf", "listening", "make_app", "make_server", "serve"]
