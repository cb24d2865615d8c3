"""A machine that adds neurons and links to itself learns the template that it builds them from.

Every three cycles the machine adds a cell to a chain: a neuron that was not there before, with links to it and from it.
All cells are built from one template of seven soft numbers: five links, and the weights of two functions. They are
learned from the sum of the cells' values in a run with at most four cells. The test is a run with twelve.
"""

import jax
import jax.numpy as jnp
import optax

from lapwing import dmm

CYCLES, STEPS = 18, 2000

teacher = dmm.compile(dmm.growing_machine(capacity=4), CYCLES)
targets = jax.jit(teacher.answers)(teacher.start)
print(f"neurons that came to be, cycle by cycle: {jax.jit(teacher.born)(teacher.start).tolist()}")

program = teacher  # the same machine, with other numbers
params = jnp.where(program.soft, 0.5 + program.random_params(jax.random.key(0), 0.2), program.start)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(0.03, STEPS)))


@jax.jit
def train(params, state):
    def step(carry, _):
        params, state = carry
        loss, gradient = jax.value_and_grad(program.loss)(params, targets)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), loss

    return jax.lax.scan(step, (params, state), None, length=STEPS)


(params, _), losses = train(params, optimizer.init(params))
print(f"squared error: {losses[0]:.1f} before, {losses[-1]:.1g} after {STEPS} steps")

long_run = dmm.compile(dmm.growing_machine(capacity=12), 48)
expected = jax.jit(long_run.answers)(long_run.start)
errors = jnp.abs(jax.jit(long_run.answers)(params) - expected)
print(f"with twelve cells the largest error is {jnp.max(errors):.1g} of {jnp.max(expected):.1f}")
assert jnp.max(errors) < 0.1
