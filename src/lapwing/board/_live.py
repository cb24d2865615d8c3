"""Updates for one open page, as messages of server-sent events.

A page gets everything once and then only changes: rows of the table, and new buckets of curves. Messages are made in a
thread, from what the shelf has in memory, without reading files.
"""

import json
from collections.abc import Sequence
from typing import Any

from lapwing.journal import to_json

from ._shelf import Kept, Shelf

MOST_RUNS = 12
MOST_METRICS = 32


class TableNews:
    """Updates for the page of all runs."""

    def __init__(self, shelf: Shelf):
        self._shelf = shelf
        self._sent: dict[str, dict[str, Any]] | None = None
        self._sent_about: list[Any] = []

    def message(self) -> str | None:
        """JSON with the rows that changed, the settings of new ones and the names that were removed; None if nothing is
        new.
        """
        rows = {row["run"]: row for row in self._shelf.rows()}
        about = [self._shelf.trouble, sorted(self._shelf.sweeps())]
        before = self._sent if self._sent is not None else {}
        changed = [row for name, row in rows.items() if before.get(name) != row]
        gone = [name for name in before if name not in rows]
        if self._sent is not None and not changed and not gone and about == self._sent_about:
            return None
        first = self._sent is None
        settings = {name: self._shelf.settings(name) for name in rows if name not in before}
        self._sent, self._sent_about = rows, about
        folder = {"folder": self._shelf.folder, "trouble": about[0], "sweeps": about[1]}
        return to_json({"first": first, "rows": changed, "settings": settings, "gone": gone, **folder})


class RunNews:
    """Updates for a page that shows some curves of some runs; without names of metrics, all curves.

    >>> import tempfile
    >>> from lapwing.journal import Run
    >>> folder = tempfile.mkdtemp()
    >>> run = Run.create("demo", runs_dir=folder)
    >>> run.log({"step": 1, "loss": 0.5})
    >>> shelf = Shelf(folder)
    >>> _ = shelf.look()
    >>> news = RunNews(shelf, [run.name], ["loss"])
    >>> [message] = json.loads(news.message())
    >>> message["row"]["state"], message["series"]["loss"]["step"], news.message()
    ('running', [1], None)
    """

    def __init__(self, shelf: Shelf, names: Sequence[str], metrics: Sequence[str]):
        self._shelf = shelf
        self._names = list(dict.fromkeys(names))[:MOST_RUNS]
        self._metrics = list(dict.fromkeys(metrics))[:MOST_METRICS]
        self._sent: dict[str, _Sent] = {name: _Sent() for name in self._names}

    def message(self) -> str | None:
        """JSON with what is new of each run; None if nothing is."""
        messages = [self._of(self._shelf.get(name)) for name in self._names]
        new = [message for message in messages if message]
        return f"[{', '.join(new)}]" if new else None

    def _of(self, kept: Kept) -> str | None:
        sent = self._sent[kept.name]
        version = (kept.version, kept.digest.version)
        if version == sent.version:
            return None
        sent.version = version
        series = {}
        with kept.digest.lock:
            for name in self._metrics or list(kept.digest.series)[:MOST_METRICS]:
                if curve := kept.digest.series.get(name):
                    epoch, count = sent.curves.get(name, (None, 0))
                    now = (kept.digest.reading, curve.epoch)
                    series[name] = curve.since(curve.epoch if epoch == now else -1, count)
                    sent.curves[name] = (now, curve.full)
            metrics = list(kept.digest.series)
        rest = {"row": kept.row, "news": kept.news, "metrics": metrics}
        # The curves are plain numbers already, and most of the message.
        return f'{to_json(rest)[:-1]}, "series": {json.dumps(series)}}}'


class _Sent:
    """What was sent of one run."""

    def __init__(self) -> None:
        self.version: tuple[int, int] = (-1, -1)
        self.curves: dict[str, tuple[tuple[int, int] | None, int]] = {}
