"""A fuzzer of everything that Lapwing reads: `make fuzz`, or `python -m tests.fuzz --help`.

Real files are mutated and read by the commands, in child processes with a limit of time and of memory. Every mutation
has a number: the same number makes the same mutation again. What it may find: an exception that is not a sentence for
the user, a hang, too much memory, an escape sequence on the terminal, another run that is shown differently, a damaged
checkpoint that is believed. A few hundred mutations of each kind are part of the tests (`test_fuzz.py`).
"""
