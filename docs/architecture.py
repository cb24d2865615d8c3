"""Makes docs/architecture.md: the drawing of the layers, and two walks through the code, recorded while it runs.

The layers come from the table in tests/test_layers.py. A walk lists the functions of Lapwing in the order in which
they are first called, indented by depth. `python docs/architecture.py` writes the page; a test compares it with what
this script makes, so the page cannot become outdated.
"""

import contextlib
import functools
import importlib
import io
import operator
import pkgutil
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lapwing"
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "pictures" / "layers.svg"
sys.path.insert(0, str(ROOT))


class Call(NamedTuple):
    """The first call of a function: how many functions of Lapwing are above it, what it is, and who calls it."""

    depth: int
    module: str
    function: str
    caller: str | None

    @property
    def layers(self) -> tuple[str, str] | None:
        """Those of the caller and of the function; None where nobody of Lapwing calls it."""
        return (_layer(self.caller), _layer(self.module)) if self.caller else None


def walk(action: Callable[[], Any]) -> list[Call]:
    """The public functions of Lapwing that an action calls, each once, in the order of their first calls."""
    _import_all()  # So that no class body is executed, and counted as a function, on the way.
    calls: dict[tuple[str, str], Call] = {}
    above: list[FrameType] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not (module := _module_of(frame.f_code.co_filename)):
            return
        if not _is_public(name := frame.f_code.co_qualname):
            return
        while above and not _is_caller(above[-1], frame):
            above.pop()
        caller = _module_of(above[-1].f_code.co_filename) if above else None
        calls.setdefault((module, name), Call(len(above), module, name, caller))
        above.append(frame)

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(calls.values())


def _import_all() -> None:
    import lapwing

    for module in pkgutil.walk_packages(lapwing.__path__, "lapwing."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _is_caller(frame: FrameType, of: FrameType) -> bool:
    up = of.f_back
    while up is not None and up is not frame:
        up = up.f_back
    return up is frame


@functools.cache  # Almost every call is one of jax.
def _module_of(file: str) -> str:
    path = Path(file)
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts) if path.is_relative_to(SOURCE) else ""


def _layer(module: str) -> str:
    return module.partition(".")[0]


def _is_public(name: str) -> bool:
    """Whether it is a named function that is not private; functions inside functions are called when jax likes."""
    return "<" not in name and not any(part.startswith("_") for part in name.split("."))


def train_adding() -> None:
    """`lapwing train adding`, two steps of it."""
    from lapwing.cli import main

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        options = ["--steps", "2", "--width", "2", "--length", "2", "--batch-size", "2", "--quiet"]
        main(["train", "adding", *options, "--runs", folder])


def scan_gradient() -> Callable[[], Any]:
    """One gradient through `lw.scan`: a small recurrent network."""
    import jax
    import jax.numpy as jnp

    from lapwing import scan

    def loss(weights: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            return jnp.tanh(h @ weights["h"] + x @ weights["x"]), None

        return jnp.sum(scan(step, jnp.zeros((4, 8)), xs)[0])

    weights = {"h": jnp.ones((8, 8)), "x": jnp.ones((3, 8))}
    return lambda: jax.grad(loss)(weights, jnp.ones((10, 4, 3)))


def lines(calls: list[Call], deepest: int) -> Iterator[str]:
    """One line per function, down to a depth, with what its docstring says first; no properties."""
    shown = [call for call in calls if call.depth <= deepest and callable(_found(call))]
    names = ["  " * call.depth + f"{call.module}.{call.function}" for call in shown]
    width = max(map(len, names))
    for name, call in zip(names, shown, strict=True):
        about = textwrap.shorten(_first_sentence(_found(call)), 80, placeholder=" …")
        yield f"{name:{width}}  {about}".rstrip()


def _found(call: Call) -> Any:
    """The function of a call."""
    return operator.attrgetter(call.function)(importlib.import_module(f"lapwing.{call.module}"))


def _first_sentence(thing: Any) -> str:
    return " ".join((thing.__doc__ or "").split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def levels() -> list[list[str]]:
    """The layers from top to bottom: each stands above everything that it may import."""
    from tests.test_layers import LAYERS

    height: dict[str, int] = {}

    def height_of(layer: str) -> int:
        if layer not in height:
            below = LAYERS[layer] & LAYERS.keys() - {layer}
            height[layer] = 1 + max(map(height_of, below), default=-1)
        return height[layer]

    drawn = [layer for layer in LAYERS if not layer.startswith("__")]
    by_height = sorted(drawn, key=height_of)
    top = height_of(by_height[-1])
    rows = [[layer for layer in by_height if height[layer] == level] for level in range(top, -1, -1)]
    return [sorted(row) for row in rows if row]


BOX, GAP, LINE, MARGIN = (196, 76), 12, 15, 16


def drawing() -> str:
    """The layers as an SVG image: a box each, with its purpose; blue where jax is imported."""
    rows = levels()
    width = max(len(row) for row in rows) * (BOX[0] + GAP) - GAP + 2 * MARGIN
    height = len(rows) * (BOX[1] + GAP) - GAP + 2 * MARGIN
    shapes = []
    for number, row in enumerate(rows):
        left = (width - len(row) * (BOX[0] + GAP) + GAP) / 2
        for place, layer in enumerate(row):
            at = (left + place * (BOX[0] + GAP), MARGIN + number * (BOX[1] + GAP))
            shapes += _box(layer, at, _needs_jax(layer))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    return "\n".join(
        [head, f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *shapes, "</svg>", ""]
    )


def _box(layer: str, at: tuple[float, float], is_jax: bool) -> Iterator[str]:
    x, y = at
    fill, edge = ("#e7f0fb", "#2a7de1") if is_jax else ("#f3f4f6", "#8b949e")
    yield f'<rect x="{x:g}" y="{y:g}" width="{BOX[0]}" height="{BOX[1]}" rx="6" fill="{fill}" stroke="{edge}"/>'
    yield f'<text x="{x + 10:g}" y="{y + 20:g}" font-size="14" font-weight="bold" fill="#1f2933">{layer}</text>'
    for number, line in enumerate(textwrap.wrap(escape(_purpose(layer)), 33)[:3]):
        yield f'<text x="{x + 10:g}" y="{y + 37 + number * LINE:g}" font-size="11" fill="#1f2933">{line}</text>'


def _purpose(layer: str) -> str:
    return textwrap.shorten(
        _first_sentence(importlib.import_module(f"lapwing.{layer}")), 95, placeholder=" …"
    )


def _needs_jax(layer: str) -> bool:
    """Whether importing it imports jax; some layers import it only where it is used."""
    files = [*(SOURCE / layer).rglob("*.py"), SOURCE / f"{layer}.py"]
    return any(re.search(r"^(import|from) jax\b", file.read_text(), re.M) for file in files if file.exists())


def page() -> str:
    """The page: what is written by hand, with both walks between their marks."""
    text = PAGE.read_text()
    for name, calls, deepest in (("train", walk(train_adding), 3), ("scan", walk(scan_gradient()), 7)):
        block = "\n".join(["```text", *lines(calls, deepest), "```"])
        text, count = re.subn(
            f"(<!-- {name} -->\n).*?(\n<!-- end -->)",
            lambda m, block=block: m[1] + block + m[2],
            text,
            flags=re.S,
        )
        assert count == 1, f"{PAGE} should have one place for the walk {name}"
    return text


if __name__ == "__main__":
    PICTURE.write_text(drawing())
    PAGE.write_text(page())
