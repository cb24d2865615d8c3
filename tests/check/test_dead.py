"""A number of latents that "didn't affect performance" (docs/story.md): did they have an effect at all?"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.check import CheckError, CheckInputError, dead_parameters, dead_settings, gradients, run_all
from lapwing.task import Task

RANDOM = np.random.default_rng(0)
BATCHES = [{"x": RANDOM.normal(size=(6, 3)).astype(np.float32), "y": RANDOM.normal(size=6)} for _ in range(3)]


def thinker_params(latents: int = 4) -> dict:
    shapes = {"in": (3, 5), "out": (5,), "latents": (latents, 5)}
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def thinker(params: dict, x: jax.Array, steps: int = 1, *, bug: bool = False) -> jax.Array:
    """Thinks for some steps over its input and its latents; with the bug, the latents are written and never read."""
    hidden = jnp.tanh(x @ params["in"])
    latents = params["latents"]
    for _ in range(steps):
        weights = jax.nn.softmax(hidden @ latents.T)
        read = jnp.zeros_like(hidden) if bug else weights @ latents
        latents = latents + jnp.tanh(weights.T @ hidden)
        hidden = jnp.tanh(hidden + read)
    return hidden @ params["out"]


def loss(params: dict, batch: dict, **options) -> jax.Array:
    return jnp.mean((thinker(params, batch["x"], **options) - batch["y"]) ** 2)


def test_latents_that_do_nothing_are_found():
    report = dead_parameters(loss, thinker_params(), BATCHES)
    assert report.facts == {"leaves": 3, "entries": 40, "idle_entries": 0, "batches": 3}
    with pytest.raises(
        CheckError, match=r"params\['latents'\] \(20 entries\) has no effect on the loss\. Look"
    ) as caught:
        dead_parameters(lambda p, b: loss(p, b, bug=True), thinker_params(), BATCHES)
    assert caught.value.where == ("params['latents']",)


def test_a_number_of_latents_or_steps_that_makes_no_difference_is_found():
    @functools.partial(jax.jit, static_argnames=("steps", "bug"))
    def compiled(params, steps, bug):
        return loss(params, BATCHES[0], steps=steps, bug=bug)

    def result(latents=4, steps=1, bug=False):
        return compiled(thinker_params(latents), steps, bug)

    assert dead_settings(result, latents=(4, 8), steps=(1, 2)).facts == {"settings": ["latents", "steps"]}
    with pytest.raises(CheckError, match="latents makes no difference: 4, 8 give the same result"):
        dead_settings(lambda **given: result(bug=True, **given), latents=(4, 8))


def test_a_last_layer_that_begins_at_zero_is_no_fault():
    params = {"hidden": jnp.ones((3, 4)), "out": jnp.zeros(4)}
    dead_parameters(
        lambda p, b: jnp.mean((jnp.tanh(b["x"] @ p["hidden"]) @ p["out"] - b["y"]) ** 2), params, BATCHES
    )


def test_a_gradient_that_is_cut_is_not_a_parameter_without_effect():
    params = {"w": jnp.ones(3), "gate": jnp.ones(3)}

    def cut(p, b):
        return jnp.mean((b["x"] @ (p["w"] * jax.lax.stop_gradient(p["gate"])) - b["y"]) ** 2)

    with pytest.raises(
        CheckError, match=r"params\['gate'\] .* changes the loss, but its gradient is exactly zero: it is cut"
    ):
        dead_parameters(cut, params, BATCHES)


def test_what_is_not_trained_need_not_be_finite():
    """The synthesis of machines keeps the best errors among its parameters, and at first there are none."""
    params = {"w": jnp.ones(3), "best": jnp.full(2, jnp.inf)}
    trainable = {"w": jnp.ones(3, bool), "best": jnp.zeros(2, bool)}

    def loss(params: dict) -> jax.Array:
        return jnp.sum(params["w"] ** 2) + jnp.where(params["best"] > 0, 0.0, 1.0).sum()

    assert dead_parameters(loss, params, [], trainable=trainable)
    assert gradients(loss, params, trainable=trainable)


def test_what_is_not_trained_may_have_no_gradient():
    params = {"w": jnp.ones(3), "table": jnp.ones(2)}
    fixed = {"w": True, "table": False}
    dead_parameters(lambda p, b: jnp.mean((b["x"] @ p["w"] - b["y"]) ** 2), params, BATCHES, trainable=fixed)


def test_an_input_without_effect_is_found_and_can_be_ignored():
    def without_x(p, b):
        return jnp.mean((p["bias"] - b["y"]) ** 2)

    params = {"bias": jnp.ones(())}
    with pytest.raises(CheckError, match=r"^batch\['x'\] has no effect on the loss"):
        dead_parameters(without_x, params, BATCHES)
    dead_parameters(without_x, params, BATCHES, ignore=["batch['x']"])


@pytest.mark.slow
def test_labels_that_prepare_has_made_soft_targets_of_need_no_effect():
    def task(uses_labels: bool) -> Task:
        def prepare(params, batch, key):
            goal = jax.nn.one_hot(batch["label"], 3) if uses_labels else jnp.ones((6, 3)) / 3
            return batch | {"goal": goal + 0.01 * jax.random.uniform(key, (6, 3))}

        def data(key, step):
            return {"x": jax.random.normal(key, (6, 3)), "label": jax.random.randint(key, (6,), 0, 3)}

        def loss(params, batch):
            return -jnp.mean(jax.nn.log_softmax(batch["x"] @ params) * batch["goal"]), {}

        return Task(init=lambda key: jnp.ones((3, 3)), data=data, prepare=prepare, loss=loss)

    found = {uses: run_all(task(uses), only=["dead_parameters"])[0] for uses in (True, False)}
    assert (found[True].result, found[False].result) == ("passed", "failed")
    assert found[False].detail.startswith("batch['label'] has no effect on the loss")


def test_rows_of_a_table_that_no_batch_used_are_counted_and_no_error():
    table = {"table": RANDOM.normal(size=(10, 2)).astype(np.float32)}
    batches = [np.array([1, 2]), np.array([2, 3])]
    assert (
        dead_parameters(lambda p, b: jnp.sum(p["table"][b] ** 2), table, batches).facts["idle_entries"] == 14
    )


def experts(params: dict, batch: dict) -> jax.Array:
    """A mixture of two experts, of which each example chooses one."""
    odds = jax.nn.softmax(batch["x"] @ params["router"])
    outputs = jnp.stack([batch["x"] @ params["first"], batch["x"] @ params["second"]], axis=1)
    chosen = jax.nn.one_hot(jnp.argmax(odds, axis=1), 2) * odds
    return jnp.mean((jnp.sum(chosen * outputs, axis=1) - batch["y"]) ** 2)


def test_an_expert_that_no_example_chose_is_idle_and_no_alarm():
    params = {
        "router": jnp.array([[9.0, -9.0], [0.0, 0.0], [0.0, 0.0]]),
        "first": jnp.ones(3),
        "second": jnp.ones(3),
    }
    batches = [batch | {"x": np.abs(batch["x"])} for batch in BATCHES]
    report = dead_parameters(experts, params, batches)
    assert report.facts["idle_leaves"] == ["params['second']"]
    assert "no effect in these batches, but in others: params['second']" in report.message

    def unread(params, batch):
        return experts(params | {"second": jnp.zeros(3) * params["second"]}, batch)

    with pytest.raises(CheckError, match=r"^params\['second'\] \(3 entries\) has no effect on the loss"):
        dead_parameters(unread, params, batches)


def test_the_head_of_a_task_that_these_batches_do_not_have_is_idle():
    params = {"heads": [jnp.ones(3), jnp.ones(3)]}
    batches = [batch | {"task": np.zeros(6, int)} for batch in BATCHES]

    def loss(params, batch):
        outputs = jnp.stack([batch["x"] @ head for head in params["heads"]])
        picked = jnp.take_along_axis(outputs, batch["task"][None], 0, mode="clip")[0]
        return jnp.mean((picked - batch["y"]) ** 2)

    assert dead_parameters(loss, params, batches).facts["idle_leaves"] == ["params['heads'][1]"]


def test_a_layer_that_is_off_whatever_its_input_is_dead():
    params = {"w": 0.1 * jnp.ones((3, 4)), "b": jnp.full(4, -50.0), "out": jnp.ones(4), "c": jnp.zeros(())}

    def loss(p, b):
        return jnp.mean((jax.nn.relu(b["x"] @ p["w"] + p["b"]) @ p["out"] + p["c"] - b["y"]) ** 2)

    with pytest.raises(CheckError, match=r"params\['b'\] .* has no effect on the loss"):
        dead_parameters(loss, params, BATCHES)


def test_a_setting_needs_two_values():
    with pytest.raises(CheckInputError, match="expected two values or more for each setting"):
        dead_settings(lambda latents: 1.0, latents=(4,))


def test_marks_that_a_loop_does_not_read_may_be_where_a_memory_is_reset():
    def loss(reads: bool, w: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
        def step(h: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, first = given
            h = jnp.tanh(w * jnp.where(first & reads, 0, h) + x)
            return h, h

        return jnp.sum(jax.lax.scan(step, jnp.zeros(3), (batch["x"].T, batch["first"].T))[1] ** 2)

    keys = jax.random.split(jax.random.key(0), 3)
    batches = [
        {"x": jax.random.normal(key, (3, 6)), "first": jax.random.bernoulli(key, 0.4, (3, 6))} for key in keys
    ]
    with pytest.raises(
        CheckError, match=r"batch\['first'\] has no effect on the loss. Look at whether the memory of a"
    ):
        dead_parameters(lambda w, batch: loss(False, w, batch), jnp.ones(()), batches)
    dead_parameters(lambda w, batch: loss(True, w, batch), jnp.ones(()), batches)
