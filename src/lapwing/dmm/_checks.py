"""Addresses of fields, and checks of what a machine is built from."""

import math
import operator
from typing import Any

import jax
import numpy as np

from lapwing.core import suggestion

from ._activation import Activation, MachineError


def split_address(address: str) -> tuple[str, str]:
    """Splits `"norm.dict"` into neuron and field."""
    name, dot, field = address.partition(".")
    if not (name and dot and field):
        raise MachineError(f"expected a neuron and its field, like 'norm.dict', but got {address!r}")
    return name, field


def check_activation(given: Any) -> Activation:
    if not isinstance(given, Activation):
        raise MachineError(
            f"expected an activation, like dmm.norm, but got {given!r:.80}; make one of a function with "
            "@dmm.activation(inputs=..., outputs=...)"
        )
    return given


def check_field(name: str, field: str, verb: str, fields: tuple[str, ...]) -> None:
    if not fields:
        raise MachineError(
            f"the neuron {name!r} {verb} no fields, so a link of {name}.{field} carries nothing; "
            "leave it out, or pass dead=True to keep it"
        )
    if field not in fields:
        raise MachineError(f"the neuron {name!r} {verb} no field {field!r}; {suggestion(field, fields)}")


def check_cycles(cycles: Any) -> int:
    """Returns the cycles of a run as an int; numpy's whole numbers are whole numbers too."""
    try:
        number = -1 if isinstance(cycles, bool) else operator.index(cycles)
    except TypeError:
        number = -1
    if number < 0:
        raise MachineError(f"a run has a whole number of cycles, 0 or more, but got {cycles!r}")
    return number


def check_weight(value: Any, what: str) -> None:
    if isinstance(value, jax.Array):  # perhaps a tracer, which has no value
        return
    if not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
        raise MachineError(f"{what} must be a finite number, but is {value!r}")
