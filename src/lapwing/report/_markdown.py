"""The Markdown of a journal as HTML: what `lapwing.journal` writes, and what a person is likely to add.

It supports headings, paragraphs, lists, tables, indented and fenced code, bold, code and pictures. All text is escaped,
and links are never made.
"""

import html
import re
from collections.abc import Callable, Iterator

_ITEM = re.compile(r"[-*] (.*)")
# Bounded, since a search from every "![" to the end of a long line would take hours.
_PICTURE = re.compile(r"!\[([^\]]{0,500})\]\(([^)\s]{1,500})\)")
_BOLD = re.compile(r"\*\*(.+?)\*\*")

Embed = Callable[[str], str | None]


def to_html(text: str, embed: Embed = lambda _: None) -> str:
    """Markdown as HTML. `embed` returns the address of a picture that the text names, or None to leave it as text.

    >>> to_html("# Run" + chr(10) + chr(10) + "- **done**: `x<1>`")
    '<h1>Run</h1><ul><li><strong>done</strong>: <code>x&lt;1&gt;</code></li></ul>'
    """
    lines = text.replace("\t", "    ").splitlines()
    return "".join(_block(block, embed) for block in _blocks(lines))


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """The blocks of the text, ended by an empty line, by a heading, or where a list begins or ends."""
    block: list[str] = []
    fenced = False
    for line in lines:
        if line.startswith("```"):
            if not fenced and block:
                yield block
                block = []
            block.append(line)
            fenced = not fenced
        elif fenced:
            block.append(line)
        elif not line.strip():
            # An empty line within a list may be followed by more of its last item.
            if block and _ITEM.match(block[0]):
                block.append("")
            elif block:
                yield block
                block = []
        else:
            if block and _begins_anew(block, line):
                yield block
                block = []
            block.append(line)
    if block:
        yield block


def _begins_anew(block: list[str], line: str) -> bool:
    first = block[0]
    if first.startswith(("#", "```")) or line.startswith("#"):
        return True
    if _ITEM.match(first):
        return not (_ITEM.match(line) or line.startswith("  "))
    return bool(_ITEM.match(line)) or first.startswith("|") != line.startswith("|")


def _block(block: list[str], embed: Embed) -> str:
    first = block[0]
    if first.startswith("```"):
        return f"<pre>{html.escape(chr(10).join(line for line in block[1:] if not line.startswith('```')))}</pre>"
    if heading := re.match(r"(#{1,4}) +(.*)", first):
        level = len(heading[1])
        return f"<h{level}>{_inline(heading[2], embed)}</h{level}>"
    if _ITEM.match(first):
        return f"<ul>{''.join(f'<li>{_item(lines, embed)}</li>' for lines in _items(block))}</ul>"
    if first.startswith("|"):
        return _table(block, embed)
    if all(line.startswith("    ") for line in block):
        return f"<pre>{html.escape(chr(10).join(line[4:] for line in block))}</pre>"
    return f"<p>{'<br>'.join(_inline(line.strip(), embed) for line in block)}</p>"


def _items(block: list[str]) -> list[list[str]]:
    items: list[list[str]] = []
    for line in block:
        if found := _ITEM.match(line):
            items.append([found[1]])
        else:
            items[-1].append(line[2:])
    return items


def _item(lines: list[str], embed: Embed) -> str:
    """The first lines of an item are inline text; what follows an empty line is blocks again."""
    end = lines.index("") if "" in lines else len(lines)
    head = "<br>".join(_inline(line.strip(), embed) for line in lines[:end])
    return head + "".join(_block(block, embed) for block in _blocks(lines[end:]))


def _table(block: list[str], embed: Embed) -> str:
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in block]
    rows = [[cell.replace("\\|", "|") for cell in row] for row in rows]
    head, body = (
        (rows[0], rows[2:]) if len(rows) > 1 and set("".join(rows[1])) <= set("-: ") else (None, rows)
    )
    made = "".join(f"<th>{_inline(cell, embed)}</th>" for cell in head or [])
    made = f"<thead><tr>{made}</tr></thead>" if made else ""
    for row in body:
        made += f"<tr>{''.join(f'<td>{_inline(cell, embed)}</td>' for cell in row)}</tr>"
    return f'<div class="wide"><table>{made}</table></div>'


def _inline(text: str, embed: Embed) -> str:
    """Inline text. Code comes first, since its content has no other markup."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        f"<code>{html.escape(piece[1:-1])}</code>" if number % 2 else _marked(piece, embed)
        for number, piece in enumerate(pieces)
    )


def _marked(text: str, embed: Embed) -> str:
    made, end = "", 0
    for found in _PICTURE.finditer(text):
        if address := embed(found[2]):
            made += _bold(text[end : found.start()])
            made += f'<img alt="{html.escape(found[1])}" src="{html.escape(address)}">'
            end = found.end()
    return made + _bold(text[end:])


def _bold(text: str) -> str:
    return _BOLD.sub(r"<strong>\1</strong>", html.escape(text))
