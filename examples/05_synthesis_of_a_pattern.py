"""From examples to a machine that can be read: find every b that comes right after an a.

The examples are a plain function. The student has all links between a few neurons; pruning leaves the machine. With one
character per cycle, "right after" is one more neuron on the way: each takes one cycle.
"""

from lapwing import dmm, synthesis


def b_after_a(text, cycles):
    """1 when the pattern is complete, three cycles later, so that the machine has time to compute."""
    found = [float(text[t - 1 : t + 1] == "ab") for t in range(len(text))]
    return {"dict-1": ([0.0] * 3 + found + [0.0] * cycles)[:cycles]}


@dmm.activation(inputs=("dict-1",))
def answer(inputs):
    return {}


student = dmm.Machine()
student.neuron("timer", dmm.timer)
student.neuron("input", dmm.input_text, period=1)
student.neuron("a", dmm.constant, value={"a": 1.0})
student.neuron("b", dmm.constant, value={"b": 1.0})
student.neuron("one", dmm.const_1)
student.neuron("output", answer)
student.link("timer.timer", "timer.timer", 1.0, hard=True)
student.link("input.timer", "timer.timer", 1.0, hard=True)
sources = ["input.char", "a.result", "b.result", "one.const_1"]
for layer in (("dot-1", "dot-2"), ("norm-1", "dot-3"), ("compare-1",)):
    for name in layer:
        student.neuron(name, {"dot": dmm.dot, "norm": dmm.norm, "compare": dmm.compare}[name.split("-")[0]])
        for field in student.neurons[name].inputs:
            for source in sources:
                student.link(f"{name}.{field}", source, 0.0)
    sources += [f"{name}.{field}" for name in layer for field in student.neurons[name].outputs]
for source in sources:
    student.link("output.dict-1", source, 0.0)

texts = ["abcabbaacbabcbacabaabb", "bbabaccabcbaabcabacbaa", "aabbccabacbcbaabacabcc"]
examples = synthesis.Examples.from_function(b_after_a, texts, 22)
config = synthesis.SynthesisConfig(
    starts=4, spread=0.5, learning_rate=0.01, lasso=0.01, train_steps=1000, polish_rounds=4, bound=0.02
)
found = synthesis.synthesize(examples, student, config, quiet=True)

print(f"{len(student.soft())} links before; after, for each start: {[each.links for each in found.machines]}")
print(dmm.in_words(found.best))
unseen = synthesis.Examples.from_function(b_after_a, ["cabcbabaacabbbaabacbab"], 22)
print(f"squared error on a new text: {synthesis.errors_on(found.best, unseen)[0][0]:.2g}")
