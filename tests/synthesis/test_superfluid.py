"""Superfluid synthesis: penalties of mixes, the choice of functions, the change to plain neurons, and a short run."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.cli import main
from lapwing.experiments.superfluid_synthesis import unseen_texts
from lapwing.journal import Run, find_run
from lapwing.synthesis import Examples, Superfluid, SuperfluidConfig
from lapwing.synthesis._corners import CORNERS
from lapwing.synthesis._fluid import Fluid
from lapwing.synthesis._phases import DONE, TRAIN
from lapwing.synthesis._restarts import restart_key
from lapwing.synthesis._superfluid import FLUID, PLAIN
from lapwing.synthesis._superfluid_results import WriteSuperfluid
from lapwing.synthesis._tidy import tidied
from lapwing.synthesis._wiring import Wirings
from lapwing.train import ConfigError, FitResult
from lapwing.train._state import State

TEXTS = ["ab.a.b", ".bbab."]
LINKS = {
    ("fluid-1-1", "accum", "fluid-1-1", "result"): 2.0,
    ("fluid-1-1", "delta", "input", "char"): 1.0,
    ("fluid-2-1", "dict", "fluid-1-1", "result"): 2.0,
    ("fluid-2-2", "x", "fluid-1-1", "result"): 2.0,
    ("fluid-2-2", "y", "eos", "char"): 1.0,
    ("fluid-3-1", "x", "fluid-2-1", "norm"): 1.0,
    ("fluid-3-1", "y", "const_1", "const_1"): 1.0,
    ("output", "dict-1", "fluid-3-1", "true"): 1.0,
    ("output", "dict-2", "fluid-2-2", "dot"): 1.0,
}
RIGHT = {
    "fluid-1-1": "accum_add_args",
    "fluid-2-1": "max_norm_dict",
    "fluid-2-2": "dot_product",
    "fluid-3-1": "compare_scalars",
}


def detector() -> tuple[Fluid, np.ndarray]:
    """The duplicate detector as a fluid machine: the right functions at 0.5 or 1, and others mixed in."""
    examples = Examples.from_teacher(dmm.duplicate_detector(), TEXTS, 26, period=4)
    fluid = Fluid(dmm.fluid_student(3, 2), examples, period=4)
    leaves = np.array(fluid.wirings.start)
    for i, path in enumerate(fluid.paths):
        if path[1:] in LINKS:
            leaves[i] = LINKS[path[1:]]
        elif path[0] == "outputs" and len(path) == 4:
            right = RIGHT.get(path[1]) == path[3]
            leaves[i] = (0.5 if path[3] == "accum_add_args" else 1.0) if right else 0.7
    return fluid, leaves


@pytest.mark.slow
def test_penalties_are_smallest_where_a_neuron_has_one_function():
    corner, mixed, loops = jnp.eye(4)[None], jnp.full((1, 4, 4), 0.25), jnp.array([[1.0, 0, 0, 0]])
    for name in ("entropy", "pairs"):
        assert float(CORNERS[name](corner, loops)) == pytest.approx(0, abs=1e-4)
    assert float(CORNERS["entropy"](mixed, loops)) == pytest.approx(4 * np.log(4), rel=1e-3)
    assert float(CORNERS["pairs"](mixed, loops)) == pytest.approx(4 * 6 / 16)
    assert float(CORNERS["lasso"](-mixed, loops)) == 4
    assert float(CORNERS["loop"](corner, loops)) == 0
    assert float(CORNERS["loop"](mixed, loops)) == 1.5
    assert float(CORNERS["none"](mixed, loops)) == 0


@pytest.mark.slow
def test_a_gradient_step_on_a_penalty_moves_a_mix_towards_its_largest_function():
    mixes = jnp.array([[[0.5, -0.3, 0.2, 0.4]]])
    for name in ("entropy", "pairs"):
        moved = mixes - 0.05 * jax.grad(CORNERS[name])(mixes, jnp.zeros((1, 1)))
        before, after = (np.abs(x[0, 0]) / np.abs(x[0, 0]).sum() for x in (mixes, moved))
        assert after[0] > before[0]


def test_trials_find_the_functions_that_the_answers_need():
    fluid, leaves = detector()
    kept = np.ones_like(fluid.soft)
    assert len(fluid.undecided(kept)) == 6
    some = fluid.decide("trial", leaves, kept, 4)
    assert len(fluid.undecided(some)) == 2
    kept = fluid.decide("trial", leaves, some, 2)
    assert {name: fluid.chosen(kept)[name] for name in RIGHT} == RIGHT
    assert fluid.errors(leaves, kept[None])[0] < 1e-6
    largest = fluid.chosen(fluid.decide("largest", leaves, np.ones_like(kept), 6))
    assert largest["fluid-2-1"] == "max_norm_dict"
    assert largest["fluid-1-1"] != "accum_add_args"  # at 0.5, while the others have 0.7


@pytest.mark.slow
def test_the_plain_machine_has_the_error_of_the_fluid_one_and_is_tidied_to_the_handcrafted_one():
    fluid, leaves = detector()
    kept = np.ones_like(fluid.soft)
    kept = fluid.decide("trial", leaves, kept, 6)
    kept &= (leaves != 0) | ~fluid.links
    student = dmm.plain_student(3, 2)
    wirings = Wirings(student, fluid.wirings.examples, period=4)
    weights, has = fluid.plain(leaves, kept, wirings.paths, wirings.start)
    assert wirings.errors(has, weights, has[None])[0] < 1e-6
    machine, error, _ = tidied(wirings, wirings.machine(weights, has & (weights != 0)), 0.0, allowed=0.01)
    assert error < 1e-6
    soft = {path: leaf for path, leaf in trees.paths(machine.values).items() if path not in machine.hard}
    assert len(soft) == 9
    assert list(soft.values()) == pytest.approx([1.0] * 9)


def test_an_accumulator_with_a_trained_loop_is_scaled():
    links = {
        ("accum-1-1", "dict-1", "accum-1-1", "dict"): 1.0,
        ("accum-1-1", "dict-2", "input", "char"): 0.4,
        ("dot-2-1", "dict-1", "accum-1-1", "dict"): 2.5,
        ("dot-2-1", "dict-2", "eos", "char"): 1.0,
        ("output", "dict-2", "dot-2-1", "dot"): 1.0,
    }
    student = dmm.plain_student(2, 1)
    values = {path: links.get(path[1:], 1.0) for path in trees.paths(student.values)}
    hard_or_linked = {p: x for p, x in values.items() if p in student.hard or p[1:] in links}
    machine = student.with_values(trees.from_paths(hard_or_linked))
    examples = Examples.from_teacher(machine, TEXTS, 26, period=4)
    tidy, error, moves = tidied(Wirings(student, [examples], period=4), machine, 0.0, allowed=0.01)
    assert error < 1e-6
    assert "accum-1-1 scaled" in moves
    assert [link.weight for link in tidy.links()] == pytest.approx([1.0] * len(tidy.links()))


@pytest.fixture(scope="module")
def small():
    """A superfluid synthesis of two small starts, its parameters and its optimizer."""
    config = SuperfluidConfig(
        starts=2,
        steps=200,
        train_steps=10,
        round_steps=10,
        steps_per_call=10,
        choice_rounds=1,
        restarts=1,
        seed=3,
    )
    examples = [Examples.from_teacher(dmm.duplicate_detector(), ["a.a"], 12, period=4)]
    superfluid = Superfluid(examples, (dmm.fluid_student(2, 1), dmm.plain_student(2, 1)), config, period=4)
    task = superfluid.task()
    params = task.init(jax.random.key(0))
    return (
        superfluid,
        {name: np.array(each) for name, each in params.items()},
        task.optimizer(0.1).init(params),
    )


def at_rest(superfluid, params, errors, links):
    """Plain machines at the end of their pruning, with these errors and numbers of links."""
    soft, rows = superfluid.wirings.soft, {name: each.copy() for name, each in params.items()}
    rows["fluid_kept"] = np.stack(
        [
            superfluid.fluid.decide("largest", *each, count=2)
            for each in zip(rows["fluid"], rows["fluid_kept"], strict=True)
        ]
    )
    rows["stage"], rows["round"] = np.array(PLAIN, np.int32), np.array(7, np.int32)
    rows["phase"][:], rows["active"][:], rows["error"][:] = DONE, False, errors
    for k, count in enumerate(links):
        rows["kept"][k] = ~soft
        rows["kept"][k][np.flatnonzero(soft)[:count]] = True
    return rows


@pytest.mark.slow
def test_a_superfluid_machine_that_is_wrong_is_fluid_again_and_one_that_is_right_rests(small):
    superfluid, params, optimizer = small
    before = at_rest(superfluid, params, errors=[1e-7, 1e-3], links=[5, 5])
    turn = superfluid.turn(before, optimizer)
    assert turn.fields["restarted"] == [1]
    assert not turn.over
    rows = turn.params
    assert int(rows["stage"]) == FLUID
    assert int(rows["fluid_round"]) == 0
    assert rows["active"].tolist() == [False, True]
    np.testing.assert_array_equal(rows["fluid"][0], before["fluid"][0])
    drawn = superfluid.fluid.start(restart_key(superfluid.config, 1, 1), 1, 0.05, 0.7, 1.0)[0]
    np.testing.assert_array_equal(rows["fluid"][1], drawn)
    assert rows["fluid_kept"][1].all()
    assert turn.optimizer.fluid.first.tolist() == [0.0, 1.0]
    assert not rows["leaves"][1][superfluid.wirings.soft].any()

    chosen = superfluid.turn(rows, turn.optimizer)
    mixed = [len(superfluid.fluid.undecided(kept)) for kept in chosen.params["fluid_kept"]]
    assert mixed == [0, 0]
    plain = superfluid.turn(chosen.params, chosen.optimizer).params
    assert int(plain["stage"]) == PLAIN
    assert plain["phase"].tolist() == [DONE, TRAIN]
    assert plain["born"].tolist() == [0, 8]
    for name in ("leaves", "kept", "error"):
        np.testing.assert_array_equal(plain[name][0], before[name][0], err_msg=name)


def test_a_right_machine_with_too_many_links_starts_again_as_often_as_it_may(small):
    superfluid, params, optimizer = small
    rows = at_rest(superfluid, params, errors=[1e-7, 1e-7], links=[16, 15])
    assert superfluid.turn(rows, optimizer).fields["restarted"] == [0]
    rows["restarts"][0] = 1
    turn = superfluid.turn(rows, optimizer)
    assert turn.fields["restarted"] == []
    assert turn.over


@pytest.mark.slow
def test_the_loss_of_fluid_machines_leaves_out_those_at_rest(small):
    superfluid, params, _ = small
    rows = {**params, "active": np.array([False, True])}
    value, metrics = jax.jit(superfluid.task().rounds.loss(rows))(rows, {})
    errors = [
        superfluid.fluid.errors(*each)[0]
        for each in zip(rows["fluid"], rows["fluid_kept"][:, None], strict=True)
    ]
    assert float(value) == pytest.approx(errors[1], rel=1e-4)
    assert float(metrics["best_error"]) == pytest.approx(errors[1], rel=1e-4)


def test_a_run_that_ends_while_some_machines_are_fluid_again_writes_the_others(small):
    superfluid, params, _ = small
    rows = {
        **at_rest(superfluid, params, errors=[1e-7, 1e-3], links=[5, 5]),
        "active": np.array([False, True]),
    }
    rows["stage"] = np.array(FLUID, np.int32)
    state = State(jnp.zeros(()), rows, optimizer=None, keys=None, penalties={})
    result = FitResult(
        "stopped", "", state, {}, {}, times=None, seconds=1, rollbacks=0, skipped=0, best=0, best_step=0
    )
    event = SimpleNamespace(result=result, run=None)
    tests = {"seen": superfluid.wirings.examples[0]}
    verdict = WriteSuperfluid(superfluid, tests).on_end(event)
    table = [line.split() for line in verdict.splitlines()[1:3]]
    assert sorted((row[0], row[2], row[-1] == "dropped") for row in table) == [
        ("0", "5", False),
        ("1", "0", True),
    ]
    rows["active"][:] = True
    assert "before every neuron had one function" in WriteSuperfluid(superfluid, tests).on_end(event)


def test_neurons_keep_their_sums_at_first(small):
    fluid = small[0].fluid
    leaves = np.asarray(fluid.start(jax.random.key(1), 3, 0.05, 0.7, 0.9))
    np.testing.assert_allclose(leaves[:, fluid.loops] * leaves[:, fluid.mixes[:, 0]], 0.9, rtol=1e-6)


def test_where_functions_are_as_good_the_rarest_is_kept(small):
    fluid = small[0].fluid
    kept = np.ones_like(fluid.soft)
    kept[fluid.mixes[0]] = [False, False, True, False]
    assert fluid._best(np.array([0.51, 0.5, 0.5, 0.9]), kept) == 1
    assert fluid._best(np.array([0.9, 0.9, 0.5, 0.9]), kept) == 2
    assert fluid._best(np.array([0.505, 0.51, 0.5, 0.9]), kept) == 0, "of the rare ones, the best"


def test_the_neuron_that_loses_most_is_reduced_first(small, monkeypatch):
    fluid = small[0].fluid
    kept = np.ones_like(fluid.soft)
    monkeypatch.setattr(fluid, "errors", lambda leaves, ways: np.array([9.0, 1, 9, 9, 9, 9, 2, 9]))
    decided = fluid.decide("trial", np.ones(len(kept)), kept, 1)
    assert fluid.undecided(decided).tolist() == [0]
    assert decided[fluid.mixes[1]].tolist() == [False, False, True, False]


TINY = (
    "--starts 1 --layers 2 --width 1 --cycles 12 --texts a.a --long-texts --unseen 1 "
    "--steps 60 --train-steps 20 --round-steps 10 --steps-per-call 10 --settle-steps 10 --choice-rounds 2"
)


@pytest.mark.slow
def test_a_short_run_ends_with_one_function_a_neuron(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "superfluid-synthesis", *TINY.split(), "--no-check", "--corner", "pairs"]) == 0
    assert "of 1 starts ended with at most 15 links, one function a neuron" in capsys.readouterr().out
    run = Run.open(find_run("latest"))
    rounds = [event for event in run.events() if event["event"] == "round"]
    assert [event["mixed"] for event in rounds if "mixed" in event] == [[2], [1], [0], [0]]
    rows = json.loads((run.folder / "starts.json").read_text())
    assert [row["start"] for row in rows] == [0]
    machine = dmm.Machine.load(run.folder / "machine.json")
    assert not any(neuron.fluid for neuron in machine.neurons.values())


@pytest.mark.slow
def test_a_run_that_ends_while_functions_are_mixed_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny = TINY.replace("--steps 60", "--steps 10")
    assert main(["train", "superfluid-synthesis", *tiny.split(), "--no-check"]) == 0
    assert "before every neuron had one function" in capsys.readouterr().out


def test_unseen_texts_have_other_lengths_and_characters():
    texts = unseen_texts(20)
    assert len(set(texts)) == 20
    assert len({len(text) for text in texts}) > 5
    assert all(set(text) - set("tes.") for text in texts)


def test_an_option_that_makes_no_sense_is_named():
    with pytest.raises(ConfigError, match="choice_rounds should be at least 1, but is 0"):
        SuperfluidConfig(choice_rounds=0)


@pytest.mark.slow
def test_a_whole_run_finds_readable_machines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "superfluid-synthesis", "--quiet", "--seed", "1"]) == 0
    run = Run.open(find_run("latest"))
    rows = json.loads((run.folder / "starts.json").read_text())
    assert sum(row["meets"] for row in rows) >= 4
