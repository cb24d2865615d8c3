"""Superfluid synthesis: neurons that mix all functions are trained, then made sparse in two ways.

First all machines are fluid (`_fluid`): their links and mixes are trained at once, with a penalty that drives mixes to
one function. Then, round by round, the neurons that lose least by it keep one function. What is left is a part of the
plain student, with the mixes multiplied into the links, and is pruned as any other machine is (`_rounds`).

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
        self._fluid_loss = _fluid_loss(self.fluid.loss(config.starts))

    def task(self) -> Task:
        """The whole synthesis, for `fit`."""
        config, lasso = self.config, self._pruning_task.penalties["lasso"].of

        def sum_of_weights(params: Mapping[str, jax.Array]) -> jax.Array:
            return lasso(params) + (params["stage"] == FLUID) * self.fluid.lasso(params["fluid"])

        def corner(params: Mapping[str, jax.Array]) -> jax.Array:
            mixed = params["fluid"] * params["fluid_kept"]
            return params["corner"] * self.fluid.corner(config.corner, mixed)

        return Task(
            init=self._init,
            data=lambda key, step: {},
            loss=self._fluid_loss,
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
        fluid = self.fluid.start(key, config.starts, config.spread, config.mix, config.loop)
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
            return self._fluid_loss
        assert self._pruning_task.rounds is not None
        assert self._pruning_task.rounds.loss is not None
        return self._pruning_task.rounds.loss(params)

    # The end of a round.

    def turn(self, params: Mapping[str, np.ndarray], optimizer: Any) -> Turn:
        rows = {name: np.array(array) for name, array in params.items()}
        if int(rows["stage"]) == FLUID:
            return self._fluid_turn(rows, optimizer)
        own = {name: rows[name] for name in OWN}
        rest = {name: array for name, array in rows.items() if name not in own}
        turn = self._pruning.turn(rest, optimizer.plain)
        return turn._replace(
            params={**turn.params, **own}, optimizer=optimizer._replace(plain=turn.optimizer)
        )

    def _fluid_turn(self, rows: dict[str, np.ndarray], optimizer: Both) -> Turn:
        config = self.config
        rows["fluid_round"] += 1
        done = int(rows["fluid_round"]) * config.round_steps
        left = sum(len(self.fluid.undecided(kept)) for kept in rows["fluid_kept"])
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
        return Turn(
            rows, self._next_optimizer(rows, optimizer, done), self._message(rows), self._record(rows, what)
        )

    def _choose(self, rows: dict[str, np.ndarray]) -> None:
        count = -(-len(self.fluid.names) // self.config.choice_rounds)
        for k in range(self.config.starts):
            kept = rows["fluid_kept"][k]
            if len(self.fluid.undecided(kept)):
                rows["fluid_kept"][k] = self.fluid.decide(self.config.choice, rows["fluid"][k], kept, count)
        rows["fluid"] *= rows["fluid_kept"]

    def _to_plain(self, rows: dict[str, np.ndarray], optimizer: Both) -> Both:
        """Continues with the plain student's links that the machines have."""
        soft = self.wirings.soft
        for k in range(self.config.starts):
            leaves, has = self.fluid.plain(
                rows["fluid"][k], rows["fluid_kept"][k], self.wirings.paths, self.wirings.start
            )
            rows["leaves"][k] = np.where(has | ~soft, leaves, 0)
            rows["kept"][k] = has | ~soft
        rows["stage"] = np.array(PLAIN, np.int32)
        new = np.ones(self.config.starts, bool)
        return optimizer._replace(plain=forget(optimizer.plain, rows["kept"], new))

    def _next_optimizer(self, rows: dict[str, np.ndarray], optimizer: Both, done: int) -> Both:
        """The fluid machines are trained with a falling learning rate; then not at all."""
        first, last = 1.0, 1.0
        if done >= self.config.train_steps:
            last = 0.3
        elif done >= SLOWER_AFTER * self.config.train_steps:
            first = 1 / 3
        if int(rows["stage"]) == PLAIN:
            first = 0.0
        every = np.ones(self.config.starts, np.float32)
        state = forget(optimizer.fluid, rows["fluid_kept"], np.zeros(self.config.starts, bool))
        return optimizer._replace(fluid=state._replace(first=first * every, last=last * every))

    # The journal.

    def _errors(self, rows: Mapping[str, np.ndarray]) -> np.ndarray:
        pairs = zip(rows["fluid"], rows["fluid_kept"], strict=True)
        return np.array([self.fluid.errors(leaves, kept[None])[0] for leaves, kept in pairs])

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


def _fluid_loss(total: Any) -> Any:
    def loss(params: Mapping[str, jax.Array], batch: object) -> tuple[jax.Array, dict[str, jax.Array]]:
        value, errors = total(params["fluid"], params["fluid_kept"])
        links = jnp.min(jnp.sum(params["fluid_kept"], axis=1))
        return value, {"best_error": jnp.min(errors), "links": links}

    return loss
