"""`lapwing report RUN`: pictures of a run, and one page with everything about it."""

from pathlib import Path
from typing import Annotated

import tyro

from lapwing.core import LapwingError
from lapwing.journal import JournalError, Run, find_run

from .output import print_json, print_lines
from .parse import RUNS, Json, RunName, RunsFolder

Out = Annotated[
    Path | None, tyro.conf.arg(metavar="FILE", help="write the page here and do not change the run folder")
]


class ReportError(LapwingError, ValueError):
    """A page that could not be written."""


def report(run: RunName, *, out: Out = None, runs_dir: RunsFolder = RUNS, as_json: Json = False) -> None:
    """Draws a run and writes everything about it to one HTML page in its folder. The run may still be running."""
    from lapwing.report import report_page, run_pictures

    chosen = Run.open(find_run(run, runs_dir))
    pictures = run_pictures(chosen)
    page = report_page(chosen, pictures)
    if out is None:
        drawn = {f"pictures/{picture.name}": picture.light for picture in pictures}
        written = _put(chosen, drawn, page)
    else:
        written = [_write(out, page)]
    if as_json:
        print_json({"run": chosen.name, "page": written[-1], "pictures": written[:-1]})
    else:
        print_lines(*written)


def _put(run: Run, drawn: dict[str, bytes], page: str) -> list[Path]:
    try:
        return [*(run.put(name, content) for name, content in drawn.items()), run.put("report.html", page)]
    except JournalError as error:
        raise ReportError(f"{error}; or write the page elsewhere with --out FILE") from error


def _write(path: Path, page: str) -> Path:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ReportError(
            f"cannot write the page to {str(path)!r}: {error.strerror}; name another file"
        ) from error
    return path
