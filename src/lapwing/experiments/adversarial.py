"""Adversarial training: a network that recognises digits learns to do so under attack (seed 004).

Each step attacks its batch and then learns from what the attack made of it. How the attack begins is the `method`:

- `natural`: there is none; what the others are compared with.
- `pgd`: anywhere in the ball, with as many steps as it takes (Madry et al. 2018). Nearly all time goes into it.
- `fast`: anywhere, and one long step (Wong et al. 2020). Cheap, and may end in catastrophic overfitting: robust against
  one step and against nothing else. This is looked for at each evaluation, and ends the run.
- `free`: each batch is used `replays` times, and its perturbation goes one step on each time, by the gradient that the
  update needs anyway (Shafahi et al. 2019).
- `replay`: where the last attack on the same example ended, a few steps on; what the seed wanted to build.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from lapwing.attacks import (
    Attack,
    Policy,
    Replay,
    cross_entropy,
    empty,
    fgsm,
    recall,
    sample,
    store,
)
from lapwing.data import Digits, DigitSplits, Source, epoch_batch, epoch_order, load_digits
from lapwing.models import Cnn
from lapwing.task import Task
from lapwing.train import FitConfig, Stop, check_option

from ._adversarial_end import OVERFIT, closing

Method = Literal["natural", "pgd", "fast", "free", "replay"]

_ONE_STEP = {"fast": 1.25, "free": 1.0}  # The length of the step, as a part of eps, where there is only one.
_REPLAY_WAY = 1.5  # The length of all steps of a replay together: of 0.5, 1 and 1.5 the most robust on MNIST.
_STOP = Stop(metric="eval_overfit", above=OVERFIT)
_ATTACK = Attack(eps=0.15, steps=5)


@dataclass(frozen=True)
class Config(FitConfig):
    """A network learns to recognise digits under attack."""

    steps: int = 1500
    learning_rate: float = 2e-3
    clip: float = 1.0
    evaluate_every: int = 500
    stop: Stop = _STOP
    method: Method = "replay"
    """how the attack of a step begins"""
    attack: Attack = _ATTACK
    """the attack of a step; fast and free make one step of a length of their own, and replay, which goes on from where
    it was, steps of 1.5 / steps unless told"""
    source: Source = "digits"
    """digits: 8×8 pixels, bundled with scikit-learn; mnist: 28×28, from files"""
    data: str = ""
    """the folder with MNIST's four files; without it, what LAPWING_DATA names"""
    width: int = 4
    """the width factor of the network: 2w and 4w channels, 64w dense units"""
    batch_size: int = 64
    """images in a batch"""
    pretrain: int = 100
    """steps without any attack at the beginning"""
    eps_warmup: int = 200
    """after these, steps in which eps rises to its full size"""
    replays: int = 4
    """free: steps with each batch"""
    policy: Policy = "uniform"
    """replay: which examples to train on: all in turn, those of the highest loss, or those attacked longest ago"""
    memory: int = 0
    """replay: examples that are remembered; 0: all"""
    shift: int = 0
    """move each image by up to so many pixels; a perturbation found at another place is not replayed"""
    validation: int = 200
    """images of an evaluation"""
    validation_steps: int = 40
    """steps of its attack, in two restarts"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "batch_size", "replays", "validation", "validation_steps"):
            check_option(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("pretrain", "eps_warmup", "memory", "shift"):
            check_option(self, name, getattr(self, name) >= 0, "at least 0")
        fits = not self.memory or self.batch_size <= self.memory
        check_option(self, "memory", fits, f"0, or at least the {self.batch_size} images of a batch")
        whole = self.policy == "uniform" or not self.memory
        check_option(self, "policy", whole, "uniform where the memory does not hold all examples")


class Batch(NamedTuple):
    """What a step learns from. Before `prepare` the images are as they are, and after it as the attack left them."""

    images: jax.Array
    labels: jax.Array
    examples: jax.Array
    view: jax.Array
    deltas: jax.Array
    """where the attack begins, and afterwards where it ended"""
    known: jax.Array
    """whether `deltas` says anything"""
    loss: jax.Array
    """of the attack, for each example"""
    eps: jax.Array
    order: jax.Array


BATCH_AXIS = Batch._make(None if name in ("eps", "order") else 0 for name in Batch._fields)


class Memory(NamedTuple):
    """What a training remembers: the order of the epoch, and perturbations, by example or of the last batch."""

    order: jax.Array
    replay: Replay | None = None
    deltas: jax.Array | None = None


def build(config: Config) -> Task:
    splits = load_digits(config.source, config.data)
    plan = _Plan(config, splits.train)
    return Task(
        init=jax.jit(lambda key: Cnn.init(key, splits.train.shape, config.width)),
        memory=plan.memory,
        data=plan.batch,
        prepare=None if config.method == "natural" else plan.prepare,
        loss=loss,
        remember=plan.remember,
        evaluate=_evaluation(config, splits.validation),
        batch_axis=BATCH_AXIS,
        predict=lambda network, batch: network(batch.images),
        targets=lambda batch: batch.labels,
        classes=10,
        finish=closing(config.validation_steps),
    )


def splits_of(config: Config) -> DigitSplits:
    """The images that a run was trained, watched and is to be tested with."""
    return load_digits(config.source, config.data)


def loss(network: Cnn, batch: Batch) -> tuple[jax.Array, dict[str, jax.Array]]:
    scores = network(batch.images)
    right = jnp.argmax(scores, axis=1) == batch.labels
    return jnp.mean(cross_entropy(scores, batch.labels)), {"accuracy": jnp.mean(right)}


@dataclass(frozen=True)
class _Plan:
    """Which images a step gets, and how they are attacked."""

    config: Config
    train: Digits

    @property
    def attack(self) -> Attack:
        return training_attack(self.config)

    def memory(self, key: jax.Array) -> Memory:
        count, config = len(self.train.labels), self.config
        order = epoch_order(key, count)
        if config.method == "replay":
            return Memory(order, replay=empty(min(config.memory or count, count), self.train.shape))
        if config.method == "free":
            return Memory(order, deltas=jnp.zeros((config.batch_size, *self.train.shape)))
        return Memory(order)

    def batch(self, key: jax.Array, step: jax.Array, memory: Memory) -> Batch:
        of_examples, of_shift = jax.random.split(key)
        examples, order = self._examples(of_examples, step, memory)
        images, view = _shifted(self.train.pixels(examples), of_shift, self.config.shift)
        deltas, known = jnp.zeros_like(images), jnp.zeros(examples.shape, bool)
        if memory.replay is not None:
            deltas, known = recall(memory.replay, examples, view)
        if memory.deltas is not None:
            deltas, known = memory.deltas, ~known
        return Batch(
            images=images,
            labels=jnp.asarray(self.train.labels)[examples],
            examples=examples,
            view=view,
            deltas=deltas,
            known=known,
            loss=jnp.zeros(examples.shape),
            eps=eps_at(self.config, step),
            order=order,
        )

    def _examples(self, key: jax.Array, step: jax.Array, memory: Memory) -> tuple[jax.Array, jax.Array]:
        size, config = self.config.batch_size, self.config
        if memory.replay is not None and config.policy != "uniform":
            return sample(memory.replay, key, size, config.policy), memory.order
        return epoch_batch(key, step, memory.order, size, config.replays if config.method == "free" else 1)

    def prepare(self, network: Cnn, batch: Batch, key: jax.Array) -> Batch:
        if self.config.method == "free":
            return self._free(network, batch)
        return jax.lax.cond(batch.eps > 0, lambda: self._attacked(network, batch, key), lambda: batch)

    def _attacked(self, network: Cnn, batch: Batch, key: jax.Array) -> Batch:
        drawn = self.attack.starts(key, batch.images, batch.eps)
        start = jnp.where(batch.known[:, None, None, None], batch.deltas, drawn)
        found = self.attack(network, batch.images, batch.labels, key, eps=batch.eps, start=start)
        return batch._replace(images=found.images, deltas=found.deltas, loss=found.loss)

    def _free(self, network: Cnn, batch: Batch) -> Batch:
        """The images as the last step left them, and where the gradient of this one leads. It is found on the way to
        the gradient of the update, by the same operations, and the compiler makes them once: so not in a branch."""
        at = self.attack.inside(batch.deltas, batch.images, batch.eps)
        moved = batch._replace(images=batch.images + at)
        slopes = jax.grad(lambda images: loss(network, moved._replace(images=images))[0])(moved.images)
        return moved._replace(deltas=self.attack.stepped(at, slopes, batch.images, batch.eps))

    def remember(self, memory: Memory, batch: Batch, metrics: Any) -> Memory:
        replay, deltas = memory.replay, memory.deltas
        if replay is not None:
            new = batch.examples, batch.deltas, batch.loss, batch.view
            # What was not attacked has nothing to be replayed.
            replay = jax.lax.cond(
                batch.eps > 0, lambda known: store(known, *new), lambda known: known, replay
            )
        if deltas is not None:
            deltas = batch.deltas
        return Memory(batch.order, replay, deltas)


def training_attack(config: Config) -> Attack:
    """The attack of a step: the config's own, but for the steps that a method makes otherwise."""
    attack = config.attack
    if config.method in _ONE_STEP:
        return dataclasses.replace(attack, steps=1, step_size=_ONE_STEP[config.method])
    if config.method == "replay":
        return dataclasses.replace(attack, step_size=attack.step_size or _REPLAY_WAY / attack.steps)
    return attack


