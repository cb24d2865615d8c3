"""Starts that stall: how they are found, and how they start again."""

import dataclasses

import jax
import numpy as np
import pytest

from lapwing.synthesis import SynthesisConfig, _synthesize
from lapwing.synthesis._phases import DONE, POLISH, PRUNE, TRAIN, first_rows
from lapwing.synthesis._restarts import (
    STALLED_AFTER,
    at_rest,
    drop_weak,
    has_stalled,
    random_leaves,
    restart,
)
from lapwing.synthesis._rounds import Pruning

from .test_synthesize import examples, student

CONFIG = SynthesisConfig(starts=3, bound=0.1, restarts=2, seed=5)


@pytest.fixture(scope="module")
def wirings():
    return _synthesize.wirings_of(examples(cycles=20), student(), CONFIG)


def rows_at_rest(wirings, errors):
    """Machines that are done, each with its first soft link alone."""
    rows = first_rows(len(errors), wirings.soft, 10)
    rows["leaves"] = np.tile(wirings.start, (len(errors), 1))
    rows["error"] = np.array(errors, np.float32)
    rows["phase"][:] = DONE
    rows["active"][:] = False
    rows["kept"] &= ~wirings.soft
    rows["kept"][:, np.flatnonzero(wirings.soft)[0]] = True
    rows["wiring"] = rows["kept"].copy()
    rows["failures"][:] = 3
    rows["round"] += 4
    return rows


def test_what_is_wrong_starts_again_and_what_is_right_rests(wirings):
    rows = rows_at_rest(wirings, [0.0, 0.5, np.nan])
    before = {name: array.copy() for name, array in rows.items()}
    assert restart(rows, wirings, CONFIG).tolist() == [False, True, True]
    for name in rows.keys() - {"round", "path", "active"}:
        np.testing.assert_array_equal(rows[name][0], before[name][0], err_msg=name)
    assert rows["active"].tolist() == [False, True, True]
    assert rows["phase"].tolist() == [DONE, TRAIN, TRAIN]
    assert rows["born"].tolist() == [0, 4, 4]
    assert rows["kept"][1].all()
    assert rows["wiring"][1].all()
    assert rows["failures"].tolist() == [3, 0, 0]
    assert np.all(rows["leaves"][1:][:, wirings.soft] != 0)
    np.testing.assert_array_equal(rows["leaves"][1][~wirings.soft], wirings.start[~wirings.soft])


def test_nothing_starts_again_before_all_are_at_rest_and_a_dropped_machine_is_at_rest(wirings):
    rows = rows_at_rest(wirings, [0.0, 0.5, 0.5])
    rows["phase"][2] = POLISH
    assert not at_rest(rows)
    assert not restart(rows, wirings, CONFIG).any()
    rows["alive"][2] = False
    assert at_rest(rows)
    assert restart(rows, wirings, CONFIG).tolist() == [False, True, True]
    assert rows["alive"].all()


def test_a_start_starts_again_only_as_often_as_it_may(wirings):
    rows = rows_at_rest(wirings, [0.5, 0.5, 0.0])
    rows["restarts"][:] = [1, 2, 0]
    assert restart(rows, wirings, CONFIG).tolist() == [True, False, False]
    assert rows["restarts"].tolist() == [2, 2, 0]
    rows["phase"][:] = DONE
    assert not restart(rows, wirings, CONFIG).any()


def test_each_restart_draws_its_own_weights_from_the_seed_alone(wirings):
    drawn = [random_leaves(wirings, CONFIG, k, number) for k in (0, 1) for number in (1, 2)]
    assert len({each.tobytes() for each in drawn}) == 4
    np.testing.assert_array_equal(random_leaves(wirings, CONFIG, 1, 2), drawn[3])
    other = random_leaves(wirings, dataclasses.replace(CONFIG, seed=6), 1, 2)
    assert not np.array_equal(other, drawn[3])
    assert 0.5 * CONFIG.spread < np.std(np.concatenate(drawn)) < 2 * CONFIG.spread


def test_a_small_wrong_machine_that_no_longer_learns_has_stalled(wirings):
    rows = first_rows(1, wirings.soft, 1)
    rows["phase"][0] = PRUNE

    def rounds_until_stalled(errors, count=10):
        rows["lowest"][0], rows["without_gain"][0] = np.inf, 0
        return next((i for i, error in enumerate(errors) if has_stalled(rows, 0, error, count, CONFIG)), None)

    assert rounds_until_stalled([1.0] * 20) == STALLED_AFTER
    assert rounds_until_stalled([1.0] * 5 + [0.8] * 20) == 5 + STALLED_AFTER
    assert rounds_until_stalled(1.0 * 0.89 ** np.arange(5)) is None
    assert rounds_until_stalled([0.5] * 20) is None, "it is nearly right"
    assert rounds_until_stalled([9.0] * 20, count=100) is None, "it is large"
    rows["phase"][0] = POLISH
    assert rounds_until_stalled([9.0] * 20) is None


