"""Synthesis on a small task, with everything that its run writes."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

from lapwing import dmm
from lapwing.journal import Run
from lapwing.synthesis import (
    Examples,
    SynthesisConfig,
    _rounds,
    _synthesize,
    errors_on,
    synthesis_task,
    synthesize,
)
from lapwing.synthesis._optimizer import forget, paced_adam
from lapwing.synthesis._phases import first_rows
from lapwing.train import ConfigError, fit
from tests.slow import some


@dmm.activation(inputs=("dict-1",))
def one_answer(inputs):
    return {}


def student() -> dmm.Machine:
    """Learns to count full stops: 4 links of 17 are enough."""
    m = dmm.Machine()
    for name, function in {"timer": dmm.timer, "input": dmm.input_text, "eos": dmm.eos}.items():
        m.neuron(name, function)
    m.neuron("accum", dmm.accum)
    m.neuron("dot", dmm.dot)
    m.neuron("norm", dmm.norm)
    m.neuron("output", one_answer)
    m.link("timer.timer", "timer.timer", 1.0, hard=True)
    m.link("input.timer", "timer.timer", 1.0, hard=True)
    m.link("accum.dict-1", "accum.dict", 1.0, hard=True)
    sources = ["input.char", "eos.char"]
    for name in ("accum", "dot", "norm", "output"):
        for field in m.neurons[name].inputs:
            if (name, field) != ("accum", "dict-1"):
                for source in sources:
                    m.link(f"{name}.{field}", source, 0.0)
        sources += [f"{name}.{field}" for field in m.neurons[name].outputs]
    return m


def full_stops(text, cycles):
    seen = [sum(c == "." for c in (text + text[-1] * 99)[: t // 10 + 1]) for t in range(cycles)]
    return {"dict-1": [0.0] * 3 + seen[: cycles - 3]}


def examples(*texts, cycles=50):
    return Examples.from_function(full_stops, texts or ("a.b..", ".aab."), cycles)


CONFIG = SynthesisConfig(
    starts=2,
    spread=0.3,
    learning_rate=0.01,
    lasso=0.01,
    train_steps=500,
    round_steps=100,
    polish_rounds=4,
    bound=0.05,
)


def task_with_a_bad_start(config, **options):
    """The first machine starts from zeros, where there is no gradient: it can only be right after a restart."""
    task = synthesis_task(examples(), student(), config, **options)
    soft = _synthesize.wirings_of(examples(), student(), config).soft

    def init(key):
        params = task.init(key)
        return {**params, "leaves": params["leaves"].at[0].multiply(~soft)}

    return dataclasses.replace(task, init=init)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    config = dataclasses.replace(CONFIG, seed=1)
    with Run.create("small", config, runs_dir=tmp_path_factory.mktemp("runs")) as run:
        task = task_with_a_bad_start(config, tests={"unseen": examples(".a.a.")})
        result = fit(task, config, run, quiet=True)
    wirings = _synthesize.wirings_of(examples(), student(), config)
    return run.folder, result, _synthesize.outcome(wirings, config, result)


def test_a_machine_of_few_links_is_found_and_is_right_on_unseen_texts(made):
    _, result, synthesis = made
    assert result.ended == "finished"
    assert synthesis.machines[0].links <= 5
    assert synthesis.machines[0].error < 1e-3
    assert synthesis.successes(5, 1e-3) >= 1
    errors, _ = errors_on(synthesis.best, examples(".a.a.", "bbb.."))
    assert errors.max() < 1e-3


def test_a_start_that_ends_wrong_gets_new_weights_and_is_right(made):
    folder, _, synthesis = made
    by_start = sorted(synthesis.machines, key=lambda each: each.start)
    assert [each.restarts > 0 for each in by_start] == [True, False]
    assert by_start[0].error < 1e-3
    rounds = [event for event in Run.open(folder).events() if event["event"] == "round"]
    again = [i for i, event in enumerate(rounds) if event["restarted"]]
    assert len(again) == by_start[0].restarts
    assert all(rounds[i]["restarted"] == [0] for i in again)
    # The one that is right rests: no number of it changes.
    first = again[0]
    assert all(event["links"][1] == rounds[first]["links"][1] for event in rounds[first:])
    assert all(event["error_after"][1] == rounds[first]["error_after"][1] for event in rounds[first:])
    assert rounds[first + 1]["links"][0] == 17
    results = json.loads((folder / "results.json").read_text())
    assert {each["start"]: each["restarts"] for each in results["machines"]}[0] == by_start[0].restarts
    assert all(each["worst"]["unseen"] < 1e-3 for each in results["machines"])


def test_every_round_is_in_the_journal_with_its_counts_losses_and_links(made):
    folder, _, synthesis = made
    rounds = [event for event in Run.open(folder).events() if event["event"] == "round"]
    assert len(rounds) == len(synthesis.path)
    for event in rounds:
        assert len(event["links"]) == len(event["error_before"]) == len(event["cut"]) == 2
    gone = [name for event in rounds for names in event["cut"] for name in names]
    assert "norm.dict ← eos.char" in gone
    assert rounds[0]["links"] == [17, 17]


def test_the_folder_has_the_machine_as_file_text_and_pictures(made):
    folder, _, synthesis = made
    assert len(dmm.Machine.load(folder / "machine.json").soft()) == synthesis.machines[0].links
    text = (folder / "machine.txt").read_text()
    assert "soft" in text
    assert "The answer dict-1 is" in text
    for name in ("machine.png", "path.png", "answers-unseen.png"):
        assert (folder / name).stat().st_size > 1000
    results = json.loads((folder / "results.json").read_text())
    assert [row["text"] for row in results["tests"]] == [".a.a."]
    assert len(results["machines"]) == 2


@pytest.mark.slow
def test_a_stopped_synthesis_resumes_as_if_it_had_not_been_stopped(made, tmp_path):
    folder, _, _ = made
    config = dataclasses.replace(CONFIG, seed=1)
    short = dataclasses.replace(config, steps=650)
    long = dataclasses.replace(config, steps=900)
    with Run.create("small", short, runs_dir=tmp_path) as run:
        fit(
            task_with_a_bad_start(dataclasses.replace(short, steps=900)),
            short,
            run,
            quiet=True,
        )
    with Run.reopen(run.folder) as run:
        task = task_with_a_bad_start(long)
        resumed = fit(task, long, run, quiet=True, allow_change=True)
    links = [event["links"] for event in Run.open(run.folder).events() if event["event"] == "round"]
    assert links == [e["links"] for e in Run.open(folder).events() if e["event"] == "round"][: len(links)]
    assert len(links) == 9
    assert int(resumed.params["round"]) == 9


@pytest.mark.parametrize("pruning", some(["single", "threshold"], 1))
def test_the_other_schedules_prune_too(pruning):
    options = {
        "starts": 1,
        "steps": 1200,
        "train_steps": 300,
        "thresholds": (0.05, 0.2),
        "optimizer_state": "pruned",
        "restarts": 0,
    }
    found = synthesize(
        examples(), student(), dataclasses.replace(CONFIG, pruning=pruning, **options), quiet=True
    )
    links = found.path[:, 0, 0]
    assert links[:2].tolist() == [17, 17]
    assert found.machines[0].links < 17
    if pruning == "threshold":
        assert np.all(np.diff(links) <= 0)


def test_a_pruned_link_that_changes_is_an_error():
    wirings = _synthesize.wirings_of(examples(), student(), CONFIG)
    rows = first_rows(2, wirings.soft, 10)
    rows["leaves"] = np.tile(wirings.start, (2, 1)) + 0.5
    place = int(np.flatnonzero(wirings.soft)[0])
    rows["kept"][1, place] = False
    with pytest.raises(RuntimeError, match=r"pruned links of machine 1 are not 0: accum\.dict-2 ← eos\.char"):
        _rounds.Pruning(wirings, CONFIG)._guard(rows)


def test_the_optimizer_forgets_what_was_pruned():
    adam = paced_adam(0.1, 2, 10)
    params = {"leaves": jnp.ones((2, 3))}
    state = adam.init(params)
    for _ in range(3):
        _, state = adam.update({"leaves": jnp.ones((2, 3))}, state)
    kept = np.array([[True, False, True], [True, True, True]])
    pruned = forget(state, kept, np.array([False, True]))
    assert np.asarray(pruned.mean)[0].all() == 0
    assert pruned.mean[0, 1] == 0
    assert pruned.mean[0, 0] > 0
    assert not np.asarray(pruned.mean)[1].any()
    assert pruned.count.tolist() == [3, 0]
    moved, _ = adam.update({"leaves": jnp.zeros((2, 3))}, pruned)
    assert float(moved["leaves"][0, 1]) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"starts": 0}, "starts should be at least 1, but is 0"),
        ({"steps_per_call": 30}, "steps_per_call should be a divisor of the 100 steps of a round, but is 30"),
        ({"thresholds": (0.2, 0.1)}, r"thresholds should be increasing numbers, but is \(0.2, 0.1\)"),
        ({"bound": 0.0}, "bound should be a positive number, but is 0.0"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(CONFIG, **changes)
