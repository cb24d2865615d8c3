"""How jax lowers a loop that becomes a kernel: asked when it is lowered, after `vmap` and `grad`."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import mlir

from lapwing.jaxprs import Loop
from lapwing.loops._mode import Mode
from lapwing.loops.persistent import _device, _store, _tune
from lapwing.loops.persistent._choice import Choice, choose, key_of, structs
from lapwing.loops.persistent._device import Device
from lapwing.loops.persistent._plan import Gpu
from lapwing.loops.persistent._program import kernel_program, plain_settings, traced
from lapwing.loops.persistent._shares import Shares
from lapwing.loops.persistent._warn import sentence, warn_once


def lowering(mode: Mode, loop: Loop, closed_over: Sequence[Any]) -> Callable[..., Any] | None:
    """A rule that lowers the loop as a kernel; None if it stays a loop."""
    if mode == "off" or (device := _device.device_here()) is None:
        return None
    try:
        choice = choose(loop, device.gpu)
        plan = chosen_plan(choice, loop, device, mode)
        if choice.prepared is None or plan is None:
            return None
        return _rule(traced(kernel_program(choice.prepared, plan), structs(loop)), closed_over)
    except Exception as error:  # Whatever Pallas and its compiler raise: the loop can still be a loop.
        warn_once("kernel", f"a loop could not be made one GPU kernel and stays a loop ({sentence(error)})")
        return None


def described(loop: Loop) -> tuple[str, dict[str, Any] | None]:
    """For `explain`: why a loop stays a loop on a Hopper GPU, that here or an H200, or the plan of its kernel."""
    device = _device.device_here() or Device("", Gpu())
    choice = choose(loop, device.gpu)
    plan = chosen_plan(choice, loop, device, "auto")
    if plan is None:
        return choice.why or "the loop was faster when it was tuned", None
    return "", {**dataclasses.asdict(plan), "blocks": plan.groups * plan.in_group}


def chosen_plan(choice: Choice, loop: Loop, device: Device, mode: Mode) -> Shares | None:
    """The plan that was fastest when it was tuned, now or before; else the model's."""
    # Processes that share a program must not choose by what each has measured for itself.
    if choice.prepared is None or not choice.plans or jax.process_count() > 1:
        return choice.plan
    key = key_of(choice.prepared, device.kind)
    best = _store.read(key, choice.plans)
    if best is None and mode == "tune" and (timed := _tune.tune(choice, loop)):
        _store.write(key, timed)
        best = min(timed, key=lambda each: each.seconds)
    return choice.plan if best is None else best.plan


def _rule(closed: core.ClosedJaxpr, closed_over: Sequence[Any]) -> Callable[..., Any]:
    run = core.jaxpr_as_fun(closed)
    lower = mlir.lower_fun(lambda *inputs: run(*closed_over, *inputs), multiple_results=True)

    def rule(ctx: mlir.LoweringRuleContext, *inputs: Any, **_: Any) -> Any:
        with plain_settings():
            return lower(ctx, *inputs)

    return rule
