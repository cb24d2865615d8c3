from hypothesis import given, settings

from lapwing import dmm
from lapwing.dmm import Machine, listing

from .strategies import cases


def line(text: str, name: str) -> str:
    (found,) = [line for line in text.splitlines() if line.split()[0] == name]
    return found


def test_one_line_per_neuron_with_weights_and_marks():
    m = dmm.readable_detector()
    m.link("output.dict-1", "norm-2-1.true", 0.125, dead=True)
    m.neuron("spare", dmm.dot, governor=4.0)
    m.neuron("lost", dmm.dot, governor=4.0)
    m.link("lost.dict-1", "norm-2-1.norm", 0.5)
    text = listing(m)
    assert text.splitlines()[0] == "14 neurons, 24 links: 21 soft, 3 hard (!), 1 dead (✗)"
    assert line(text, "accum-1-2").endswith("dict-1 ← 1! accum-1-2.dict | dict-2 ← 0.7614 input.char")
    assert "dict-1 ← -1.257 compare-3-1.false, 1.07 compare-4-2.false, 0.125✗ norm-2-1.true" in line(
        text, "output"
    )
    assert line(text, "lost").split()[1] == "dot(governor=4.0)"
    assert line(text, "lost").endswith("(does not reach the output)")
    assert text.splitlines()[-1] == "without links: spare"


def test_the_largest_weights_come_first_and_the_rest_is_counted():
    output = line(listing(dmm.superfluid_start(), limit=1), "output")
    assert output.count(" and 82 more") == 2
    assert "and" not in line(listing(dmm.superfluid_start()), "output")


def test_a_superfluid_neuron_shows_its_mix_and_what_it_starts_with():
    m = Machine()
    m.fluid("fluid", [dmm.accum_add_args, dmm.max_norm_dict], {"accum_add_args": 0.25, "max_norm_dict": -2.0})
    m.initial("fluid.result", {"a": 3.0})
    m.link("fluid.dict", "fluid.result", 1.0)
    assert line(listing(m), "fluid").endswith(
        "mix 0.25 accum_add_args, -2 max_norm_dict | result starts as 3! a | dict ← 1 fluid.result"
    )


def test_a_self_modifying_machine_names_the_field_of_its_matrix():
    text = listing(dmm.wave_machine())
    assert text.splitlines()[0].endswith("the matrix is in self.result")
    assert "constant(value=2 leaves)" in text


@settings(max_examples=40, deadline=None)
@given(cases())
def test_every_link_and_every_neuron_is_somewhere(case):
    text = listing(case.machine)
    named = [line.split()[0] for line in text.splitlines()[1:] if not line.startswith("without links")]
    spare = text.partition("without links: ")[2].split(", ")
    assert sorted([*named, *filter(None, spare)]) == sorted(case.machine.neurons)
    shown = [link for link in case.machine.links() if not link.passes_mix]
    for link in shown:
        marks = "!" * link.hard + "✗" * link.dead
        assert f"{link.weight:.4g}{marks} {link.source}.{link.source_field}" in line(text, link.to)
