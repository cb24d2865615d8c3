"""Memory policies: less memory for more computation, the same numbers."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

from lapwing.loops import Budget, LoopSizes, Nested, Save, Segments, Sqrt, scan
from lapwing.loops._memory import planned, policy_of
from tests.loops.bodies import CASES
from tests.loops.reference import arrays_of, first_order, leaves_close, loss_of, reference
from tests.slow import some

BY_NAME = {case.name: case for case in CASES}
QUICK = [BY_NAME[name] for name in ("gru", "backwards_and_unrolled", "length_only")]
MORE = [BY_NAME[name] for name in ("lstm", "integers_and_booleans", "scan_inside", "random_keys")]


@dataclasses.dataclass(frozen=True)
class Halves:
    """A policy of a user's own: halves of halves, down to single steps."""

    def segments(self, loop: LoopSizes) -> tuple[int, ...]:
        lengths = []
        while (length := ([loop.length, *lengths][-1]) // 2) >= 1:
            lengths.append(length)
        return tuple(lengths)


# Nested() cuts only loops of more than 32 steps: see the long loop below.
SLOW = [
    pytest.param(policy, marks=pytest.mark.slow)
    for policy in (Save(), Segments(1), Sqrt(), Nested(), Halves())
]
POLICIES = [Segments(2), pytest.param(Budget(1500), marks=pytest.mark.slow), *SLOW]


@pytest.mark.parametrize("some", [QUICK, pytest.param(MORE, marks=pytest.mark.slow)], ids=["some", "more"])
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_policy_changes_no_number(policy, some):
    """Values, gradients and batches of gradients under jit, of all cases in one compiled program."""

    @jax.jit
    def everything(params):
        ours = functools.partial(scan, memory=policy)
        return [first_order(loss_of(case, ours), each) for case, each in zip(some, params, strict=True)]

    for case, found in zip(some, everything([arrays_of(case) for case in some]), strict=True):
        leaves_close(reference(case, "first"), found, 1e-5, what=case.name)


@pytest.mark.slow
def test_a_long_loop_is_cut_at_several_levels():
    policies = [Nested(), Halves(), Budget(4000)]
    xs = jnp.sin(jnp.arange(600.0))

    def last(w, memory):
        return scan(lambda h, x: (jnp.sin(w * h + x), None), 1.0, xs, memory=memory)[0]

    @jax.jit
    def everything(w):
        return [jax.value_and_grad(last)(w, memory) for memory in ["save", *policies]]

    assert Nested().segments(LoopSizes(600, 4, 4, lambda: 8)) == (37, 2)
    want, *found = everything(0.9)
    for policy, each in zip(policies, found, strict=True):
        leaves_close(want, each, 1e-5, what=repr(policy))


def gru_gradient(length: int, width: int, batch: int, **options):
    weights = [jnp.zeros((width, width))] * 3
    xs = jnp.zeros((length, batch, 3 * width))

    def last(weights, xs):
        u, v, w = weights

        def step(h, x):
            xr, xz, xn = jnp.split(x, 3, -1)
            r, z = jax.nn.sigmoid(xr + h @ u), jax.nn.sigmoid(xz + h @ v)
            return (1 - z) * h + z * jnp.tanh(xn + (r * h) @ w), None

        return jnp.sum(scan(step, jnp.zeros((batch, width)), xs, **options)[0])

    return jax.jit(jax.grad(last)).lower(weights, xs).compile()


def temporary_bytes(compiled) -> int:
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.slow
@pytest.mark.optimized
def test_sqrt_takes_less_than_a_tenth():
    save = temporary_bytes(gru_gradient(4096, 32, 4))
    assert temporary_bytes(gru_gradient(4096, 32, 4, memory="sqrt")) < save / 10


@pytest.mark.slow
@pytest.mark.optimized
def test_nested_grows_with_the_logarithm():
    def last(w, length):
        return jnp.sum(
            scan(lambda h, _: (jnp.tanh(h @ w), None), jnp.ones(32), length=length, memory="nested")[0]
        )

    w = jnp.eye(32)
    short, long = (
        temporary_bytes(jax.jit(jax.grad(lambda w, n=n: last(w, n))).lower(w).compile())
        for n in (1_000, 100_000)
    )
    assert long < 2 * short


@pytest.mark.optimized
def test_a_budget_is_kept():
    budget = 600_000
    assert temporary_bytes(gru_gradient(2048, 32, 4)) > 2 * budget
    assert temporary_bytes(gru_gradient(2048, 32, 4, memory=("budget", budget))) < 1.1 * budget


@pytest.mark.optimized
@pytest.mark.parametrize(
    "budget", some([3_000_000, pytest.param(10_000_000, marks=pytest.mark.slow), 30_000_000], 1)
)
def test_a_budget_counts_what_is_computed_ahead_of_the_loop(budget):
    """The input projection of all steps of a segment is in memory too."""
    length, batch, width = 2048, 8, 32

    def last(weights, xs):
        into, w = weights

        def step(h, x):
            return jnp.tanh(x @ into + h @ w), None

        return jnp.sum(scan(step, jnp.zeros((batch, width)), xs, memory=("budget", budget))[0])

    weights = jnp.zeros((4, width)), jnp.zeros((width, width))
    compiled = jax.jit(jax.grad(last)).lower(weights, jnp.zeros((length, batch, 4))).compile()
    assert temporary_bytes(compiled) < 1.15 * budget


SIZES = LoopSizes(length=1000, carry=10, stacked=50, measure_step=lambda: 100)


def test_the_fastest_segments_that_fit():
    assert Budget(100_000).segments(SIZES) == ()
    (segment,) = Budget(99_999).segments(SIZES)
    assert segment > 300
    (segment,) = Budget(6_000).segments(SIZES)
    assert 1000 % segment == 0
    assert Sqrt().segments(SIZES) == (8,)
    assert Segments(7).segments(SIZES) == (7,)
    assert Segments(2000).segments(SIZES) == ()
    assert Nested().segments(SIZES) == (62, 3)


def test_a_step_is_measured_only_for_a_policy_that_asks():
    unmeasured = LoopSizes(length=1000, carry=10, stacked=50, measure_step=lambda: 1 / 0)
    assert [policy.segments(unmeasured) for policy in (Save(), Segments(7), Nested())] == [(), (7,), (62, 3)]
    with pytest.raises(ZeroDivisionError):
        Sqrt().segments(unmeasured)


@pytest.mark.parametrize(
    ("short", "policy"),
    [
        ("save", Save()),
        ("sqrt", Sqrt()),
        ("nested", Nested()),
        (7, Segments(7)),
        (("budget", 99), Budget(99)),
        (Halves(), Halves()),
    ],
    ids=repr,
)
def test_short_forms(short, policy):
    assert policy_of(short) == policy


def test_a_budget_that_nothing_fits_says_how_much_is_needed():
    with pytest.raises(
        ValueError,
        match=r"memory=Budget\(bytes=500\): this loop of 1000 steps needs at least \d+ bytes .* give that much",
    ):
        Budget(500).segments(SIZES)


@pytest.mark.parametrize("wrong", ["all", 0, -3, True, 2.5, ("budget",), ("budget", 0), None, Segments])
def test_an_unknown_policy_says_what_is_allowed(wrong):
    with pytest.raises(
        ValueError, match=r"memory must be 'save', 'sqrt', 'nested'.* such as Segments\(10\), not "
    ):
        scan(lambda c, x: (c, x), 0.0, jnp.ones(3), memory=wrong)


def test_the_old_name_of_nested_says_the_new_one():
    with pytest.raises(ValueError, match="memory='binomial' is now called 'nested'; write memory='nested'"):
        scan(lambda c, x: (c, x), 0.0, jnp.ones(3), memory="binomial")


@pytest.mark.parametrize("wrong", [lambda: Segments(0), lambda: Segments(True), lambda: Budget(-1)])
def test_a_policy_refuses_numbers_below_1(wrong):
    with pytest.raises(ValueError, match=r"(Segments|Budget) needs a number of (steps|bytes) from 1, not "):
        wrong()


@dataclasses.dataclass(frozen=True)
class Fixed:
    lengths: tuple[int, ...]

    def segments(self, loop: LoopSizes) -> tuple[int, ...]:
        return self.lengths


@pytest.mark.parametrize("wrong", [(1000,), (0,), (10, 10), (10, 20), (2.5,)])
def test_a_policy_must_return_shorter_and_shorter_segments(wrong):
    with pytest.raises(
        ValueError, match=r"memory=Fixed\(.*\) must cut a loop of 1000 steps into shorter and"
    ):
        planned(Fixed(wrong), SIZES)


def test_a_policy_must_be_hashable():
    class Listed:
        __hash__ = None

        def segments(self, loop: LoopSizes) -> tuple[int, ...]:
            return ()

    with pytest.raises(ValueError, match=r"expected a memory policy that is hashable, .* a frozen dataclass"):
        policy_of(Listed())
