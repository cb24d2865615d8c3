"""Trained networks in files: what one benchmark trains, another attacks, maybe on another machine."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.models import Cnn


def arrays_of(network: Cnn) -> dict[str, np.ndarray]:
    """The weights of a network by name, without those that it does not have."""
    found = {field.name: getattr(network, field.name) for field in dataclasses.fields(network)}
    return {name: np.asarray(values) for name, values in found.items() if values is not None}


def save_network(network: Cnn, path: Path, dtype: Any = np.float32) -> None:
    """Writes the weights, whole or not at all; float16 keeps those that were rounded to it as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.npz")
    arrays: Any = {name: values.astype(dtype) for name, values in arrays_of(network).items()}
    np.savez(partial, **arrays)
    partial.replace(path)


def load_network(path: Path) -> Cnn:
    """The network of a file."""
    with np.load(path) as arrays:
        return Cnn(**{name: jnp.asarray(values, jnp.float32) for name, values in arrays.items()})


def in_half(network: Cnn) -> Cnn:
    """The network in float32 with weights that float16 has, so that a file of half the size keeps it exactly."""
    return jax.tree.map(lambda values: values.astype(jnp.float16).astype(values.dtype), network)


def rounded(network: Cnn) -> Cnn:
    """The network in bfloat16, but for its thresholds, whose slopes are steep, and the class scores."""
    small = jax.tree.map(lambda values: values.astype(jnp.bfloat16), network)
    same = {name: getattr(network, name) for name in ("out", "out_bias", "slope", "threshold")}
    return dataclasses.replace(small, **same)
