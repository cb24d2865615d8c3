"""How all tests compile: quickly, and each program once.

What the tests compare is numbers, not time, so XLA skips most optimizations; tests marked `optimized` look at compiled
code or its speed, and compile in full. `fit` compiles fresh closures in each test, and child processes start with
nothing, so workers and children share a folder of compiled programs. It survives a run: the key of an entry is the
whole program with the version and options of its compiler. Tracing and lowering, which is Lapwing's part, always run.
Entries are deleted after a week, so that neither the folder grows for ever nor a damaged entry stays.
"""

# ruff: noqa: E402 - jax reads these variables when it is imported.

import gc
import os
import signal
import sys
import time
from importlib.metadata import version
from pathlib import Path

# Child processes inherit these.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parents[1] / ".pytest_cache" / "jax")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# A program that another process is writing, or was killed while writing, is compiled again.
os.environ["PYTHONWARNINGS"] = "ignore:Error reading persistent compilation cache"
# Hundreds of children would each compile all of Lapwing again, which is a quarter of their start, and every worker all
# tests; Git ignores the folders of what was compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# XLA's older emitters of kernels compile three times as fast, and in one part a quarter faster than in many. XLA ends
# the process at a flag that it does not know.
_FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
if version("jaxlib").startswith("0.10.") and _FLAGS not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS}".strip()

import hypothesis
import jax
import pytest
import tyro  # noqa: F401 - Before any doctest: it reads the builtins, where a doctest leaves its last answer as `_`.
from jax.experimental.compilation_cache import compilation_cache

# On a busy machine examples are slow to draw and to run, which says nothing of the code; that filters reject too much
# still fails.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")

# While tests are collected, nothing that is made becomes garbage, and each look for it goes through all of jax too.
gc.disable()

# A shell that runs the tests in the background has Ctrl-C ignored, and children inherit that; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # Not in the workers too.
        for entry in Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).glob("*"):
            if entry.stat().st_mtime < time.time() - 7 * 24 * 3600:
                entry.unlink(missing_ok=True)


# Examples in docstrings that take about half a second or more, of what the tests try in more ways.
_SLOW_EXAMPLES = {
    "Addition", "AdditionText", "AutoAttack", "Candidates", "Cnn", "Halted", "Halting", "Mail", "Maze",
    "Multiplication", "PrefixSums", "ReplayBuffer", "ResNet", "SequenceProblem", "Sudoku", "Superfluid", "Thinker",
    "accumulation", "answers", "apgd", "born", "check_pairs", "errors_on", "evaluate", "fit_many", "from_teacher",
    "held_out", "load_digits", "masking_checks", "measure", "project_l1", "repair", "repair_all", "run_job",
    "run_sweep", "sample", "square", "superfluid_task", "synthesize", "tests_of", "to_plane", "value_and_grad",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before the slow ones are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name.rpartition(".")[2] in _SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _compile_in_full(request: pytest.FixtureRequest):
    """Tests marked `optimized` compile with all optimizations, and never load a program that was compiled before."""
    if request.node.get_closest_marker("optimized") is None:
        yield
        return
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


@pytest.fixture(autouse=True)
def _machines_by_xla(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Machines are compiled by XLA, the reference, as where llvmlite is not installed; LLVM has no folder of what was
    compiled. Tests marked `native` have native code where it is installed."""
    compiler = sys.modules.get("lapwing.dmm._compile")
    if compiler is not None and request.node.get_closest_marker("native") is None:
        monkeypatch.setattr(compiler, "is_installed", lambda: False)


def pytest_collection_finish() -> None:
    """Modules and tests live until the end: the garbage collector need not look at them after each trace."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)


# An eighth of the memory of this machine: what is freed is traced, and read from the folder, again.
_LEAST = min(3e9, max(1e9, 0.125 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
_free_above = _LEAST


@pytest.fixture(autouse=True)
def _free_what_was_compiled():
    """A worker that kept every program of the suite would grow to 5 GB; what is needed again is in the folder."""
    yield
    global _free_above
    if _resident_bytes() > _free_above:
        jax.clear_caches()
        gc.collect()
        # Part of what was freed stays with the process, to be used again.
        _free_above = max(_LEAST, _resident_bytes() + 2e8)


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # Only Linux tells.
        return 0
