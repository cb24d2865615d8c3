"""A machine in words, one sentence per neuron, in the order in which values flow."""

from ._machine import Link, Machine


def in_words(machine: Machine) -> str:
    """Returns one sentence for each neuron that contributes to an answer. Activations without a `phrase` are left out.

    >>> from lapwing import dmm
    >>> print(in_words(dmm.duplicate_detector()))
    accum accumulates input.
    dot is the product of accum with eos.
    norm is the largest part of accum.
    compare asks by how much norm is more (true) or less (false) than const_1.
    The answer dict-1 is compare.true.
    The answer dict-2 is dot.
    """
    column, used = machine.columns(), machine.used()
    by_target: dict[str, dict[str, list[Link]]] = {}
    for link in machine.links():
        by_target.setdefault(link.to, {}).setdefault(link.to_field, []).append(link)
    lines = []
    for name in sorted(by_target, key=lambda name: (column[name], name)):
        if name in used and name != machine.output:
            lines += _sentence(machine, name, by_target[name])
    for field, links in by_target.get(machine.output, {}).items():
        lines.append(f"The answer {field} is {_sum(machine, links)}.")
    return "\n".join(lines)


def _sentence(machine: Machine, name: str, fields: dict[str, list[Link]]) -> list[str]:
    function = machine.neurons[name].functions[0]
    read = [fields.get(field, []) for field in function.inputs]
    if not function.accumulator:
        phrase = function.phrase.format(*(_sum(machine, links) for links in read))
        return [f"{name} {phrase}."] if phrase else []
    own = [link for links in read for link in links if link.source == name]
    others = [link for links in read for link in links if link.source != name]
    keeps = own and all(link.weight == 1 for link in own)
    verb = "accumulates" if keeps else f"keeps {own[0].weight:.3g} of itself and adds" if own else "is"
    return [f"{name} {verb} {_sum(machine, others)}."]


def _sum(machine: Machine, links: list[Link]) -> str:
    if not links:
        return "nothing"
    parts = [_term(machine, link) for link in sorted(links, key=lambda link: -link.weight)]
    text = " ".join(parts)
    return text.removeprefix("+ ") if text.startswith("+ ") else text.replace("- ", "-", 1)


def _term(machine: Machine, link: Link) -> str:
    sign, size = "-" if link.weight < 0 else "+", abs(link.weight)
    outputs = machine.neurons[link.source].outputs
    source = link.source if len(outputs) == 1 and not link.key else link.origin
    return f"{sign} {source}" if size == 1 else f"{sign} {size:.3g}·{source}"
