"""Where a value that is not finite comes from: the program is computed as it is, and the right equation is named."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.jaxprs import blame, observe

SOURCE = Path(__file__).read_text().splitlines()


def line_of(text: str) -> str:
    """The place of the line with this comment."""
    return f"test_blame.py:{next(at for at, line in enumerate(SOURCE, 1) if line.endswith(f'# {text}'))}"


def found(function: Any, *args: Any) -> Any:
    run, frame = observe(jax.make_jaxpr(function)(*args))
    outputs, vector = jax.jit(run)(*args)
    for ours, theirs in zip(outputs, jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return blame(frame, vector)


def nested(x):
    def inner(carry, number):
        return carry - 1.0, jnp.sqrt(carry + 3.0 - number)  # nested

    def outer(carry, _):
        after, roots = jax.lax.scan(inner, carry, jnp.arange(3.0))
        return after, roots.sum()

    return jax.lax.scan(outer, x, length=2)


def test_nested_loops():
    there = found(nested, jnp.float32(3.5))  # Roots of 6.5, 4.5, 2.5; 3.5, 1.5, -0.5.
    assert there.place.startswith(line_of("nested"))
    assert [each.number for each in there.iterations] == [1, 2]
    assert str(there.inputs[0]) == "float32 all -0.5"
    assert found(nested, jnp.float32(9.0)) is None


def test_a_loop_that_carries_one_array_twice_and_does_not_change_it():
    def f(x):
        zero = x * 0.0

        def step(carry, n):
            total, one, other = carry
            return (total + jnp.sqrt(2.0 - n + one + other), one, other), None

        return jax.lax.scan(step, (x, zero, zero), jnp.arange(5.0))[0][0]

    there = found(f, jnp.float32(1.0))
    assert (there.operation, there.iterations[0].number) == ("sqrt", 3)
    assert str(there.inputs[0]) == "float32 all -1"


def test_what_a_loop_prints_is_not_printed_again(capfd: pytest.CaptureFixture[str]):
    def f(x):
        def step(total, n):
            jax.debug.print("step {}", n)
            return total + jnp.log(2.0 - n), jax.lax.fori_loop(0, 2, lambda i, t: t + i, total)

        return jax.lax.scan(step, x, jnp.arange(4.0))[0]

    run, frame = observe(jax.make_jaxpr(f)(jnp.float32(1.0)))
    _, vector = jax.jit(run)(jnp.float32(1.0))
    there = blame(frame, vector)
    jax.effects_barrier()
    assert there is not None
    assert there.iterations[0].number == 3
    assert capfd.readouterr().out == ""


def until(x):
    def body(state):
        number, value = state
        return number + 1, jnp.where(number == 3, jnp.log(-value), value + 1)  # until

    return jax.lax.while_loop(lambda state: state[0] < 6, body, (0, x))[1]


def test_a_while_loop():
    there = found(until, jnp.float32(1.0))
    assert (there.operation, there.iterations[0].kind, there.iterations[0].number) == ("log", "while", 3)
    assert there.inputs[0].least == -4.0


def test_a_loop_that_runs_backward_counts_as_its_inputs_do():
    def loop(x):
        return jax.lax.scan(lambda carry, each: (carry + jnp.log(each), None), 0.0, x, reverse=True)[0]

    assert found(loop, jnp.array([1.0, 2.0, -1.0, 3.0])).iterations[0].number == 2


@pytest.mark.parametrize("branch", [0, 1])
def test_the_branch_that_was_taken(branch: int):
    def either(which, x):
        return jax.lax.cond(which == 1, lambda x: jnp.log(x), lambda x: 1 / x, x)

    value = jnp.float32([0.0, -1.0][branch])
    assert found(either, jnp.int32(branch), value).operation == ["div", "log"][branch]


def test_an_infinity_is_blamed_for_the_nan_it_becomes():
    def overflow(x):
        large = jnp.exp(x)  # overflow
        return large - large * 2

    there = found(overflow, jnp.float32(200.0))
    assert (there.operation, there.place) == ("exp", f"{line_of('overflow')} in overflow")


def test_a_mask_is_not_blamed_for_its_infinities():
    def masked(x, mask):
        return jax.nn.softmax(jnp.where(mask, x, -jnp.inf)).sum() + jnp.log(x - 5).sum()  # masked

    assert found(masked, 7 + jnp.arange(3.0), jnp.array([True, False, True])) is None
    there = found(masked, jnp.arange(3.0), jnp.array([True, False, True]))
    assert there.operation == "log"
    everything = found(
        masked, 7 + jnp.arange(3.0), jnp.zeros(3, bool)
    )  # inf - inf: a row without a place to attend.
    assert everything.operation == "sub"


def test_what_a_where_leaves_out_is_not_blamed():
    def hidden(x):
        left_out = jnp.where(x > 0, jnp.log(x), 0.0)
        return left_out.sum() + jnp.sqrt(x - 1).sum()  # wanted

    assert found(hidden, jnp.array([0.0, 2.0])).place.startswith(line_of("wanted"))


def test_the_backward_pass():
    def norm(x):
        return jnp.sqrt((x**2).sum())  # norm

    there = found(jax.grad(norm), jnp.zeros(3))
    assert there.place.startswith(line_of("norm"))
    assert there.operation == "div"


def test_a_program_whose_input_is_not_finite():
    assert found(lambda x, y: x + y, jnp.ones(2), jnp.array([1.0, jnp.nan])).input == 1


@jax.custom_vjp
def halved(x):
    return jnp.log(x)  # custom


halved.defvjp(lambda x: (halved(x), x), lambda x, g: (g / x,))


def test_calls_are_looked_into():
    def called(x):
        return jax.checkpoint(lambda x: jax.jit(halved)(x) * 2)(x).sum()

    assert found(called, -jnp.ones(2)).place.startswith(line_of("custom"))


def twice(x):
    one = jax.nn.softplus(x)
    return jnp.reciprocal(one - jax.nn.softplus(x)).sum() + jax.nn.log_softmax(x).sum()  # twice


def test_a_function_of_jax_is_placed_where_it_is_called():
    assert found(twice, jnp.ones(2)).place == f"{line_of('twice')} in twice"


def helper(x):
    return jnp.sqrt(x).sum()  # helper


def test_the_innermost_line_of_the_user_is_named():
    assert found(lambda x: helper(x) * 2, -jnp.ones(2)).place == f"{line_of('helper')} in helper"


def test_a_constant_that_is_not_finite_is_blamed_where_it_is_taken_in():
    def filled(x):
        return jnp.where(x > 0, jnp.nan, x).sum()  # filled

    there = found(filled, jnp.ones(2))
    assert (there.operation, there.place) == ("select_n", f"{line_of('filled')} in filled")
    assert found(filled, -jnp.ones(2)) is None
    assert found(lambda x: x.sum() - jnp.inf, jnp.ones(2)).operation == "sub"
