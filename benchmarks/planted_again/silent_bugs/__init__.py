"""44 planted mistakes. A program is a function of `wrong`: with True it returns a task and its config with the mistake,
with False the correct twin, which differs in nothing else.

The docstring says what is wrong, `sees` what a person sees who trains it, and `cause` is a pattern that a finding must
contain to have named the cause. All of it was written before the doctor first ran on a program, and by somebody who had
not read the doctor.
"""

from lapwing.bench.doctor import bugs_in

from . import data, gradients, keys, labels, leakage, masks, modes, numbers, optimizers, structure

BUGS = bugs_in(labels, masks, leakage, keys, modes, optimizers, gradients, numbers, structure, data)
