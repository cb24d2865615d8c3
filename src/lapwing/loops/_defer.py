"""A loop with a faster derivative.

`differentiable(loop)` runs the loop as it is, and gives it a derivative rule of its own: the values are computed by
one loop that keeps what the derivative needs (`_residuals`), and the tangents by a linear loop from which everything
that does not depend on the carried tangent has been moved out (`_split`). The rule only says how tangents are
computed, and jax derives the rest from it: transposed, the moved parts become the deferred weight gradients; forward
mode, vmap and higher derivatives work as for any other function.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.extend import core
from jax.extend.core import primitives as p

from lapwing import jaxprs
from lapwing.jaxprs import Env, Loop, Values
from lapwing.loops._costs import Costs
from lapwing.loops._decisions import record
from lapwing.loops._hoist import constant_vars, evaluate
from lapwing.loops._linearize import Linearized, active_inputs, linearized
from lapwing.loops._over_time import Stacked, bind_over_time, broadcast, stack_all
from lapwing.loops._residuals import values_to_keep
from lapwing.loops._split import SUMS, Split, split


def differentiable(loop: Loop, costs: Costs) -> Callable[..., list[Any]]:
    """A function of (*consts, *init, *xs) that returns the last carry and the stacked outputs, flat."""
    rules: dict[tuple[bool, ...], Derivative] = {}

    def plain(*inputs):
        return loop.run(*loop.split_inputs(inputs))

    run = jax.custom_jvp(plain)

    def rule(primals, tangents):
        active = tuple(not isinstance(t, SymbolicZero) for t in tangents)
        if active not in rules:
            rules[active] = derivative(loop, active, costs)
            record(rules[active].parts.decisions)
        if not rules[active].gains:
            return jvp(plain, loop, primals, tangents)
        return rules[active].run(primals, tangents)

    run.defjvp(rule, symbolic_zeros=True)
    return run


def jvp(
    run: Callable[..., list[Any]], loop: Loop, primals: Values, tangents: Values
) -> tuple[list[Any], list[Any]]:
    """Values and tangents of `run`, which computes what the loop does. What has no tangent gets none."""
    active = [not isinstance(tangent, SymbolicZero) for tangent in tangents]
    active_out = set(active_inputs(loop, tuple(active))[1])

    def of_active(*moving):
        given = iter(moving)
        out = run(*(next(given) if on else value for value, on in zip(primals, active, strict=True)))
        return (
            {i: value for i, value in enumerate(out) if i in active_out},
            {i: value for i, value in enumerate(out) if i not in active_out},
        )

    moving = [value for value, on in zip(primals, active, strict=True) if on]
    directions = [tangent for tangent, on in zip(tangents, active, strict=True) if on]
    values, found, still = jax.jvp(of_active, moving, directions, has_aux=True)
    values |= still
    found |= {i: _zero(value) for i, value in still.items()}
    return [values[i] for i in range(len(values))], [found[i] for i in range(len(found))]


def derivative(loop: Loop, active: tuple[bool, ...], costs: Costs) -> "Derivative":
    """Plan the derivative of a loop whose `active` inputs have a tangent."""
    body = linearized(loop, active)
    num_results = len(loop.jaxpr.outvars)
    outputs = body.values.outvars
    shadow = dataclasses.replace(loop, jaxpr=body.values, num_consts=loop.num_consts + len(body.closed_over))
    constant = constant_vars(shadow)
    coefficients = body.linear.invars[: body.num_coefficients]
    home = dict(zip(coefficients, outputs[num_results:], strict=True))
    moving = {v for v, atom in home.items() if isinstance(atom, core.Var) and atom not in constant}

    first_x = loop.num_consts + loop.num_carry
    names = dict(zip(body.active_in, body.linear.invars[body.num_coefficients :], strict=True))
    of_consts = {i: v for i, v in names.items() if i < loop.num_consts}
    of_carry = {i - loop.num_consts: v for i, v in names.items() if loop.num_consts <= i < first_x}
    of_xs = {i - first_x: v for i, v in names.items() if first_x <= i}
    parts = split(
        body.linear,
        (list(of_consts.values()), list(of_carry.values()), list(of_xs.values())),
        len(of_carry),
        moving,
        loop.length,
        costs,
    )
    already_stacked = set(jaxprs.variables(outputs[loop.num_carry : num_results]))
    free = constant | set(shadow.xs) | already_stacked
    needed = jaxprs.variables(atom for v, atom in home.items() if v in moving)
    kept = values_to_keep(body.values.eqns, needed, free, shadow.carry)
    values = body.values.replace(outvars=[*outputs[:num_results], *kept])
    return Derivative(
        body,
        parts,
        dataclasses.replace(shadow, jaxpr=values),
        kept,
        constant,
        home,
        of_consts,
        of_carry,
        of_xs,
        costs,
    )


def kept_by_step(loop: Loop, costs: Costs) -> list[core.Var]:
    """The values of each step that the gradient for all inputs keeps, and the cotangents that it stacks."""
    active = tuple(jnp.issubdtype(jaxprs.dtype(v), jnp.inexact) for v in loop.jaxpr.invars)
    found = derivative(loop, active, costs)
    return [*found.kept, *found.parts.taps]


@dataclasses.dataclass(frozen=True)
class Derivative:
    """How the values and tangents of a loop are computed when certain inputs have a tangent."""

    body: Linearized
    parts: Split
    values: Loop
    kept: list[core.Var]
    constant: set[core.Var]
    home: dict[core.Var, jaxprs.Atom]
    """Coefficient of the linear program -> its variable in the program of values."""
    of_consts: dict[int, core.Var]
    of_carry: dict[int, core.Var]
    of_xs: dict[int, core.Var]
    costs: Costs

    @property
    def gains(self) -> bool:
        """Whether this is better than jax's own derivative, which keeps every coefficient."""
        if any(self.parts.decisions):
            return True
        emitted = set(jaxprs.variables(self.body.values.outvars[self.values.num_carry : self.num_results]))
        free = self.constant | set(self.values.xs) | emitted
        theirs = {atom for atom in self.home.values() if isinstance(atom, core.Var)} - free
        taps = [v for v in self.parts.taps if v not in self.of_xs.values()]
        ours = [*self.kept, *taps]
        return self.costs.keeps_less(
            sum(map(jaxprs.nbytes, ours)), sum(map(jaxprs.nbytes, theirs)), self.values.length
        )

    @property
    def num_results(self) -> int:
        return len(self.values.jaxpr.outvars) - len(self.kept)

    def run(self, primals: Values, tangents: Values) -> tuple[list[Any], list[Any]]:
        inputs = [*self.body.closed_over, *primals]
        out = self.values.run(*self.values.split_inputs(inputs))
        results = out[: self.num_results]

        consts, _, xs = self.values.split_inputs(inputs)
        known = self._constants(dict(zip(self.values.consts, consts, strict=True)))
        stacked = dict(zip(self.values.xs, xs, strict=True))
        num_carry = self.values.num_carry
        outputs = zip(self.values.jaxpr.outvars[num_carry:], out[num_carry:], strict=True)
        stacked |= {v: value for v, value in outputs if isinstance(v, core.Var)}
        found = self._tangents(known, stacked, tangents)
        active = dict(zip(self.body.active_out, found, strict=True))
        return results, [active.get(i, _zero(value)) for i, value in enumerate(results)]

    def _constants(self, known: Env) -> Env:
        eqns = [eqn for eqn in self.body.values.eqns if self.constant.issuperset(eqn.outvars)]
        return known | evaluate(eqns, known, self.constant)

    def _tangents(self, known: Env, stacked: Env, tangents: Values) -> list[Any]:
        num_consts = self.values.num_consts - len(self.body.closed_over)
        num_carry = self.values.num_carry
        once = {v: tangents[i] for i, v in self.of_consts.items()}
        start = [_dense(tangents[num_consts + i]) for i in self.of_carry]
        each = {v: tangents[num_consts + num_carry + i] for i, v in self.of_xs.items()}

        once = _run_linear(
            self.parts.once, once, self._coefficients(self.parts.once, known), self.parts.has_outer
        )
        each = self._each_step(known, stacked, once, each)
        return self._loop(known, stacked, once, each, start)

    def _each_step(self, known: Env, stacked: Env, once: Env, each: Env) -> Env:
        """The outer parts that differ from step to step, for all steps at once."""
        coefficients = self._read_by(self.parts.each)
        used = self._inputs_of(coefficients, known, stacked)
        made = {v for eqn in self.parts.each for v in eqn.outvars}
        wanted = [v for v in self._outer_wanted() if v in made]
        if not wanted:
            return each

        def all_steps(used_values, each_values) -> list[Any]:
            have = known | stack_all(dict(zip(used, used_values, strict=True)))
            jaxprs.run_equations(self._rebuilding(coefficients, set(have)), have, bind_over_time)
            found = {v: self._coefficient(v, have) for v in coefficients}
            values = once | stack_all(dict(zip(each, each_values, strict=True)))
            values = _run_linear(self.parts.each, values, found, self.parts.has_outer)
            return [values[v].value for v in wanted]

        if self._rebuilds(coefficients, known, used):
            all_steps = jax.checkpoint(all_steps, prevent_cse=False)
        found = all_steps([stacked[v] for v in used], list(each.values()))
        return each | dict(zip(wanted, found, strict=True))

    def _outer_wanted(self) -> list[core.Var]:
        outputs = jaxprs.variables(self.body.linear.outvars[len(self.of_carry) :])
        return list(dict.fromkeys([*self.parts.taps, *outputs]))

    def _loop(self, known: Env, stacked: Env, once: Env, each: Env, start: list[Any]) -> list[Any]:
        coefficients = self._read_by(self.parts.step)
        used = self._inputs_of(coefficients, known, stacked)
        taps = [each[v] if v in each else self._repeat(once[v]) for v in self.parts.taps]
        outputs = self.body.linear.outvars[len(start) :]
        forms = self.parts.forms
        from_loop = [v for v in jaxprs.variables(outputs) if v in forms and forms[v].step]

        def step(carry, x):
            taps_now, used_now = x
            now = dict(zip(used, used_now, strict=True))
            entering = dict(zip(self.parts.taps, taps_now, strict=True))
            entering |= {v: once[v] for v in self.parts.kept}
            values = dict(zip(self.of_carry.values(), carry, strict=True))
            coefficients = self._coefficients(self.parts.step, known, now)
            values = _run_linear(self.parts.step, values, coefficients, self.parts.has_step, entering)
            carry_out = self.body.linear.outvars[: len(carry)]
            return [self._read(a, values, known, now) for a in carry_out], [values[v] for v in from_loop]

        if self._rebuilds(coefficients, known, used):
            step = jax.checkpoint(step, prevent_cse=False)
        carry, ys = self.values.iterate(step, start, (taps, [stacked[v] for v in used]))
        step_part = dict(zip(from_loop, ys, strict=True))
        return [*carry, *(self._output(a, step_part, once, each, known, stacked) for a in outputs)]

    def _output(
        self, atom: jaxprs.Atom, step_part: Env, once: Env, each: Env, known: Env, stacked: Env
    ) -> Any:
        """A stacked output: the sum of its part from the loop and its outer part."""
        if isinstance(atom, core.Literal) or atom not in self.parts.forms:
            return self._repeat(self._read(atom, {}, known, {}))
        form = self.parts.forms[atom]
        found = [step_part[atom]] if form.step else []
        if form.outer is not None:
            found.append(each[atom] if atom in each else self._repeat(once[atom]))
        return sum(found[1:], found[0])

    def _repeat(self, value: Any) -> Any:
        return broadcast(value, (self.values.length, *jnp.shape(value)))

    def _read(self, atom: jaxprs.Atom, values: Env, known: Env, used: Env) -> Any:
        if isinstance(atom, core.Literal):
            return jnp.asarray(atom.val, jaxprs.dtype(atom))
        return values[atom] if atom in values else self._coefficient(atom, known | used)

    # Coefficients: read from what is known for all steps and what was kept of this one.

    def _read_by(self, eqns: Sequence[core.JaxprEqn]) -> list[core.Var]:
        return [v for v in jaxprs.reads(eqns, []) if v in self.home]

    def _coefficients(self, eqns: Sequence[core.JaxprEqn], known: Env, used: Env | None = None) -> Env:
        wanted = self._read_by(eqns)
        have = known | (used or {})
        rebuilding = self._rebuilding(wanted, set(have))
        jaxprs.run_equations(rebuilding, have)
        return {v: self._coefficient(v, have) for v in wanted}

    def _coefficient(self, v: core.Var, have: Env) -> Any:
        atom = self.home[v]
        return atom.val if isinstance(atom, core.Literal) else have[atom]

    def _rebuilding(self, wanted: Sequence[core.Var], have: set[core.Var]) -> list[core.JaxprEqn]:
        """The equations that make the wanted coefficients from what we have."""
        targets = [a for v in wanted if isinstance(a := self.home[v], core.Var) and a not in have]
        missing = [eqn for eqn in self.body.values.eqns if have.isdisjoint(eqn.outvars)]
        return jaxprs.needed(missing, targets) if targets else []

    def _rebuilds(self, wanted: Sequence[core.Var], known: Env, used: Sequence[core.Var]) -> bool:
        return bool(self._rebuilding(wanted, {*known, *used}))

    def _inputs_of(self, wanted: Sequence[core.Var], known: Env, stacked: Env) -> list[core.Var]:
        """What of the stacked values is needed for the wanted coefficients."""
        rebuilding = self._rebuilding(wanted, {*known, *stacked})
        atoms = [*jaxprs.reads(rebuilding, []), *jaxprs.variables(self.home[v] for v in wanted)]
        return [v for v in dict.fromkeys(atoms) if v in stacked and v not in known]


