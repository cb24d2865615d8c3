"""Text that comes from files, made safe for where it is shown: a terminal, or a picture.

HTML is escaped where it is made (`lapwing.report`); JSON escapes by itself.
"""

LONGEST_LABEL = 80


def printable(text: str) -> str:
    """The text without what moves the cursor, changes colours or cannot be encoded; lines and tabs stay.

    >>> printable("a" + chr(27) + "[2Jb" + chr(0xDC80))
    'a�[2Jb�'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)


def plot_text(text: object) -> str:
    """The text for a picture: one line of bounded length, in which matplotlib finds no formula.

    >>> plot_text("cost in $ and $"), len(plot_text("x" * 1000))
    ('cost in \\\\$ and \\\\$', 80)
    """
    line = " ".join(printable(str(text)[: 2 * LONGEST_LABEL]).split())
    shown = line if len(line) <= LONGEST_LABEL else line[: LONGEST_LABEL - 1] + "…"
    return shown.replace("$", r"\$")
