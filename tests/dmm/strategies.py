"""Random machines for hypothesis: random neurons, wirings, superfluid mixes, self-modification, own
activations.

The shape is drawn by hypothesis and the weights from a seeded generator: weights that hypothesis likes (0, 1,
equal ones) would put machines on kinks and ties, where a gradient is a matter of rounding.
"""

import random
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from hypothesis import strategies as st

from lapwing import dmm, trees
from lapwing.dmm import Activation, Machine

PLAIN = (dmm.accum, dmm.norm, dmm.dot, dmm.compare, dmm.const_1, dmm.eos)
FLUID = (dmm.accum_add_args, dmm.max_norm_dict, dmm.dot_product, dmm.compare_scalars)


@dmm.activation(inputs=("dict-1", "dict-2"), outputs=("dict",))
def squash(inputs, steepness=1.5):
    """A user's activation: smooth, key-wise, with an option."""
    return {"dict": trees.map_leaves(lambda x: jnp.tanh(steepness * x), trees.add(*inputs.values()))}


@dmm.activation(inputs=("dict", "gate"), outputs=("dict", "rest"))
def gate(inputs):
    """A user's activation with two outputs: lets a share of its input through."""
    share = 1 / (1 + trees.number(inputs["gate"]) ** 2)
    return {"dict": trees.scale(share, inputs["dict"]), "rest": trees.scale(1 - share, inputs["dict"])}


@dmm.activation(inputs=("dict",), outputs=("dict",))
def wrap(inputs):
    """Puts its input one level deeper. Link it only from sources: in a loop it would have no end of keys."""
    return {"dict": {"inside": inputs["dict"]}}


OWN = (squash, gate)


@dataclass(frozen=True)
class Case:
    """A machine and how to run it: `interpret(case.machine, case.cycles, **case.options)`."""

    machine: Machine
    cycles: int
    options: dict[str, Any]


# In a nested tree no key is a number in one place and a tree in another.
LEAVES, BRANCHES = ("a", "b", ".", trees.NUMBER), ("A", "B")


def nested_tree(draw, weights: random.Random, depth: int = 4) -> trees.Tree:
    """A random tree of at most this depth, never empty."""
    branches = draw(st.lists(st.sampled_from(BRANCHES), max_size=2, unique=True)) if depth > 1 else []
    leaves = draw(st.lists(st.sampled_from(LEAVES), min_size=not branches, max_size=2, unique=True))
    return {key: weight(weights) for key in leaves} | {
        key: nested_tree(draw, weights, depth - 1) for key in branches
    }


def keys() -> st.SearchStrategy[tuple[str, ...]]:
    """A place in such a tree, perhaps one that it does not have."""
    branches = st.lists(st.sampled_from(BRANCHES), max_size=3).map(tuple)
    ends = st.sampled_from([(), *((leaf,) for leaf in LEAVES)])
    inside = st.sampled_from([(), ("inside",)])
    return st.tuples(inside, branches, ends).map(lambda parts: sum(parts, ())).filter(bool)


@st.composite
def cases(
    draw, *, fluid: bool | None = None, self_modifying: bool | None = None, nested: bool = False
) -> Case:
    """A random machine; `fluid` and `self_modifying` say whether it must be so (None: by chance). A nested one has
    values of some depth, and links that read parts of them."""
    fluid = draw(st.booleans()) if fluid is None else fluid
    self_modifying = draw(st.booleans()) if self_modifying is None else self_modifying
    weights = random.Random(draw(st.integers(0, 2**20)))
    m = Machine(matrix_from="self.result") if self_modifying else Machine()
    _add_frame(m)
    for k in range(draw(st.integers(1, 4))):
        activation = draw(st.sampled_from(PLAIN + OWN))
        m.neuron(f"{activation.name}-{k}", activation)
    if fluid:
        _add_fluids(draw, m, weights)
    if draw(st.booleans()):
        m.neuron("wrap", wrap)
    if self_modifying:
        m.neuron("self", dmm.accum_add_args)
        m.link("self.accum", "self.result", 1.0, hard=True)
    _link(draw, m, weights)
    _start(draw, m, weights)
    if nested:
        _nest(draw, m, weights)
    if self_modifying:
        _rewire(draw, m, weights)
    options = draw(run_options())
    if nested:
        options["text"] = (*(nested_tree(draw, weights) for _ in range(draw(st.integers(1, 3)))), "a")
    return Case(m, draw(st.integers(3, 8)), options)


