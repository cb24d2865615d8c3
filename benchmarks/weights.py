"""Trained networks in files: what one benchmark trains, another attacks, maybe on another machine."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.models import Cnn


def arrays_of(network: Cnn) -> dict[str, np.ndarray]:
    """The weights of a network by name, without those that it does not have."""
    found = {field.name: getattr(network, field.name) for field in dataclasses.fields(network)}
    return {name: np.asarray(values) for name, values in found.items() if values is not None}


def save_network(network: Cnn, path: Path) -> None:
    """Writes the weights, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.npz")
    np.savez(partial, **arrays_of(network))  # pyright: ignore[reportArgumentType]
    partial.replace(path)


def load_network(path: Path) -> Cnn:
    """The network of a file."""
    with np.load(path) as arrays:
        return Cnn(**{name: jnp.asarray(values) for name, values in arrays.items()})


def rounded(network: Cnn) -> Cnn:
    """The network in bfloat16, but for its thresholds, whose slopes are steep, and the class scores."""
    small = jax.tree.map(lambda values: values.astype(jnp.bfloat16), network)
    same = {name: getattr(network, name) for name in ("out", "out_bias", "slope", "threshold")}
    return dataclasses.replace(small, **same)
