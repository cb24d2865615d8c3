"""What happens to the machines of a synthesis at the end of each round: the heart of it.

A machine is trained first, then pruned, then polished. While it is pruned, every round is a trial: some links went at
its beginning, and if the error has not come down again at its end, they are restored. A cut that fails is tried with
half as many links; a single link that fails is protected, until some other cut succeeds. Which links to try: those
without which the error is smallest, found by running the machine without each of them.

All that is known about the machines stands in arrays with the machines in front, beside their weights, so that every
checkpoint has it. They are called rows, since machine k is row k of each.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lapwing.task import Turn

from ._synthesis_config import SynthesisConfig
from ._synthesis_optimizer import LONG_MEMORY, SHORT_MEMORY, Paced, forget
from ._synthesis_useless import useless
from ._synthesis_wiring import FEW, LOST, Wirings

TRAIN, PRUNE, POLISH, DONE = range(4)
FIRST_CUT = 0.01  # A weight below this after training with lasso is on its way to zero.
SMALL = 120  # Machines with so few links can be trained with large steps.
REWIRE_AT = 0.25  # Compiling anew pays when this part of the links is left (docs/synthesis.md).
GIVE_UP_AFTER = 16  # so many single links in a row that could not be missed
HOPELESS = 1.0  # A machine with a larger error that is far from the others is dropped.
SLOWER_AFTER = 0.7  # of the training; the rest at a third of the rate


Rows = dict[str, np.ndarray]


class Event(NamedTuple):
    """What became of a machine in a round."""

    what: str
    links: np.ndarray


def first_rows(machines: int, soft: np.ndarray, rounds: int) -> dict[str, np.ndarray]:
    """What is known of machines that are all alike, beside their weights."""
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
        events = [self._end_round(rows, k, before[k]) for k in range(self.config.starts)]
        self._rewire(rows)
        after = self._errors(rows)
        events = [event or self._begin_round(rows, k, after[k]) for k, event in enumerate(events)]
        number = int(rows["round"])
        rows["path"][number] = np.stack([self._counts(rows), after], axis=1)
        rows["round"] += 1
        optimizer = self._next_optimizer(rows, optimizer)
        over = bool(np.all(rows["phase"][rows["alive"]] == DONE))
        return Turn(rows, optimizer, self._said(rows, after), self._told(rows, events, before, after), over)

    # What a round has brought.

    def _end_round(self, rows: Rows, k: int, error: float) -> Event | None:
        """An event here means that the machine begins no trial."""
        if not rows["alive"][k] or rows["phase"][k] == DONE:
            return Event("rests", np.zeros_like(rows["cut"][k]))
        if rows["phase"][k] == TRAIN:
            return self._end_training(rows, k)
        if rows["phase"][k] == POLISH:
            rows["polished"][k] += 1
            if rows["polished"][k] >= self.config.polish_rounds:
                rows["phase"][k] = DONE
            return Event("is polished", np.zeros_like(rows["cut"][k]))
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

    def _end_training(self, rows: Rows, k: int) -> Event | None:
        if (int(rows["round"]) + 1) * self.config.round_steps < self.config.train_steps:
            return Event("is trained", np.zeros_like(rows["cut"][k]))
        rows["phase"][k] = PRUNE
        if self.config.pruning != "automatic":
            return None
        kept = rows["kept"][k].copy()
        rows["kept"][k] &= ~self.wirings.soft | (np.abs(rows["leaves"][k]) >= FIRST_CUT)
        self._drop_useless(rows, k)
        return Event("cut", kept & ~rows["kept"][k])

    def _drop_useless(self, rows: Rows, k: int) -> None:
        """Links that carry nothing to the output."""
        rows["kept"][k] &= ~useless(self.wirings, rows["kept"][k])
        rows["leaves"][k] *= rows["kept"][k]

    # What the next one is about.

    def _begin_round(self, rows: Rows, k: int, error: float) -> Event:
        nothing = np.zeros_like(rows["cut"][k])
        if rows["phase"][k] == PRUNE and self._should_recover(rows, k, error):
            rows["rested"][k] = error
            return Event("recovers", nothing)
        if rows["phase"][k] == PRUNE:
            cut = self._proposal(rows, k)
            if cut.any():
                count = int((rows["kept"][k] & self.wirings.soft).sum())
                rows["lasso"][k] = 1.0 if count > SMALL else 0.3
                rows["bound"][k] = self._bound(error, count)
                rows["before"][k] = rows["leaves"][k]
                rows["cut"][k] = cut
                rows["kept"][k] &= ~cut
                rows["leaves"][k] *= rows["kept"][k]
                return Event("cut", cut)
            rows["phase"][k] = POLISH
        rows["lasso"][k] = 0.0
        if not self.config.polish_rounds:
            rows["phase"][k] = DONE
        return Event("is polished", nothing)

    def _should_recover(self, rows: Rows, k: int, error: float) -> bool:
        """While a machine is far from right and still learns, it is not pruned any further."""
        few = np.count_nonzero(rows["kept"][k] & self.wirings.soft) <= FEW
        learns = 6 * self.config.bound < error < 0.9 * rows["rested"][k]
        return bool(few and learns and self.config.pruning == "automatic")

    def _bound(self, error: float, count: int) -> float:
        if self.config.pruning == "threshold":
            return np.inf
        if count > FEW:
            # With so many links an error is no loss: fewer links learn better.
            return max(min(2 * error, 36 * self.config.bound), 1.05 * error, 8 * self.config.bound)
        return max(self.config.bound, min(1.5 * error, 6 * self.config.bound), 1.1 * error)

    def _proposal(self, rows: Rows, k: int) -> np.ndarray:
        """Links to try without."""
        soft, kept, leaves = self.wirings.soft, rows["kept"][k], rows["leaves"][k]
        open_links = np.flatnonzero(kept & soft & ~rows["protected"][k])
        cut = np.zeros_like(kept)
        if self.config.pruning == "threshold":
            done = (int(rows["round"]) + 1) - -(-self.config.train_steps // self.config.round_steps)
            if 0 <= done < len(self.config.thresholds):
                cut[open_links] = np.abs(leaves[open_links]) < self.config.thresholds[done]
                cut[open_links[:1]] |= not cut.any()  # A round without a cut would be taken for the last.
            return cut
        if not len(open_links) or rows["failures"][k] > GIVE_UP_AFTER:
            return cut
        if self.config.pruning == "single":
            cut[open_links[np.argmin(np.abs(leaves[open_links]))]] = True
            return cut
        price = self._price(rows, k, open_links)
        count = min(int(rows["chunk"][k]) or len(leaves), max(1, len(open_links) // 4))
        rows["chunk"][k] = count
        cut[open_links[np.argsort(price)[:count]]] = True
        return cut

    def _price(self, rows: Rows, k: int, links: np.ndarray) -> np.ndarray:
        """The error without each of these links. In the student's wiring, where a run is dear and hundreds of links do
        nothing, the size of their weights."""
        leaves, kept, wiring = (rows[name][k] for name in ("leaves", "kept", "wiring"))
        if wiring.all():
            return np.abs(leaves[links])
        ways = np.repeat(kept[None], len(links), 0)
        ways[np.arange(len(links)), links] = False
        return np.nan_to_num(self.wirings.errors(wiring, leaves, ways), nan=LOST)

    # The whole population.

    def _rewire(self, rows: Rows) -> None:
        """Compiles each machine's own links if far fewer than those compiled are left. Weak machines go then."""
        soft, alive = self.wirings.soft, rows["alive"]
        compiled, left = ((rows[name] & soft)[alive].sum() for name in ("wiring", "kept"))
        if np.any(rows["phase"][alive] == TRAIN) or left > REWIRE_AT * compiled:
            return
        errors = self._errors(rows)
        usual = np.median(errors[alive])
        rows["wiring"] = rows["kept"].copy()
        rows["chunk"][:] = 0
        rows["rested"][:] = np.inf
        weak = alive & (errors > 4 * usual) & (errors > HOPELESS)
        rows["alive"] &= ~weak

    def _errors(self, rows: Rows) -> np.ndarray:
        found = np.full(self.config.starts, LOST, np.float32)
        for k in np.flatnonzero(rows["alive"]):
            kept = rows["kept"][k][None]
            found[k] = self.wirings.errors(rows["wiring"][k], rows["leaves"][k], kept)[0]
        return np.where(np.isfinite(found), found, LOST)

    def _counts(self, rows: Rows) -> np.ndarray:
        return (rows["kept"] & self.wirings.soft).sum(axis=1)

    def _guard(self, rows: Rows) -> None:
        """No link may come back to life, as it did where the optimizer remembered what was pruned."""
        risen = (rows["leaves"] != 0) & ~rows["kept"]
        for k in np.flatnonzero(risen.any(axis=1)):
            raise RuntimeError(
                f"pruned links of machine {k} came back to life: {', '.join(self.wirings.names(risen[k])[:3])}; "
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

    # Telling.

    def _said(self, rows: Rows, errors: np.ndarray) -> str:
        words = []
        for k in np.flatnonzero(rows["alive"]):
            count = int((rows["kept"][k] & self.wirings.soft).sum())
            words.append(f"{count} ({errors[k]:.2g})")
        dropped = int((~rows["alive"]).sum())
        return f"round {int(rows['round'])}: links (error) {' '.join(words)}" + (
            f", {dropped} dropped" if dropped else ""
        )

    def _told(self, rows: Rows, events: list[Event], before: np.ndarray, after: np.ndarray) -> dict[str, Any]:
        return {
            "links": self._counts(rows).tolist(),
            "error_before": before.tolist(),
            "error_after": after.tolist(),
            "what": [event.what for event in events],
            "cut": [self.wirings.names(event.links & self.wirings.soft) for event in events],
        }
