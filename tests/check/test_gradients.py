"""An automatic gradient that dropped what flows through an accumulator's own memory (docs/story.md)."""

import functools

import jax
import jax.numpy as jnp
import optax
import pytest

from lapwing.check import CheckError, CheckInputError, gradients
from tests.slow import some

from .models import accumulator_loss, accumulator_params

XS = jnp.linspace(0, 1, 5)[:, None] * jnp.ones(2)


def test_a_gradient_cut_by_a_custom_derivative_is_found_and_named():
    params = accumulator_params()
    with pytest.raises(CheckError) as caught:
        gradients(lambda p, xs: accumulator_loss(p, xs, cut=True), params, XS)
    assert str(caught.value).startswith(
        "the gradient of params['start'] is cut: at params['start'][0] the automatic"
    )
    assert "derivative is 0 and finite differences give " in str(caught.value)
    assert set(caught.value.where) == {"params['start']", "params['read']"}


def test_the_clean_twin_passes_in_float64():
    report = gradients(lambda p, xs: accumulator_loss(p, xs, cut=False), accumulator_params(), XS)
    assert report.facts == {"directions": 3, "leaves": 3, "of_leaves": 3, "precision": "float64"}


def test_a_stop_gradient_is_named_with_its_line_and_can_be_allowed():
    def loss(w):
        return jnp.sum(w * jax.lax.stop_gradient(w))

    with pytest.raises(
        CheckError, match=r"the gradient of params is wrong: .* stop_gradient at test_gradients.py:\d+"
    ):
        gradients(loss, jnp.arange(1.0, 4.0))
    report = gradients(loss, jnp.arange(1.0, 4.0), stop_gradient="allowed")
    assert "what stop_gradient cuts at test_gradients.py:" in report.message


def test_allowing_a_stop_gradient_allows_nothing_else():
    with pytest.raises(CheckError, match="is cut"):
        gradients(
            lambda p, xs: accumulator_loss(p, xs, cut=True), accumulator_params(), XS, stop_gradient="allowed"
        )


LOGITS = {"w": jax.random.normal(jax.random.key(0), (4, 3)), "b": jnp.zeros(3)}
LABELLED = {"x": jax.random.normal(jax.random.key(1), (8, 4)), "y": jnp.arange(8) % 3}


@jax.custom_vjp
def ten_times_too_small(x):
    return x


ten_times_too_small.defvjp(lambda x: (x, None), lambda _, slope: (0.1 * slope,))


@jax.custom_jvp
def half_as_large(x):
    return jnp.sin(x)


half_as_large.defjvp(lambda x, move: (jnp.sin(*x), 0.5 * jnp.cos(*x) * move[0]))


@jax.custom_vjp
def rounded(x):
    """A straight-through estimator."""
    return jnp.round(4 * x) / 4


rounded.defvjp(lambda x: (rounded(x), None), lambda _, slope: (slope,))


def classify(params, batch, function=lambda x: x, library=False):
    logits = function(batch["x"] @ params["w"]) + params["b"]
    if library:
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"]).mean()
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), batch["y"][:, None], 1))


@pytest.mark.parametrize(
    ("function", "library"),
    some([(ten_times_too_small, False), (ten_times_too_small, True), (half_as_large, False)], 0),
)
def test_a_wrong_gradient_before_a_softmax_is_found_and_its_function_is_named(function, library):
    """log_softmax and optax stop a gradient themselves, which once excused everything."""
    loss = functools.partial(classify, function=function, library=library)
    with pytest.raises(
        CheckError, match=rf"params\['w'\] is wrong: .*{function.__name__} at test_gradients.py:\d+"
    ):
        gradients(loss, LOGITS, LABELLED, stop_gradient="allowed")


@pytest.mark.parametrize("library", [False, True])
def test_a_softmax_is_no_stop_gradient_of_the_user(library):
    report = gradients(functools.partial(classify, library=library), LOGITS, LABELLED, directions=1)
    assert "stop_gradient" not in report.message


