"""Adam on V-values, with a state that cannot leak.

The moments start as empty trees and grow only by the keys that a gradient has. The parameters keep exactly
their own keys: a moment whose parameter was pruned away moves nothing. (An optimizer that started with a copy
of a larger tree and added its whole update to the network has brought pruned links back to life.)
"""

from typing import Any, NamedTuple

from ._paths import Path, Tree, TreeError, from_paths, paths, show_path


class TreeAdamState(NamedTuple):
    """How many updates were made, and the running means of the gradient and of its square."""

    step: int
    first: Tree
    second: Tree


class TreeAdam:
    """The optimizer; its state is a value of its own, passed in and out.

    >>> adam = TreeAdam(learning_rate=0.1)
    >>> parameters, state = adam.update({"a": 2.0}, adam.init(), {"a": 1.0, "b": 1.0})
    >>> round(parameters["a"], 6), parameters["b"], list(state.first)
    (0.9, 1.0, ['a'])
    """

    def __init__(
        self, learning_rate: Any = 0.001, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8
    ):
        self.learning_rate, self.betas, self.epsilon = learning_rate, betas, epsilon

    def init(self) -> TreeAdamState:
        return TreeAdamState(0, {}, {})

    def update(self, gradient: Tree, state: TreeAdamState, parameters: Tree) -> tuple[Tree, TreeAdamState]:
        """The parameters after one step, and the new state. Parameters without a gradient so far stay as they
        are.
        """
        weights, slopes = paths(parameters), paths(gradient)
        _check_known(slopes, weights)
        beta1, beta2 = self.betas
        step = state.step + 1
        first = _decayed(paths(state.first), slopes, beta1)
        second = _decayed(paths(state.second), {path: slope * slope for path, slope in slopes.items()}, beta2)
        for path in first.keys() & weights.keys():
            mean = first[path] / (1 - beta1**step)
            spread = (second[path] / (1 - beta2**step)) ** 0.5
            weights[path] = weights[path] - self.learning_rate * mean / (spread + self.epsilon)
        return from_paths(weights), TreeAdamState(step, from_paths(first), from_paths(second))


def _decayed(means: dict[Path, Any], news: dict[Path, Any], beta: float) -> dict[Path, Any]:
    """beta·mean + (1 − beta)·news on the keys of both, where a missing one is zero."""
    both = sorted(means.keys() | news.keys())
    return {path: beta * means.get(path, 0.0) + (1 - beta) * news.get(path, 0.0) for path in both}


def _check_known(slopes: dict[Path, Any], weights: dict[Path, Any]) -> None:
    for path in slopes:
        if path not in weights:
            raise TreeError(
                f"the gradient has a leaf at {show_path(path)} where the parameters have none; "
                "differentiate with respect to these same parameters"
            )
