"""Activation functions: plain functions from a dict of V-values to a dict of V-values, with named fields.

The function is the definition. The interpreter calls it and the compiler traces it with jax, so its leaves may be
floats, numpy numbers or jax tracers. One law: **a missing key and a zero leaf mean the same**. The compiler lays out
every key that can occur, and most of them are zero most of the time.

Keyword parameters are *options* (a text, a limit). They are set for one neuron (`m.neuron("dot", dmm.dot, governor=4)`)
or for a run (`interpret(m, 140, governor=4)`).

What else Lapwing knows about a function is declared on its `Activation`, and no module asks for its name: an activation
of your own that declares the same is compiled, pruned, simplified and described like a built-in one.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import jax
import numpy as np

from lapwing import trees
from lapwing.core import LapwingError, suggestion
from lapwing.trees import Tree

if TYPE_CHECKING:
    from ._compile_arrays import ArrayForm

Linearity = Literal["none", "linear", "absolute", "positive", "multilinear"]


class MachineError(LapwingError, ValueError):
    """A machine, an activation or a run that is not valid, in one sentence."""


@dataclass(frozen=True)
class Activation:
    """A named activation function. Make one with the decorator `activation`.

    **Declarations**, all optional:

    - `choices`: the allowed values of options that have few.
    - `accumulator`: the output is the key-wise sum of the two inputs, the first of which is its memory. The compiler
      turns accumulators that read themselves into running sums. If it has the option `accumulator_gradient`, the value
      "truncated" stops the gradient through the memory.
    - `linearity`: what a factor c on the inputs does to the outputs. "linear": it scales them by c; "absolute": by |c|;
      "positive": by c if c > 0; "multilinear": by c for a factor on any one input, so an empty input gives nothing.
    - `antisymmetric`: only the difference of the two inputs counts, and swapping them swaps the two outputs.
    - `arrays`: the same function on arrays, an `ArrayForm`; by default the function itself is vmapped.
    - `phrase`: what `in_words` says about it, with one `{}` for each input: "is the product of {} with {}".
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: Callable[..., Tree]
    options: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    accumulator: bool = False
    linearity: Linearity = "none"
    antisymmetric: bool = False
    arrays: "type[ArrayForm] | None" = None
    phrase: str = ""

    def __post_init__(self) -> None:
        fields = len(self.inputs), len(self.outputs)
        for trait, expected in (("accumulator", (2, 1)), ("antisymmetric", (2, 2))):
            if getattr(self, trait) and fields != expected:
                raise MachineError(
                    f"expected an activation with {trait}=True to have {expected[0]} inputs and {expected[1]} outputs, "
                    f"but {self.name!r} has {fields[0]} and {fields[1]}; leave {trait} out"
                )

    def __hash__(self) -> int:  # jax caches what it traced by the function
        return hash(self.name)

    @property
    def truncated(self) -> bool:
        """Whether no gradient flows through the memory of this accumulator."""
        return self.options.get("accumulator_gradient") == "truncated"

    def __call__(self, inputs: Tree) -> Tree:
        """Returns the outputs. A missing input field is empty; an output that is a bare number n becomes
        `{":number": n}`.

        >>> from lapwing import dmm
        >>> dmm.accum({"dict-1": {"a": 1.0}, "dict-2": {"a": 1.0, "b": 2.0}})
        {'dict': {'a': 2.0, 'b': 2.0}}
        """
        outputs = self._called({name: trees.as_tree(inputs.get(name, {})) for name in self.inputs})
        if not isinstance(outputs, dict):
            raise MachineError(
                f"the activation {self.name!r} must return a dict from output field to V-value, "
                f"but returned {outputs!r}; write {{{', '.join(f'{name!r}: ...' for name in self.outputs)}}}"
            )
        for name in outputs:
            if name not in self.outputs:
                raise MachineError(
                    f"the activation {self.name!r} returned {name!r}, which is none of its outputs; "
                    f"{suggestion(name, self.outputs)}"
                )
        return {name: trees.as_tree(value) for name, value in outputs.items()}

    def _called(self, inputs: Tree) -> Any:
        try:
            return self.function(inputs, **self.options)
        except jax.errors.UnexpectedTracerError as error:
            raise self.stateful_error() from error
        except jax.errors.JAXTypeError as error:
            raise MachineError(
                f"the activation {self.name!r} uses the value of a number (in a Python `if` or `while`, in float() or "
                "in a function of math or numpy), but while it is compiled or differentiated its numbers have no "
                "values; write jnp.where(condition, a, b) and functions of jax.numpy, such as jnp.tanh"
            ) from error

    def stateful_error(self) -> MachineError:
        return MachineError(
            f"the activation {self.name!r} returns something else when it is called again with the same inputs, so it "
            "cannot be compiled; keep what it remembers in an output field that is linked to one of its inputs"
        )

    def with_options(self, **options: Any) -> "Activation":
        """Returns the activation with some of its options set.

        >>> from lapwing import dmm
        >>> dmm.dot.with_options(governor=4)({"dict-1": {"a": 3.0}, "dict-2": {"a": 3.0}})
        {'dot': {':number': 4}}
        """
        for name, value in options.items():
            if name not in self.options:
                raise MachineError(
                    f"the activation {self.name!r} has no option {name!r}; {suggestion(name, self.options)}"
                )
            if name in self.choices and value not in self.choices[name]:
                allowed = " or ".join(map(repr, self.choices[name]))
                raise MachineError(f"the option {name!r} of {self.name!r} is {allowed}, but got {value!r}")
            if not self.allows(name, value):
                raise MachineError(
                    f"the option {name!r} of {self.name!r} should be {self._kind(name)}, but got {value!r:.80}"
                )
        return replace(self, options={**self.options, **options})

    def allows(self, name: str, value: Any) -> bool:
        """Whether a value can be this option, by the type that the function declares for it.

        >>> from lapwing import dmm
        >>> dmm.dot.allows("governor", 4), dmm.dot.allows("governor", "4"), dmm.dot.allows("text", 5)
        (True, False, True)
        """
        if name not in self.options:
            return True
        return _is_of(value, self._annotation(name))

    def _annotation(self, option: str) -> Any:
        found = inspect.signature(self.function).parameters.get(option)
        return found.annotation if found else Any

    def _kind(self, option: str) -> str:
        """The type of an option in words, without the modules of its names."""
        return re.sub(r"[\w.]+\.(?=\w)", "", inspect.formatannotation(self._annotation(option)))

    def renamed(self, name: str, inputs: Iterable[str] = (), outputs: Iterable[str] = ()) -> "Activation":
        """Registers the same function under another name and with other field names, given in the same order.

        >>> from lapwing import dmm
        >>> dmm.accum.renamed("sum", inputs=("x", "y"), outputs=("sum",))({"x": {"a": 1.0}})
        {'sum': {'a': 1.0}}
        """
        inputs, outputs, original = tuple(inputs), tuple(outputs), self

        def function(given: Tree, **options: Any) -> Tree:
            result = original.function(
                {old: given[new] for old, new in zip(original.inputs, inputs, strict=True)}, **options
            )
            names = dict(zip(original.outputs, outputs, strict=True))
            return {names[old]: value for old, value in result.items()}

        # The types of the options are those of the original.
        function.__signature__ = inspect.signature(original.function)  # pyright: ignore[reportFunctionMemberAccess]
        return register(replace(self, name=name, inputs=inputs, outputs=outputs, function=function))


