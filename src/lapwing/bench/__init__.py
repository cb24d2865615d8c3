"""Benchmarks by name, run by `lapwing bench SUITE`. Each times public names against a rival in one run.

A suite is a module with a frozen dataclass `Config`, whose fields are the options, and two functions:
`run(config)`, which returns the results as plain data (numbers, texts, lists, dicts), and `show(results)`,
which prints them for a person. Reading this registry imports no jax.
"""

from lapwing.core import Entry, Registry

REGISTRY = Registry(
    "a benchmark",
    "lapwing.bench",
    {
        "dmm": Entry("dmm", "dataflow matrix machines: compiled against interpreted and hand-written ones"),
        "attack": Entry(
            "attack", "a step of adversarial training, then and now: one image at a time, batched, replayed"
        ),
        "robust": Entry(
            "robust", "what adversarial training reaches: methods side by side under a strong attack"
        ),
        "laps": Entry("laps", "what measuring costs: a phase and a step of Laps, and its memory"),
        "journal": Entry(
            "journal", "what the run folder costs: a record, a look into the inbox, reading a long run"
        ),
        "loop": Entry("loop", "what the training loop costs: fit against a bare loop around the same step"),
        "gru": Entry("gru", "the gradient of recurrent networks: lw.scan against jax.lax.scan and others"),
        "sweep": Entry("sweep", "many runs: workers and populations against one run after the other"),
        "thinker": Entry("thinker", "thinking in steps: one scan against a loop with a memory that grows"),
        "thinker-results": Entry(
            "thinker_results", "what the thinker learns: tasks, memory, latents × steps"
        ),
    },
)

__all__ = ["REGISTRY", "Entry"]
