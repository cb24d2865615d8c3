"""A population of fluid machines: their loss, their mixes, and the choice of one function for each neuron.

The leaves of all machines are an array [machines, leaves of the student]; `kept` marks the leaves that are left. A
neuron is *decided* when one function of its mix is kept.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lapwing.dmm import FUNCTION, Machine
from lapwing.dmm._fluid import plain_weights

from ._corners import CORNERS, Choice, Corner
from ._examples import Examples
from ._wiring import LOST, Wirings

MIX_SPREAD = 0.1
AS_GOOD = 1.05  # times the smallest error of a trial: the rarest function is chosen of those that are as good


class Fluid:
    """A fluid student and its examples."""

    def __init__(self, student: Machine, examples: Examples, **options: Any):
        self.wirings = Wirings(student, [examples], **options)
        self.soft, self.paths = self.wirings.soft, self.wirings.paths
        place = {path: i for i, path in enumerate(self.paths)}
        fluid = {name: neuron for name, neuron in student.neurons.items() if neuron.fluid}
        self.names, self.functions = tuple(fluid), next(iter(fluid.values())).names
        first = next(iter(fluid.values())).functions[0]  # the accumulator
        self.mixes = np.array(
            [[place["outputs", name, FUNCTION, function] for function in self.functions] for name in fluid]
        )
        self.loops = np.array(
            [place["matrix", name, first.inputs[0], name, first.outputs[0]] for name in fluid]
        )
        self.links = self.soft.copy()
        self.links[self.mixes] = False
        self.links[self.loops] = False

    def start(self, key: jax.Array, machines: int, spread: float, mix: float, memory: float) -> jax.Array:
        """Random leaves: links around 0, mixes around `mix`, and links to the own sum such that a neuron keeps the part
        `memory` of it from cycle to cycle: its mix scales the sum, so the link is larger."""
        draws = jax.random.normal(key, (machines, len(self.soft)))
        leaves = jnp.where(self.links, spread * draws, self.wirings.start)
        leaves = leaves.at[:, self.mixes].set(mix + MIX_SPREAD * draws[:, self.mixes])
        return leaves.at[:, self.loops].set(memory / leaves[:, self.mixes[:, 0]])

    def loss(self, active: np.ndarray) -> Any:
        """`loss(leaves, kept)`: the sum of the active machines' errors, and the error of each, 0 for the others."""
        return self.wirings.loss(np.ones((len(active), len(self.soft)), bool), active)

    def errors(self, leaves: np.ndarray, ways: np.ndarray) -> np.ndarray:
        """The errors of one machine for each way [ways, leaves] of keeping its leaves."""
        found = self.wirings.errors(np.ones_like(self.soft), leaves, ways)
        return np.where(np.isfinite(found), found, LOST)

    def corner(self, kind: Corner, leaves: jax.Array) -> jax.Array:
        return CORNERS[kind](leaves[:, self.mixes], leaves[:, self.loops])

    def lasso(self, leaves: jax.Array) -> jax.Array:
        return jnp.sum(jnp.abs(leaves) * self.links)

    def shares(self, leaves: np.ndarray) -> list[float]:
        """For each machine, the mean share of the largest function of a mix: 1 in the corners."""
        sizes = np.abs(leaves[:, self.mixes])
        return (sizes.max(-1) / np.maximum(sizes.sum(-1), 1e-9)).mean(-1).tolist()

    # The choice of functions.

    def undecided(self, kept: np.ndarray) -> np.ndarray:
        """The neurons of one machine that still mix functions."""
        return np.flatnonzero(kept[self.mixes].sum(axis=1) > 1)

    def decide(self, choice: Choice, leaves: np.ndarray, kept: np.ndarray, count: int) -> np.ndarray:
        """`kept` of one machine after `count` more neurons have one function: those first that lose most by it, while
        others can still take over what they lose."""
        neurons = self.undecided(kept)
        ways = np.repeat(kept[None], len(neurons) * len(self.functions), 0)
        for way, (neuron, function) in zip(ways, np.ndindex(len(neurons), len(self.functions)), strict=True):
            way[self.mixes[neurons[neuron]]] = False
            way[self.mixes[neurons[neuron], function]] = True
        shape = len(neurons), len(self.functions)
        if choice == "trial":
            cost = self.errors(leaves, ways).reshape(shape)
        else:
            sizes = np.abs(leaves[self.mixes[neurons]])
            cost = -sizes / sizes.sum(axis=1, keepdims=True)
        decided = kept.copy()
        for i in np.argsort(-cost.min(axis=1), kind="stable")[:count]:
            places = self.mixes[neurons[i]]
            decided[places] = False
            decided[places[self._best(cost[i], decided)]] = True
        return decided

    def _best(self, cost: np.ndarray, kept: np.ndarray) -> int:
        """The function of the smallest cost. Where several cost the same, as in a neuron that does nothing yet, the one
        that fewest neurons have: what is rare may be needed later, and none can come back."""
        decided = kept[self.mixes].sum(axis=1) == 1
        counts = kept[self.mixes][decided].sum(axis=0)
        as_good = np.flatnonzero(cost <= cost.min() + (AS_GOOD - 1) * np.abs(cost.min()))
        return int(as_good[np.lexsort((cost[as_good], counts[as_good]))[0]])

    def chosen(self, kept: np.ndarray) -> dict[str, str]:
        """The function of each neuron of a machine in which all are decided."""
        return {
            name: self.functions[int(np.flatnonzero(kept[places])[0])]
            for name, places in zip(self.names, self.mixes, strict=True)
        }

    def plain(
        self, leaves: np.ndarray, kept: np.ndarray, paths: Sequence[Any], start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same machine as leaves of the plain student with these `paths`, and which of them it has; `start` has
        the student's hard leaves."""
        values = {
            path: float(leaf) for path, leaf, keep in zip(self.paths, leaves, kept, strict=True) if keep
        }
        weights = plain_weights(values, self.chosen(kept))
        has = np.array([path in weights for path in paths])
        found = np.array([weights.get(path, old) for path, old in zip(paths, start, strict=True)], np.float32)
        return found, has