def test_what_is_stopped_in_loops_and_branches_is_held_and_all_else_is_compared():
    def loss(params, xs, wrong):
        def step(state, x):
            state = jnp.tanh(params["a"] * state + x) * jax.lax.stop_gradient(1 + state**2)
            state = ten_times_too_small(state) if wrong else state
            kept = jax.lax.stop_gradient(state)
            return state, jax.lax.cond(
                state[0] > 0, lambda: jnp.sum(state * kept), lambda: jnp.sum(kept**2 * state)
            )

        return jnp.sum(jax.checkpoint(lambda start: jax.lax.scan(step, start, xs)[1])(params["b"]))

    params, xs = {"a": jnp.full(2, 0.5), "b": jnp.full(2, 0.2)}, jax.random.normal(jax.random.key(0), (4, 2))
    gradients(lambda p, xs: loss(p, xs, False), params, xs, stop_gradient="allowed")
    with pytest.raises(CheckError, match="custom derivative of ten_times_too_small at"):
        gradients(lambda p, xs: loss(p, xs, True), params, xs, stop_gradient="allowed")


def test_a_straight_through_estimator_can_be_declared_and_hides_nothing_else():
    def loss(params, batch, other=lambda x: x):
        return classify(params, batch, lambda x: other(rounded(x)))

    with pytest.raises(CheckError, match=r"custom derivative of rounded at .* pass surrogates=\['rounded'\]"):
        gradients(loss, LOGITS, LABELLED, directions=1)
    gradients(loss, LOGITS, LABELLED, directions=1, surrogates=[rounded])
    wrong = functools.partial(loss, other=ten_times_too_small)
    with pytest.raises(CheckError, match="custom derivative of ten_times_too_small at"):
        gradients(wrong, LOGITS, LABELLED, directions=1, surrogates=["rounded"])
    with pytest.raises(CheckInputError, match="that the loss calls, found 'sign'; it calls rounded at"):
        gradients(loss, LOGITS, LABELLED, surrogates=["sign"])


def test_one_wrong_entry_of_a_large_leaf_is_found_by_bisection():
    def loss(p):
        return jnp.sum(p["w"].at[7, 3].set(0.0) ** 2) + jax.lax.stop_gradient(p["w"][7, 3]) + jnp.sum(p["b"])

    params = {"w": jnp.ones((16, 8)), "b": jnp.zeros(3)}
    with pytest.raises(
        CheckError, match=r"at params\['w'\]\[7, 3\] the automatic derivative is 0 and .* give 1"
    ):
        gradients(loss, params)


@pytest.mark.parametrize(
    "kinked", [jax.nn.relu, jnp.abs, lambda w: jnp.maximum(w, 0.0), lambda w: jnp.max(w)]
)
def test_at_a_kink_any_slope_between_both_sides_is_right(kinked):
    gradients(lambda w: jnp.sum(kinked(w)), jnp.zeros(4))


def test_a_gradient_that_is_no_number_is_found():
    def loss(w):
        return jnp.sum(jnp.where(w > 0, jnp.sqrt(w), 0.0))

    with pytest.raises(CheckError, match=r"the loss is 1, but its gradient is nan at params\[1\]"):
        gradients(loss, jnp.array([1.0, 0.0]))


def test_code_that_insists_on_float32_is_checked_in_float32():
    zero = jnp.zeros((), jnp.float32)

    def loss(w, cut):
        total, _ = jax.lax.scan(
            lambda total, x: (total + x.astype(jnp.float32), None),
            zero,
            jax.lax.stop_gradient(w) if cut else w,
        )
        return total**2

    def strict(w, cut=False):
        # A carry that may not change its type raises in float64.
        assert w.dtype == jnp.float32
        return loss(w, cut)

    assert gradients(strict, jnp.ones(3)).facts["precision"] == "their own precision"
    with pytest.raises(CheckError, match="is cut"):
        gradients(lambda w: strict(w, cut=True), jnp.ones(3))