@st.composite
def growing_cases(draw) -> Case:
    """A machine that adds neurons to itself, with random links between them and its own."""
    weights = random.Random(draw(st.integers(0, 2**20)))
    m = Machine(matrix_from="self.result")
    _add_frame(m)
    births = draw(st.integers(2, 3))
    m.grow(FLUID, capacity=births)
    m.neuron("sprout", dmm.sprout, period=draw(st.integers(1, 2)), births=births)
    for name in ("self", "dna", "kind", "memory"):
        m.neuron(name, dmm.accum_add_args)
        m.link(f"{name}.accum", f"{name}.result", 1.0, hard=True)
    for to, source in (
        ("sprout.timer", "timer.timer"),
        ("sprout.template", "dna.result"),
        ("self.delta", "sprout.result"),
    ):
        m.link(to, source, 1.0, hard=True)
    m.link("memory.delta", "input.char", weight(weights))
    m.link("memory.delta", "one.const_1", weight(weights))
    mixed = draw(st.lists(st.sampled_from(FLUID), min_size=1, unique_by=id))
    m.initial("kind.result", {function.name: weight(weights) for function in mixed}, hard=False)
    m.initial("dna.result", {"cell-{n}": {dmm.FUNCTION: {"kind": {"result": 1.0}}}})
    cell = [f"cell-{{n}}.{field}" for function in mixed for field in function.outputs]
    sources = ["memory.result", "one.const_1", *cell, *(source.replace("{n}", "{n-1}") for source in cell)]
    targets = [f"cell-{{n}}.{field}" for function in mixed for field in function.inputs]
    # What a cell gives to `memory` comes back to it: a loop through neurons that are not there at the start.
    ends = [(to, draw(st.sampled_from(sources))) for to in targets]
    ends += [(to, "memory.result") for to in targets[:2]]
    ends += [(to, draw(st.sampled_from(cell))) for to in ("output.dict-1", "output.dict-2", "memory.delta")]
    links = {(*to.split("."), *source.split(".")): weight(weights) for to, source in ends}
    m.initial("dna.result", trees.from_paths(links), hard=False)
    return Case(m, draw(st.integers(8, 12)), {**draw(run_options()), "text": "ab.a"})


def run_options() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"text": st.sampled_from(["ab.a", "aab..", "t"]), "period": st.integers(1, 3)},
        optional={
            "governor": st.sampled_from([0.3, 4.0]),
            "accumulator_gradient": st.sampled_from(["full", "truncated"]),
            "norm_ties": st.sampled_from(["shared", "last"]),
        },
    )


def weight(weights: random.Random) -> float:
    return weights.choice((-1, 1)) * weights.uniform(0.1, 0.9)


def _add_frame(m: Machine) -> None:
    m.neuron("timer", dmm.timer)
    m.neuron("input", dmm.input_text)
    m.neuron("one", dmm.const_1)
    m.neuron("output", dmm.output)
    m.link("timer.timer", "timer.timer", 1.0, hard=True)
    m.link("input.timer", "timer.timer", 1.0, hard=True)


def _add_fluids(draw, m: Machine, weights: random.Random) -> None:
    for k in range(draw(st.integers(1, 3))):
        functions: list[Activation] = draw(st.lists(st.sampled_from(FLUID), min_size=1, unique_by=id))
        m.fluid(f"fluid-{k}", functions, {function.name: weight(weights) for function in functions})


def addresses(m: Machine, side: str) -> list[str]:
    return [f"{name}.{field}" for name, neuron in m.neurons.items() for field in getattr(neuron, side)]


