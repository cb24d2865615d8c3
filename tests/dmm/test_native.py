"""Native code computes what XLA computes: answers and all kinds of derivatives, alone, in a batch and on texts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from lapwing import dmm, jaxprs, trees
from lapwing.dmm import MachineError, _compile, native
from tests.slow import some

from .strategies import cases
from .test_compile_agrees import check
from .test_program import recurrent_machine

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.native

TEXT = "aab."
PAIRS = [(0.75, -0.5), (-1.25, 2.0), (0.3, 0.3), (0.0, 1.5), (-2.0, 0.0)]
NO_NUMBERS = [(np.nan, 1.0), (1.0, np.nan), (np.inf, -1.0)]
FUNCTIONS = {
    "arithmetic": lambda x, y: (x + y) * (x - y) / (2 + y * y) - jnp.square(-x),
    "choices": lambda x, y: jnp.where(x > y, x, 3 * y) + jnp.where((x >= 0) & (y <= 1) | (x == y), 1.0, -2.0),
    "clip": lambda x, y: jnp.clip(x, -1, 1) + jnp.abs(y),
    "extremes": lambda x, y: jnp.maximum(x, y) - 2 * jnp.minimum(x, y),
    "counts": lambda x, y: 3 * jnp.where(~(y < 1), 2, 1) - jnp.where(x != y, 1, 0) ** 2,
    "exponentials": lambda x, y: jnp.exp(x) + jnp.log1p(y * y) + jnp.tanh(x * y) + jax.nn.sigmoid(x) + jnp.expm1(y),
    "indices": lambda x, y: jnp.flip(jnp.stack([x, y, 2.0 * x]))[:2].prod() + jnp.tile(x, 2)[0],
    "powers": lambda x, y: x**3 + (2 + x * x) ** -2 + jnp.sqrt(1 + x * x) + jax.lax.rsqrt(1 + y * y),
    "reductions": lambda x, y: jnp.max(jnp.stack([x, y, x * y])) * jnp.prod(jnp.stack([x + 3, y + 3])),
    "rounding": lambda x, y: jnp.floor(3 * x) + jnp.round(5 * x) + jnp.sign(y) + x % 0.4 + jnp.trunc(3 * y),
    "types": lambda x, y: jnp.asarray(3 * x).astype(int) - jnp.asarray(x > y).astype(int) + jnp.ceil(y),
    "waves": lambda x, y: jnp.sin(3 * x) + jnp.cos(y) + jnp.arctan2(x, 1 + y * y) + jnp.tan(0.3 * x),
}  # fmt: skip


def machines() -> dict[str, dmm.Machine]:
    return {
        "recurrent": recurrent_machine(),
        "feed-forward": dmm.random_start(dmm.feedforward_student(2, 1), jax.random.key(0), 0.4),
        "fluid": dmm.random_start(dmm.superfluid_student(2, 1), jax.random.key(1), 0.4),
    }


def of_two_numbers(functions) -> dmm.Machine:
    """For each function a neuron that reads two trained numbers, and an answer."""
    fields = [f"answer-{number:02}" for number in range(len(functions))]
    machine = dmm.Machine(output="answers")
    machine.neuron("one", dmm.const_1)
    machine.neuron("answers", dmm.activation(inputs=fields, name="answers")(lambda inputs: {}))
    for field, (name, function) in zip(fields, functions.items(), strict=True):
        machine.neuron(name, neuron_of(function))
        machine.link(f"{name}.x", "one.const_1", 0.5)
        machine.link(f"{name}.y", "one.const_1", 0.25)
        machine.link(f"answers.{field}", f"{name}.result", 1.0)
    return machine


def neuron_of(function) -> dmm.Activation:
    @dmm.activation(inputs=("x", "y"), outputs=("result",))
    def of_two(inputs):
        x, y = (trees.number(inputs[field]) for field in ("x", "y"))
        return {"result": {":number": function(x, y) + 0.0}}

    return of_two


def programs(machine: dmm.Machine, cycles: int, **options) -> tuple[dmm.Program, dmm.Program]:
    xla, code = (dmm.compile(machine, cycles, engine=engine, **options) for engine in ("xla", "native"))
    return xla, code


def is_native(function, *given) -> bool:
    return "lapwing_dmm_" in jax.jit(function).lower(*given).as_text()


def squared(program: dmm.Program):
    return lambda params: jnp.sum((program.answers(params) - 0.5) ** 2)


def close(found, expected, atol=1e-5) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=atol), found, expected)


@pytest.mark.parametrize("name", some(["recurrent", "feed-forward", "fluid"], 0))
def test_values_and_derivatives_of_all_kinds_agree(name):
    xla, code = programs(machines()[name], 13, text=TEXT, period=2)
    start = code.random_params(jax.random.key(2), 0.5)
    direction = jnp.where(code.soft, jax.random.normal(jax.random.key(3), start.shape), 0.0)

    def found(program: dmm.Program):
        both = jax.jit(jax.value_and_grad(squared(program)))(start)
        return both, jax.jit(lambda p: jax.jvp(squared(program), (p,), (direction,)))(start)

    assert is_native(jax.grad(squared(code)), start)
    assert not is_native(jax.grad(squared(xla)), start)
    close(found(code), found(xla))


@pytest.mark.slow
def test_a_hessian_a_map_and_a_call_without_jit_agree():
    xla, code = programs(of_two_numbers({"product": lambda x, y: x * y + jnp.tanh(x)}), 3)
    start = code.random_params(jax.random.key(2), 0.5)
    both = jnp.stack([start, 2 * start])
    for function in (jax.hessian, lambda f: lambda p: jax.vmap(jax.grad(f))(both), lambda f: f):
        close(function(squared(code))(start), jax.jit(function(squared(xla)))(start))


@pytest.mark.slow
@pytest.mark.parametrize("texts", some([None, ["aab.", "b.ba", "."]], 1))
def test_a_batch_of_machines_on_several_texts(texts):
    given = {"text": TEXT} if texts is None else {"texts": texts}
    xla, code = programs(recurrent_machine(), 9, period=2, governor=1.0, **given)
    starts = code.random_params(jax.random.key(2), 0.7, machines=3)

    def step(program: dmm.Program):
        return jax.jit(program.value_and_grad(lambda params, answers: jnp.sum((answers - 0.5) ** 2)))

    assert is_native(step(code), starts)
    close(step(code)(starts), step(xla)(starts))


def test_large_batches_of_small_machines_are_left_to_xla(monkeypatch):
    program = dmm.compile(recurrent_machine(), 3, text=TEXT)
    many = program.random_params(jax.random.key(0), 0.5, machines=native.MANY_RUNS)
    assert is_native(program.answers, program.start)
    assert is_native(program.answers, many[1:])
    assert not is_native(program.answers, many)
    monkeypatch.setattr(native, "MANY_LINKS", 5)
    assert is_native(program.answers, many)


@pytest.mark.slow
def test_in_double_precision():
    with jax.enable_x64(True):
        xla, code = programs(recurrent_machine(), 13, text=TEXT, period=2)
        start = xla.random_params(jax.random.key(2), 0.5)
        found, expected = (jax.jit(jax.grad(squared(program)))(start) for program in (code, xla))
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "wirings", [pytest.param(1, id="few"), pytest.param(20, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(cases(self_modifying=False), id="plain"),
        pytest.param(cases(fluid=True, self_modifying=False), id="fluid"),
        pytest.param(cases(self_modifying=False, nested=True), id="nested", marks=pytest.mark.slow),
    ],
)
def test_random_machines(kind, wirings):
    @settings(max_examples=wirings, deadline=None, suppress_health_check=list(HealthCheck))
    @given(kind)
    def agree(case):
        check(case, weights=2)

    agree()


@pytest.fixture(scope="module")
def of_functions():
    """Answers and slopes of all functions at each pair, in native code and by XLA: one program, since each costs half a
    second."""
    found = []
    for program in programs(of_two_numbers(FUNCTIONS), 3):
        places = jnp.array(
            [
                [program.paths.index(("matrix", n, field, "one", "const_1")) for n in FUNCTIONS]
                for field in "xy"
            ]
        )
        starts = [
            program.start.at[places].set(jnp.array(pair)[:, None] * jnp.ones(len(FUNCTIONS)))
            for pair in [*PAIRS, *NO_NUMBERS]
        ]

        def both(params, program=program):
            answers, back = jax.vjp(lambda p: program.answers(p)[-1], params)
            return answers, back(2 * (answers - 0.5))[0]

        answers, slopes = jax.jit(lambda p, both=both: jax.lax.map(both, p))(jnp.stack(starts))
        assert is_native(program.answers, program.start) == bool(found)  # the second one
        found.append((program.fields, np.asarray(answers), np.asarray(slopes[:, places])))
    return found


@pytest.mark.parametrize("name", some(FUNCTIONS, 0, 1, 6, 8))
def test_functions(name, of_functions):
    """A neuron that reads two trained numbers."""
    number = list(FUNCTIONS).index(name)
    (expected, slopes), (values, gradients) = (
        (answers[:, fields.index(f"answer-{number:02}")], slopes[..., number])
        for fields, answers, slopes in of_functions
    )
    assert np.ptp(expected[: len(PAIRS)]) > 0.1
    close(values, expected, atol=1e-4)
    close(gradients[: len(PAIRS)], slopes[: len(PAIRS)], atol=1e-4)


def test_an_exported_program_and_one_without_llvmlite_hold_no_native_code(monkeypatch):
    program = dmm.compile(recurrent_machine(), 4, text=TEXT)
    exported = jax.export.export(jax.jit(program.answers))(program.start)
    assert "lapwing_dmm_" not in exported.mlir_module()
    close(exported.call(program.start), program.answers(program.start))
    monkeypatch.setattr(_compile, "is_installed", lambda: False)
    without = dmm.compile(recurrent_machine(), 4, text=TEXT)
    assert "dmm_run" not in str(jax.make_jaxpr(without.answers)(without.start))


def test_who_reads_a_program_finds_operations_of_jax():
    """As the doctor does, also where the function was jitted, and called, before."""
    program = dmm.compile(recurrent_machine(), 4, text=TEXT, accumulator_gradient="truncated")
    loss = jax.jit(squared(program))
    loss(program.start)
    assert "dmm_run" in str(jax.make_jaxpr(loss)(program.start))
    seen = str(jaxprs.readable(loss)(program.start))
    assert "dmm_run" not in seen
    assert "stop_gradient" in seen
    loss(program.start)
    assert "dmm_run" in str(jax.make_jaxpr(loss)(program.start))


def test_a_function_that_native_code_does_not_know_stays_with_xla():
    @dmm.activation(inputs=("dict",), outputs=("dict",))
    def strange(inputs):
        x = trees.number(inputs["dict"])
        return {"dict": {":number": jax.lax.while_loop(lambda x: x > 1, lambda x: x / 2, x)}}

    machine = dmm.duplicate_detector()
    machine.neuron("strange", strange)
    machine.link("strange.dict", "norm.norm", 1.0)
    machine.link("output.dict-1", "strange.dict", 1.0)
    program = dmm.compile(machine, 6, text="aaab", period=1)
    assert not is_native(program.answers, program.start)
    required = dmm.compile(machine, 6, text="aaab", period=1, engine="native")
    with pytest.raises(MachineError, match=r'native code .* a function has none .*; compile .* engine="xla"'):
        required.answers(required.start)


@pytest.mark.parametrize(
    ("name", "engine", "installed", "message"),
    [
        ("parity", "cuda", True, "engine is one of auto, native, xla, not 'cuda'"),
        ("parity", "native", False, r"needs llvmlite: pip install lapwing\[native\]"),
        ("wave", "native", True, "machines that do not rewrite themselves"),
    ],
)
def test_errors_say_what_to_do(name, engine, installed, message, monkeypatch):
    monkeypatch.setattr(_compile, "is_installed", lambda: installed)
    with pytest.raises(MachineError, match=message):
        dmm.compile(dmm.Machine.load(name), 3, engine=engine)
