"""However a curve comes in, and however long it is: bounded, and with all that a person must not miss."""

import numpy as np
import pytest

from lapwing.board._series import Series


def whole(series: Series) -> dict:
    return series.since(-1, 0)


def filled(values: np.ndarray, most: int, pieces: int = 1) -> Series:
    series = Series(most)
    steps = np.arange(len(values), dtype=float)
    for part in np.array_split(np.arange(len(values)), pieces):
        series.add(steps[part], steps[part] / 10, values[part])
    return series


@pytest.mark.parametrize("pieces", [1, 7, 500])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000, 4099])
def test_nothing_is_lost_that_counts(count: int, pieces: int):
    values = np.random.default_rng(count).normal(size=count)
    told = whole(filled(values, 16, pieces))
    assert len(told["step"]) <= 17
    assert min(told["low"]) == values.min()
    assert max(told["high"]) == values.max()
    assert told["at_low"][told["low"].index(values.min())] == values.argmin()
    assert told["at_high"][told["high"].index(values.max())] == values.argmax()
    assert told["step"] == sorted(set(told["step"]))
    assert told["step"][-1] == count - 1


def test_a_short_curve_is_itself():
    told = whole(filled(np.array([3.0, 1.0, 2.0]), 16))
    assert told["low"] == told["high"] == told["mean"] == [3.0, 1.0, 2.0]
    assert told["step"] == told["at_low"] == [0, 1, 2]
    assert told["time"] == [0.0, 0.1, 0.2]
    assert told["log_mean"] == pytest.approx([3.0, 1.0, 2.0])


def test_means_are_those_of_the_rows_however_often_buckets_were_merged():
    values = np.random.default_rng(0).lognormal(size=4096)
    told = whole(filled(values, 16, pieces=33))
    rows = np.split(values, [step + 1 for step in told["step"][:-1]])
    assert 8 <= len(rows) <= 17
    assert told["mean"] == pytest.approx([part.mean() for part in rows])
    assert told["log_mean"] == pytest.approx([np.exp(np.log(part).mean()) for part in rows])


def test_what_is_not_finite_is_counted_and_is_no_extreme():
    values = np.ones(64)
    values[10], values[11], values[12] = np.nan, np.inf, -np.inf
    told = whole(filled(values, 16))
    assert sum(told["bad"]) == 3
    assert set(told["high"]) == set(told["low"]) == {1.0}
    nothing = whole(filled(np.full(8, np.nan), 4))
    assert set(nothing["low"]) == set(nothing["mean"]) == {None}
    assert sum(nothing["bad"]) == 8


def test_zero_and_below_count_for_nothing_in_a_logarithm():
    told = whole(filled(np.array([4.0, 0.0, 1.0, -1.0]), 1))
    assert told["log_mean"] == [pytest.approx(2.0)]
    assert told["mean"] == [1.0]


def test_somebody_who_follows_ends_with_the_same_curve():
    values = np.random.default_rng(1).normal(size=3000)
    series = Series(64)
    seen: list[float] = []
    epoch, sent = -1, 0
    for part in np.array_split(np.arange(3000), 101):
        series.add(part.astype(float), part.astype(float), values[part])
        news = series.since(epoch, sent)
        del seen[news["from"] :]
        seen += news["high"]
        epoch, sent = series.epoch, series.full
    assert seen == whole(series)["high"]


def test_only_what_is_new_is_told():
    series = filled(np.ones(10), 64)
    epoch, sent = series.epoch, series.full
    series.add(np.array([10.0]), np.array([1.0]), np.array([5.0]))
    news = series.since(epoch, sent)
    assert (news["from"], news["step"], news["high"]) == (10, [10], [5.0])


def test_memory_does_not_grow():
    short, long = (filled(np.ones(count), 64, pieces=10) for count in (1000, 100_000))
    assert long.nbytes < 4 * short.nbytes + 64 * 1024
