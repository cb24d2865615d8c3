"""`lapwing board`: a live web page of all runs, to look at them and to steer them."""

import importlib.util
from typing import TYPE_CHECKING, Annotated

import tyro

from .parse import RUNS, RunsFolder, UsageError

if TYPE_CHECKING:
    from lapwing.board import Address

Host = Annotated[
    str, tyro.conf.arg(metavar="ADDRESS", help="where to listen; others than this machine need a token")
]
Port = Annotated[int, tyro.conf.arg(metavar="N", help="0: any that is free")]
Token = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="WORD", help="what has to be known to see and to steer; made up where it is needed"
    ),
]
_NEEDED = ("starlette", "uvicorn", "sse_starlette", "plotly")


def board(
    *, runs_dir: RunsFolder = RUNS, host: Host = "127.0.0.1", port: Port = 8765, token: Token = None
) -> None:
    """Serves a web page of all runs, live, until Ctrl-C. It opens no browser and needs no run to be there yet."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"the board needs {', '.join(missing)}; pip install 'lapwing[board]' brings it")
    from lapwing.board import serve

    try:
        serve(runs_dir, host, port, token, say=_say)
    except KeyboardInterrupt:
        print("The board has ended; the runs go on.")


def _say(address: "Address") -> None:
    print(f"The board is at {address} until Ctrl-C.", flush=True)