REGISTRY: dict[str, Activation] = {}
_protected: set[str] = set()


def register(made: Activation) -> Activation:
    """Registers the activation by its name, so that a machine read from a file finds it. A second one of the same
    name replaces the first, except that Lapwing's own cannot be replaced.
    """
    if made.name in _protected:
        raise MachineError(
            f"there is already an activation {made.name!r} in Lapwing; choose another name for yours"
        )
    REGISTRY[made.name] = made
    return made


def protect_registered() -> None:
    _protected.update(REGISTRY)


def activation(
    *,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    name: str | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    accumulator: bool = False,
    linearity: Linearity = "none",
    antisymmetric: bool = False,
    arrays: "type[ArrayForm] | None" = None,
    phrase: str = "",
) -> Callable[[Callable[..., Tree]], Activation]:
    """Turns a function into an activation; its keyword parameters become options.

    **Arguments**: the names of its fields, its own name (by default the function's), and the declarations of
    `Activation`.

    >>> from lapwing import dmm, trees
    >>> @dmm.activation(inputs=("dict",), outputs=("half",), linearity="linear")
    ... def halve(inputs, factor=0.5):
    ...     return {"half": trees.scale(factor, inputs["dict"])}
    >>> halve({"dict": {"a": 3.0}})
    {'half': {'a': 1.5}}
    """

    def make(function: Callable[..., Tree]) -> Activation:
        parameters = list(inspect.signature(function).parameters.values())
        options = {parameter.name: parameter.default for parameter in parameters[1:]}
        for option, default in options.items():
            if default is inspect.Parameter.empty:
                raise MachineError(
                    f"the option {option!r} of {function.__name__!r} needs a default; "
                    f"write {option}=None, or put its value in an input field"
                )
        traits = (accumulator, linearity, antisymmetric, arrays, phrase)
        title = name or function.__name__
        return register(
            Activation(title, tuple(inputs), tuple(outputs), function, options, choices or {}, *traits)
        )

    return make


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value has a type: those of JSON, unions and sequences of them. Any other type allows everything."""
    if isinstance(kind, UnionType):
        return any(_is_of(value, each) for each in get_args(kind))
    if kind in (None, NoneType):
        return value is None
    if kind in (int, float):
        return _is_number(value, kind)
    origin = get_origin(kind) or kind
    if origin in (str, bool, dict):
        return isinstance(value, origin)
    if origin in (tuple, list, Sequence):
        items = [each for each in get_args(kind) if each is not Ellipsis]
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
        return listed and all(_is_of(each, items[0]) for each in value if items)
    return True


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, jax.Array):  # perhaps a tracer, which has no value
        return value.ndim == 0
    is_one = isinstance(value, (int, np.integer) if kind is int else (int, float, np.number))
    return is_one and not isinstance(value, bool) and not math.isnan(value)


def find_activation(name: str) -> Activation:
    """Returns the registered activation of this name.

    >>> find_activation("accum").name
    'accum'
    """
    if name not in REGISTRY:
        raise MachineError(
            f"there is no activation {name!r}; {suggestion(name, REGISTRY)}, "
            "and your own must be defined with @dmm.activation before the machine is read"
        )
    return REGISTRY[name]
