"""A machine that rewires itself learns how, from its answers alone.

In every cycle of the wave one neuron is linked to the accumulator that holds the network matrix. It takes that link
away and gives it to others, so that one of them edits the matrix in the next cycle. What each gives to whom are 30
numbers, random at the start. The only thing to learn from is a pulse, once in five cycles.
"""

import jax
import jax.numpy as jnp
import optax

from lapwing import dmm

PERIOD, CYCLES, STEPS = 5, 20, 2000

student = dmm.learnable_wave(period=2, neurons=6)
program = dmm.compile(student, CYCLES)
pulses = jnp.zeros((CYCLES, 2)).at[::PERIOD, 0].set(1.0)  # the second answer is not used
params = program.random_params(jax.random.key(0), 0.3)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(0.03, STEPS)))


@jax.jit
def train(params, state):
    def step(carry, _):
        params, state = carry
        loss, gradient = jax.value_and_grad(program.loss)(params, pulses)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), loss

    return jax.lax.scan(step, (params, state), None, length=STEPS)


(params, _), losses = train(params, optimizer.init(params))
print(f"squared error: {losses[0]:.2f} before, {losses[-1]:.1g} after {STEPS} steps")

answers = dmm.interpret(program.with_params(params), 12 * PERIOD).answers["dict-1"]
pulses_at = [cycle for cycle, answer in enumerate(answers) if answer > 0.5]
print(f"in a run three times as long it answers with pulses in the cycles {pulses_at}")
assert pulses_at == list(range(0, 12 * PERIOD, PERIOD))
