"""The options of a file's own `Config`, a dataclass that need not know Lapwing, together with those of `FitConfig`.

The two cannot inherit from each other: one may be frozen and the other not. So the options are a third dataclass, with
the fields of both, from which an instance of theirs is made for `build`.
"""

import ast
import copy
import dataclasses
import inspect
import textwrap
import typing
from typing import Any

from ._source import ExperimentError


def options_of(theirs: Any, where: str) -> type:
    """A `FitConfig` with the fields of a dataclass, too; the dataclass itself if it is one already.

    A field that both have takes its default from theirs.
    """
    from lapwing.train import FitConfig

    _check_is_dataclass(theirs, where)
    if issubclass(theirs, FitConfig):
        return theirs
    fields = [_option(field, theirs, FitConfig, where) for field in dataclasses.fields(theirs) if field.init]

    def check(self: Any) -> None:
        FitConfig.__post_init__(self)
        instance_of(theirs, self)  # Its own checks.

    return dataclasses.make_dataclass(
        theirs.__name__,
        [field for field in fields if field],
        bases=(FitConfig,),
        frozen=True,
        kw_only=True,  # Theirs may have no default, and follow ours, which have one.
        namespace={"__post_init__": check, "__doc__": _described(theirs), "__module__": __name__},
    )


def instance_of(theirs: Any, options: Any) -> Any:
    """The config that `build` expects, from the options. A copy, since it may be changed there."""
    if isinstance(options, theirs):
        return options
    names = [field.name for field in dataclasses.fields(theirs) if field.init]
    return theirs(**{name: copy.deepcopy(getattr(options, name)) for name in names})


def _check_is_dataclass(theirs: Any, where: str) -> None:
    # A subclass of a dataclass without a decorator of its own is one too, but lacks its own fields.
    own = vars(theirs) if isinstance(theirs, type) else {}
    forgotten = own.get("__annotations__") and "__dataclass_fields__" not in own
    if not own or not dataclasses.is_dataclass(theirs) or forgotten:
        raise ExperimentError(
            f"Config in {where} should be a dataclass; write @dataclass (frozen=True if it inherits FitConfig) above it"
        )


def _option(field: dataclasses.Field[Any], theirs: Any, ours: Any, where: str) -> Any:
    """A field for `make_dataclass`; None to leave that of `FitConfig` as it is."""
    hint = typing.get_type_hints(theirs, include_extras=True)[field.name]
    has_default = not (field.default is field.default_factory is dataclasses.MISSING)
    expected = typing.get_type_hints(ours).get(field.name)
    if expected is not None:
        if hint != expected and (hint, expected) != (int, float):
            raise ExperimentError(
                f"{field.name} in Config of {where} is {_words(hint)}, but Lapwing's option of that name is "
                f"{_words(expected)}; rename it, or make it {_words(expected)}"
            )
        hint = expected
        if not has_default:
            return None
    if not has_default:
        return field.name, hint
    if field.default_factory is not dataclasses.MISSING:
        return field.name, hint, dataclasses.field(default_factory=field.default_factory)
    return field.name, hint, field.default


def _words(hint: Any) -> str:
    """A type as it is written: `Literal['min', 'max']`."""
    return hint.__name__ if isinstance(hint, type) else str(hint).removeprefix("typing.")


def _described(theirs: type) -> str:
    """The docstring of a class with a section for its fields, where the command line looks for help."""
    own = inspect.getdoc(theirs) or ""
    if own.startswith(f"{theirs.__name__}("):  # Made by `dataclass`.
        own = ""
    lines = [f"    {name}: {text}" for name, text in field_help(theirs).items()]
    return "\n".join([own, "", "Attributes:", *lines]) if lines else own


def field_help(kind: type) -> dict[str, str]:
    """What is written about the fields of a dataclass: the string below a field, or the comment beside it.

    >>> from lapwing.train import FitConfig
    >>> field_help(FitConfig)["steps"]
    'number of updates'
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            text = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):  # Made without a file.
            continue
        body, lines = ast.parse(text).body[0], text.splitlines()
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for statement, below in zip(statements, [*statements[1:], None], strict=True):
            match statement:
                case ast.AnnAssign(ast.Name(name)) if help_ := _string(below) or _comment(statement, lines):
                    found[name] = " ".join(help_.split())
    return found


def _string(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(ast.Constant(str(text))):
            return text
    return ""


def _comment(statement: ast.AnnAssign, lines: list[str]) -> str:
    assert statement.end_lineno is not None
    rest = lines[statement.end_lineno - 1].encode()[statement.end_col_offset :].decode().strip()
    return rest.removeprefix("#").strip() if rest.startswith("#") else ""
