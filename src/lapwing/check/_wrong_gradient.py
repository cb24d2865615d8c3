"""Why a gradient is wrong: which part of the loss, replaced by what its derivative claims, makes the two agree.

A candidate explains a wrong gradient if finite differences agree with it once the candidate is replaced: what a
stop_gradient stops by a constant, a function with a custom derivative by the line that its rule claims.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lapwing.core import format_list

from ._flat import FlatLoss, Vector
from ._held import cuts_in_custom
from ._jaxprs import custom_functions, places_of

Explains = Callable[[Callable[[Vector], float]], bool]
_CANDIDATES = 6
_OTHERS = "a cast to integers, a detour through numpy, an argument that jax does not differentiate"
UNKNOWN = f"a stop_gradient, a custom derivative, {_OTHERS} on the way to the loss"


@dataclass(frozen=True)
class Cause:
    """What to look at; or `excused`: nothing is wrong, a rule does not cut what its function does."""

    look: str
    excused: bool = False


def why_wrong(flat: FlatLoss, explains: Explains, cut: bool, declared: Sequence[str]) -> Cause:
    """The cause of a gradient that does not agree. `cut`: stopped values were held already."""
    # The rule of a function may not cut where the function does.
    if cut and cuts_in_custom(flat.program) and _is_explained(flat, explains, False, declared):
        return Cause("", excused=True)
    if not cut and _is_explained(flat, explains, True, declared):
        places = places_of("stop_gradient", flat.program)
        where = f" at {format_list(places, 3)}" if places else ", in a function that the loss calls"
        return Cause(f"stop_gradient{where}; if it is intended, pass stop_gradient='allowed'")
    functions = {each: name for each, name in custom_functions(flat.program).items() if each not in declared}
    for each, name in list(functions.items())[:_CANDIDATES]:
        if _is_explained(flat, explains, True, [*declared, each]):
            return Cause(
                f"the custom derivative of {name}: with what its rule claims in place of its slope, the gradient is "
                f"right. If that is intended (a straight-through estimator), pass surrogates=[{name.split(' ')[0]!r}]"
            )
    if functions:
        return Cause(f"the custom derivatives of {format_list(list(functions.values()), 4)}, {_OTHERS}")
    return Cause(UNKNOWN)


def _is_explained(flat: FlatLoss, explains: Explains, into_custom: bool, surrogates: Sequence[str]) -> bool:
    try:
        value = flat.held(surrogates, into_custom)
        if value is None:
            value = flat.value
        return explains(value)
    except Exception:
        # A rule that cannot be turned around, or that raises: it explains nothing.
        return False
