"""What happens to the machines of a synthesis at the end of each round.

A machine is trained, then pruned, then polished. While it is pruned, every round is a trial: some links are cut at its
beginning, and restored at its end if the error is still higher. A failed cut is tried with half as many links; a single
link that fails is protected until another cut succeeds. The links to try are those without which the error is smallest,
found by running the machine without each of them.

Everything known about the machines is in arrays with a leading axis of machines, next to their weights in the
parameters, so every checkpoint has it. They are called rows: machine k is row k of each.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lapwing.task import Turn

from ._config import SynthesisConfig
from ._optimizer import LONG_MEMORY, SHORT_MEMORY, Paced, forget
from ._useless import useless
from ._wiring import FEW, LOST, Wirings

TRAIN, PRUNE, POLISH, DONE = range(4)
FIRST_CUT = 0.01  # A weight below this after training with lasso is on its way to zero.
SMALL = 120  # Machines with at most this many links can be trained with large steps.
REWIRE_AT = 0.25  # Recompiling pays when this part of the links is left (docs/synthesis.md).
GIVE_UP_AFTER = 16  # single links in a row whose cut failed
HOPELESS = 1.0  # A machine with a larger error that is far behind the others is dropped.
SLOWER_AFTER = 0.7  # of the training; the rest has a third of the learning rate


Rows = dict[str, np.ndarray]


class Outcome(NamedTuple):
    """What happened to a machine in a round, and the links that were cut."""

    what: str
    cut: np.ndarray


def first_rows(machines: int, soft: np.ndarray, rounds: int) -> dict[str, np.ndarray]:
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
        "bound": np.full(machines, np.inf, np.float32),
        "chunk": np.zeros(machines, np.int32),
        "failures": np.zeros(machines, np.int32),
        "rested": np.full(machines, np.inf, np.float32),
        "polished": np.zeros(machines, np.int32),
        "lasso": np.ones(machines, np.float32),
        "round": np.zeros((), np.int32),
        "path": np.full((rounds, machines, 2), np.nan, np.float32),
    }


class Pruning:
    """The turn at the end of a round, for `lapwing.task.Rounds`."""

    def __init__(self, wirings: Wirings, config: SynthesisConfig):
        self.wirings, self.config = wirings, config

    def turn(self, params: Mapping[str, np.ndarray], optimizer: Any) -> Turn:
        rows = {name: np.array(array) for name, array in params.items()}
        self._guard(rows)
        before = self._errors(rows)
        ended = [self._end_round(rows, k, before[k]) for k in range(self.config.starts)]
        self._rewire(rows)
        after = self._errors(rows)
        outcomes = [outcome or self._begin_round(rows, k, after[k]) for k, outcome in enumerate(ended)]
        number = int(rows["round"])
        rows["path"][number] = np.stack([self._counts(rows), after], axis=1)
        rows["round"] += 1
        optimizer = self._next_optimizer(rows, optimizer)
        over = bool(np.all(rows["phase"][rows["alive"]] == DONE))
        return Turn(
            rows, optimizer, self._message(rows, after), self._record(rows, outcomes, before, after), over
        )

    # The end of a round.

    def _end_round(self, rows: Rows, k: int, error: float) -> Outcome | None:
        """With an outcome, the machine begins no trial."""
        if not rows["alive"][k] or rows["phase"][k] == DONE:
            return Outcome("rests", np.zeros_like(rows["cut"][k]))
        if rows["phase"][k] == TRAIN:
            return self._end_training(rows, k)
        if rows["phase"][k] == POLISH:
            rows["polished"][k] += 1
            if rows["polished"][k] >= self.config.polish_rounds:
                rows["phase"][k] = DONE
            return Outcome("is polished", np.zeros_like(rows["cut"][k]))
        cut = rows["cut"][k].copy()
        if not cut.any():
            return None
        rows["cut"][k] = False
        if error <= rows["bound"][k]:
            rows["protected"][k] = False
            rows["failures"][k] = 0
            rows["chunk"][k] *= 2
            rows["rested"][k] = np.inf
            self._drop_useless(rows, k)
            return None
        rows["kept"][k] |= cut
        rows["leaves"][k] = rows["before"][k]
        if self.config.pruning == "single":
            rows["phase"][k] = POLISH
        elif cut.sum() > 1:
            rows["chunk"][k] = max(1, cut.sum() // 2)
        else:
            rows["protected"][k] |= cut
            rows["failures"][k] += 1
        return None

    def _end_training(self, rows: Rows, k: int) -> Outcome | None:
        if (int(rows["round"]) + 1) * self.config.round_steps < self.config.train_steps:
            return Outcome("is trained", np.zeros_like(rows["cut"][k]))
        rows["phase"][k] = PRUNE
        if self.config.pruning != "automatic":
            return None
        kept = rows["kept"][k].copy()
        rows["kept"][k] &= ~self.wirings.soft | (np.abs(rows["leaves"][k]) >= FIRST_CUT)
        self._drop_useless(rows, k)
        return Outcome("cut", kept & ~rows["kept"][k])

    def _drop_useless(self, rows: Rows, k: int) -> None:
        """Cuts the links that carry nothing to the output."""
        rows["kept"][k] &= ~useless(self.wirings, rows["kept"][k])
        rows["leaves"][k] *= rows["kept"][k]

    # The beginning of the next one.

    def _begin_round(self, rows: Rows, k: int, error: float) -> Outcome:
        nothing = np.zeros_like(rows["cut"][k])
        if rows["phase"][k] == PRUNE and self._should_recover(rows, k, error):
            rows["rested"][k] = error
            return Outcome("recovers", nothing)
        if rows["phase"][k] == PRUNE:
            cut = self._proposal(rows, k)
            if cut.any():
                count = self._count(rows, k)
                rows["lasso"][k] = 1.0 if count > SMALL else 0.3
                rows["bound"][k] = self._bound(error, count)
                rows["before"][k] = rows["leaves"][k]
                rows["cut"][k] = cut
                rows["kept"][k] &= ~cut
                rows["leaves"][k] *= rows["kept"][k]
                return Outcome("cut", cut)
            rows["phase"][k] = POLISH
        rows["lasso"][k] = 0.0
        if not self.config.polish_rounds:
            rows["phase"][k] = DONE
        return Outcome("is polished", nothing)

    def _should_recover(self, rows: Rows, k: int, error: float) -> bool:
        """A machine that is far from right and still learns is not pruned any further."""
        few = self._count(rows, k) <= FEW
        learns = 6 * self.config.bound < error < 0.9 * rows["rested"][k]
        return bool(few and learns and self.config.pruning == "automatic")

    def _bound(self, error: float, count: int) -> float:
        if self.config.pruning == "threshold":
            return np.inf
        if count > FEW:
            # With many links a higher error does no harm: fewer links learn better.
            return max(min(2 * error, 36 * self.config.bound), 1.05 * error, 8 * self.config.bound)
        return max(self.config.bound, min(1.5 * error, 6 * self.config.bound), 1.1 * error)

    def _proposal(self, rows: Rows, k: int) -> np.ndarray:
        """The links to cut on trial."""
        soft, kept, leaves = self.wirings.soft, rows["kept"][k], rows["leaves"][k]
        open_links = np.flatnonzero(kept & soft & ~rows["protected"][k])
        cut = np.zeros_like(kept)
        if self.config.pruning == "threshold":
            done = (int(rows["round"]) + 1) - -(-self.config.train_steps // self.config.round_steps)
            if 0 <= done < len(self.config.thresholds):
                cut[open_links] = np.abs(leaves[open_links]) < self.config.thresholds[done]
                cut[open_links[:1]] |= not cut.any()  # A round without a cut would be the last.
            return cut
        if not len(open_links) or rows["failures"][k] > GIVE_UP_AFTER:
            return cut
        if self.config.pruning == "single":
            cut[open_links[np.argmin(np.abs(leaves[open_links]))]] = True
            return cut
        cost = self._cost(rows, k, open_links)
        count = min(int(rows["chunk"][k]) or len(leaves), max(1, len(open_links) // 4))
        rows["chunk"][k] = count
        cut[open_links[np.argsort(cost)[:count]]] = True
        return cut

    def _cost(self, rows: Rows, k: int, links: np.ndarray) -> np.ndarray:
        """The error without each of these links. In the student's wiring, where a run is expensive and hundreds of
        links do nothing, the size of their weights."""
        leaves, kept, wiring = (rows[name][k] for name in ("leaves", "kept", "wiring"))
        if wiring.all():
            return np.abs(leaves[links])
        ways = np.repeat(kept[None], len(links), 0)
        ways[np.arange(len(links)), links] = False
        return np.nan_to_num(self.wirings.errors(wiring, leaves, ways), nan=LOST)

    # All machines.

    def _rewire(self, rows: Rows) -> None:
        """Compiles each machine's own links if far fewer are left than are compiled, and drops weak machines."""
        soft, alive = self.wirings.soft, rows["alive"]
        compiled, left = ((rows[name] & soft)[alive].sum() for name in ("wiring", "kept"))
        if np.any(rows["phase"][alive] == TRAIN) or left > REWIRE_AT * compiled:
            return
        errors = self._errors(rows)
        median = np.median(errors[alive])
        rows["wiring"] = rows["kept"].copy()
        rows["chunk"][:] = 0
        rows["rested"][:] = np.inf
        weak = alive & (errors > 4 * median) & (errors > HOPELESS)
        rows["alive"] &= ~weak

    def _errors(self, rows: Rows) -> np.ndarray:
        found = np.full(self.config.starts, LOST, np.float32)
        for k in np.flatnonzero(rows["alive"]):
            kept = rows["kept"][k][None]
            found[k] = self.wirings.errors(rows["wiring"][k], rows["leaves"][k], kept)[0]
        return np.where(np.isfinite(found), found, LOST)

    def _counts(self, rows: Rows) -> np.ndarray:
        return (rows["kept"] & self.wirings.soft).sum(axis=1)

    def _count(self, rows: Rows, k: int) -> int:
        return int(self._counts(rows)[k])

    def _guard(self, rows: Rows) -> None:
        """Pruned links must stay 0; an optimizer that remembers them changes them."""
        changed = (rows["leaves"] != 0) & ~rows["kept"]
        for k in np.flatnonzero(changed.any(axis=1)):
            raise RuntimeError(
                f"pruned links of machine {k} are not 0: {', '.join(self.wirings.names(changed[k])[:3])}; "
                "the optimizer must forget what was pruned"
            )

    def _next_optimizer(self, rows: Rows, optimizer: Paced) -> Paced:
        phase, done = rows["phase"], int(rows["round"]) * self.config.round_steps
        optimizer = forget(optimizer, rows["kept"], (phase != TRAIN) & (self.config.optimizer_state == "new"))
        late = done >= SLOWER_AFTER * self.config.train_steps
        pace = {
            TRAIN: (1 / 3 if late else 1.0, 1.0),
            PRUNE: (1.0, 0.1),
            POLISH: (2.0, 0.35),
            DONE: (0.0, 1.0),
        }
        first, last = np.array([pace[each] for each in phase], np.float32).T
        first *= np.where((phase == PRUNE) & (self._counts(rows) <= SMALL), 3.0, 1.0)
        first *= np.where(phase == POLISH, 0.35 ** rows["polished"], 1.0)
        b2 = np.where(phase == TRAIN, LONG_MEMORY, SHORT_MEMORY).astype(np.float32)
        return optimizer._replace(first=first.astype(np.float32), last=last.copy(), b2=b2)

    # The journal.

    def _message(self, rows: Rows, errors: np.ndarray) -> str:
        counts = self._counts(rows)
        words = [f"{counts[k]} ({errors[k]:.2g})" for k in np.flatnonzero(rows["alive"])]
        dropped = int((~rows["alive"]).sum())
        return f"round {int(rows['round'])}: links (error) {' '.join(words)}" + (
            f", {dropped} dropped" if dropped else ""
        )

    def _record(
        self, rows: Rows, outcomes: list[Outcome], before: np.ndarray, after: np.ndarray
    ) -> dict[str, Any]:
        return {
            "links": self._counts(rows).tolist(),
            "error_before": before.tolist(),
            "error_after": after.tolist(),
            "what": [outcome.what for outcome in outcomes],
            "cut": [self.wirings.names(outcome.cut & self.wirings.soft) for outcome in outcomes],
        }
