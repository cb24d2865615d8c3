"""Copies of the built-in activations under other names, as a user would declare them."""

from lapwing import dmm


def copy_of(original: dmm.Activation) -> dmm.Activation:
    return dmm.activation(
        name=f"my_{original.name}",
        inputs=original.inputs,
        outputs=original.outputs,
        choices=original.choices,
        accumulator=original.accumulator,
        linearity=original.linearity,
        antisymmetric=original.antisymmetric,
        arrays=original.arrays,
        phrase=original.phrase,
    )(original.function)


COPIES = {original.name: copy_of(original) for original in (dmm.accum, dmm.norm, dmm.dot, dmm.compare)}


def with_copies(machine: dmm.Machine) -> dmm.Machine:
    """The machine with the copies in place of the originals."""
    changed = machine.with_options()
    for name, neuron in machine.neurons.items():
        functions = [
            COPIES[f.name].with_options(**f.options) if f.name in COPIES else f for f in neuron.functions
        ]
        changed.neurons[name] = dmm.Neuron(tuple(functions), neuron.fluid)
    return changed
