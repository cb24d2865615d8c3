"""A curve of bounded size: any number of rows become at most some thousand buckets.

A bucket has the minimum and the maximum of its values with their steps, the mean, and the number of values that are not
finite. So a single spike among a million steps is kept, at its step. When there are too many buckets, pairs of them are
merged, and new buckets take twice as many rows: the cost of a curve does not depend on its length.
"""

from typing import Any

import numpy as np

MOST_BUCKETS = 2048

# The parts of a bucket, in the order of the rows of the array. Values that are not finite count in `bad` only; positive
# values count in the logarithmic mean, which a log axis shows (as in the report).
_PARTS = ("step", "time", "low", "at_low", "high", "at_high", "sum", "count", "log_sum", "positive", "bad")
_STEP, _TIME, _LOW, _AT_LOW, _HIGH, _AT_HIGH, _SUM, _COUNT, _LOG_SUM, _POSITIVE, _BAD = range(len(_PARTS))
_ADDED_UP = [_SUM, _COUNT, _LOG_SUM, _POSITIVE, _BAD]


class Series:
    """One metric of one run.

    >>> series = Series(most=4)
    >>> values = np.ones(1000)
    >>> values[777] = 50.0
    >>> series.add(np.arange(1000.0), np.arange(1000.0), values)
    >>> sent = series.since(-1, 0)
    >>> len(sent["step"]) <= 5, max(sent["high"]), sent["at_high"][sent["high"].index(50.0)]
    (True, 50.0, 777)
    """

    def __init__(self, most: int = MOST_BUCKETS):
        self.epoch = 0
        """Incremented when buckets are merged: a client with buckets of an earlier epoch needs all of them again."""
        self._most = most
        self._stride = 1
        self._buckets = np.zeros((len(_PARTS), 0))
        self._rest = np.zeros((3, 0))
        """Rows (steps, times, values) that do not fill a bucket yet."""

    @property
    def full(self) -> int:
        """The number of buckets that will not change in this epoch."""
        return self._buckets.shape[1]

    @property
    def nbytes(self) -> int:
        return self._buckets.nbytes + self._rest.nbytes

    def add(self, steps: np.ndarray, times: np.ndarray, values: np.ndarray) -> None:
        """Adds rows, later than all so far."""
        rows = np.concatenate([self._rest, np.stack([steps, times, values])], axis=1)
        while self.full + rows.shape[1] // self._stride > self._most:
            self._halve()
        end = rows.shape[1] - rows.shape[1] % self._stride
        if end:
            made = _buckets_of(rows[:, :end].reshape(3, -1, self._stride))
            self._buckets = np.concatenate([self._buckets, made], axis=1)
        self._rest = rows[:, end:].copy()

    def since(self, epoch: int, sent: int) -> dict[str, Any]:
        """The new buckets for a client that has the first `sent` of an epoch: lists of plain numbers, None where
        there is none, and the index `from` which they replace the client's. The last bucket may still change.
        """
        start = min(sent, self.full) if epoch == self.epoch else 0
        parts = self._buckets[:, start:]
        if self._rest.shape[1]:
            parts = np.concatenate([parts, _buckets_of(self._rest[:, None, :])], axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = parts[_SUM] / parts[_COUNT]
            log_means = np.exp(parts[_LOG_SUM] / parts[_POSITIVE])
        return {
            "from": start,
            "step": _whole(parts[_STEP]),
            "time": _numbers(parts[_TIME]),
            "low": _numbers(parts[_LOW]),
            "at_low": _whole(parts[_AT_LOW]),
            "high": _numbers(parts[_HIGH]),
            "at_high": _whole(parts[_AT_HIGH]),
            "mean": _numbers(means),
            "log_mean": _numbers(log_means),
            "bad": _whole(parts[_BAD]),
        }

    def sketch(self, points: int) -> list[float | None]:
        """A few means over the whole curve, for a sparkline."""
        curve = self.since(-1, 0)
        pairs = zip(curve["log_mean"], curve["mean"], strict=True)
        means = [mean if log is None else log for log, mean in pairs]
        if len(means) <= points:
            return means
        return [means[index] for index in np.linspace(0, len(means) - 1, points).astype(int)]

    def _halve(self) -> None:
        """Merges pairs of buckets; a last one without a partner stays."""
        pairs = self.full // 2 * 2
        merged = _merged(self._buckets[:, 0:pairs:2], self._buckets[:, 1:pairs:2])
        self._buckets = np.concatenate([merged, self._buckets[:, pairs:]], axis=1)
        self._stride *= 2
        self.epoch += 1


def _buckets_of(rows: np.ndarray) -> np.ndarray:
    """Buckets of grouped rows, an array of shape (3: steps, times, values; buckets; rows per bucket)."""
    steps, times, values = rows
    finite = np.isfinite(values)
    positive = finite & (values > 0)
    number = np.arange(len(values))
    lowest = np.where(finite, values, np.inf).argmin(axis=1)
    highest = np.where(finite, values, -np.inf).argmax(axis=1)
    has_some = finite.any(axis=1)
    made = np.empty((len(_PARTS), len(values)))
    made[_STEP], made[_TIME] = steps[:, -1], times[:, -1]
    made[_LOW] = np.where(has_some, values[number, lowest], np.nan)
    made[_HIGH] = np.where(has_some, values[number, highest], np.nan)
    made[_AT_LOW], made[_AT_HIGH] = steps[number, lowest], steps[number, highest]
    made[_SUM], made[_COUNT] = np.where(finite, values, 0.0).sum(axis=1), finite.sum(axis=1)
    made[_LOG_SUM] = np.log(np.where(positive, values, 1.0)).sum(axis=1)
    made[_POSITIVE], made[_BAD] = positive.sum(axis=1), (~finite).sum(axis=1)
    return made


def _merged(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    made = second.copy()
    made[_ADDED_UP] += first[_ADDED_UP]
    # NaN compares as neither lower nor higher, so the second one's value is kept only if it is a better number.
    for value, at, keeps in ((_LOW, _AT_LOW, np.less), (_HIGH, _AT_HIGH, np.greater)):
        other = ~keeps(second[value], first[value]) & ~np.isnan(first[value])
        made[value] = np.where(other, first[value], second[value])
        made[at] = np.where(other, first[at], second[at])
    return made


def _numbers(values: np.ndarray) -> list[float | None]:
    return [value if value == value else None for value in values.tolist()]


def _whole(values: np.ndarray) -> list[int]:
    return values.astype(np.int64).tolist()
