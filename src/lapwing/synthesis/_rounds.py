"""What happens to the machines of a synthesis at the end of each round.

A machine is trained, then pruned, then polished. While it is pruned, every round is a trial: some links are cut at its
beginning, and restored at its end if the error is still higher. A failed cut is tried with half as many links; a single
link that fails is protected until another cut succeeds. The links to try are those without which the error is smallest,
found by running the machine without each of them.

When all machines are at rest, those that are wrong start again (`_restarts`). What is known about the machines is in
the rows of `_phases`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lapwing.task import Turn

from ._config import SynthesisConfig
from ._optimizer import LONG_MEMORY, SHORT_MEMORY, Paced, forget
from ._phases import DONE, POLISH, PRUNE, TRAIN, Rows
from ._restarts import at_rest, drop_weak, has_stalled, restart
from ._useless import useless
from ._wiring import FEW, LOST, Wirings

FIRST_CUT = 0.01  # A weight below this after training with lasso is on its way to zero.
SMALL = 120  # Machines with at most this many links can be trained with large steps.
REWIRE_AT = 0.25  # Recompiling pays when this part of the links is left
REWIRE_BELOW = 80  # and the machines have, on average, at most this many (docs/synthesis.md).
TRIED = 240  # With at most this many links the machine is run without each of them before a cut.
GIVE_UP_AFTER = 16  # single links in a row whose cut failed
SLOWER_AFTER = 0.7  # of the training; the rest has a third of the learning rate


class Outcome(NamedTuple):
    """What happened to a machine in a round, and the links that were cut."""

    what: str
    cut: np.ndarray


class Pruning:
    """The turn at the end of a round, for `lapwing.task.Rounds`."""

    def __init__(self, wirings: Wirings, config: SynthesisConfig):
        self.wirings, self.config = wirings, config

    def turn(self, params: Mapping[str, np.ndarray], optimizer: Any) -> Turn:
        rows = {name: np.array(array) for name, array in params.items()}
        self._guard(rows)
        before = self._errors(rows)
        ended = [self._end_round(rows, k, before[k]) for k in range(self.config.starts)]
        drop_weak(rows, before, self.config)
        self._rewire(rows)
        after = self._errors(rows)
        outcomes = [outcome or self._begin_round(rows, k, after[k]) for k, outcome in enumerate(ended)]
        rows["error"] = after
        message, record = self._message(rows, after), self._record(rows, outcomes, before, after)
        rows["path"][int(rows["round"])] = np.stack([self._counts(rows), after], axis=1)
        rows["round"] += 1
        again = np.flatnonzero(restart(rows, self.wirings, self.config)).tolist()
        if again:
            message += f"; {len(again)} at rest and wrong start again: {', '.join(map(str, again))}"
        optimizer = self._next_optimizer(rows, optimizer)
        return Turn(rows, optimizer, message, {**record, "restarted": again}, at_rest(rows))

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
        if (self._age(rows, k) + 1) * self.config.round_steps < self.config.train_steps:
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
        if has_stalled(rows, k, error, self._count(rows, k), self.config):
            rows["phase"][k] = DONE
            return Outcome("stalls", nothing)
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
            return max(min(2 * error, 36 * self.config.bound), 1.05 * error, 16 * self.config.bound)
        return max(self.config.bound, min(1.5 * error, 6 * self.config.bound), 1.1 * error)

    def _proposal(self, rows: Rows, k: int) -> np.ndarray:
        """The links to cut on trial."""
        soft, kept, leaves = self.wirings.soft, rows["kept"][k], rows["leaves"][k]
        open_links = np.flatnonzero(kept & soft & ~rows["protected"][k])
        cut = np.zeros_like(kept)
        if self.config.pruning == "threshold":
            done = (self._age(rows, k) + 1) - -(-self.config.train_steps // self.config.round_steps)
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
        """The error without each of these links; of many, of which most do nothing, the size of their weights."""
        leaves, kept, wiring = (rows[name][k] for name in ("leaves", "kept", "wiring"))
        if len(links) > TRIED:
            return np.abs(leaves[links])
        ways = np.repeat(kept[None], len(links), 0)
        ways[np.arange(len(links)), links] = False
        return np.nan_to_num(self.wirings.errors(wiring, leaves, ways), nan=LOST)

    # All machines.

    def _rewire(self, rows: Rows) -> None:
        """Compiles each machine's own links if far fewer are left than are compiled."""
        soft, active = self.wirings.soft, rows["active"] & rows["alive"]
        compiled, left = ((rows[name] & soft)[active].sum() for name in ("wiring", "kept"))
        many = left > min(REWIRE_AT * compiled, REWIRE_BELOW * active.sum())
        if many or np.any(rows["phase"][active] == TRAIN):
            return
        rows["wiring"][active] = rows["kept"][active]
        rows["chunk"][active] = 0
        rows["rested"][active] = np.inf
        rows["active"] = active & (rows["phase"] != DONE)

    def _errors(self, rows: Rows) -> np.ndarray:
        found = np.where(rows["alive"], rows["error"], LOST)
        for k in np.flatnonzero(rows["alive"] & rows["active"]):
            kept = rows["kept"][k][None]
            found[k] = self.wirings.errors(rows["wiring"][k], rows["leaves"][k], kept)[0]
        return np.where(np.isfinite(found), found, LOST)

    def _counts(self, rows: Rows) -> np.ndarray:
        return (rows["kept"] & self.wirings.soft).sum(axis=1)

    def _count(self, rows: Rows, k: int) -> int:
        return int(self._counts(rows)[k])

    def _age(self, rows: Rows, k: int) -> int:
        """Rounds since the machine started, without the current one."""
        return int(rows["round"] - rows["born"][k])

    def _guard(self, rows: Rows) -> None:
        """Pruned links must stay 0; an optimizer that remembers them changes them."""
        changed = (rows["leaves"] != 0) & ~rows["kept"]
        for k in np.flatnonzero(changed.any(axis=1)):
            raise RuntimeError(
                f"pruned links of machine {k} are not 0: {', '.join(self.wirings.names(changed[k])[:3])}; "
                "the optimizer must forget what was pruned"
            )

    def _next_optimizer(self, rows: Rows, optimizer: Paced) -> Paced:
        phase, age = rows["phase"], rows["round"] - rows["born"]
        is_new = (phase != TRAIN) & (self.config.optimizer_state == "new") | (age == 0)
        optimizer = forget(optimizer, rows["kept"], is_new)
        late = age * self.config.round_steps >= SLOWER_AFTER * self.config.train_steps
        pace = {
            TRAIN: (1.0, 1.0),
            PRUNE: (1.0, 0.1),
            POLISH: (2.0, 0.35),
            DONE: (0.0, 1.0),
        }
        first, last = np.array([pace[each] for each in phase], np.float32).T
        first *= np.where((phase == TRAIN) & late, 1 / 3, 1.0)
        first *= np.where((phase == PRUNE) & (self._counts(rows) <= SMALL), 3.0, 1.0)
        first *= np.where(phase == POLISH, 0.35 ** rows["polished"], 1.0)
        b2 = np.where(phase == TRAIN, LONG_MEMORY, SHORT_MEMORY).astype(np.float32)
        return optimizer._replace(first=first.astype(np.float32), last=last.copy(), b2=b2)

    # The journal.

    def _message(self, rows: Rows, errors: np.ndarray) -> str:
        counts = self._counts(rows)
        words = [f"{counts[k]} ({errors[k]:.2g})" for k in np.flatnonzero(rows["alive"])]
        dropped = int((~rows["alive"]).sum())
        return f"round {int(rows['round']) + 1}: links (error) {' '.join(words)}" + (
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
