"""How programs are compiled for the same bits, and what a run says about it. A GPU is only believed to be one here:
the benchmarks `determinism` and `kills` train on a real one."""

import jax
import jax.numpy as jnp
import pytest

from lapwing.journal import Run
from lapwing.train import FitConfig, _compiling, fit
from lapwing.train._compiling import fingerprint, how_to_compile, other_bits
from tests.train.tasks import line


def looked_up(table, rows):
    return jnp.sum(table[rows] ** 2)


def pooled(x):
    return jnp.sum(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2,), (1,), "VALID"))


def program_of(function, *arguments):
    return jax.make_jaxpr(function)(*arguments).jaxpr


TABLE, ROWS = jnp.ones((5, 3)), jnp.array([0, 1, 1])
PROGRAMS = {
    "matrices": program_of(jax.grad(lambda w: jnp.sum(jnp.tanh(w @ w))), jnp.ones((3, 3))),
    "look-ups": program_of(jax.grad(looked_up), TABLE, ROWS),
    "look-ups in a loop": program_of(
        jax.grad(lambda table: jax.lax.fori_loop(0, 3, lambda k, s: s + looked_up(table, ROWS + k), 0.0)),
        TABLE,
    ),
    "pooling": program_of(jax.grad(pooled), jnp.arange(6.0)),
}


@pytest.mark.parametrize(
    ("program", "options", "words"),
    [
        ("matrices", {}, "compiled programs are kept"),
        ("look-ups", {"xla_gpu_deterministic_ops": True}, "deterministic operations, because of scatter_add"),
        ("look-ups in a loop", {"xla_gpu_deterministic_ops": True}, "deterministic operations"),
        ("pooling", {}, "equal runs may differ in their bits: max pooling's"),
    ],
)
def test_a_gpu_gets_deterministic_operations_where_it_needs_them(program, options, words, monkeypatch):
    assert how_to_compile(FitConfig(), PROGRAMS[program]) == ({}, "")  # A CPU needs none.
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    how = how_to_compile(FitConfig(), PROGRAMS[program])
    assert how.options == options
    assert how.words.startswith(words)
    off = how_to_compile(FitConfig(deterministic=False), PROGRAMS[program])
    assert off == ({}, "equal runs may differ in their bits: `deterministic` is off")


def test_programs_are_kept_unless_jax_keeps_them_already(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = jax.config.values["jax_compilation_cache_dir"]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    _compiling.keep_programs(FitConfig())
    assert jax.config.values["jax_compilation_cache_dir"] == before
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        _compiling.keep_programs(FitConfig(deterministic=False))
        assert jax.config.values["jax_compilation_cache_dir"] is None
        _compiling.keep_programs(FitConfig())
        assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "lapwing" / "programs")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        _compiling.compilation_cache.reset_cache()


def test_a_fingerprint_is_of_the_program_and_not_of_its_source():
    def doubled(x):
        return jnp.sin(x) * 2

    one = doubled

    def doubled(y):  # The same at another line.
        sine = jnp.sin(y)
        return sine * 2

    def found(function):
        return fingerprint(jax.jit(function).lower(1.0).compile())

    assert found(one) == found(doubled) != found(lambda x: jnp.cos(x) * 2)


def test_a_run_records_what_was_compiled(tmp_path):
    config = FitConfig(steps=20, laps_every=0)
    with Run.create("line", config, runs_dir=tmp_path) as run:
        fit(line(), config, run, quiet=True)
    compiled = Run.open(run.folder).environment["compiled"]
    assert compiled["deterministic"] == "always, on a CPU"
    assert len(compiled["fingerprint"]) == 16
    with Run.create("line", config, runs_dir=tmp_path) as again:
        fit(line(), config, again, quiet=True)
    assert Run.open(again.folder).environment["compiled"] == compiled


def test_a_run_resumed_elsewhere_says_that_bits_may_differ(tmp_path, capsys):
    config = FitConfig(steps=20, laps_every=0)
    with Run.create("line", config, runs_dir=tmp_path, device="another GPU") as run:
        fit(line(), config, run, quiet=True)
    longer = FitConfig(steps=40, laps_every=0)
    with Run.reopen(run.folder, device="cpu") as resumed:
        fit(line(), longer, resumed, allow_change=True)
    assert "may differ in their last bits" in capsys.readouterr().out
    assert "device another GPU → cpu" in (run.folder / "journal.md").read_text()
    with Run.reopen(run.folder, device="another GPU") as resumed:
        fit(line(), FitConfig(steps=60, laps_every=0), resumed, allow_change=True)
    assert "may differ" not in capsys.readouterr().out


def test_other_versions_of_what_does_not_compute_are_not_named():
    assert other_bits({"versions.lapwing": ("1", "2"), "variables.JAX_PLATFORMS": ("cpu", None)}) == ""
