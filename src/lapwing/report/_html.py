"""The parts of a page: sections, tables, and pictures as data URLs. All text is escaped here."""

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lapwing.core import UnreadableError, read_regular
from lapwing.journal import JournalError, Run

from ._pictures import Picture

LARGEST_PICTURE = 8_000_000
_KINDS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp", ".svg": "svg+xml"}


def section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>" if content else ""


def figure(picture: Picture) -> str:
    light, dark = (address(content, "png") for content in (picture.light, picture.dark))
    caption = html.escape(picture.caption)
    return (
        f'<figure><picture><source srcset="{dark}" media="(prefers-color-scheme: dark)">'
        f'<img src="{light}" alt="{caption}"></picture><figcaption>{caption}</figcaption></figure>'
    )


def embedded(run: Run, name: str) -> str | None:
    """A picture of the run folder as a data URL; None if it cannot be shown."""
    kind = _KINDS.get(Path(name).suffix.lower())
    try:
        path = run.file(name)
        return None if kind is None else address(read_regular(path, LARGEST_PICTURE, run.folder), kind)
    except (JournalError, OSError, UnreadableError):
        return None


def table(
    header: Sequence[str] | None, rows: Iterable[Sequence[Any]], kind: str = "", total: bool = False
) -> str:
    body = [f"<tr>{''.join(f'<td>{cell(value)}</td>' for value in row)}</tr>" for row in rows]
    if total:
        body[-1] = body[-1].replace("<tr>", '<tr class="total">', 1)
    head = f"<tr>{''.join(f'<th>{cell(name)}</th>' for name in header)}</tr>" if header else ""
    return f'<div class="card wide"><table class="{kind}">{head}{"".join(body)}</table></div>'


def cell(value: Any) -> str:
    if value is None:
        return ""
    return html.escape(f"{value:.5g}" if isinstance(value, float) else str(value))


def address(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
