"""The interpreter runs a jaxpr as it is, except where a rule takes over. Programs are compared, not numbers."""

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import primitives as p

from lapwing.jaxprs import (
    call_around_scan,
    equations,
    interpret,
    open_calls,
    plain_call,
    run_equations,
    scans,
)


@jax.custom_vjp
def doubled(x):
    return jnp.sin(x)


doubled.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * g * jnp.cos(x),))


@jax.custom_jvp
def tripled(x):
    return jnp.sin(x)


tripled.defjvp(lambda primals, tangents: (jnp.sin(*primals), 3 * tangents[0]))


def everything(x):
    """Every kind of call that has a program inside."""
    x, _ = jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, length=3)
    x = jax.lax.cond(x > 0, jnp.sin, jnp.cos, x)
    x = jax.lax.while_loop(lambda c: c < 1, lambda c: c + jnp.exp(c), x)
    x = jax.jit(lambda x: jnp.sin(x) * 2)(x)
    x = jax.checkpoint(jnp.sin)(x)
    return doubled(x) + tripled(x)


def traced(function, *args):
    return jax.make_jaxpr(function)(*args)


def rerun(function, *args, rule=None):
    """The program of interpreting a function's program."""
    closed = traced(function, *args)
    values = [] if rule is None else [rule]
    return traced(lambda *args: interpret(closed.jaxpr, [*closed.consts, *args], *values), *args)


def names(closed) -> list[str]:
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def test_without_a_rule_every_call_is_preserved():
    assert names(rerun(everything, 0.5)) == names(traced(everything, 0.5))
    assert {"scan", "cond", "while", "custom_vjp_call", "custom_jvp_call"} < set(
        names(rerun(everything, 0.5))
    )


def test_custom_derivatives_survive():
    closed = traced(lambda x: doubled(x) + tripled(x), 0.0)
    gradient = jax.grad(lambda x: interpret(closed.jaxpr, [x])[0])(0.0)
    assert gradient == 2 + 3


def test_a_rule_handles_an_equation_or_declines():
    seen = []

    def rule(eqn, inputs):
        seen.append(eqn.primitive.name)
        return [jnp.cos(*inputs)] if eqn.primitive is p.sin_p else None

    assert names(rerun(lambda x: jnp.exp(jnp.sin(x)), 0.0, rule=rule)) == ["cos", "exp"]
    assert seen == ["sin", "exp"]


def test_calls_are_opened_only_by_the_rule_that_opens_them():
    def rule(eqn, inputs):
        return [jnp.cos(*inputs)] if eqn.primitive is p.sin_p else None

    def nested(x):
        return jax.jit(jax.jit(lambda x: jnp.sin(x) + 1))(x)

    assert names(rerun(nested, 0.0, rule=rule)) == names(traced(nested, 0.0)) == ["jit"]
    assert names(rerun(nested, 0.0, rule=open_calls(rule))) == ["cos", "add"]


def test_a_plain_call_has_no_meaning_of_its_own():
    opened = [eqn.primitive.name for eqn in traced(everything, 0.5).jaxpr.eqns if plain_call(eqn)]
    assert opened == ["jit"]
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    (eqn,) = traced(jax.jit(jnp.sin, out_shardings=device), 0.0).jaxpr.eqns
    assert plain_call(eqn) is None


def test_scans_behind_calls_are_found_but_not_those_in_control_flow():
    def loop(x):
        return jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, length=3)[0]

    def many(x):
        x = jax.jit(loop)(jax.checkpoint(loop)(x))
        x = jax.lax.scan(lambda c, _: (loop(c), None), x, length=2)[0]
        return jax.lax.cond(x > 0, loop, lambda x: x, x)

    closed = traced(many, 0.5)
    assert [eqn.params["length"] for eqn in scans(closed.jaxpr, call_around_scan)] == [3, 3, 2]
    assert sum(eqn.primitive is p.scan_p for eqn in equations(closed.jaxpr)) == 5
    met = []

    def rule(eqn, inputs):
        if eqn.primitive is p.scan_p:
            met.append(eqn.params["length"])

    rerun(many, 0.5, rule=open_calls(rule, call_around_scan))
    assert met == [3, 3, 2]


def test_equations_run_on_any_values_that_the_rule_knows():
    jaxpr = traced(lambda x, y: x * y + 1, 1.0, 2.0).jaxpr
    env = dict(zip(jaxpr.invars, ["x", "y"], strict=True))
    run_equations(
        jaxpr.eqns, env, lambda eqn, inputs: [f"{eqn.primitive.name}({', '.join(map(str, inputs))})"]
    )
    assert env[jaxpr.outvars[0]] == "add(mul(x, y), 1.0)"


def test_source_lines_and_name_scopes_survive():
    def named(x):
        with jax.named_scope("layer"):
            return jnp.sin(x)

    before, after = (each.jaxpr.eqns[0].source_info for each in (traced(named, 0.0), rerun(named, 0.0)))
    assert str(after.name_stack) == str(before.name_stack) == "layer"
    assert after.traceback is before.traceback


@pytest.mark.parametrize("values", [[], [1.0, 2.0]])
def test_the_number_of_values_must_fit(values):
    with pytest.raises(ValueError, match="argument"):
        interpret(traced(jnp.sin, 0.0).jaxpr, values)
