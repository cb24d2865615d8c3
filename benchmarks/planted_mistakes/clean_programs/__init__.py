"""17 correct programs that look as if something were wrong: gradients that are cut on purpose, parts that are idle in
most batches, examples that are compared with each other, masks, schedules, averages. What their author would declare,
he declares.
"""

from lapwing.bench.doctor import clean_in

from . import branches, sequences, training, vectors

CLEAN = clean_in(vectors, branches, sequences, training)
