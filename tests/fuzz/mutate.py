"""Mutations of files: of bytes, of JSON, and of what kind of file it is. All follow from a `random.Random`."""

import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

TEXTS = [
    *(
        "",
        "NaN",
        "-Infinity",
        "\\NaN",
        "$",
        "$\\frac{",
        "[/red]",
        "[bold",
        ":smile:",
        "<script>alert(1)</script>",
    ),
    *("\x1b[2J\x1b]0;title\x07", "\x00", "\r\b\x9b31m", "\ud800", "caf\udce9", "\u202e", "%s%n", "null"),
    *("a" * 3000, "/" * 400, "é" * 500, "a/b/../c", "../../../etc/passwd", "media/../../x.json"),
    *("control", "rollback", "set", "note", "logged", "back_to", "step", "loss"),
]
NUMBERS = [
    *(
        0,
        -1,
        1,
        2,
        1.5,
        -0.0,
        1e308,
        -1e308,
        5e-324,
        1e-46,
        1e39,
        2**31,
        2**53,
        2**63,
        2**64,
        10**30,
        -(10**30),
    ),
    *(10**308, 10**400, float("inf"), float("nan"), 1e11, 1e12, 253402300800, -62135596801),
]
_TOKENS = [
    b"1e999",
    b"-",
    b"NaN",
    b"Infinity",
    b'"',
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b"\n",
    b"\\u0000",
    b"\\ud800",
]


def mutated(content: bytes, random: Random) -> bytes:
    """The content with one or several changes, of JSON where it is JSON."""
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        content = random.choice([_json, _json, _json, _bytes])(content, random)
    return content


def _json(content: bytes, random: Random) -> bytes:
    """One value of one line, or of all of it, is replaced, removed, renamed, wrapped or nested."""
    try:
        return dumped(changed(json.loads(content), random))
    except (ValueError, RecursionError):
        pass
    lines = content.split(b"\n")
    at = random.randrange(len(lines))
    try:
        lines[at] = dumped(changed(json.loads(lines[at]), random))
    except (ValueError, RecursionError):
        return _bytes(content, random)
    return b"\n".join(lines)


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def changed(value: Any, random: Random) -> Any:
    """The value with a change at one of its places."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        choice = random.random()
        if choice < 0.08:
            return {name: each for name, each in value.items() if name != key}
        if choice < 0.16:
            return {(random.choice(TEXTS) if name == key else name): each for name, each in value.items()}
        if choice < 0.2:
            return {**value, random.choice([*TEXTS, *value]): anything(random)}
        return {**value, key: changed(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.85:
        at = random.randrange(len(value))
        choice = random.random()
        if choice < 0.1:
            return value[:at] + value[at + 1 :]
        if choice < 0.2:
            return [*value[:at], anything(random), *value[at:]]
        if choice < 0.25:
            return value * random.choice([2, 50])
        return [*value[:at], changed(value[at], random), *value[at + 1 :]]
    return anything(random, value)


def anything(random: Random, value: Any = None) -> Any:
    """Some value that is probably not expected."""
    choice = random.randrange(9)
    if choice == 0:
        return random.choice([None, True, False])
    if choice <= 3:
        return random.choice(NUMBERS)
    if choice <= 5:
        return random.choice(TEXTS)
    if choice == 6:
        return random.choice([[], {}, [value], {"a": value}, [[]], [None] * 3, {"": {}}])
    if choice == 7:
        return str(value) if random.random() < 0.5 else [value, value]
    deep: Any = value
    for _ in range(random.choice([5, 90, 150, 400])):
        deep = [deep] if random.random() < 0.5 else {"a": deep}
    return deep


def _bytes(content: bytes, random: Random) -> bytes:
    start = random.randrange(len(content) + 1)
    end = min(len(content), start + random.choice([1, 1, 2, 8, 100, 5000]))
    some = content[start:end]
    match random.randrange(10):
        case 0:
            return content[:start]
        case 1:
            return content[:start] + content[end:]
        case 2:
            return content[:end] + some * random.choice([1, 2, 100]) + content[end:]
        case 3:
            return content[:start] + random.randbytes(len(some)) + content[end:]
        case 4:
            return content[:start] + bytes(len(some)) + content[end:]
        case 5:
            return content[:start] + random.choice(_TOKENS) + content[start:]
        case 6:
            return (
                content[:start]
                + random.choice([b"[", b'{"a":']) * random.choice([50, 500, 100_000])
                + content[start:]
            )
        case 7:
            return content[:start] + str(random.choice(NUMBERS)).encode() + content[end:]
        case 8:
            return content[:start] + b"9" * random.choice([20, 400, 5000]) + content[start:]
    if start == len(content):
        return content + b"\xff\xfe"
    flipped = content[start] ^ 1 << random.randrange(8)
    return content[:start] + bytes([flipped]) + content[start + 1 :]


def damage(path: Path, random: Random, outside: Path, content: bytes) -> None:
    """Replaces a file by this content, or now and then by something that is no regular file."""
    _remove(path)
    if random.random() < 0.9:
        path.write_bytes(content)
        return
    match random.randrange(8):
        case 0:
            os.mkfifo(path)
        case 1:
            path.symlink_to("/dev/zero")
        case 2:
            path.symlink_to(outside)
        case 3:
            path.symlink_to(path)
        case 4:
            path.mkdir()
        case 5:
            with open(path, "wb") as file:
                file.truncate(1 << 40)
        case 6:
            path.write_bytes(b"x" * (9 << 20) if random.random() < 0.1 else b"\n" * 1000)
        case _:
            pass  # It is gone.


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
