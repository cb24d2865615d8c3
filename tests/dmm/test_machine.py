"""Building machines, looking at them, and what is refused."""

import math

import numpy as np
import pytest

from lapwing import dmm, trees
from lapwing.dmm import Machine


def small() -> Machine:
    m = Machine()
    m.neuron("accum", dmm.accum)
    m.neuron("norm", dmm.norm)
    m.neuron("one", dmm.const_1)
    m.neuron("output", dmm.output)
    m.link("accum.dict-1", "accum.dict", 1.0, hard=True)
    m.link("accum.dict-2", "one.const_1", 0.5)
    m.link("norm.dict", "accum.dict", 2.0)
    m.link("output.dict-1", "norm.norm", -1.0)
    return m


def test_a_link_goes_from_the_second_to_the_first():
    assert small().matrix["norm"] == {"dict": {"accum": {"dict": 2.0}}}
    assert small().links()[2] == ("norm", "dict", "accum", "dict", 2.0, False, False, ())


def test_hard_and_soft_leaves():
    m = small()
    m.initial("accum.dict", {"a": 3.0})
    m.initial("one.const_1", 7.0, hard=False)
    assert trees.paths(m.outputs) == {("accum", "dict", "a"): 3.0, ("one", "const_1", ":number"): 7.0}
    assert m.hard == {("matrix", "accum", "dict-1", "accum", "dict"), ("outputs", "accum", "dict", "a")}
    assert len(m.soft()) == 4
    assert m.soft()[-1] == ("outputs", "one", "const_1", ":number")


def test_the_matrix_of_a_self_modifying_machine_is_an_initial_output():
    m = Machine(matrix_from="self.result")
    m.neuron("self", dmm.accum_add_args)
    m.link("self.accum", "self.result", 1.0)
    link = {"self": {"accum": {"self": {"result": 1.0}}}}
    assert m.matrix == link
    assert m.values == {"outputs": {"self": {"result": link}}}


def test_a_fluid_neuron_hands_its_mix_on():
    m = Machine()
    m.fluid("mixed", [dmm.accum_add_args, dmm.max_norm_dict], {"accum_add_args": 0.5})
    assert m.neurons["mixed"].inputs == ("accum", "delta", "dict", ":function")
    assert m.neurons["mixed"].outputs == ("result", "norm", ":function")
    assert m.matrix == {"mixed": {":function": {"mixed": {":function": 1.0}}}}
    assert [path[-1] for path in m.soft()] == ["accum_add_args"]


def test_a_mix_weighs_the_outputs_and_ignores_strangers():
    m = Machine()
    m.fluid("mixed", [dmm.accum_add_args, dmm.max_norm_dict], {})
    mix = {"accum_add_args": 0.5, "max_norm_dict": 2.0, "elsewhere": 9.0}
    outputs = m.neurons["mixed"]({"delta": {"a": 3.0}, "dict": {"a": -5.0}, ":function": mix})
    assert outputs == {"result": {"a": 1.5}, "norm": {":number": 10.0}, ":function": mix}


def test_functions_of_a_mix_that_write_the_same_field_are_added():
    m = Machine()
    twice = dmm.accum.renamed("twice", ("x", "y"), ("dot",))
    m.fluid("mixed", [dmm.dot_product, twice], {})
    outputs = m.neurons["mixed"](
        {"x": {"a": 3.0}, "y": {"a": 2.0}, ":function": {"dot_product": 1.0, "twice": 1.0}}
    )
    assert outputs["dot"] == {":number": 6.0, "a": 5.0}


def test_dead_links_are_told():
    m = small()
    m.link("norm.dict", "accum.true", 0.5, dead=True)
    m.link("accum.nowhere", "one.const_1", 0.5, dead=True)
    assert [(link.to_field, link.source_field) for link in m.links() if link.dead] == [
        ("nowhere", "const_1"),
        ("dict", "true"),
    ]


def test_with_values_changes_numbers_and_drops_what_is_missing():
    m = small()
    pruned = m.with_values(trees.prune(trees.scale(2.0, m.values), 1.5))
    assert [link.weight for link in pruned.links()] == [2.0, 4.0, -2.0]
    assert pruned.hard == m.hard
    assert m.matrix["norm"]["dict"]["accum"]["dict"] == 2.0
    assert m.with_values({}).values == {"matrix": {}, "outputs": {}}
    assert m.with_values({}).hard == set()


