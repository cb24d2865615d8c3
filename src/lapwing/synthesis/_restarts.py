"""New starts in place of those that stall.

Some starts end as small machines that are wrong: a cut took what they needed, and links never come back. Which starts
these will be cannot be told from their errors after the training. So all starts are trained and pruned until each is
at rest; then those that are wrong get new random weights and all links, and are trained again, while those that are
right rest and cost nothing. A wave of new starts is compiled as one, which is why a start that stalls early waits for
the others.

A restarted start draws from the seed, its number and the number of its restarts alone, never from a machine that is
right, so it is as independent as the first ones.
"""

import jax
import numpy as np

from ._config import SynthesisConfig
from ._phases import DONE, PRUNE, Rows, first_rows
from ._wiring import FEW, Wirings

FAR = 6.0  # A small machine whose error is more than this many bounds is far from right.
BEHIND = 4.0  # A machine that is pruned, with an error of this many times the median
HOPELESS = 16.0  # and of more than this many bounds, is dropped.
STALLED_AFTER = 8  # rounds in which a small machine that is far from right does not become better
BETTER = 0.9  # An error that falls below this part of the lowest so far is a gain.


def has_stalled(rows: Rows, k: int, error: float, count: int, config: SynthesisConfig) -> bool:
    """Whether a machine that is pruned is small, wrong, and no longer learns; counts the rounds without a gain."""
    if rows["phase"][k] != PRUNE or count > FEW or error <= FAR * config.bound:
        rows["without_gain"][k] = 0
        return False
    if error < BETTER * rows["lowest"][k]:
        rows["lowest"][k], rows["without_gain"][k] = error, 0
    else:
        rows["without_gain"][k] += 1
    return bool(rows["without_gain"][k] >= STALLED_AFTER)


def drop_weak(rows: Rows, errors: np.ndarray, config: SynthesisConfig) -> None:
    """Gives up the machines that are pruned and far behind the others: training goes on until the next compilation,
    but nothing waits for them."""
    running = rows["alive"] & rows["active"]
    if running.any():
        behind = errors > BEHIND * np.median(errors[running])
        weak = running & (rows["phase"] == PRUNE) & behind & (errors > HOPELESS * config.bound)
        rows["alive"] &= ~weak


def at_rest(rows: Rows) -> bool:
    return bool(np.all((rows["phase"] == DONE) | ~rows["alive"]))


def is_wrong(rows: Rows, soft: np.ndarray, config: SynthesisConfig) -> np.ndarray:
    """Which machines are dropped, or have too large an error or too many links."""
    right = rows["error"] <= (config.right_error or config.bound)
    if config.right_links:
        right &= (rows["kept"] & soft).sum(axis=1) <= config.right_links
    return ~rows["alive"] | ~right


def restart(rows: Rows, wirings: Wirings, config: SynthesisConfig) -> np.ndarray:
    """Gives new random weights to the starts that are wrong, once all starts are at rest; returns which they are."""
    chosen = is_wrong(rows, wirings.soft, config) & (rows["restarts"] < config.restarts)
    if not at_rest(rows) or not chosen.any():
        return np.zeros_like(chosen)
    fresh = first_rows(1, wirings.soft, 1)
    for k in map(int, np.flatnonzero(chosen)):
        number = int(rows["restarts"][k]) + 1
        for name in fresh.keys() - {"round", "path"}:
            rows[name][k] = fresh[name][0]
        rows["leaves"][k] = np.where(wirings.soft, random_leaves(wirings, config, k, number), wirings.start)
        rows["restarts"][k], rows["born"][k] = number, rows["round"]
    rows["active"] = chosen.copy()
    return chosen


def random_leaves(wirings: Wirings, config: SynthesisConfig, k: int, number: int) -> np.ndarray:
    """The initial weights of a start after this many restarts."""
    draws = jax.random.normal(restart_key(config, k, number), (len(wirings.soft),))
    return config.spread * np.asarray(draws)


def restart_key(config: SynthesisConfig, k: int, number: int) -> jax.Array:
    """The random key of a start after this many restarts."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(config.seed), k), number)