def eps_at(config: Config, step: jax.Array) -> jax.Array:
    """How far the attack of a step may go: not at all, then more and more, then all the way.

    >>> config = Config(attack=Attack(eps=0.3), pretrain=10, eps_warmup=20)
    >>> [round(float(eps_at(config, jnp.int32(step))), 3) for step in (0, 9, 19, 29, 1000)]
    [0.0, 0.0, 0.15, 0.3, 0.3]
    """
    part = (step + 1 - config.pretrain) / max(1, config.eps_warmup)
    return config.attack.eps * jnp.clip(part, 0.0, 1.0).astype(jnp.float32)


def _shifted(images: jax.Array, key: jax.Array, most: int) -> tuple[jax.Array, jax.Array]:
    """Images moved by up to `most` pixels up, down and aside, and a number for each way of being moved."""
    count = images.shape[0]
    if not most:
        return images, jnp.zeros(count, jnp.int32)
    padded = jnp.pad(images, ((0, 0), (most, most), (most, most), (0, 0)))
    places = jax.random.randint(key, (count, 2), 0, 2 * most + 1)

    def cut(image: jax.Array, place: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice(image, (place[0], place[1], 0), images.shape[1:])

    return jax.vmap(cut)(padded, places), places[:, 0] * (2 * most + 1) + places[:, 1]


def _evaluation(config: Config, validation: Digits) -> Any:
    """Accuracies on images that are not trained on: natural, under one step, under many, and what that betrays."""
    count = min(config.validation, len(validation.labels))
    images, labels = validation.pixels(slice(count)), jnp.asarray(validation.labels[:count])
    many = dataclasses.replace(
        config.attack,
        steps=config.validation_steps,
        step_size=0.0,
        restarts=2,
        random_start=True,
        early_exit=True,
        keep_best=True,
    )
    one = fgsm(config.attack.eps, norm=config.attack.norm)

    def evaluate(network: Cnn, key: jax.Array) -> dict[str, jax.Array]:
        natural = jnp.argmax(network(images), axis=1) == labels
        held = [natural & ~attack(network, images, labels, key).fooled for attack in (one, many)]
        single, robust = map(jnp.mean, held)
        found = {"natural": jnp.mean(natural), "robust": robust, "one_step": single}
        # Others are weak against many steps at first too, and get over it: that is no overfitting.
        return {**found, "overfit": single - robust} if config.method == "fast" else found

    return evaluate
