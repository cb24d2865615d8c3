"""`lapwing bench loops`: the table of bodies, and the instrument that compares two programs."""

import functools
import json
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.bench import _compare, _tracing, loops
from lapwing.bench._compare import compare, compiled, difference, paired, pinned
from lapwing.bench.loop_bodies import FAMILIES, HELD_OUT, TABLE
from lapwing.bench.measure import BenchError
from tests.slow import some

OF_THE_ISSUE = (
    "mamba", "mlstm", "neural_ode", "kv_cache_decoder", "rl_rollout", "cond_on_x", "custom_vjp_products",
    "chunked_cross_entropy", "flash_attention", "fast_weights", "embedding_gru", "min_gru", "hodgkin_huxley", "gru",
)  # fmt: skip


def test_a_third_of_the_table_is_held_out_in_every_family():
    assert len(TABLE) >= 66
    assert set(TABLE) > HELD_OUT
    assert 0.3 < len(HELD_OUT) / len(TABLE) < 0.37
    assert {TABLE[name].family for name in HELD_OUT} == set(FAMILIES)
    assert set(OF_THE_ISSUE) < set(TABLE)


@pytest.mark.parametrize("family", some(FAMILIES, 2))
def test_every_body_has_a_loop_and_a_scalar_loss(family):
    for body in (body for body in TABLE.values() if body.family == family):
        loops_run = []

        def counting(*args, loops_run=loops_run, **kwargs):
            loops_run.append(1)
            return jax.lax.scan(*args, **kwargs)

        with jax.enable_x64(body.x64):
            loss = jax.eval_shape(functools.partial(body.loss, counting), *body.arguments(1))
        assert (loss.shape, loss.dtype) == ((), jnp.float64 if body.x64 else jnp.float32), body.name
        assert loops_run, body.name


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_gradients_are_finite_and_agree(name):
    row = loops.measure(TABLE[name], loops.Config(seconds=0))
    assert "failed" not in row
    for part in loops.PARTS:
        assert row[part]["agrees"], (part, row[part]["error"])


def quadratic(scan, w, xs):
    return jnp.sum(scan(lambda h, x: (jnp.tanh(h @ w + x), None), xs[0], xs)[0])


def test_the_same_program_is_recognised_whoever_calls_it():
    w, xs = np.eye(3, dtype=np.float32), np.ones((4, 2, 3), np.float32)
    plain = compiled(functools.partial(quadratic, jax.lax.scan), (w, xs))
    renamed = compiled(lambda a, b: quadratic(jax.lax.scan, a, b), (w, xs))
    other = compiled(lambda a, b: 2 * quadratic(jax.lax.scan, a, b), (w, xs))
    row = compare(plain, renamed, (w, xs), 0.01, 0.5)
    assert (row["same_program"], row["ratio"], row["uncertainty"], row["agrees"]) == (True, 1, 0, True)
    row = compare(plain, other, (w, xs), 0.01, 0.5)
    assert (row["same_program"], row["agrees"], row["error"]) == (False, False, pytest.approx(1))


def test_what_slows_both_does_not_change_the_ratio(monkeypatch):
    """A machine that gets slower and slower, and a clock that only the programs move."""
    now, speed = [0.0], [1.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def program(seconds):
        def call():
            now[0] += seconds * speed[0]
            speed[0] *= 1.01

        return call

    found = paired(program(0.006), program(0.002), (), 1.0, 0.002)
    assert found["ratio"] == pytest.approx(3, rel=0.01)
    assert found["ms"][0] > 6.5
    assert found["rounds"] >= _compare.FEWEST_ROUNDS
    assert found["rounds"] % 2 == 0


@pytest.mark.parametrize(("other", "agrees"), [(1 + 1e-6, True), (1 + 1e-4, False), (np.nan, False)])
def test_a_difference_is_relative_to_the_largest_value_of_its_leaf(other, agrees):
    expected = {"w": jnp.array([100.0, 1e-6]), "n": jnp.array(3)}
    found = {"w": jnp.array([100.0 * other, 0.0]), "n": jnp.array(3)}
    assert difference(expected, found)["agrees"] is agrees


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are chosen on Linux only")
def test_one_core_and_all_of_them_again():
    before = os.sched_getaffinity(0)
    with pinned(-1) as core:
        assert os.sched_getaffinity(0) == {core} == {max(before)}
    assert os.sched_getaffinity(0) == before


def test_a_run_of_one_body_prints_and_saves_it(tmp_path, capsys):
    config = loops.Config(names=("moving_average",), seconds=0.01, out=str(tmp_path))
    results = loops.run(config)
    loops.show(results)
    said = capsys.readouterr()
    assert "moving_average" in said.err
    assert "geometric mean" in said.out
    saved = json.loads((tmp_path / f"loops-some-{jax.default_backend()}.json").read_text())
    (row,) = saved["table"]
    assert (row["name"], row["held_out"], row["gradient"]["agrees"]) == ("moving_average", False, True)
    assert "lapwing" in saved["environment"]["versions"]


def test_ctrl_c_keeps_what_was_measured(tmp_path, monkeypatch, capsys):
    def measure(body, config):
        if body.name == "lorenz":
            raise KeyboardInterrupt
        return {"name": body.name, "family": body.family, "held_out": False, "failed": "ValueError: planted"}

    monkeypatch.setattr(loops, "measure", measure)
    results = loops.run(loops.Config(names=("pendulum", "lorenz"), out=str(tmp_path)))
    loops.show(results)
    assert [row["name"] for row in results["table"]] == ["pendulum"]
    assert "interrupted after 1 of 2 bodies" in capsys.readouterr().out
    assert json.loads(next(tmp_path.iterdir()).read_text())["summary"]["failed"] == ["pendulum"]


def test_a_body_that_fails_has_the_reason_in_its_row(monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError("planted\nand more")

    monkeypatch.setattr(loops.lw, "scan", broken)
    row = loops.measure(TABLE["lorenz"], loops.Config(seconds=0))
    assert row["failed"] == "ValueError: planted"
    assert loops.line(row).endswith("ValueError: planted")


@pytest.mark.parametrize(
    ("names", "families", "message"),
    [
        (["gruu"], [], "there is no loop body 'gruu'; did you mean gru?"),
        ([], ["physic"], "there is no family 'physic'; did you mean physics?"),
    ],
)
def test_unknown_names_are_refused(names, families, message):
    with pytest.raises(BenchError) as found:
        loops.choose(names, families)
    assert str(found.value) == message


def test_the_number_of_equations_is_as_asked(monkeypatch):
    w, xs = jnp.ones(2), jnp.ones((3, 2))
    (scan,) = [
        eqn
        for eqn in jax.make_jaxpr(_tracing.elementwise(jax.lax.scan, 40))(w, xs).eqns
        if eqn.primitive.name == "scan"
    ]
    assert len(scan.params["jaxpr"].eqns) == 40
    monkeypatch.setattr(_tracing, "SIZES", (4, 8))
    assert [row["equations"] for row in _tracing.tracing_rows(rounds=1)] == [4, 8]
