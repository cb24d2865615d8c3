"""`lapwing bench recurrent`: any recurrent cell, in time, compile time and accuracy."""

import contextlib
import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import pytest

import lapwing as lw
from lapwing.bench import _recurrent_report, recurrent
from lapwing.bench._cells import CELLS
from lapwing.bench.measure import BenchError
from lapwing.bench.recurrent import KINDS, Config, Row, choose, measure, run
from tests.docs import DOCS
from tests.slow import some

TINY = ("lstm,2,4,8", "slstm,2,4,8")


def tiny(out, **options):
    options = {"shapes": TINY, "dtypes": ("float32",), "rounds": 1, "peers": False, "out": str(out)} | options
    return Config(**options)


@pytest.mark.parametrize("kind", some(CELLS, 0))
def test_a_cell_has_finite_gradients_for_all_its_weights(kind):
    loss, arguments = CELLS[kind]
    weights, xs = arguments(2, 5, 8)
    value, gradients = jax.jit(jax.value_and_grad(lambda weights: loss(jax.lax.scan, weights, xs)))(weights)
    assert jnp.isfinite(value)
    assert gradients.keys() == weights.keys()
    for name, gradient in gradients.items():
        assert jnp.all(jnp.isfinite(gradient)), name
        assert jnp.any(gradient != 0), name


def test_heads_do_not_see_each_other():
    """A change of one head's weights changes nothing in the others but through the input, which they all share."""
    loss, arguments = CELLS["slstm"]
    weights, xs = arguments(2, 5, 8)
    outputs = []

    def scan(step, init, xs):
        outputs.append(jax.lax.scan(step, init, xs)[1])
        return None, outputs[-1]

    loss(scan, weights, xs)
    changed = {**weights, "recurrent": weights["recurrent"].at[:, 1].add(1.0)}
    loss(scan, changed, xs)
    before, after = outputs
    assert jnp.array_equal(before[:, :, [0, 2, 3]], after[:, :, [0, 2, 3]])
    assert not jnp.array_equal(before[:, :, 1], after[:, :, 1])


@pytest.mark.slow
def test_rows_have_times_compile_times_and_errors(tmp_path, capsys):
    results = run(tiny(tmp_path))
    assert results == json.loads((tmp_path / "recurrent-cpu.json").read_text())
    assert (tmp_path / "recurrent-cpu.png").stat().st_size > 5000
    for row in results["table"]:
        assert list(row["ms"]) == ["lax.scan", "lw.scan"]
        assert all(seconds > 0 for seconds in row["compile_s"].values())
        assert row["error"]["lw.scan"].keys() == {"value", "input", "recurrent", "bias"}
        assert all(error < 1e-5 for errors in row["error"].values() for error in errors.values())
        assert row["failed"] == {}
    assert results["left_out"] == []
    assert results["environment"]["versions"]["jax"] == jax.__version__
    recurrent.show(results)
    shown = capsys.readouterr().out
    assert "slstm (2, 4, 8) float32, recurrent" in shown
    assert "float32, cells: lw.scan is at" in shown


