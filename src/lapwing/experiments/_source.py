"""The file that an experiment is in: read once, executed from what was read, and compared with what it is later.

A file is executed as `python FILE.py` would do it, with its folder first on the path, so that it can import its
neighbours. What is executed is the content that was read and nothing else: no stale bytecode, and a worker of a sweep
executes what the sweep has read, whatever happened to the file since. The content is also what tracebacks and help
show.
"""

import ast
import base64
import difflib
import hashlib
import importlib.util
import linecache
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from lapwing.core import LapwingError

MOST_DIFF_LINES = 40
_MOST_DIFF_COLUMNS = 160


class ExperimentError(LapwingError, ValueError):
    """An experiment that cannot be found, or a file that is none; the sentence says what to write."""


@dataclass(frozen=True)
class Source:
    """A file as it was when it was read.

    >>> a, b = Source(Path("net.py"), b"width = 8\\nsteps = 1\\n"), Source(Path("net.py"), b"width = 9\\nsteps = 1\\n")
    >>> a.sha256[:8], len(a.diff(b).splitlines())
    ('b5f8cc9b', 6)
    """

    path: Path
    content: bytes = field(repr=False)

    @classmethod
    def read(cls, path: str | Path) -> "Source":
        """Reads a file. Its path is kept absolute, so that it is found from any folder."""
        try:
            return cls(Path(path).resolve(), Path(path).read_bytes())
        except FileNotFoundError:
            raise ExperimentError(
                f"there is no file {str(path)!r}; `lapwing new {path}` writes one to start from"
            ) from None
        except OSError as error:
            raise ExperimentError(f"cannot read {str(path)!r}: {error.strerror}") from None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def lines(self) -> list[str]:
        return self.content.decode("utf-8", "replace").splitlines()

    @property
    def names(self) -> set[str]:
        """The names that it may have when it is executed, which it is not here; "*" stands for any.

        >>> sorted(Source(Path("net.py"), b"import other as task\\ndef deep(): pass").names)
        ['deep', 'task']
        """
        try:
            return {name for node in ast.walk(ast.parse(self.content)) if (name := _bound(node))}
        except (SyntaxError, ValueError):
            return {"*"}  # Python says what is wrong with it, and where.

    def diff(self, new: "Source", most: int = MOST_DIFF_LINES) -> str:
        """A unified diff from this content to a new one, of at most `most` lines."""
        found = list(difflib.unified_diff(self.lines, new.lines, "before", "now", lineterm="", n=1))
        shown = [line[:_MOST_DIFF_COLUMNS] for line in found[:most]]
        rest = [f"... {len(found) - most} more lines of difference"] if len(found) > most else []
        return "\n".join([*shown, *rest])

    def to_json(self) -> dict[str, str]:
        """For a process that may not have the file."""
        return {"path": str(self.path), "content": base64.b64encode(self.content).decode()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Source":
        return cls(Path(fields["path"]), base64.b64decode(fields["content"]))


def _bound(node: ast.AST) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
            return name
        case ast.alias(name=name, asname=other):
            return other or name
    return None


_executed: dict[Path, tuple[bytes, ModuleType]] = {}
_files: set[str] = set()  # All that were executed, also those that failed.


def execute(source: Source) -> ModuleType:
    """The module of a file; the same one again while its content is the same.

    An exception of the file is the user's own and keeps its traceback.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "net.py"
    >>> _ = file.write_text("width = 8")
    >>> execute(Source.read(file)).width
    8
    """
    content, module = _executed.get(source.path, (None, None))
    if module is not None and content == source.content:
        return module
    folder = str(source.path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = _module_name(source.path)
    spec = importlib.util.spec_from_file_location(name, source.path)
    if spec is None:
        raise ExperimentError(f"{source.path.name!r} is not a Python file; its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses and pickle look up a class in the module it names.
    text = importlib.util.decode_source(source.content)
    # Without a time of modification, the entry stays as it is when the file changes.
    linecache.cache[str(source.path)] = len(text), None, text.splitlines(keepends=True), str(source.path)
    _files.add(str(source.path))
    try:
        exec(compile(source.content, str(source.path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    _executed[source.path] = source.content, module
    return module


def shorten_traceback(error: BaseException) -> None:
    """Leaves out of an error in an executed file what is above the first line of that file.

    >>> import tempfile, traceback
    >>> file = Path(tempfile.mkdtemp()) / "net.py"
    >>> _ = file.write_text("width = 8 / 0")
    >>> try:
    ...     execute(Source.read(file))
    ... except ZeroDivisionError as error:
    ...     shorten_traceback(error)
    ...     print([frame.line for frame in traceback.extract_tb(error.__traceback__)])
    ['width = 8 / 0']
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename not in _files:
        trace = trace.tb_next
    if trace is not None or (isinstance(error, SyntaxError) and error.filename in _files):
        error.__traceback__ = trace


def _module_name(path: Path) -> str:
    """The name by which its neighbours import it, unless another module has it: random.py must not hide `random`."""
    if path.stem.isidentifier():
        known = sys.modules.get(path.stem)
        spec = known.__spec__ if known else importlib.util.find_spec(path.stem)
        if spec and spec.origin and Path(spec.origin).resolve() == path:
            return path.stem
    return f"_experiment_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