class _Parts(dict[core.Var, Any]):
    """One part of each tangent; that of a tangent without this part is None, which counts as zero."""

    def __missing__(self, var: core.Var) -> None:
        return None


def _run_linear(
    eqns: Sequence[core.JaxprEqn],
    values: Env,
    coefficients: Env,
    has_part: Callable[[core.Var, core.JaxprEqn], bool],
    entering: Env | None = None,
) -> Env:
    """Run linear equations on one part of each tangent. `entering` parts are added to the values once computed."""
    entering = entering or {}

    def rule(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any]:
        seen = [
            value if isinstance(atom, core.Literal) or atom in coefficients or has_part(atom, eqn) else None
            for atom, value in zip(eqn.invars, inputs, strict=True)
        ]
        outputs = zip(eqn.outvars, _apply(eqn, seen), strict=True)
        return [value + entering[v] if v in entering else value for v, value in outputs]

    env = _Parts(entering | values | coefficients)
    jaxprs.run_equations(eqns, env, rule)
    return env


def _apply(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any]:
    if eqn.primitive not in SUMS or all(value is not None for value in inputs):
        return bind_over_time(eqn, inputs)
    left, right = inputs
    negative = left is None and eqn.primitive is p.sub_p
    # A sum may broadcast the smaller of its terms, and the missing one may be the larger.
    shape = jaxprs.shape(eqn.outvars[0])

    def alone(term: Any, shape: tuple[int, ...]) -> Any:
        return broadcast(lax.neg(term) if negative else term, shape)

    there = right if left is None else left
    if isinstance(there, Stacked):
        return [Stacked(alone(there.value, (there.value.shape[0], *shape)))]
    return [alone(there, shape)]


def _dense(tangent: Any) -> Any:
    if not isinstance(tangent, SymbolicZero):
        return tangent
    aval: Any = tangent.aval
    return jnp.zeros(aval.shape, aval.dtype)


def _zero(value: Any) -> SymbolicZero:
    return SymbolicZero(jax.typeof(value).to_tangent_aval())
