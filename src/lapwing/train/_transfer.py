"""Metrics from the device to the host, without making the device wait.

The metrics of all calls are rows of a log on the device. It is fetched when a window of steps ends, when half a second
has passed, or when it is full, and the rows are given to the runs that they belong to.

The host never gets far ahead of the device: that would use memory, and an interrupt would have to wait for it.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from ._carry import Carry
from ._feed import Fed
from ._program import Program
from ._state import State, copy_of

_AHEAD_S = 0.005
_MOST_CALLS_AHEAD = 64
_AT_LEAST_EVERY_S = 0.5


class Rows(NamedTuple):
    """The metrics of consecutive steps, one value per step each."""

    steps: range
    columns: Mapping[str, np.ndarray]

    def split(self, step: int) -> tuple["Rows", "Rows"]:
        """The rows before `step`, and the others.

        >>> early, late = Rows(range(5, 8), {"loss": np.array([3.0, 2.0, 1.0])}).split(6)
        >>> early.steps, late.columns["loss"].tolist()
        (range(5, 6), [2.0, 1.0])
        """
        cut = min(max(step - self.steps.start, 0), len(self.steps))
        first = {name: column[:cut] for name, column in self.columns.items()}
        rest = {name: column[cut:] for name, column in self.columns.items()}
        return Rows(self.steps[:cut], first), Rows(self.steps[cut:], rest)


Deliver = Callable[[np.ndarray, Sequence[str]], None]


class Transfer:
    """The metrics of one run: those that are on the host, and those that are still in the log."""

    def __init__(self, fetch: Callable[[], None]):
        self._fetch = fetch
        self._last_fetched = time.monotonic()
        self.clear()

    def expect(self, steps: range) -> Deliver:
        """A call of these steps was given to the device. **Returns** what takes its rows, [steps, names]."""
        pending = self._pending
        pending.append(None)
        at = len(pending) - 1

        def deliver(numbers: np.ndarray, names: Sequence[str]) -> None:
            pending[at] = steps, numbers, names

        return deliver

    def is_late(self) -> bool:
        """Whether the last fetch is some time ago."""
        return bool(self._pending) and time.monotonic() - self._last_fetched > _AT_LEAST_EVERY_S

    def fetch(self) -> Rows | None:
        """The metrics of all calls, after waiting for them; None if there are none."""
        self._last_fetched = time.monotonic()
        if not all(self._pending):
            self._fetch()
        calls, _ = [each for each in self._pending if each], self.clear()
        if not calls:
            return None
        table = np.concatenate([numbers for _, numbers, _ in calls]).T
        columns = dict(zip(calls[0][2], np.ascontiguousarray(table), strict=True))
        return Rows(range(calls[0][0].start, calls[-1][0].stop), columns)

    def clear(self) -> None:
        """Forgets all calls so far; what is still to be delivered to them goes nowhere."""
        self._pending: list[tuple[range, np.ndarray, Sequence[str]] | None] = []


Receiver = tuple[Deliver, int | None]


class Calls:
    """The calls of the device, one after the other: the carry between them, and the metrics in its log.

    Where a window ends, rules decide from its metrics what happens next, mostly nothing. A GPU would be idle meanwhile,
    so short calls are made *ahead*, from a copy: they are accepted if the state stays as it is, and dropped otherwise.
    Until then, everybody sees the state and the metrics before them.
    """

    def __init__(self, program: Program):
        self._program = program
        self._carry: Carry | None = None
        self._row = 0  # Where in the log the rows of the next call are.
        self._made: list[slice] = []  # The rows of calls that nobody expects yet.
        self._expected: list[tuple[list[slice], Sequence[Receiver]]] = []
        self._unfetched = 0
        self._pace = Pace()
        self._before: Carry | None = None  # The carry before the calls that were made ahead.
        self._ahead: list[slice] = []  # The rows of these.

    @property
    def _current(self) -> Carry:
        carry = self._before or self._carry
        assert carry is not None
        return carry

    @property
    def state(self) -> State:
        """The state after the last call. Its arrays are gone after the next one."""
        return self._program.state_of(self._current)

    def snapshot(self) -> Callable[[], State]:
        """A function that returns the state after the last call, at any time: few arrays are copied now, and made a
        state when it is called."""
        carry = self._current
        # Also of a carry before calls made ahead: if these are dropped, the next call takes its arrays.
        small, large = copy_of((carry.small, carry.large))
        return lambda: self._program.state_of(Carry(small, large, carry.log))

    @property
    def is_empty(self) -> bool:
        return self._carry is None

    @property
    def is_full(self) -> bool:
        """Whether the metrics must be fetched before the next call overwrites some."""
        return self._unfetched > self._program.rows

    def load(self, state: State, count: int, fed: Fed) -> None:
        """The next call, of `count` steps, starts from this state, whose arrays it takes."""
        before, self._carry = self._carry, self._program.load(self._carry, state, count, fed)
        if before is None or before.log.shape != self._carry.log.shape:
            self._row = 0

    def make(self, count: int, fed: Fed, waited: float | None = None) -> None:
        """Gives a call of `count` steps to the device; `expect` must follow."""
        assert self._carry is not None
        self._carry = self._program.advance(self._carry, count, fed, waited)
        self._made.append(slice(self._row, self._row + count))
        self._row = self._program.next_row(self._row, count)
        self._unfetched += count
        self._pace.keep(self._carry.log)

    # Calls ahead.

    def start_ahead(self) -> int:
        """From here on calls are made ahead. **Returns** how many of them; 0 if they are long, or on a CPU, where the
        host has nothing to do that would not slow them down."""
        calls = self._pace.every // 2 if _goes_ahead() else 0
        if calls:
            before = self._before = copy_of(self._current)
            self._row_before = self._row
            before.log.copy_to_host_async()  # There by the time that `fetch` asks for it.
        return calls

    def make_ahead(self, count: int, fed: Fed) -> None:
        made, self._made = self._made, self._ahead
        self.make(count, fed)
        self._made = made

    def accept_ahead(self) -> list[int]:
        """The calls made ahead are the next ones. **Returns** their numbers of steps."""
        self._made += self._ahead
        counts = [rows.stop - rows.start for rows in self._ahead]
        self._before, self._ahead = None, []
        return counts

    def drop_ahead(self) -> None:
        """As if no call had been made ahead."""
        if self._before is not None:
            self._carry, self._row = self._before, self._row_before
            self._unfetched -= sum(rows.stop - rows.start for rows in self._ahead)
            self._before, self._ahead = None, []

    def expect(self, receivers: Sequence[Receiver]) -> None:
        """Each receiver gets the metrics of the calls since the last time, or, in a table, those of its run."""
        self._expected.append((self._made, receivers))
        self._made = []
        if self.is_full:
            self.fetch()

    def fetch(self) -> None:
        """Gives the metrics of all calls to their receivers, after waiting for them."""
        if not self._expected:
            return
        numbers = np.array(self._current.log)  # A copy: the next call may write to these very bytes.
        for calls, receivers in self._expected:
            rows = np.concatenate([numbers[call] for call in calls])
            for deliver, run in receivers:
                deliver(rows if run is None else rows[:, run], self._program.names)
        self._expected = []
        self._unfetched = sum(rows.stop - rows.start for rows in self._ahead)


def _goes_ahead() -> bool:
    return jax.default_backend() != "cpu"


class Pace:
    """Keeps the host some milliseconds ahead of the device, and not more. Each look at the device costs as much as a
    call, so for short calls it looks at one of many."""

    def __init__(self) -> None:
        self.every, self._calls = 1, 0
        self._looks: deque[jax.Array] = deque()
        self._last = time.perf_counter()

    def keep(self, result: jax.Array) -> None:
        """A call was given to the device, with this result."""
        self._calls += 1
        if self._calls < self.every:
            return
        self._looks.append(_look(result))
        if len(self._looks) > 2:
            self._looks.popleft().block_until_ready()
        now = time.perf_counter()
        seconds = (now - self._last) / self._calls
        self.every = max(1, min(int(_AHEAD_S / max(seconds, 1e-9)), 2 * self.every, _MOST_CALLS_AHEAD))
        self._last, self._calls = now, 0


@jax.jit
def _look(result: jax.Array) -> jax.Array:
    """A result of its own: that of the call is donated to the next."""
    return result.ravel()[:1] + 0
