import jax.numpy as jnp
import pytest

from lapwing.task import Task, TaskError

REQUIRED = {
    "init": lambda key: jnp.zeros(3),
    "data": lambda key, step: jnp.ones(3),
    "loss": lambda params, batch: (jnp.sum(params * batch), {}),
}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"memory": lambda key: jnp.zeros(3)}, "a task with memory needs remember too"),
        ({"remember": lambda memory, batch, metrics: memory}, "a task with remember needs memory too"),
    ],
)
def test_half_a_memory_is_refused(given, message):
    with pytest.raises(TaskError, match=message):
        Task(**REQUIRED, **given)


def test_by_default_a_task_has_adam_as_a_function_of_the_learning_rate_and_its_batch_axis_first():
    task = Task(**REQUIRED)
    adam = task.optimizer(0.5)
    updates, _ = adam.update(jnp.full(3, 7.0), adam.init(jnp.zeros(3)))
    assert updates.tolist() == pytest.approx([-0.5] * 3, rel=1e-3)
    assert (task.batch_axis, task.schedule, dict(task.penalties)) == (0, None, {})
