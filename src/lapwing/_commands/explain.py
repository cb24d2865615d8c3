"""`lapwing explain NAME` or `lapwing explain FILE.py:FUNCTION`: what `lw.accelerate` does to the loops of a function.

The function is the loss of an experiment, with the parameters and the first batch of a run; or any function in a user's
file, given by another one that returns it with its arguments. An exception in the file of such a function becomes one
sentence with its line; an exception in `explain` itself is a bug and keeps its traceback. To tell them apart, the
function is traced once on its own first.
"""

import contextlib
import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import tyro

from lapwing import loops
from lapwing.bench._function import measure, report
from lapwing.core import suggestion
from lapwing.experiments import Experiment, Source, execute, split
from lapwing.report import loop_picture
from lapwing.task import Task

from .named import choose_experiment
from .output import print_json
from .parse import Json, UsageError, parse

Picture = Annotated[
    Path | None, tyro.conf.arg(metavar="FILE", help="draw the loop before and after: .png, .svg or .pdf")
]
Rewrite = Annotated[
    Literal["auto", "always", "never"],
    tyro.conf.arg(help="move what pays, everything possible, or nothing"),
]
Compiled = Annotated[bool, tyro.conf.arg(help="compile both programs to get their peak memory")]


Time = Annotated[bool, tyro.conf.arg(help="measure the gradient and the value, as written and accelerated")]


def explain(words: Sequence[str]) -> None:
    """Shows what lw.accelerate does to each matrix product of a function's gradient, and why."""
    own = [
        ("rewrite", Rewrite, "auto"),
        ("compiled", Compiled, True),
        ("time", Time, False),
        ("picture", Picture, None),
        ("as_json", Json, False),
    ]
    found = _function_and_arguments(words[0]) if words and ".py:" in words[0] else None
    if found:
        options = parse(
            make_dataclass("Options", own), words[1:], f"lapwing explain {words[0]}", explain.__doc__
        )
    else:
        chosen = choose_experiment(words, "lapwing explain", own)
        if chosen is None:
            print("\nlapwing explain FILE.py:FUNCTION explains (fn, args), which FUNCTION() returns.")
            return
        options = chosen.options
        found = _loss_and_arguments(chosen.experiment, options.config)
    fn, args = found
    story = loops.explain(fn, *args, rewrite=options.rewrite, compiled=options.compiled)
    if options.picture:
        _draw(story, options.picture)
    measured = measure(fn, args, options.rewrite) if options.time else None
    if options.as_json:
        print_json(story.to_json() | ({"time": measured} if measured else {}))
    else:
        print(story)
        if measured:
            print(f"\n{report(measured)}")
        if options.picture:
            print(f"picture: {options.picture}")


def _loss_and_arguments(experiment: Experiment, config: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The loss of a task, with the parameters and the batch with which a run begins."""
    from lapwing.train import first_feds, initial_state, make_phases

    task = experiment.build(config)
    state, mask = initial_state(task, config)
    phases = make_phases(task, mask, config)
    (fed,) = first_feds(task, config, 1)
    batch = phases.data(state, fed)
    if phases.prepare:
        batch = phases.prepare(state, batch)
    return lambda params, batch: phases.forward(state._replace(params=params), batch)[0], (
        state.params,
        batch,
    )


def _function_and_arguments(target: str) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """What a function of a user's file returns; None if it is not such a function, but may be an experiment."""
    file, name = split(target)
    source = Source.read(file)
    with _in_one_sentence(file, source.path):
        module = execute(source)
    function: Any = getattr(module, name, None)
    if isinstance(function, Task) or hasattr(function, "build"):
        return None
    if not callable(function) or inspect.ismodule(function):
        own = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == module.__name__
        ]
        raise UsageError(f"there is no function {name!r} in {file}; {suggestion(name, own)}")
    if any(each.default is each.empty for each in inspect.signature(function).parameters.values()):
        return None
    with _in_one_sentence(target, source.path):
        returned = function()
        if isinstance(returned, Task):
            return None
        fn, args = _checked(returned, target)
        # As a closure, since not all arguments need be arrays.
        jax.eval_shape(lambda: fn(*args))
    return fn, args


def _checked(returned: Any, target: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    match returned:
        case (fn, tuple(args)) if callable(fn):
            leaves = [leaf for leaf in jax.tree.leaves(args) if hasattr(leaf, "dtype")]
            if any(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves):
                return fn, args
            raise UsageError(
                f"expected a floating-point array among the arguments that {target} returned, found none; "
                "the gradient that is explained is for such arrays"
            )
    raise UsageError(
        f"expected {target} to return (fn, args), a function and the tuple of its arguments, found "
        f"{_describe(returned)}; write for example: return loss, (params, batch)"
    )


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(type(each).__name__ for each in value)})"
    return "None" if value is None else f"a {type(value).__name__}"


@contextlib.contextmanager
def _in_one_sentence(what: str, path: Path) -> Iterator[None]:
    """An exception of the user's code becomes one sentence with the last line reached in the file."""
    try:
        yield
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
        where = f" in line {lines[-1]}" if lines else ""
        first_line = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"{what} raised {type(error).__name__}{where}: {first_line}".removesuffix(": ")
        ) from None


def _draw(story: loops.Explanation, picture: Path) -> None:
    try:
        loop_picture(story, picture)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot draw the picture {str(picture)!r}: {error}") from None
