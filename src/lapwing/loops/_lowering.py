"""How jax lowers a loop of `scan`: as one kernel where that is possible and faster, and by jax's own rule elsewhere.

jax's rule for `scan` is asked through ours, which looks at marked loops (`_marks`) alone: a small loop on a CPU is one
kernel (`_small`), and so is a recurrent one on a Hopper GPU (`persistent`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from jax.extend.core import primitives as p
from jax.interpreters import mlir

from lapwing.jaxprs import loop_from
from lapwing.loops import _small, persistent
from lapwing.loops._marks import mark_of, unmarked
from lapwing.loops._mode import Mode

Rule = Callable[..., Any]
_small_kernel = mlir.lower_fun(_small.small_kernel, multiple_results=True)


def _lowering(default: Rule) -> Rule:
    """The rule for lowering `scan`: jax's own, but for marked loops that become one kernel."""

    def rule(ctx: mlir.LoweringRuleContext, *inputs: Any, **params: Any) -> Any:
        if (mode := mark_of(ctx.jaxpr_eqn_ctx)) is None:
            return default(ctx, *inputs, **params)
        with unmarked():
            return (_kernel(ctx, mode, params) or default)(ctx, *inputs, **params)

    return rule


def _kernel(ctx: mlir.LoweringRuleContext, mode: Mode, params: dict[str, Any]) -> Rule | None:
    """The rule that lowers a marked loop as one kernel; None for jax's own."""
    module = ctx.module_context
    if module.lowering_parameters.for_export:
        return None
    platforms = tuple(ctx.platforms or module.platforms)
    if platforms == ("cpu",) and _on_one_device(module):
        return _small_kernel if _small.fits(loop_from(params)[0]) else None
    if platforms == ("cuda",) and (_on_one_device(module) or _is_manual(module)):
        return persistent.lowering(mode, *loop_from(params))
    return None


def _on_one_device(module: mlir.ModuleContext) -> bool:
    context = module.axis_context
    return isinstance(context, mlir.ShardingContext) and context.num_devices == 1


def _is_manual(module: mlir.ModuleContext) -> bool:
    """Whether this is the program of each device, as inside a `shard_map` over all axes of its mesh."""
    context = module.axis_context
    if not isinstance(context, mlir.SPMDAxisContext):
        return False
    return context.manual_axes == frozenset(context.mesh.axis_names)


def _install() -> bool:
    """Ask jax's own rule through ours. Where a future jax keeps it, or what ours reads, elsewhere, nothing changes."""
    asked = {"jaxpr_eqn_ctx", "module_context", "platforms"}
    default = getattr(getattr(mlir, "_lowerings", {}).get(p.scan_p), "rule", None)
    given = {field.name for field in dataclasses.fields(mlir.LoweringRuleContext)}
    if default is None or not asked <= given:
        return False
    mlir.register_lowering(p.scan_p, _lowering(default))
    return True


INSTALLED = _install()
