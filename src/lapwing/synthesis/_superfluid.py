"""Superfluid synthesis: neurons that mix all functions are trained, then made sparse in two ways.

First all machines are fluid (`_fluid`): their links and mixes are trained at once, with a penalty that drives mixes to
one function. Then, round by round, the neurons that lose most by it keep one function. What is left is a part of the
plain student, with the mixes multiplied into the links, and is pruned as any other machine is (`_rounds`).

When all machines are at rest, those that are wrong are fluid again, with new weights, by the rule of `_restarts`.

It is one task for `fit`. Its parameters have both forms of the machines: `fluid` and `fluid_kept`, and the rows of the
pruning. `stage` says which of them is trained.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lapwing.dmm import Machine
from lapwing.task import Penalty, Rounds, Task, Turn

from ._examples import Examples
from ._fluid import Fluid
from ._optimizer import Paced, forget, paced_adam
from ._phases import first_rows
from ._restarts import restart_key
from ._rounds import Pruning
from ._superfluid_config import SuperfluidConfig
from ._synthesize import task_of
from ._wiring import Wirings

FLUID, PLAIN = range(2)
OWN = ("fluid", "fluid_kept", "fluid_round", "corner", "stage")  # what is not a row of the pruning
SLOWER_AFTER = 0.7  # of the training; the rest has a third of the learning rate


class Both(NamedTuple):
    """The optimizer states of the fluid machines and of the plain ones."""

    fluid: Paced
    plain: Paced


class Superfluid:
    """The parts of a superfluid synthesis: the fluid student, the plain one, and how the first becomes the second.

    >>> from lapwing import dmm, synthesis
    >>> def nothing(text, cycles):
    ...     return {"dict-1": [0.0] * cycles, "dict-2": [0.0] * cycles}
    >>> examples = Examples.from_function(nothing, ["ab"], 20)
    >>> students = dmm.fluid_student(), dmm.plain_student()
    >>> parts = Superfluid([examples], students, synthesis.SuperfluidConfig(starts=1))
    >>> sorted(parts.task().penalties)
    ['corner', 'lasso']
    """

    def __init__(
        self,
        examples: Sequence[Examples],
        students: tuple[Machine, Machine],
        config: SuperfluidConfig,
        **options: Any,
    ):
        options = {
            "governor": config.governor,
            "accumulator_gradient": config.accumulator_gradient,
            **options,
        }
        self.config = config
        self.fluid = Fluid(students[0], examples[0], **options)
        self.wirings = Wirings(students[1], examples, **options)
        self.pruning_config = dataclasses.replace(config, train_steps=config.settle_steps)
        self._pruning = Pruning(self.wirings, self.pruning_config)
        self._pruning_task = task_of(self.wirings, self.pruning_config)
        self._fluid_losses: dict[Any, Any] = {}

    def task(self) -> Task:
        """The whole synthesis, for `fit`."""
        config, lasso = self.config, self._pruning_task.penalties["lasso"].of

        def sum_of_weights(params: Mapping[str, jax.Array]) -> jax.Array:
            is_fluid = (params["stage"] == FLUID) & params["active"]
            return lasso(params) + self.fluid.lasso(params["fluid"] * is_fluid[:, None])

        def corner(params: Mapping[str, jax.Array]) -> jax.Array:
            mixed = params["fluid"] * params["fluid_kept"] * params["active"][:, None]
            return params["corner"] * self.fluid.corner(config.corner, mixed)

        return Task(
            init=self._init,
            data=lambda key, step: {},
            loss=self._fluid_loss(np.ones(config.starts, bool)),
            penalties={
                "lasso": Penalty(config.lasso, sum_of_weights),
                "corner": Penalty(config.corner_weight, corner),
            },
            trainable=self._trainable,
            optimizer=self._optimizer,
            rounds=Rounds(config.round_steps, self.turn, self._loss_of),
        )

    def _init(self, key: jax.Array) -> dict[str, jax.Array]:
        config = self.config
        rounds = -(-config.steps // config.round_steps) + 1
        rows = first_rows(config.starts, self.wirings.soft, rounds)
        leaves = np.where(self.wirings.soft, 0, self.wirings.start).astype(np.float32)
        fluid = self.fluid.start(key, config.starts, config.spread, config.mix, config.memory)
        return {
            **{name: jnp.asarray(array) for name, array in rows.items()},
            "leaves": jnp.tile(leaves, (config.starts, 1)),
            "fluid": fluid,
            "fluid_kept": jnp.ones(fluid.shape, bool),
            "fluid_round": jnp.zeros((), jnp.int32),
            "corner": jnp.zeros(()),
            "stage": jnp.asarray(FLUID, jnp.int32),
        }

    def _trainable(self, params: Mapping[str, jax.Array]) -> dict[str, np.ndarray | bool]:
        soft = {"fluid": self.fluid.soft, "leaves": self.wirings.soft}
        return {
            name: np.tile(soft[name], (self.config.starts, 1)) if name in soft else False for name in params
        }

    def _optimizer(self, learning_rate: Any) -> optax.GradientTransformation:
        adam: Any = paced_adam(learning_rate, self.config.starts, self.config.round_steps)

        def init(params: Any) -> Any:
            return Both(adam.init({"leaves": params["fluid"]}), adam.init({"leaves": params["leaves"]}))

        def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
            fluid, fluid_state = adam.update({"leaves": updates["fluid"]}, state.fluid)
            plain, plain_state = adam.update({"leaves": updates["leaves"]}, state.plain)
            moved = {**updates, "fluid": fluid["leaves"], "leaves": plain["leaves"]}
            return moved, Both(fluid_state, plain_state)

        return optax.GradientTransformation(init, update)

    def _loss_of(self, params: Mapping[str, np.ndarray]) -> Any:
        if int(params["stage"]) == FLUID:
            return self._fluid_loss(params["active"])
        assert self._pruning_task.rounds is not None
        assert self._pruning_task.rounds.loss is not None
        return self._pruning_task.rounds.loss(params)

    def _fluid_loss(self, active: np.ndarray) -> Any:
        total = self.fluid.loss(np.asarray(active))
        return self._fluid_losses.setdefault(total, _task_loss(total))

    # The end of a round.

    def turn(self, params: Mapping[str, np.ndarray], optimizer: Any) -> Turn:
        rows = {name: np.array(array) for name, array in params.items()}
        if int(rows["stage"]) == FLUID:
            return self._fluid_turn(rows, optimizer)
        own = {name: rows[name] for name in OWN}
        rest = {name: array for name, array in rows.items() if name not in own}
        turn = self._pruning.turn(rest, optimizer.plain)
        rows, optimizer = {**turn.params, **own}, optimizer._replace(plain=turn.optimizer)
        if again := turn.fields["restarted"]:
            self._to_fluid(rows, again)
            optimizer = self._next_optimizer(rows, optimizer)
        return turn._replace(params=rows, optimizer=optimizer)

    def _fluid_turn(self, rows: dict[str, np.ndarray], optimizer: Both) -> Turn:
        config = self.config
        rows["fluid_round"] += 1
        done = int(rows["fluid_round"]) * config.round_steps
        left = sum(len(self.fluid.undecided(kept)) for kept in rows["fluid_kept"][rows["active"]])
        if done < config.train_steps:
            what = "is trained"
        elif left:
            what = "chooses functions"
            self._choose(rows)
        else:
            what = "has one function a neuron"
            optimizer = self._to_plain(rows, optimizer)
        is_fluid = int(rows["stage"]) == FLUID
        corner = np.clip(2 * done / max(config.train_steps, 1) - 1, 0, 1) if is_fluid else 0
        rows["corner"] = np.array(corner, np.float32)
        optimizer = self._next_optimizer(rows, optimizer)
        return Turn(rows, optimizer, self._message(rows), self._record(rows, what))

    def _choose(self, rows: dict[str, np.ndarray]) -> None:
        count = -(-len(self.fluid.names) // self.config.choice_rounds)
        for k in np.flatnonzero(rows["active"]):
            kept = rows["fluid_kept"][k]
            if len(self.fluid.undecided(kept)):
                rows["fluid_kept"][k] = self.fluid.decide(self.config.choice, rows["fluid"][k], kept, count)
        rows["fluid"] *= rows["fluid_kept"]

    def _to_plain(self, rows: dict[str, np.ndarray], optimizer: Both) -> Both:
        """Continues with the plain student's links that the machines have."""
        soft, active = self.wirings.soft, rows["active"]
        for k in np.flatnonzero(active):
            leaves, has = self.fluid.plain(
                rows["fluid"][k], rows["fluid_kept"][k], self.wirings.paths, self.wirings.start
            )
            rows["leaves"][k] = np.where(has | ~soft, leaves, 0)
            rows["kept"][k] = has | ~soft
        rows["stage"] = np.array(PLAIN, np.int32)
        return optimizer._replace(plain=forget(optimizer.plain, rows["kept"], active))

    def _to_fluid(self, rows: dict[str, np.ndarray], again: Sequence[int]) -> None:
        """New fluid machines in place of those that start again."""
        config = self.config
        for k in again:
            key = restart_key(config, k, int(rows["restarts"][k]))
            rows["fluid"][k] = self.fluid.start(key, 1, config.spread, config.mix, config.memory)[0]
            rows["fluid_kept"][k] = True
            rows["leaves"][k] = np.where(self.wirings.soft, 0, self.wirings.start)
        rows["fluid_round"], rows["corner"] = np.zeros((), np.int32), np.zeros((), np.float32)
        rows["stage"] = np.array(FLUID, np.int32)

    def _next_optimizer(self, rows: dict[str, np.ndarray], optimizer: Both) -> Both:
        """The fluid machines are trained with a falling learning rate; then not at all."""
        first, last, done = 1.0, 1.0, int(rows["fluid_round"]) * self.config.round_steps
        if done >= self.config.train_steps:
            last = 0.3
        elif done >= SLOWER_AFTER * self.config.train_steps:
            first = 1 / 3
        if int(rows["stage"]) == PLAIN:
            first = 0.0
        every, new = np.ones(self.config.starts, np.float32), rows["active"] & (done == 0)
        state = forget(optimizer.fluid, rows["fluid_kept"], new)
        return optimizer._replace(
            fluid=state._replace(first=first * every * rows["active"], last=last * every)
        )

    # The journal.

    def _errors(self, rows: Mapping[str, np.ndarray]) -> np.ndarray:
        found = np.array(rows["error"])  # of those that are at rest
        for k in np.flatnonzero(rows["active"]):
            found[k] = self.fluid.errors(rows["fluid"][k], rows["fluid_kept"][k][None])[0]
        return found

    def _message(self, rows: Mapping[str, np.ndarray]) -> str:
        mixed = [len(self.fluid.undecided(kept)) for kept in rows["fluid_kept"]]
        words = [f"{n} ({error:.2g})" for n, error in zip(mixed, self._errors(rows), strict=True)]
        return f"fluid round {int(rows['fluid_round'])}: neurons that mix functions (error) {' '.join(words)}"

    def _record(self, rows: Mapping[str, np.ndarray], what: str) -> dict[str, Any]:
        return {
            "what": what,
            "mixed": [len(self.fluid.undecided(kept)) for kept in rows["fluid_kept"]],
            "error_after": self._errors(rows).tolist(),
            "shares": self.fluid.shares(rows["fluid"] * rows["fluid_kept"]),
        }


def _task_loss(total: Any) -> Any:
    def loss(params: Mapping[str, jax.Array], batch: object) -> tuple[jax.Array, dict[str, jax.Array]]:
        value, errors = total(params["fluid"], params["fluid_kept"])
        errors = jnp.where(params["active"], errors, jnp.inf)
        links = jnp.min(jnp.sum(params["fluid_kept"], axis=1))
        return value, {"best_error": jnp.min(errors), "links": links}

    return loss
