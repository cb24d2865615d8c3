"""What is known about the machines of a synthesis besides their weights, in arrays with a leading axis of machines.

They are part of the parameters, so every checkpoint has them and a resumed synthesis decides the same. They are called
rows: machine k is row k of each.
"""

import numpy as np

TRAIN, PRUNE, POLISH, DONE = range(4)

Rows = dict[str, np.ndarray]


def first_rows(machines: int, soft: np.ndarray, rounds: int) -> Rows:
    """The rows before the first round, without the weights."""
    every = np.broadcast_to(soft, (machines, len(soft)))
    return {
        "kept": np.ones_like(every),
        "wiring": np.ones_like(every),
        "cut": np.zeros_like(every),
        "protected": np.zeros_like(every),
        "before": np.zeros(every.shape, np.float32),
        "phase": np.full(machines, TRAIN, np.int32),
        "alive": np.ones(machines, bool),
        "active": np.ones(machines, bool),
        "error": np.full(machines, np.inf, np.float32),
        "bound": np.full(machines, np.inf, np.float32),
        "chunk": np.zeros(machines, np.int32),
        "failures": np.zeros(machines, np.int32),
        "rested": np.full(machines, np.inf, np.float32),
        "lowest": np.full(machines, np.inf, np.float32),
        "without_gain": np.zeros(machines, np.int32),
        "polished": np.zeros(machines, np.int32),
        "restarts": np.zeros(machines, np.int32),
        "born": np.zeros(machines, np.int32),
        "lasso": np.ones(machines, np.float32),
        "round": np.zeros((), np.int32),
        "path": np.full((rounds, machines, 2), np.nan, np.float32),
    }
