"""A counter that a full stop resets to zero, found from examples, with a custom activation function.

The memory cell is not part of Lapwing: it is a few lines here, and then a neuron like any other. The student learns
what to put into it and when to clear it.
"""

from lapwing import dmm, synthesis, trees

PERIOD, DELAY = 4, 3  # a character every four cycles; the answer comes three cycles after its character


def since_the_full_stop(text, cycles):
    """The number of characters since the last full stop."""
    numbers, count = [0.0] * DELAY, 0
    for character in text:
        count = 0 if character == "." else count + 1
        numbers += [float(count)] * PERIOD
    return {"dict-1": numbers[:cycles]}


@dmm.activation(inputs=("memory", "add", "clear"), outputs=("value",))
def cell(inputs):
    memory, add, clear = (trees.number(inputs[field]) for field in ("memory", "add", "clear"))
    return {"value": memory * (1 - clear) + add}


@dmm.activation(inputs=("dict-1",))
def answer(inputs):
    return {}


student = dmm.Machine()
student.neuron("timer", dmm.timer)
student.neuron("input", dmm.input_text, period=PERIOD)
student.neuron("eos", dmm.eos)
student.neuron("one", dmm.const_1)
for name, function in {
    "norm": dmm.norm,
    "dot": dmm.dot,
    "compare": dmm.compare,
    "cell": cell,
    "output": answer,
}.items():
    student.neuron(name, function)
student.link("timer.timer", "timer.timer", 1.0, hard=True)
student.link("input.timer", "timer.timer", 1.0, hard=True)
student.link("cell.memory", "cell.value", 1.0, hard=True)
sources = ["input.char", "eos.char", "one.const_1"]
for name in ("norm", "dot", "compare", "cell", "output"):
    for field in student.neurons[name].inputs:
        for source in sources:
            if field != "memory":
                student.link(f"{name}.{field}", source, 0.0)
    sources += [f"{name}.{field}" for field in student.neurons[name].outputs]

texts = ["abc.de.aaaa.", "a.bcd..eabcd", "abcde.ab.c.d"]
examples = synthesis.Examples.from_function(since_the_full_stop, texts, 48)
config = synthesis.SynthesisConfig(
    starts=4, spread=0.1, learning_rate=0.01, lasso=0.01, train_steps=1500, polish_rounds=4, bound=0.05
)
found = synthesis.synthesize(examples, student, config, quiet=True)

print(f"{len(student.soft())} links before; after, for each start: {[each.links for each in found.machines]}")
print(dmm.listing(found.best))
unseen = synthesis.Examples.from_function(since_the_full_stop, ["edcb.a.edcba.."], 56)
print(f"squared error on a new text: {synthesis.errors_on(found.best, unseen)[0][0]:.2g}")
