from hypothesis import given, settings

from lapwing import dmm
from lapwing.dmm import Machine
from lapwing.dmm._graph import cannot_reach_output, columns, idle, rewires_itself, sources

from .strategies import cases


def chain(length: int) -> Machine:
    m = Machine()
    m.neuron("output", dmm.output)
    for k in range(length):
        m.neuron(f"norm-{k}", dmm.norm)
    for k in range(1, length):
        m.link(f"norm-{k}.dict", f"norm-{k - 1}.norm", 1.0)
    m.link("output.dict-1", f"norm-{length - 1}.norm", 1.0)
    return m


def test_a_long_chain_needs_no_recursion():
    placed = columns(chain(3000))
    assert placed["norm-0"] == 0
    assert placed["norm-2999"] == 2999
    assert placed["output"] == 3000


def test_a_loop_shares_a_column_and_the_output_is_last():
    m = chain(4)
    m.link("norm-1.dict", "norm-2.norm", 1.0)
    m.neuron("aside", dmm.const_1)
    m.neuron("late", dmm.norm)
    m.link("late.dict", "norm-3.norm", 1.0)
    assert columns(m) == {
        "output": 4,
        "norm-0": 0,
        "norm-1": 1,
        "norm-2": 1,
        "norm-3": 2,
        "aside": 0,
        "late": 3,
    }


def test_a_source_stands_just_before_its_first_reader():
    placed = columns(dmm.duplicate_detector())
    assert placed["const_1"] == placed["compare"] - 1
    assert placed["eos"] == placed["dot"] - 1


@settings(max_examples=40, deadline=None)
@given(cases())
def test_outside_of_loops_everything_stands_to_the_right_of_what_it_reads(case):
    placed, reads = columns(case.machine), sources(case.machine)
    for name, names in reads.items():
        for source in names:
            assert placed[source] < placed[name] or loops(reads, source, name)


def loops(reads: dict[str, set[str]], start: str, target: str) -> bool:
    """Whether `start` reads, over some others, `target`."""
    waiting, seen = [start], set()
    while waiting:
        name = waiting.pop()
        if name == target:
            return True
        if name not in seen:
            seen.add(name)
            waiting += reads[name]
    return False


def test_what_does_not_reach_the_output():
    m = dmm.duplicate_detector()
    m.neuron("extra", dmm.norm)
    m.neuron("alone", dmm.norm)
    m.link("extra.dict", "norm.norm", 1.0)
    m.link("output.dict-1", "extra.dict", 1.0, dead=True)
    assert cannot_reach_output(m) == {"extra", "alone"}
    assert idle(m) == ["alone"]


def test_in_a_machine_that_rewires_itself_nothing_is_known_to_be_useless():
    assert rewires_itself(dmm.wave_machine())
    assert cannot_reach_output(dmm.wave_machine()) == set()
    student = dmm.superfluid_student()
    assert not rewires_itself(student)
    assert cannot_reach_output(student) == {f"fluid-4-{k}" for k in range(4)}
