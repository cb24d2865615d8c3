"""Values that are computed from the parameters or the batch, and that nothing reads.

`x.at[0].set(1)` without an assignment, a mask or a clipped ratio of which the next line takes the original: jax traces
it and then forgets it. A value that a function returns beside another may be left unread on purpose, so the line that
made it is looked at: what it assigns is not returned there.
"""

import ast
import functools
import linecache
import re
from collections.abc import Iterator
from pathlib import Path

from jax.extend import core

from lapwing import jaxprs

from ._jaxprs import called_at, place
from ._program import Program
from ._report import fail

# What unpacks a tuple, prepares an index or a key, or is not worth a line of its own.
_SMALL = frozenset(
    [
        "slice",
        "squeeze",
        "reshape",
        "broadcast_in_dim",
        "dynamic_slice",
        "gather",
        "split",
        "transpose",
        "convert_element_type",
        "copy",
        "iota",
        "stop_gradient",
        "unstack",
    ]
)

_DERIVATIVES = re.compile(r"grad|vjp|jvp|linearize|jacfwd|jacrev")


def check_thrown(program: Program, what: str) -> None:
    """Raises if a line of the user's computes what reaches none of the outputs; `program` has its calls closed."""
    jaxpr = program.closed.jaxpr
    wanted = {id(eqn) for eqn in jaxprs.needed(jaxpr.eqns, jaxpr.outvars)}
    # What a function of jax leaves unread of its own is no line of the user's.
    used = {(called_at(eqn), eqn.params.get("name")) for eqn in jaxpr.eqns if id(eqn) in wanted}
    given = set().union(*(program.dependent(name) for name in program.inputs))
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if id(eqn) in wanted or name in _SMALL or name.startswith("random_"):
            continue
        is_last = all(
            each.primitive.name in _SMALL for var in eqn.outvars for each in program.readers.get(var, ())
        )
        if not is_last or given.isdisjoint(jaxprs.variables(eqn.invars)):
            continue
        call = called_at(eqn)
        if call is None or (call, eqn.params.get("name")) in used or _is_in_derivative(eqn):
            continue
        if not _is_handed_back(*call[:2]):
            fail(
                "dead_parameters",
                f"what {what} computes at {place(eqn)} is thrown away: nothing reads it, neither the result nor the "
                "metrics",
                "that line: its result should be assigned (x = x.at[i].set(y)), and what follows should use it in the "
                "place of what it was made of",
                [place(eqn)],
            )


def _is_in_derivative(eqn: core.JaxprEqn) -> bool:
    """Whether it is computed on the way to a derivative: its value may not be wanted."""
    frames = getattr(eqn.source_info.traceback, "frames", ())
    in_api = (each for each in frames if each.file_name.replace("\\", "/").endswith("/jax/_src/api.py"))
    return any(_DERIVATIVES.search(each.function_name) for each in in_api)


def _is_handed_back(file: str, line: int) -> bool:
    """Whether the line returns what it computes, or assigns it to names that its function returns beside others; so is
    what cannot be read."""
    statements = list(_statements_at(file, line))
    return not statements or all(_returns(function, statement) for function, statement in statements)


def _returns(function: ast.AST, statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return False
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return True
    (target,) = statement.targets
    if not isinstance(target, ast.Name):
        return True  # Several values at once, or a place in something else.
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
    parts = [part for value in returned for part in _parts(value)]
    return any(isinstance(part, ast.Name) and part.id == target.id for part in parts)


def _parts(value: ast.AST) -> Iterator[ast.AST]:
    """What a tuple, a list, a dict or an object of a class is made of."""
    if isinstance(value, ast.Call) and _is_class(value.func):
        value = ast.Tuple([*value.args, *(keyword.value for keyword in value.keywords)])
    inside = {ast.Tuple: "elts", ast.List: "elts", ast.Dict: "values"}.get(type(value))
    if inside is None:
        yield value
    else:
        for each in getattr(value, inside):
            yield from _parts(each)


def _is_class(callee: ast.AST) -> bool:
    name = (
        callee.attr
        if isinstance(callee, ast.Attribute)
        else callee.id
        if isinstance(callee, ast.Name)
        else ""
    )
    return name == "dict" or name[:1].isupper()


def _statements_at(file: str, line: int) -> Iterator[tuple[ast.AST, ast.stmt]]:
    """The statements of functions that this line is in, the innermost last, each with its function."""
    tree = _parsed(file)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)] if tree else []
    around = [node for node in functions if node.lineno <= line <= (node.end_lineno or 0)]
    for function in sorted(around, key=lambda node: node.lineno)[-1:]:
        for node in ast.walk(function):
            if not isinstance(node, ast.stmt) or hasattr(node, "body"):
                continue
            if node.lineno <= line <= (node.end_lineno or 0):
                yield function, node


@functools.cache
def _parsed(file: str) -> ast.Module | None:
    text = "".join(linecache.getlines(file))
    try:
        return ast.parse(text) if text or Path(file).is_file() else None
    except SyntaxError:
        return None
