"""17 correct programs that look as if something were wrong: gradients that are cut or turned on purpose, parts that are
idle in most batches, examples that are compared with each other, outputs that may see the future, weights that are
fixed. What their author would declare, he declares.
"""

from lapwing.bench.doctor import clean_in

from . import cuts, learners, sequences, weights

CLEAN = clean_in(cuts, sequences, learners, weights)
"""The correct programs by name."""
