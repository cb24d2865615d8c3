"""The published machines do what was published of them."""

import jax
import pytest

from lapwing import dmm, trees
from lapwing.dmm import Machine


def answers(machine: Machine, cycles: int, **options) -> list[tuple[float, float]]:
    found = dmm.interpret(machine, cycles, **options).answers
    return list(zip(found["dict-1"], found["dict-2"], strict=True))


def squared_error(machine: Machine, cycles: int, text: str, first: int = 0, **options) -> float:
    """Against the teacher, over both answers."""
    ours = answers(machine, cycles, text=text, **options)[first:]
    theirs = answers(dmm.duplicate_detector(), cycles, text=text)[first:]
    return sum((a - b) ** 2 for pair in zip(ours, theirs, strict=True) for a, b in zip(*pair, strict=True))


def test_the_teacher_sees_duplicates_and_full_stops():
    seen = answers(dmm.duplicate_detector(), 140, text="test string.")
    changes = [cycle for cycle in range(1, 140) if seen[cycle] != seen[cycle - 1]]
    # t is read for the second time at tick 30, and a character needs four more cycles to pass accum, norm and
    # compare; the full stop is read at tick 110 and then every ten ticks, and needs three.
    assert [(cycle, seen[cycle]) for cycle in changes] == [
        (34, (1.0, 0.0)),
        (64, (2.0, 0.0)),
        (113, (2.0, 1.0)),
        (123, (2.0, 2.0)),
        (133, (2.0, 3.0)),
    ]


@pytest.mark.parametrize(
    ("text", "published"),
    [("test string.", 0.0016101), ("teest string.", 0.0013413), ("tets string.", 0.0014383)],
)
def test_the_readable_machine_generalises(text, published):
    assert squared_error(dmm.readable_detector(), 140, text, governor=4.0) == pytest.approx(
        published, abs=5e-8
    )


@pytest.mark.parametrize(
    ("build", "soft", "hard"),
    [
        (dmm.duplicate_detector, 9, 2),
        (dmm.lite_student, 20306, 2),
        (dmm.feedforward_student, 1486, 12),
        (dmm.readable_detector, 19, 3),
        (dmm.superfluid_student, 2906, 38),
    ],
)
def test_the_number_of_trained_and_fixed_leaves(build, soft, hard):
    assert (len(build().soft()), len(build().hard)) == (soft, hard)


def test_the_fixed_leaves_of_the_superfluid_machine():
    student = dmm.superfluid_student()
    fixed = [leaf for path, leaf in trees.paths(student.values).items() if path in student.hard]
    assert (fixed.count(1.0), fixed.count(0.0)) == (37, 1)


@pytest.mark.parametrize(("cycles", "published"), [(2, 0.0354757), (11, 0.354855)])
def test_the_first_losses_of_the_superfluid_machine(cycles, published):
    loss = squared_error(dmm.superfluid_start(), cycles, "test string.", first=1)
    assert loss == pytest.approx(published, rel=2e-6)


def test_the_first_loss_of_dmm_lite():
    m = dmm.lite_start()
    assert squared_error(m, 140, "test string.", governor=100.0) == pytest.approx(410.80295, rel=1e-6)
    penalised = [link.weight for link in m.links() if link.to not in ("timer", "input")]
    assert sum(abs(w) + 10 * w * w for w in penalised) == pytest.approx(335.15085, rel=1e-6)


def test_a_random_start_leaves_the_hard_leaves_alone():
    student = dmm.feedforward_student()
    started = dmm.random_start(student, jax.random.key(3), 0.01)
    before, after = trees.paths(student.values), trees.paths(started.values)
    assert started.hard == student.hard
    assert all(after[path] == before[path] for path in student.hard)
    drawn = [after[path] for path in student.soft()]
    assert len(set(drawn)) == 1486
    assert 0.009 < (sum(x * x for x in drawn) / len(drawn)) ** 0.5 < 0.011