def test_a_detour_through_float32_inside_float64_is_no_fault_and_hides_none():
    def loss(p, cut):
        narrow = jnp.tanh(p["w"].astype(jnp.float32) * 3).astype(p["w"].dtype)
        narrow = jax.lax.stop_gradient(narrow) if cut else narrow
        return jnp.mean(narrow * p["v"]) + jnp.sum(p["none"] - jax.lax.stop_gradient(p["none"])) * 1e-12

    params = {"w": jnp.linspace(-1, 1, 5), "v": jnp.linspace(1, 2, 5), "none": jnp.zeros(2)}
    trainable = {"w": True, "v": True, "none": False}
    assert (
        gradients(lambda p: loss(p, False), params, trainable=trainable).facts["precision"]
        == "mixed precision"
    )
    with pytest.raises(CheckError, match=r"params\['w'\] is cut"):
        gradients(lambda p: loss(p, True), params, trainable=trainable)


@pytest.mark.parametrize("seed", range(4))
def test_kinks_of_several_units_may_cancel_along_a_direction(seed):
    """Raising some biases and lowering others, the slopes of both sides may have the same sign: 0 is not between."""
    weights = jnp.array([1.0, -2.0, 1.5, -1.0, 2.0, -0.5])
    gradients(lambda b: jnp.sum(weights * jax.nn.relu(b)), jnp.zeros(6), seed=seed)

    @jax.custom_vjp
    def halved(b):
        return b @ weights

    halved.defvjp(lambda b: (b @ weights, None), lambda _, slope: (0.5 * slope * weights,))
    with pytest.raises(CheckError, match="gradient"):
        gradients(lambda b: jnp.sum(weights * jax.nn.relu(b)) + halved(b), jnp.zeros(6), seed=seed)


@pytest.mark.slow
def test_many_kinks_of_a_lasso_hide_no_cut():
    w = jax.random.normal(jax.random.key(0), (20_000,))

    def loss(p, cut):
        gain = jax.lax.stop_gradient(p["gain"]) if cut else p["gain"]
        return 0.01 * jnp.sum(jnp.abs(p["w"])) + gain**2

    params = {"w": w, "gain": jnp.ones(())}
    gradients(lambda p: loss(p, False), params)
    with pytest.raises(CheckError, match=r"params\['gain'\] is cut"):
        gradients(lambda p: loss(p, True), params)


def test_what_is_not_trained_is_not_perturbed():
    def loss(p):
        return jnp.sum(p["w"] ** 2) + jnp.sum(jax.lax.stop_gradient(p["table"]) ** 2)

    params = {"w": jnp.ones(3), "table": jnp.ones(2)}
    gradients(loss, params, trainable={"w": jnp.array([True, False, True]), "table": False})
    with pytest.raises(CheckError, match=r"params\['table'\] is cut"):
        gradients(loss, params, trainable={"w": True, "table": True})


def test_the_cost_is_announced_and_the_budget_kept():
    lines: list[str] = []
    params = {str(i): jnp.ones(()) for i in range(30)}

    def slow(p):
        return jnp.sum(jax.lax.fori_loop(0, 20_000, lambda i, x: jnp.sin(x), sum(p.values())))

    report = gradients(slow, {k: params[k] for k in params}, directions=1, budget_s=0.0, tell=lines.append)
    assert lines[0].startswith("gradients: 31 calls of ")
    assert "the budget allows 1 of them, drawn at random" in lines[0]
    assert report.facts["leaves"] == 1


def test_a_leaf_that_no_time_was_left_for_is_still_noticed_along_a_direction():
    ticking = jnp.ones(()), {f"{i:02}": jnp.ones(()) for i in range(40)}

    def loss(p):
        _, leaves = p
        return sum(leaf for name, leaf in leaves.items() if name != "23") + 5 * jax.lax.stop_gradient(
            leaves["23"]
        )

    with pytest.raises(CheckError, match=r"along a random direction the .* leads to 41 of 41 entries"):
        gradients(loss, ticking, budget_s=0.0)


def test_parameters_without_numbers_are_refused():
    with pytest.raises(
        CheckInputError, match="expected parameters with floating-point arrays in them, found none"
    ):
        gradients(lambda p: 0.0, {"a": jnp.ones(3, int)})


def test_a_loss_that_is_no_scalar_is_refused():
    with pytest.raises(
        CheckInputError, match=r"expected a loss that returns a scalar .* found shape \(3,\); take its"
    ):
        gradients(lambda w: w, jnp.ones(3))
