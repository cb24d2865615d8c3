"""What is timed, what is remembered, and what then decides."""

import json

import jax
import jax.numpy as jnp
import pytest

import lapwing as lw
from lapwing import jaxprs
from lapwing.loops.persistent import _lower, _store, _tune
from lapwing.loops.persistent._choice import choose, key_of
from lapwing.loops.persistent._store import Timed
from tests.loops.persistent.gpu import H200, SHAPES, array, count, lowered, lstm


def loop_of(fn, *shapes):
    (eqn,) = [eqn for eqn in jax.make_jaxpr(fn)(*shapes).jaxpr.eqns if eqn.primitive.name == "scan"]
    return jaxprs.loop_of(eqn)[0]


def rnn(w, xs, scan=jax.lax.scan):
    return scan(lambda h, x: ((new := jnp.tanh(h @ w + x)), new), jnp.zeros(xs.shape[1:], xs.dtype), xs)


LOOP = loop_of(rnn, array(256, 256), array(100, 16, 256))
CHOICE = choose(LOOP, H200.gpu)
KEY = key_of(CHOICE.prepared, H200.kind)


@pytest.fixture
def timing(monkeypatch):
    """Nothing is compiled or run; the seconds of each plan are given."""
    seconds, asked = {}, []

    class Lowered:
        def __init__(self, plan):
            self.plan = plan

        def compile(self):
            return self.plan

    monkeypatch.setattr(_tune, "kernel_program", lambda prepared, plan: plan)
    monkeypatch.setattr(_tune, "_as_loop", lambda loop: None)
    monkeypatch.setattr(_tune, "_lowered", lambda program, loop: Lowered(program))

    def measure(plan, inputs):
        asked.append(plan)
        if isinstance(found := seconds.get(plan, 1.0), Exception):
            raise found
        return found

    monkeypatch.setattr(_tune, "fastest", measure)
    return seconds, asked


def test_plans_that_are_tuned_differ_in_who_owns_what():
    found = _tune.different(CHOICE.plans)
    assert found[0] == CHOICE.plan
    assert len({(plan.groups, plan.units, plan.split, plan.near) for plan in found}) == len(found) == 4


def test_the_fastest_plan_is_remembered(hopper, timing):
    seconds, asked = timing
    winner = _tune.different(CHOICE.plans)[2]
    seconds[winner] = 0.25
    assert _lower.chosen_plan(CHOICE, LOOP, H200, "auto") == CHOICE.plan
    assert asked == []
    assert _lower.chosen_plan(CHOICE, LOOP, H200, "tune") == winner
    assert len(asked) == 5
    assert None in asked
    for mode in ("auto", "tune"):
        assert _lower.chosen_plan(CHOICE, LOOP, H200, mode) == winner
    assert len(asked) == 5
    (file,) = (hopper / "persistent").iterdir()
    assert file.name == f"{KEY}.json"
    assert [each["seconds"] for each in json.loads(file.read_text())] == [0.25, 1, 1, 1, 1]


def test_a_loop_that_is_faster_stays_one(hopper, timing):
    timing[0][None] = 0.5
    assert _lower.chosen_plan(CHOICE, LOOP, H200, "tune") is None
    assert _lower.chosen_plan(CHOICE, LOOP, H200, "auto") is None
    assert _lower.described(LOOP) == ("the loop was faster when it was tuned", None)


def test_a_plan_that_fails_is_left_out(hopper, timing):
    seconds, _ = timing
    first, second = _tune.different(CHOICE.plans)[:2]
    seconds |= {first: ValueError("out of registers"), second: 0.5}
    with pytest.warns(RuntimeWarning, match="failed .ValueError: out of registers.; results are unaffected"):
        assert _lower.chosen_plan(CHOICE, LOOP, H200, "tune") == second


def test_a_plan_that_cannot_be_lowered_is_left_out(hopper, timing, monkeypatch):
    first, second = _tune.different(CHOICE.plans)[:2]
    timing[0][second] = 0.5
    lowered = _tune._lowered

    def fails(program, loop):
        if program == first:
            raise NotImplementedError("no such layout")
        return lowered(program, loop)

    monkeypatch.setattr(_tune, "_lowered", fails)
    with pytest.warns(RuntimeWarning, match="failed .NotImplementedError: no such layout."):
        assert _lower.chosen_plan(CHOICE, LOOP, H200, "tune") == second
    assert len(timing[1]) == 4