def _link(draw, m: Machine, weights: random.Random) -> None:
    """Links every free input field to a few outputs. Ticks and mixes stay among themselves: a tick is read
    exactly.
    """
    sources = [a for a in addresses(m, "outputs") if a != "timer.timer" and not a.endswith(dmm.FUNCTION)]
    mixes = [a for a in addresses(m, "outputs") if a.endswith(dmm.FUNCTION)]
    for to in addresses(m, "inputs"):
        if to in ("timer.timer", "input.timer", "self.accum", "self.delta"):
            continue
        allowed = mixes if to.endswith(dmm.FUNCTION) else ["input.char"] if to == "wrap.dict" else sources
        chosen = (
            draw(st.lists(st.sampled_from(allowed), min_size=1, max_size=3, unique=True)) if allowed else []
        )
        for source in chosen:
            if source != to or not to.endswith(dmm.FUNCTION):
                m.link(to, source, weight(weights), hard=draw(st.booleans()))
    if draw(st.booleans()):
        m.link("output.dict-1", "input.nothing", weight(weights), dead=True)


def _start(draw, m: Machine, weights: random.Random) -> None:
    fields = [a for a in addresses(m, "outputs") if not a.startswith("self.") and dmm.FUNCTION not in a]
    for address in draw(st.lists(st.sampled_from(fields), max_size=2, unique=True)):
        if address != "timer.timer" and not address.startswith("wrap."):
            keys = draw(st.lists(st.sampled_from([trees.NUMBER, "a", "."]), min_size=1, unique=True))
            m.initial(address, {key: weight(weights) for key in keys}, hard=draw(st.booleans()))


def _nest(draw, m: Machine, weights: random.Random) -> None:
    """Gives an accumulator a nested initial value, and adds links of parts to fields that do not read the whole."""
    m.neuron("store", dmm.accum)
    m.link("store.dict-1", "store.dict", weight(weights))
    m.link("store.dict-2", "input.char", weight(weights))
    m.initial("store.dict", nested_tree(draw, weights), hard=draw(st.booleans()))
    targets = [a for a in addresses(m, "inputs") if a.split(".")[1] in ("dict", "dict-1", "dict-2", "gate")]
    sources = ["store.dict", "input.char", *(["wrap.dict"] if "wrap" in m.neurons else [])]
    linked = {(f"{link.to}.{link.to_field}", f"{link.source}.{link.source_field}") for link in m.links()}
    # A leaf that is there, so that the answer is a number.
    m.link(
        "output.dict-2",
        "store.dict",
        weight(weights),
        key=draw(st.sampled_from([*trees.paths(m.outputs["store"]["dict"])])),
    )
    linked.add(("output.dict-2", "store.dict"))
    for to in draw(st.lists(st.sampled_from(targets), min_size=2, max_size=4, unique=True)):
        source, key = draw(st.sampled_from(sources)), draw(keys())
        if to != "wrap.dict" and (to, source) not in linked:
            m.link(to, source, weight(weights), key=key, hard=draw(st.booleans()))


def _rewire(draw, m: Machine, weights: random.Random) -> None:
    """Neurons that keep changing links, some of which are not there at the start."""
    outputs = [
        a for a in addresses(m, "outputs") if a.split(".")[1] in ("dict", "dot", "norm", "true", "char")
    ]
    inputs = ["output.dict-1", "output.dict-2"]
    inputs += [a for a in addresses(m, "inputs") if a.split(".")[1] in ("dict-1", "dict-2", "delta", "x")]
    inputs = [a for a in inputs if a != "self.delta"]
    for k in range(draw(st.integers(1, 2))):
        places = draw(st.lists(st.tuples(*map(st.sampled_from, (inputs, outputs))), min_size=1, max_size=3))
        parts = {link[:4]: link.key for link in m.links()}
        ends = [(*to.split("."), *source.split(".")) for to, source in places]
        change = {(*end, *parts.get(end, ())): weight(weights) for end in ends}
        m.neuron(f"update-{k}", dmm.constant, value=trees.from_paths(change))
        m.link("self.delta", f"update-{k}.result", weight(weights))
