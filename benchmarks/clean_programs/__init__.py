"""Sixty correct programs of every usual kind, in plain JAX, Equinox, Flax and Optax: the doctor must be quiet.

Each function returns a task, or a task and its config, as a user would write it. A third are `held_out`: the rules of
the doctor were not changed after looking at them.
"""

from lapwing.bench.doctor import clean_in

from . import generative, libraries, options, sequences, supervised

CLEAN = clean_in(supervised, generative, sequences, options, libraries)