def test_options_reach_every_activation_that_has_them():
    m = small()
    m.neuron("dot", dmm.dot)
    m.neuron("tight", dmm.dot, governor=1.0)
    changed = m.with_options(governor=4.0, norm_ties="last")
    assert [changed.neurons[name].functions[0].options["governor"] for name in ("dot", "tight")] == [4.0, 4.0]
    assert changed.neurons["norm"].functions[0].options["norm_ties"] == "last"
    assert m.neurons["tight"].functions[0].options["governor"] == 1.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda m: m.link("nrom.dict", "accum.dict", 1.0),
            r"there is no neuron 'nrom' to link to; did you mean norm\?",
        ),
        (
            lambda m: m.link("norm.dict", "acum.dict", 1.0),
            r"there is no neuron 'acum' to link from; did you mean accum\?",
        ),
        (
            lambda m: m.link("accum.dict-3", "accum.dict", 1.0),
            r"'accum' reads no field 'dict-3'; did you mean dict-2\?",
        ),
        (
            lambda m: m.link("norm.dict", "norm.nrm", 1.0),
            r"the neuron 'norm' writes no field 'nrm'; did you mean norm\?",
        ),
        (
            lambda m: m.link("one.const_1", "norm.norm", 1.0),
            r"the neuron 'one' reads no fields, so a link of one.const_1 carries nothing; leave it out",
        ),
        (
            lambda m: m.link("norm", "accum.dict", 1.0),
            r"expected a neuron and its field, like 'norm.dict', but got 'norm'",
        ),
        (
            lambda m: m.link("norm.dict", "norm.norm", math.nan),
            r"the link norm.dict ← norm.norm must be a finite number, but is nan",
        ),
        (
            lambda m: m.link("norm.dict", "norm.norm", np.float32("inf")),
            r"must be a finite number, but is np.float32\(inf\)",
        ),
        (
            lambda m: m.link("norm.dict", "norm.norm", {"a": 1.0}),
            r"must be a finite number, but is {'a': 1.0}",
        ),
        (
            lambda m: m.link("norm.dict", "accum.dict", 1.0),
            r"the link norm.dict ← accum.dict exists already; change values with `with_values`",
        ),
        (
            lambda m: m.neuron("norm", dmm.norm),
            r"there is already a neuron 'norm'; give this one another name",
        ),
        (
            lambda m: m.neuron("larger", max),
            r"expected an activation, like dmm.norm, but got <built-in function max>; make one of a function with @dmm",
        ),
        (
            lambda m: m.fluid("mixed", [max], {}),
            r"expected an activation, like dmm.norm, but got <built-in function max>",
        ),
        (
            lambda m: m.neuron("no.rm", dmm.norm),
            r"a neuron's name is not empty and has no dot, but got 'no.rm'",
        ),
        (lambda m: m.neuron("dot", dmm.dot, limit=1), r"the activation 'dot' has no option 'limit'"),
        (lambda m: m.initial("norm.dict", 1.0), r"the neuron 'norm' writes no field 'dict'"),
        (
            lambda m: m.initial("norm.norm", {"a": math.inf}),
            r"initial value norm.norm a must be a finite number",
        ),
        (
            lambda m: m.fluid("mix", [dmm.accum_add_args], {"acum_add_args": 1.0}),
            r"the neuron 'mix' does not mix a function 'acum_add_args'; did you mean accum_add_args\?",
        ),
        (
            lambda m: m.with_values({"matrix": {"norm": {"dict": {"one": {"const_1": 1.0}}}}}),
            r"a leaf at 'matrix'/'norm'/'dict'/'one'/'const_1' that this machine does not have; add links",
        ),
        (
            lambda m: m.with_options(governer=3),
            r"no activation has an option 'governer'; did you mean governor\?",
        ),
    ],
)
def test_errors(wrong, message):
    with pytest.raises(dmm.MachineError, match=message):
        wrong(small())


def test_the_matrix_itself_cannot_be_an_initial_value():
    m = Machine(matrix_from="self.result")
    m.neuron("self", dmm.accum_add_args)
    with pytest.raises(
        dmm.MachineError, match=r"self.result holds the links of this machine; add each with m.link"
    ):
        m.initial("self.result", {})
