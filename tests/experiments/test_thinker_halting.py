"""A thinker that learns when to stop: what it learns, what each rule costs, and what a person sees."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lapwing.cli import main
from lapwing.experiments._thinker_answer import film_of
from lapwing.experiments._thinker_halting import Trace, halting_loss, halting_rules, trace_of
from lapwing.experiments.thinker import Config, build
from lapwing.models import Halting, LoopedSize
from lapwing.train import ConfigError, fit

SMALL = Config(
    base=2, size=3, far=6, model=LoopedSize(width=16, halting=True), before=4, gradient_steps=4, batch_size=32,
    evaluated=32, steps=150, learning_rate=1e-2, log_every=50, laps_every=0, ema=0.9,
)  # fmt: skip
PLAIN = dataclasses.replace(SMALL, model=dataclasses.replace(SMALL.model, halting=False))


@pytest.fixture(scope="module")
def model():
    return jax.jit(build(SMALL).init)(jax.random.key(0))


@pytest.mark.slow
def test_a_head_learns_when_the_answer_is_right():
    """Of states in which one position moves, or none does: then the answer is right."""
    of_start, of_moves, of_where = jax.random.split(jax.random.key(0), 3)
    start = jax.random.normal(of_start, (64, 6, 8))
    moving = jax.random.bernoulli(of_moves, shape=(4, 64))
    moves = 0.1 * jax.nn.one_hot(jax.random.randint(of_where, (4, 64), 0, 6), 6)[..., None]
    states = start + jnp.cumsum(jnp.where(moving[..., None, None], moves, 1e-4), axis=0)
    asked = jnp.arange(64) < 60
    optimizer = optax.adam(0.03)
    head = Halting(8, jax.random.key(1))

    def update(carry, _):
        head, state = carry
        value, gradient = jax.value_and_grad(halting_loss)(head, states, ~moving, asked)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(head, updates), state), value

    (head, _), losses = jax.lax.scan(update, (head, optimizer.init(head)), None, length=150)
    assert losses[0] > 0.4
    assert losses[-1] < 0.05
    # A longer line, most of which the head has not seen move.
    still = jnp.tile(start, (1, 10, 1))
    assert jax.nn.sigmoid(head(still + 1e-4, still)).min() > 0.5
    assert jax.nn.sigmoid(head(still.at[:, 40].add(0.1), still)).max() < 0.5


@pytest.mark.slow
def test_what_is_reported():
    learned = fit(build(SMALL), SMALL, quiet=True)
    for far in ("", "far_"):
        assert 1 <= learned.evaluation[f"eval_{far}steps_halted"] <= 2 * SMALL.thinking(SMALL.far)
        assert 0 <= learned.evaluation[f"eval_{far}exact_halted"] <= 1
    total = learned.metrics["answer_loss"] + learned.metrics["halting_loss"]
    np.testing.assert_allclose(learned.metrics["loss"], total, rtol=1e-5)
    assert learned.metrics["halting_loss"].min() > 0


@pytest.mark.slow
def test_the_network_learns_the_same_with_it_and_without():
    """No gradient of the head reaches the network."""
    found = []
    for config in (SMALL, PLAIN):
        task = build(config)
        batch = jax.jit(task.data)(jax.random.key(1), 0)
        gradient = jax.jit(jax.grad(lambda params, batch, loss=task.loss: loss(params, batch)[0]))
        found.append(gradient(task.init(jax.random.key(0)), batch))
    ours, plain = found
    assert any(np.any(leaf) for leaf in jax.tree.leaves(ours.halting))
    for one, other in zip(
        jax.tree.leaves((ours.block, ours.head)), jax.tree.leaves((plain.block, plain.head)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-8)


@pytest.mark.slow
def test_the_rules_are_those_of_the_network(model):
    problem, most = SMALL.kind, 30
    instances = problem.draw(jax.random.key(3), 16, 6, "test")
    trace = trace_of(problem, model, instances, most)
    least = float(np.median(trace.sure.max(axis=0)))
    rules = halting_rules(trace, 20, least, patience=3)
    sure = model.until_sure(instances.inputs, most, least)
    settled = model.until_settled(instances.inputs, most, 3)
    fixed = model(instances.inputs, 20).argmax(axis=-1)
    for rule, answers in (("sure", sure.answers), ("settled", settled.answers), ("fixed", fixed)):
        assert rules[rule]["solved"] == pytest.approx(float(problem.right(instances, answers).mean()))
    assert rules["sure"]["steps"] == pytest.approx(float(sure.steps.mean()))
    assert rules["settled"]["most"] == min(int(settled.steps.max()) + 3, most)


def test_what_never_ends_takes_all_steps():
    never = Trace(np.ones((5, 2), bool), np.zeros((5, 2), bool), np.zeros((5, 2)))
    for rule in ("settled", "sure"):
        assert halting_rules(never, 3)[rule]["steps"] == 5
    assert halting_rules(never, 3)["fixed"]["steps"] == 3


@pytest.mark.slow
def test_a_film_ends_when_it_is_sure(model):
    inputs = SMALL.kind.parse("111+1")
    every = film_of(SMALL.kind, model, inputs, 40, 1 - 1e-9)
    assert every.halted is None
    assert every.sure
    assert every.steps == max(every.sure) == max(every.answers) == 40
    least = sorted(every.sure.values())[-2] - 1e-4
    film = film_of(SMALL.kind, model, inputs, 40, least)
    assert film.halted
    assert film.sure
    assert film.halted == film.steps == max(film.answers)
    assert film.sure[film.halted] >= least
    assert all(share <= least + 1e-4 for at, share in film.sure.items() if at < film.halted)
    halted = model.until_sure(inputs[None], 40, least)
    assert film.halted == int(halted.steps[0])


def test_a_thinker_that_cannot_learn_it():
    with pytest.raises(
        ConfigError, match="gradient_steps should be at least 2, to learn when to halt, but is 1"
    ):
        dataclasses.replace(SMALL, gradient_steps=1)


WORDS = (
    "--base 2 --size 3 --far 0 --model.width 16 --before 4 --gradient-steps 4 --batch-size 32 --evaluated 32 "
    "--steps 20 --lr 1e-2 --laps-every 0 --ema 0.9 --no-check"
)


@pytest.mark.slow
def test_from_the_command_line(tmp_path, capsys):
    runs = ["--runs", str(tmp_path)]
    assert main(["train", "thinker", *WORDS.split(), "--model.halting", *runs]) == 0
    assert main(["evaluate", "latest", "--sizes", "3", "--count", "16", "--sure", "0.6", *runs]) == 0
    (folder,) = tmp_path.glob("*-thinker-*")
    found = json.loads((folder / "evaluation.json").read_text())
    assert list(found["halting"]) == ["3", "3 hard"]
    assert list(found["halting"]["3"]) == ["fixed", "settled", "sure"]
    assert "when to stop" in capsys.readouterr().out
    assert main(["think", "latest", "101+11", "--sure", "0.999999", "--most", "9", *runs]) == 0
    assert "not sure after 9 steps" in capsys.readouterr().out
    assert main(["think", "latest", "101+11", "--sure", "0.001", *runs]) == 0
    printed = capsys.readouterr().out
    assert "% 101+11=" in printed.replace("%  ", "% ")
    assert "sure after 1 steps" in printed
    assert main(["think", "latest", "101+11", "--until", "settled", "--json", *runs]) == 0
    film = json.loads(capsys.readouterr().out)
    assert film["halted"] is None
    assert film["sure"].keys() == film["answers"].keys()
    assert main(["think", "latest", "101+11", "--until", "settled", "--sure", "0.5", *runs]) == 2
    assert "--sure is for --until sure" in capsys.readouterr().err
    assert main(["think", "latest", "101+11", "--sure", "1.5", *runs]) == 2
    assert "--sure should be a probability between 0 and 1, but is 1.5" in capsys.readouterr().err


@pytest.mark.slow
def test_only_who_learned_it_is_sure(tmp_path, capsys):
    runs = ["--runs", str(tmp_path)]
    assert main(["train", "thinker", *WORDS.split(), *runs]) == 0
    capsys.readouterr()
    assert main(["think", "latest", "101+11", "--until", "sure", *runs]) == 2
    assert "did not learn when to stop; train with --model.halting" in capsys.readouterr().err
    assert main(["think", "latest", "101+11", *runs]) == 0
    assert "%" not in capsys.readouterr().out
