"""Benchmarks that `lapwing bench SUITE` runs. Those that only the project runs are in benchmarks/ of the repository.

A suite is a module with a frozen dataclass `Config`, whose fields are the options, and two functions: `run(config)`
returns the results as plain data, and `show(results)` prints them. Reading this registry does not import jax.
"""

from lapwing.core import Entry, Registry

REGISTRY = Registry(
    "a benchmark",
    "lapwing.bench",
    {
        "gru": Entry("gru", "the gradient of recurrent networks: lw.scan against jax.lax.scan and others"),
        "recurrent": Entry(
            "recurrent",
            "any recurrent cell: lw.scan, its persistent kernels off, jax.lax.scan and cuDNN; speed and accuracy",
        ),
        "loops": Entry(
            "loops", "loops that users write: lw.scan against jax.lax.scan in time and memory, body by body"
        ),
        "laps": Entry("laps", "the cost of measuring: a phase and a step of Laps, and its memory"),
        "journal": Entry(
            "journal", "the cost of the run folder: a record, a poll of the inbox, reading a long run"
        ),
        "loop": Entry("loop", "the cost of the training loop: fit against a bare loop around the same step"),
        "doctor": Entry(
            "doctor",
            "the checks on bugs that happened in public and on correct programs: found, named, false alarms",
        ),
    },
)

__all__ = ["REGISTRY", "Entry"]
