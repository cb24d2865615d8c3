"""What happens to the machines of a synthesis at the end of each round.

A machine is trained, then pruned, then polished. While it is pruned, every round is a trial: some links are cut at its
beginning, and restored at its end if the error is still higher. A failed cut is tried with half as many links; a single
link that fails is protected until another cut succeeds. The links to try are, of many, the smallest, and of a small
machine those that the others replace best (`_surgeon`).

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
from ._surgeon import Replaced, replaceable
from ._useless import useless
from ._wiring import FEW, LOST, Wirings

FIRST_CUT = 0.01  # A weight below this after training with lasso is on its way to zero.
SMALL = 120  # Machines with at most this many links can be trained with large steps, and cut by a surgeon.
REWIRE_AT = 0.25  # Recompiling pays when this part of the links is left
REWIRE_BELOW = 80  # and the machines have, on average, at most this many (docs/synthesis.md).
TRIAL_WITHIN = 10.0  # A round of training removes an error of this many times what is allowed at its end.
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
        drop_weak(
            rows, self._errors(rows), self.config
        )  # those of the machines whose trial failed, without it
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
            at_once = self._cut_at_once(rows, k, error)
            if at_once.any():
                rows["protected"][k], rows["failures"][k], rows["chunk"][k] = False, 0, 0
                error = float(
                    self.wirings.errors(rows["wiring"][k], rows["leaves"][k], rows["kept"][k][None])[0]
                )
            count = self._count(rows, k)
            rows["bound"][k] = self._bound(error, count)
            cut, leaves = self._proposal(rows, k)
            if cut.any():
                rows["lasso"][k] = 1.0 if count > SMALL else 0.3
                rows["before"][k] = rows["leaves"][k]
                rows["cut"][k] = cut
                rows["kept"][k] &= ~cut
                rows["leaves"][k] = leaves * rows["kept"][k]
                return Outcome("cut", cut | at_once)
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

    def _proposal(self, rows: Rows, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The links to cut on trial, and the weights to start the trial with."""
        soft, kept, leaves = self.wirings.soft, rows["kept"][k], rows["leaves"][k]
        open_links = np.flatnonzero(kept & soft & ~rows["protected"][k])
        cut = np.zeros_like(kept)
        if self.config.pruning == "threshold":
            done = (self._age(rows, k) + 1) - -(-self.config.train_steps // self.config.round_steps)
            if 0 <= done < len(self.config.thresholds):
                cut[open_links] = np.abs(leaves[open_links]) < self.config.thresholds[done]
                cut[open_links[:1]] |= not cut.any()  # A round without a cut would be the last.
            return cut, leaves
        if not len(open_links) or rows["failures"][k] > GIVE_UP_AFTER:
            return cut, leaves
        by_size = open_links[np.argsort(np.abs(leaves[open_links]))]
        if self.config.pruning == "single":
            cut[by_size[0]] = True
            return cut, leaves
        count = min(int(rows["chunk"][k]) or len(leaves), max(1, len(open_links) // 4))
        if self._count(rows, k) <= SMALL:
            within = TRIAL_WITHIN * float(rows["bound"][k])
            chosen, leaves, _ = self._replaceable(rows, k, open_links, count, within)
        else:
            chosen = by_size[:count]  # Of many links most do nothing.
        rows["chunk"][k] = len(chosen)
        cut[chosen] = True
        return cut, leaves

    def _cut_at_once(self, rows: Rows, k: int, error: float) -> np.ndarray:
        """Cuts what the other links replace without training; returns what was cut."""
        before = rows["kept"][k].copy()
        within = max(self.config.bound, error)
        while self.config.pruning == "automatic" and 0 < self._count(rows, k) <= SMALL:
            links = np.flatnonzero(rows["kept"][k] & self.wirings.soft)
            cut, leaves, error = self._replaceable(rows, k, links, max(1, len(links) // 4), within)
            if not error <= within:
                break
            rows["kept"][k][cut] = False
            rows["leaves"][k] = leaves * rows["kept"][k]
            self._drop_useless(rows, k)
        return before & ~rows["kept"][k]

    def _replaceable(self, rows: Rows, k: int, links: np.ndarray, count: int, within: float) -> Replaced:
        machine = (rows[name][k] for name in ("wiring", "leaves", "kept"))
        return replaceable(self.wirings, *machine, links=links, count=count, within=within)

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