def test_a_machine_far_behind_the_others_is_dropped(wirings):
    config = dataclasses.replace(CONFIG, starts=4)
    rows = first_rows(4, wirings.soft, 1)
    errors = np.array([0.3, 0.5, 2.5, 2.5], np.float32)
    rows["phase"][:] = [PRUNE, PRUNE, PRUNE, TRAIN]
    drop_weak(rows, errors, config)
    assert rows["alive"].tolist() == [True] * 4, "2.5 is not four times the median, 1.5"
    rows["phase"][:3] = PRUNE
    drop_weak(rows, errors * [1, 1, 3, 1], config)
    assert rows["alive"].tolist() == [True, True, False, True]
    rows["alive"][:] = True
    drop_weak(rows, errors * 0.1 * [1, 1, 3, 1], config)
    assert rows["alive"].all(), "an error of 0.75 is not hopeless"


def test_the_optimizer_and_the_training_of_a_restarted_machine_begin_anew(wirings):
    pruning = Pruning(wirings, CONFIG)
    task = _synthesize.task_of(wirings, CONFIG)
    rows = rows_at_rest(wirings, [0.0, 0.5, 0.0])
    optimizer = task.optimizer(0.1).init({"leaves": rows["leaves"]})
    moved = optimizer._replace(mean=np.ones_like(rows["leaves"]), count=np.full(3, 7.0, np.float32))
    turn = pruning.turn(rows, moved)
    assert turn.fields["restarted"] == [1]
    assert "start again: 1" in turn.message
    assert not turn.over
    assert not turn.optimizer.mean[1].any()
    assert turn.optimizer.count[1] == 0
    assert turn.optimizer.first.tolist() == [0.0, 1.0, 0.0]
    # Six rounds later it would have been pruned, had it not been born in round 5.
    assert pruning._age(turn.params, 1) == 0


def test_machines_at_rest_have_no_error_and_no_gradient_and_the_others_what_they_have_alone(wirings):
    leaves = 0.3 * np.asarray(jax.random.normal(jax.random.key(1), (3, len(wirings.soft))), np.float32)
    kept = np.ones_like(leaves)
    whole = np.ones(leaves.shape, bool)
    everyone, some = np.ones(3, bool), np.array([True, False, True])

    def run(active):
        loss = wirings.loss(whole, active)
        return jax.jit(jax.value_and_grad(lambda x: loss(x, kept), has_aux=True))(leaves)

    (_, all_errors), all_gradients = run(everyone)
    (total, errors), gradients = run(some)
    assert errors[1] == 0
    assert not np.asarray(gradients[1]).any()
    np.testing.assert_allclose(errors[some], all_errors[some], rtol=1e-6)
    np.testing.assert_allclose(gradients[some], all_gradients[some], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, errors.sum(), rtol=1e-6)
    mixed = whole.copy()
    mixed[1, :3] = False
    assert wirings.loss(mixed, some) is wirings.loss(whole, some), "the wiring of one at rest is not compiled"


RIGHT = {
    ("accum", "dict-2", "input", "char"),
    ("dot", "dict-1", "accum", "dict"),
    ("dot", "dict-2", "eos", "char"),
    ("output", "dict-1", "dot", "dot"),
}


def test_a_right_machine_whose_trial_failed_is_not_dropped(wirings):
    """Its error in the trial is many times that of the others, which have nothing to do with it."""
    rows = first_rows(3, wirings.soft, 10)
    right = np.array([path[1:] in RIGHT for path in wirings.paths])
    leaves = np.where(right, 1.0, wirings.start).astype(np.float32)
    rows["leaves"] = np.tile(leaves, (3, 1))
    rows["kept"] = np.tile(right | ~wirings.soft, (3, 1))
    rows["phase"][:], rows["bound"][:], rows["round"][()] = PRUNE, CONFIG.bound, 8
    cut = int(np.flatnonzero(right)[0])
    rows["before"][0], rows["cut"][0, cut] = leaves, True
    rows["kept"][0, cut], rows["leaves"][0, cut] = False, 0.0
    trial = wirings.errors(rows["wiring"][0], rows["leaves"][0], rows["kept"][0][None])[0]
    assert trial > 16 * CONFIG.bound
    optimizer = _synthesize.task_of(wirings, CONFIG).optimizer(0.1).init({"leaves": rows["leaves"]})
    turn = Pruning(wirings, CONFIG).turn(rows, optimizer)
    assert turn.params["alive"].all()
    assert turn.params["error"][0] < 1e-6


def test_an_error_too_large_for_a_number_is_infinite(wirings):
    right = np.array([path[1:] in RIGHT for path in wirings.paths])
    leaves = np.where(right, 1.0, wirings.start).astype(np.float32)
    leaves[[path[1:3] == ("output", "dict-1") for path in wirings.paths] & right] = 1e25
    assert wirings.errors(np.ones_like(right), leaves, (right | ~wirings.soft)[None])[0] == np.inf
