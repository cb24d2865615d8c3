"""Broken machines, and their repair."""

import jax
import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.dmm import Machine, MachineError
from lapwing.synthesis import Examples, RepairConfig, damaged, errors_on, repair, repair_all
from lapwing.synthesis._repair_population import Population
from tests.slow import some

KINDS = ("removed", "rewired", "scaled")


def links(machine):
    return {link[:4]: link.weight for link in machine.links()}


@pytest.mark.parametrize("count", [1, 3])
def test_removed_links_are_gone_and_the_others_stay(count):
    whole = Machine.load("words")
    broken = damaged(whole, jax.random.key(0), count, "removed")
    assert links(broken).items() < links(whole).items()
    assert len(links(broken)) == len(links(whole)) - count


def test_rewired_links_read_another_output_but_never_the_clock():
    whole = Machine.load("words")
    for seed in range(20):
        broken = damaged(whole, jax.random.key(seed), 2, "rewired")
        lost = sorted(links(whole).keys() - links(broken).keys())
        new = sorted(links(broken).keys() - links(whole).keys())
        assert len(lost) == len(new) == 2
        assert [link[:2] for link in lost] == [link[:2] for link in new]
        assert "timer" not in {link[2] for link in new}


def test_scaled_links_have_a_visible_factor():
    whole = Machine.load("words")
    for seed in range(20):
        broken = damaged(whole, jax.random.key(seed), 2, "scaled")
        factors = [links(broken)[link] / weight for link, weight in links(whole).items()]
        changed = [abs(factor) for factor in factors if factor != 1]
        assert len(changed) == 2
        assert all(1.5 <= max(size, 1 / size) <= 4 for size in changed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_key_decides_the_damage_and_hard_links_stay(kind):
    whole = Machine.load("parity")
    first, again, other = (damaged(whole, jax.random.key(seed), 2, kind) for seed in (1, 1, 2))
    assert links(first) == links(again) != links(other)
    assert first.hard == whole.hard
    assert links(whole) == links(Machine.load("parity"))


def test_a_machine_that_rewrites_itself_is_damaged_in_its_matrix():
    broken = damaged(Machine.load("wave"), jax.random.key(0), 1, "removed")
    assert len(broken.links()) == 2
    assert broken.matrix_from == ("self", "result")


def test_damage_that_is_not_possible_gets_one_sentence():
    whole = Machine.load("parity")
    with pytest.raises(
        MachineError, match=r"^expected to break 1 to 5 of the machine's soft links, but the count is 6$"
    ):
        damaged(whole, jax.random.key(0), 6)
    with pytest.raises(MachineError, match="removed, rewired, scaled, but the kind is 'lost'"):
        damaged(whole, jax.random.key(0), 1, "lost")  # pyright: ignore[reportArgumentType]


TEXTS = ["01101001110100", "11100010110111", "00010111011001", "10110001111010"]
UNSEEN = ["0110101111000110100101101001", "1111111111111111111111111111", "0000110100010000001011110001"]


@pytest.fixture(scope="module")
def repaired():
    """Three broken copies of one machine, repaired together: the machine, the broken ones, what came out of it."""
    whole = Machine.load("parity")
    broken = [damaged(whole, jax.random.key(5), 1, kind) for kind in KINDS]
    examples = Examples.from_teacher(whole, TEXTS, 17)
    calls = []
    config = RepairConfig(rows=24, attempts=8)
    found = repair_all(broken, examples, config, progress=lambda *call: calls.append(call))
    return whole, broken, found, calls


def test_broken_machines_become_right_on_texts_never_seen(repaired):
    whole, broken, found, _ = repaired
    unseen = Examples.from_teacher(whole, UNSEEN, 31)
    for before, after in zip(broken, found, strict=True):
        assert np.abs(errors_on(before, unseen)[1] - unseen.targets).max() > 0.1
        assert after.right
        assert np.abs(errors_on(after.machine, unseen)[1] - unseen.targets).max() < 1e-3


def test_the_changes_are_what_differs_and_the_rest_is_as_it_was(repaired):
    _, broken, found, calls = repaired
    for before, after in zip(broken, found, strict=True):
        old, new = trees.paths(before.values), trees.paths(after.machine.values)
        changes = {path: (b, a) for path, b, a in after.changes}
        for path in old.keys() | new.keys():
            assert (old.get(path, 0.0), new.get(path, 0.0)) == changes.get(path, (old.get(path, 0.0),) * 2)
        assert 1 <= len(changes) <= 5
        assert after.machine.hard == before.hard
    assert calls[0][0] == "attempt"
    assert all(count == 3 for _, _, count in calls)


def test_what_is_right_is_left_alone_and_progress_can_end_it_where_what_is_wrong_stays_as_it_was():
    whole = Machine.load("parity")
    broken = damaged(whole, jax.random.key(5), 1, "removed")
    config = RepairConfig(rows=2, attempts=5, steps=2)
    right, wrong = repair_all([whole, broken], Examples.load("parity"), config, progress=lambda *_: True)
    assert (right.right, right.changes, right.attempts, right.error) == (True, (), 0, 0.0)
    assert right.machine.values == whole.values
    assert (wrong.right, wrong.attempts) == (False, 1)
    assert wrong.machine is broken


@pytest.mark.slow
def test_a_machine_without_a_text_is_repaired():
    whole = Machine.load("oscillator")
    broken = damaged(whole, jax.random.key(0), 1, "removed")
    found = repair(broken, Examples.load("oscillator"), RepairConfig(rows=16, attempts=6))
    assert found.right
    ours, theirs = (dmm.interpret(machine, 40).answers["dict-1"] for machine in (found.machine, whole))
    np.testing.assert_allclose(ours, theirs, atol=1e-2)


def test_what_cannot_be_repaired_together_gets_one_sentence():
    with pytest.raises(
        MachineError, match="but machine 1 has others than machine 0; repair it in a call of its own"
    ):
        repair_all([Machine.load("parity"), Machine.load("edges")], Examples.load("parity"))
    with pytest.raises(MachineError, match="there is no machine to repair"):
        repair_all([], Examples.load("parity"))
    with pytest.raises(MachineError, match="expected rows of at least 1, but got 0"):
        RepairConfig(rows=0)


@pytest.mark.parametrize("rows", some([1, 32], 0))
def test_answers_that_are_no_numbers_are_never_right(rows):
    """XLA's largest number of each of 32 machines leaves out what is no number, and is then -infinity."""
    machine = dmm.duplicate_detector()
    examples = Examples.from_teacher(machine, ["aab", "abb", "a.."], 50)
    machine.link("dot.dict-1", "dot.dot", 1e20)
    machine.link("dot.dict-2", "dot.dot", -1e20)
    machine.link("dot.dict-2", "accum.dict", 1.0)
    assert Population([machine], examples, rows).errors([machine]).tolist() == [np.inf]
