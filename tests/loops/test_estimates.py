"""The estimates behind the cost model: what makes a move worth more, and what makes it cost more."""

import pytest

from lapwing.loops._estimates import CACHE, LARGE, Estimate, deferring, hoisting


def test_when_in_doubt_the_loop_stays_as_it_is():
    assert Estimate(saves=1.3, costs=1.0).pays
    assert not Estimate(saves=1.1, costs=1.0).pays


@pytest.mark.parametrize("estimate", [hoisting, deferring])
def test_products_of_few_rows_gain_most(estimate):
    sizes = {"operand": 64, "stack": 64, "length": 10} | (
        {"weight": 1 << 14} if estimate is deferring else {}
    )
    few, many = (estimate(flops=10**6, rows=rows, **sizes) for rows in (1, 10_000))
    # Alone in its step, such a product takes some times as long as in one of all steps; one of many rows, as long.
    assert few.saves > 10 * many.saves
    assert few.costs == many.costs


@pytest.mark.parametrize("estimate", [hoisting, deferring])
def test_a_stack_costs_more_when_each_call_gets_new_memory_for_it(estimate):
    sizes = {"flops": 1, "rows": 1, "operand": 0} | ({"weight": 64} if estimate is deferring else {})
    small, large = (estimate(**sizes, stack=1024, length=length) for length in (LARGE // 1024, LARGE))
    assert large.costs == pytest.approx(10 * small.costs)


@pytest.mark.parametrize("estimate", [hoisting, deferring])
def test_what_a_step_multiplies_is_read_once_more(estimate):
    sizes = {"flops": 1, "rows": 1, "stack": 0, "length": 10} | (
        {"weight": 64} if estimate is deferring else {}
    )
    assert estimate(**sizes, operand=1 << 20).costs > estimate(**sizes, operand=0).costs


def test_a_gradient_that_the_cache_does_not_hold_is_expensive_to_add_to():
    def saves(weight: int) -> float:
        return deferring(flops=0, rows=1, weight=weight, operand=0, stack=0, length=10).saves

    assert saves(2 * CACHE) - saves(0) > 10 * (saves(CACHE) - saves(0))