def test_what_has_no_time_is_left_out_and_resumed(tmp_path, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    measured = []

    def slow(row, config, number):
        now[0] += 200
        measured.append(row)
        return {**row.key, "ms": {"lw.scan": 1.0}, "compile_s": {}, "error": {}, "failed": {}}

    monkeypatch.setattr(recurrent, "measure", slow)
    config = tiny(tmp_path, shapes=(*TINY, "gru,2,4,8"))
    results = run(config)
    assert results["left_out"] == ["gru (2, 4, 8) float32"]
    recurrent.show(results)
    assert "left out (--resume measures them): gru (2, 4, 8) float32" in capsys.readouterr().out
    again = run(tiny(tmp_path, shapes=config.shapes, resume=True))
    assert [row.kind for row in measured] == ["lstm", "slstm", "gru"]
    assert [row["kind"] for row in again["table"]] == ["lstm", "slstm", "gru"]
    assert again["left_out"] == []


def test_a_run_that_is_killed_keeps_what_it_measured(tmp_path, monkeypatch):
    def once(row, config, number):
        if number:
            raise SystemExit("killed")
        return measure(row, config, number)

    monkeypatch.setattr(recurrent, "measure", once)
    with pytest.raises(SystemExit):
        run(tiny(tmp_path))
    results = json.loads((tmp_path / "recurrent-cpu.json").read_text())
    assert [row["kind"] for row in results["table"]] == ["lstm"]
    assert results["left_out"] == ["slstm (2, 4, 8) float32"]


def test_ctrl_c_ends_it_with_results(tmp_path, monkeypatch):
    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(recurrent, "measure", pressed)
    assert run(tiny(tmp_path))["interrupted"]


def test_the_rows_of_another_machine_are_not_resumed(tmp_path):
    path = tmp_path / "recurrent-cpu.json"
    path.write_text(json.dumps({"environment": {"device": "another"}, "table": []}))
    with pytest.raises(BenchError, match="is from another device or other versions; move it away, or leave"):
        run(tiny(tmp_path, resume=True))
    path.write_text("{")
    with pytest.raises(BenchError, match="is not JSON; remove it, or leave out --resume"):
        run(tiny(tmp_path, resume=True))


def test_a_rival_that_fails_is_named_and_the_others_are_timed(monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("planted\nand more")

    monkeypatch.setattr(lw, "scan", broken)
    row = measure(Row("lstm", (2, 4, 8), "float32"), tiny(""))
    assert row["failed"] == {"lw.scan": "RuntimeError: planted"}
    assert list(row["ms"]) == ["lax.scan"]
    assert "lw.scan failed: RuntimeError: planted" in capsys.readouterr().err


def test_on_a_gpu_one_rival_is_traced_without_persistent_kernels(monkeypatch):
    modes, traced = [], []

    @contextlib.contextmanager
    def use_persistent(mode):
        modes.append(mode)
        yield
        modes.pop()

    def scan(*args):
        traced.append(list(modes))
        return jax.lax.scan(*args)

    monkeypatch.setattr(lw.loops, "use_persistent", use_persistent, raising=False)
    monkeypatch.setattr(lw, "scan", scan)
    on_gpu = recurrent.scans
    monkeypatch.setattr(recurrent, "scans", lambda _: on_gpu("gpu"))
    row = measure(Row("gru", (2, 4, 8), "float32"), tiny("", accuracy=False))
    assert traced == [["off"], []]
    assert list(row["ms"]) == ["lax.scan", "lw.scan off", "lw.scan"]


def test_float16_of_cudnn_is_a_rival_in_bfloat16():
    pytest.importorskip("torch")
    row = measure(Row("gru", (2, 4, 8), "bfloat16"), tiny("", peers=True, accuracy=False))
    assert list(row["ms"]) == ["lax.scan", "lw.scan", "torch bfloat16", "torch float16"]
    assert row["error"] == {}


def test_the_table_of_a_gpu_is_the_one_of_the_bars():
    rows = choose(Config(), "gpu")
    assert len(rows) == 2 * (9 + len(CELLS))
    assert {row.kind for row in rows} == set(KINDS)
    assert [row.dtype for row in rows[:13]] == ["bfloat16"] * 13
    assert {row.kind for row in choose(Config(kinds=("slstm", "oscillator")), "gpu")} == {
        "slstm",
        "oscillator",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ("slstn",)}, "kinds are gru, lstm, .*, not 'slstn'"),
        ({"dtypes": ("float64",)}, "dtypes are bfloat16, float32, float16, not 'float64'"),
        ({"shapes": ("cell,1,2,3",)}, "not 'cell,1,2,3'; kinds are gru, lstm, layer_norm_lstm"),
        ({"shapes": ("slstm,2,4,6",)}, "an slstm has 4 heads, so its width is a multiple of 4, not 6"),
        ({"kinds": ("gru",), "shapes": TINY}, "no shape is of the kinds gru; name some with --shapes"),
    ],
)
def test_a_wrong_option_is_one_sentence(options, message):
    with pytest.raises(BenchError, match=message):
        choose(Config(**options), "cpu")


def test_means_are_of_the_rows_that_have_both():
    def row(kind, **ms):
        names = {"lax": "lax.scan", "off": "lw.scan off", "lw": "lw.scan"}
        ms = {names[name]: value for name, value in ms.items()}
        return {"kind": kind, "dtype": "bfloat16", "ms": ms, "compile_s": ms, "error": {}, "failed": {}}

    rows = [row("gru", lax=8.0, off=2.0, lw=1.0), row("lstm", lax=2.0, lw=1.0), row("slstm", lax=3.0, lw=1.0)]
    found = _recurrent_report.summary(rows)["bfloat16"]
    assert found["networks"]["geometric_mean"] == {
        "lax.scan": {"times_faster": pytest.approx(4.0), "rows": 2},
        "lw.scan off": {"times_faster": pytest.approx(2.0), "rows": 1},
    }
    assert found["networks"]["median_compile"]["lax.scan"]["times_longer"] == pytest.approx(0.3125)
    assert found["cells"]["geometric_mean"]["lax.scan"]["times_faster"] == pytest.approx(3.0)


def test_it_runs_without_the_packages_of_the_command_line(tmp_path):
    hide = "import sys; sys.modules['tyro'] = sys.modules['rich'] = None; import runpy; "
    code = hide + "runpy.run_module('lapwing.bench.recurrent', run_name='__main__')"
    options = [
        "--shapes",
        "lstm,2,4,8",
        "--dtypes",
        "float32",
        "--rounds",
        "1",
        "--no-peers",
        "--json",
        "--out",
        "",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *options], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["table"][0]["kind"] == "lstm"


@pytest.mark.parametrize("page", ["README.md", "docs/README.md", "docs/loops.md"])
def test_the_errors_on_the_pages_are_those_that_were_measured(page):
    root = DOCS.parent
    results = json.loads((root / "benchmarks" / "results" / "recurrent-cpu.json").read_text())
    key = Row("lstm", (16, 1024, 128), "bfloat16").key
    (row,) = [row for row in results["table"] if key.items() <= row.items()]
    text = (root / page).read_text(encoding="utf-8")
    for name in ("bias", "recurrent"):
        assert f"{row['error']['lax.scan'][name]:.0%}" in text
        assert f"{row['error']['lw.scan'][name]:.2%}" in text
    assert 0.7 < row["ms"]["lw.scan"] / row["ms"]["lax.scan"] < 0.8
