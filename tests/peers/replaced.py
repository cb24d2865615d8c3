"""A pytest plugin: `jax.lax.scan` is counted, or replaced by `lw.scan` wherever it was imported.

It is loaded by its name, `-p replaced`, into the pytest of another project, so it imports nothing of these tests.
It reads its orders from the environment and appends one JSON line for each test to a file, as soon as it is known:

    LAPWING_PEERS_LOG     the file
    LAPWING_PEERS_MODE    "plain" (as written; counts loops), or `rewrite=` of lw.scan: "auto", "always"
    LAPWING_PEERS_ONLY    a file with the ids of the tests to run, one a line; all by default
    LAPWING_PEERS_EACH    at most this many tests of each family (ids that end in other numbers, [...] or a=1_b=2)
"""

import functools
import json
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import jax
from jax.extend.core.primitives import scan_p

TRUE = jax.lax.scan
_loops = 0
_outcomes: dict[str, str] = {}


def count_loops() -> None:
    """A test that never binds a `scan` equation cannot tell which scan it was."""
    bind = scan_p.bind

    @functools.wraps(bind)
    def counting(*args, **params):
        global _loops
        _loops += 1
        return bind(*args, **params)

    scan_p.bind = counting


def replace_everywhere() -> None:
    """Every module's name for `jax.lax.scan` becomes one that calls `lw.scan`; lapwing itself gets the true one."""
    import lapwing as lw

    rewrite: Any = os.environ["LAPWING_PEERS_MODE"]
    replacement = functools.partial(lw.scan, rewrite=rewrite)

    def scan(*args, **kwargs):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return (TRUE if caller.split(".")[0] == "lapwing" else replacement)(*args, **kwargs)

    # Lapwing tells its user's frames in a traceback from jax's, to which this one belongs.
    ours = types.FunctionType(
        scan.__code__, globals() | {"__name__": "jax.lax"}, "scan", None, scan.__closure__
    )
    functools.update_wrapper(ours, TRUE)
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is TRUE and module is not sys.modules[__name__]:
                setattr(module, name, ours)


def _log(**entry) -> None:
    with Path(os.environ["LAPWING_PEERS_LOG"]).open("a") as file:
        file.write(json.dumps(entry) + "\n")


def pytest_configure() -> None:
    if os.environ["LAPWING_PEERS_MODE"] == "plain":
        count_loops()
    else:
        replace_everywhere()


def family_of(test: str) -> str:
    """The id of a test without its parameters, as pytest and absl write them."""
    return re.sub(r"(=.*|\d+|\[.*\])$", "", test)


def pytest_collection_modifyitems(items) -> None:
    if only := os.environ.get("LAPWING_PEERS_ONLY"):
        wanted = set(Path(only).read_text().splitlines())
        items[:] = [item for item in items if item.nodeid in wanted]
    if each := int(os.environ.get("LAPWING_PEERS_EACH", 0)):
        families: dict[str, list] = {}
        for item in items:
            families.setdefault(family_of(item.nodeid), []).append(item)
        items[:] = [item for family in families.values() for item in family[:: -(-len(family) // each)]]
    _log(collected=[item.nodeid for item in items])


def pytest_runtest_logstart(nodeid: str) -> None:
    global _loops
    _loops = 0
    _outcomes.clear()
    _log(started=nodeid)


def pytest_runtest_logreport(report) -> None:
    if report.failed:
        _outcomes[report.when] = "failed"
        _outcomes["message"] = str(report.longrepr)[-4000:]
    elif report.skipped:
        _outcomes[report.when] = "skipped"


def pytest_runtest_logfinish(nodeid: str) -> None:
    message = _outcomes.pop("message", "")
    outcomes = set(_outcomes.values())
    outcome = "failed" if "failed" in outcomes else "skipped" if outcomes else "passed"
    _log(test=nodeid, outcome=outcome, loops=_loops, message=message)