DAMAGED = {
    "half": b'[{"plan": {"gro',
    "empty": b"",
    "bytes": b"\xff\xfe\x00",
    "nothing": b"[]",
    "another form": b'{"plan": null}',
    "no number": b'[{"plan": null, "seconds": "fast"}]',
    "an unknown plan": b'[{"plan": {"groups": 77}, "seconds": 1.0}]',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_ignored_and_replaced(hopper, timing, name):
    file = hopper / "persistent" / f"{KEY}.json"
    file.parent.mkdir()
    file.write_bytes(DAMAGED[name])
    assert _lower.chosen_plan(CHOICE, LOOP, H200, "auto") == CHOICE.plan
    timing[0][CHOICE.plan] = 0.5
    assert _lower.chosen_plan(CHOICE, LOOP, H200, "tune") == CHOICE.plan
    assert _store.read(KEY, CHOICE.plans) == Timed(CHOICE.plan, 0.5)


def test_a_folder_that_cannot_be_written_warns_once(hopper, timing):
    (hopper / "persistent").write_text("a file in the way")
    timing[0][CHOICE.plan] = 0.5
    with pytest.warns(RuntimeWarning, match="what was tuned for a loop cannot be kept in"):
        assert _lower.chosen_plan(CHOICE, LOOP, H200, "tune") == CHOICE.plan
    # A second warning would be an error here.
    assert _lower.chosen_plan(CHOICE, LOOP, H200, "tune") == CHOICE.plan


def test_where_what_was_tuned_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("LAPWING_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert _store.folder() == tmp_path / "own" / "persistent"
    monkeypatch.delenv("LAPWING_CACHE")
    assert _store.folder() == tmp_path / "xdg" / "lapwing" / "persistent"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _store.folder() == tmp_path / ".cache" / "lapwing" / "persistent"


def test_processes_that_share_a_program_do_not_choose_by_what_each_measured(hopper, timing, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert _lower.chosen_plan(CHOICE, LOOP, H200, "tune") == CHOICE.plan
    assert timing[1] == []


def test_the_key_is_that_of_the_loop_and_of_nothing_else():
    def key(fn, *shapes, kind="NVIDIA H200"):
        return key_of(choose(loop_of(fn, *shapes), H200.gpu).prepared, kind)

    same = array(256, 256), array(100, 16, 256)
    assert key(rnn, *same) == KEY
    others = [
        key(rnn, *same, kind="NVIDIA H100"),
        key(rnn, same[0], array(101, 16, 256)),
        key(rnn, same[0], array(100, 17, 256)),
        key(rnn, array(256, 256, dtype=jnp.float16), array(100, 16, 256, dtype=jnp.float16)),
        key(lambda w, xs: rnn(w, 2 * xs, lambda *args: jax.lax.scan(*args, reverse=True)), *same),
    ]
    assert len({KEY, *others}) == 6


def test_timing_runs_what_was_compiled():
    loop = loop_of(rnn, array(3, 3, dtype=jnp.float32), array(4, 2, 3, dtype=jnp.float32))
    compiled = _tune._lowered(_tune._as_loop(loop), loop).compile()
    inputs = _tune._inputs(loop)
    assert 0 < _tune.fastest(compiled, inputs) < 1
    assert [x.shape for x in inputs] == [(3, 3), (2, 3), (4, 2, 3)]
    assert float(jnp.std(inputs[2])) < 0.1


def test_tuned_results_decide_what_is_lowered(hopper, timing):
    timing[0][None] = 0.5
    with lw.loops.use_persistent("tune"):
        assert count(lowered(lstm, *SHAPES)) == (0, 1)
    assert len(list((hopper / "persistent").iterdir())) == 1
    assert count(lowered(lambda *args: lstm(*args), *SHAPES)) == (0, 1)
