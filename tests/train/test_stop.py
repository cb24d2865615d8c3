from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.journal import Run
from lapwing.task import TaskError
from lapwing.train import ConfigError, FitConfig, Stop, fit
from lapwing.trees import StructureError

from .tasks import line, same_bits


def train(task=None, run=None, **options):
    config = FitConfig(
        **{"laps_every": 0, "learning_rate": 0.1, "log_every": 10, "smooth": 10, "steps": 2000, **options}
    )
    return fit(task or line(), config, run, quiet=True)


def test_stopping_when_the_loss_is_low_enough():
    result = train(stop=Stop(below=0.01))
    assert result.ended == "finished"
    assert result.outcome.startswith("loss is 0.00")
    assert 10 < int(result.state.step) < 300
    assert int(result.state.step) % 10 == 0


def test_stopping_by_an_evaluation():
    task = line(evaluate=lambda params, key: {"w": params["w"][0]})
    result = train(task, stop=Stop(metric="eval_w", above=0.5), evaluate_every=3)
    assert result.outcome.startswith("eval_w is 0.5")
    assert int(result.state.step) % 3 == 0
    assert result.evaluation["eval_w"] > 0.5


def test_stopping_when_nothing_gets_better():
    task = line(loss=lambda params, batch: (1.0 + 0.0 * params["b"], {}))
    result = train(task, stop=Stop(patience=50))
    assert result.outcome.startswith("no better loss for 50 steps; 60 steps in ")


def test_stopping_after_a_time_and_going_on(tmp_path: Path):
    with Run.create("line", runs_dir=tmp_path) as run:
        result = train(run=run, steps=10**8, stop=Stop(minutes=0.02))
    assert result.ended == "finished"
    assert result.outcome.startswith("its time of 0.02 minutes is over; ")
    assert 1.0 < result.seconds < 20


def test_a_metric_that_is_not_there_is_named():
    with pytest.raises(
        ConfigError, match=r"stop\.metric should be a metric, but is 'los'; did you mean loss\?"
    ):
        train(stop=Stop(metric="los", below=1.0))


def test_one_batch_again_and_again():
    seen = train(
        line(loss=lambda params, batch: (params["b"] ** 2, {"seen": batch[0, 0]})),
        steps=20,
        overfit_batch=True,
    ).metrics["seen"]
    assert len(set(seen.tolist())) == 1


def test_a_leaf_that_appears_in_the_optimizer_stops_the_run():
    def leaking(updates, state, params=None):
        return updates, {**state, "w2": state["w"]}

    optimizer = optax.GradientTransformation(lambda params: {"w": params["w"]}, leaking)
    with pytest.raises(StructureError, match=r"optimizer_state_after_the_update has \['w2'\]"):
        train(line(optimizer=lambda learning_rate: optimizer))


def test_an_update_that_lacks_a_leaf_is_named():
    optimizer = optax.GradientTransformation(
        lambda params: (), lambda updates, state, params=None: ({"w": updates["w"]}, state)
    )
    with pytest.raises(StructureError, match=r"their_update lacks \['b'\]"):
        train(line(optimizer=lambda learning_rate: optimizer))


def test_an_optimizer_that_changes_the_type_of_its_state_is_named():
    def drifting(updates, state, params=None):
        return updates, {"w": state["w"].astype(jnp.float16)}

    optimizer = optax.GradientTransformation(lambda params: {"w": params["w"]}, drifting)
    with pytest.raises(StructureError, match=r"\['w'\] is float16\[3\] in optimizer_state_after_the_update"):
        train(line(optimizer=lambda learning_rate: optimizer))


def test_weight_decay_takes_away_a_part_of_what_is_trained_and_nothing_else():
    task = line(
        loss=lambda params, batch: (0.0 * jnp.sum(params["w"]) + 0.0 * params["b"], {}),
        init=lambda key: {"w": jnp.full(3, 2.0), "b": jnp.float32(0.5)},
        trainable=lambda params: {"w": np.array([True, True, False]), "b": False},
        optimizer=optax.sgd,
    )
    result = train(task, steps=1, learning_rate=0.5, weight_decay=0.1)
    np.testing.assert_allclose(result.params["w"], [1.9, 1.9, 2.0], rtol=1e-6)
    assert same_bits(result.params["b"], jnp.float32(0.5))


def test_a_metric_with_a_name_that_is_taken_is_an_error():
    with pytest.raises(TaskError, match="the metric 'learning_rate' has a name that is taken; rename it"):
        train(line(loss=lambda params, batch: (params["b"], {"learning_rate": params["b"]})))


def test_event_files_beside_the_metrics(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    task = line(evaluate=lambda params, key: {"w": params["w"][0]})
    with Run.create("line", runs_dir=tmp_path) as run:
        result = train(task, run, steps=25, tensorboard=True)
    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    losses = events.Scalars("loss")
    assert [event.step for event in losses] == list(range(25))
    np.testing.assert_allclose([event.value for event in losses], result.metrics["loss"], rtol=1e-6)
    assert [event.step for event in events.Scalars("eval_w")] == [25]


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize("steps_per_call", [7, 30])
def test_a_loop_has_the_same_numbers_however_many_steps_a_call_makes(steps_per_call: int):
    """A real recurrent network, compiled as it is for a person."""
    from lapwing.experiments import adding

    def made(count: int):
        config = adding.Config(steps=30, steps_per_call=count, width=8, length=6, laps_every=0)
        return fit(adding.build(config), config, quiet=True)

    one, many = made(1), made(steps_per_call)
    assert same_bits(one.metrics, many.metrics)
    assert same_bits(one.params, many.params)
