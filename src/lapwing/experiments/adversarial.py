"""Adversarial training: a network learns to classify images under attack.

Each step attacks its batch and then learns from the attacked images. The `objective` is what it
minimizes: the cross-entropy of the attacked images, TRADES, MART, or a loss of their margins. The `method` decides how
the attack starts:

- `natural`: no attack, for comparison.
- `pgd`: a random point of the ball, `attack.steps` steps (Madry et al. 2018). Nearly all time goes into it.
- `fast`: a random point and one long step (Wong et al. 2020). Cheap, but may end in catastrophic overfitting: robust
  against one step only. Each evaluation looks for it, and ends the run.
- `free`: each batch is used `replays` times, and its perturbation makes one step each time, by the gradient that the
  update computes anyway (Shafahi et al. 2019).
- `replay`: the end of the last attack on the same example, and a few steps (docs/adversarial.md).
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from lapwing.attacks import (
    Attack,
    AttackError,
    NormName,
    Objective,
    ObjectiveName,
    Policy,
    ReplayBuffer,
    objective_of,
)
from lapwing.data import (
    Augmentation,
    ImageSplits,
    LabelledImages,
    Source,
    epoch_batch,
    epoch_order,
    load_images,
)
from lapwing.models import Cnn, ResNet
from lapwing.task import Task
from lapwing.train import ConfigError, FitConfig, Stop, check_option

from ._adversarial_end import OVERFIT, Closing
from ._adversarial_report import Evaluation, evaluate_robustness
from ._adversarial_validation import validation
from ._evaluate import Evaluated, Trained

Method = Literal["natural", "pgd", "fast", "free", "replay"]
Network = Cnn | ResNet

_ONE_STEP = {"fast": 1.25, "free": 1.0}  # Length of the only step, as a fraction of eps.
_REPLAY_LENGTH = 1.5  # Of all steps of a replay together: of 0.5, 1 and 1.5 the most robust on MNIST.
_STOP = Stop(metric="eval_overfit", above=OVERFIT)
_ATTACK = Attack(eps=0.0, steps=5)
_CROP = 4  # Pixels by which the images of CIFAR-10 are shifted.
# The radii that are usual for these images; those of the digits leave about half of them right.
_EPS: dict[Source, dict[str, float]] = {
    "digits": {"linf": 0.15, "l2": 0.75, "l1": 3.0},
    "mnist": {"linf": 0.3, "l2": 2.0, "l1": 10.0},
    "cifar10": {"linf": 8 / 255, "l2": 0.5, "l1": 12.0},
}


@dataclass(frozen=True)
class Config(FitConfig):
    """A network learns to classify images under attack."""

    steps: int = 1500
    learning_rate: float = 2e-3
    clip: float = 1.0
    evaluate_every: int = 500
    stop: Stop = _STOP
    method: Method = "replay"
    """how the attack of a step starts"""
    objective: ObjectiveName | Objective = "cross_entropy"
    """what is minimized: cross_entropy of the attacked images, trades, mart, margin (a hinge) or mail (weighted by the
    margin)"""
    beta: float = 0.0
    """weight of the robust term of trades and mart; 0: the published one, 6 and 5"""
    attack: Attack = _ATTACK
    """the attack of a step; fast and free make one step of a fixed length; replay steps 1.5 eps in all by default; eps
    0: that of the images and the norm, with linf 0.15 for digits, 0.3 for mnist, 8/255 for cifar10"""
    source: Source = "digits"
    """digits: 8×8 pixels, bundled with scikit-learn; mnist: 28×28, from files; cifar10: 32×32 in colour, from files"""
    data: str = ""
    """folder with MNIST's four files, or archive or folder of CIFAR-10; default: the variable LAPWING_DATA"""
    verify: bool = True
    """whether these files must have the published checksums"""
    network: Literal["auto", "cnn", "resnet"] = "auto"
    """auto: resnet for cifar10, cnn for the others"""
    width: int = 4
    """width factor w of the network: a cnn has 2w and 4w channels and 64w dense units, a resnet 8w, 16w and 32w
    channels"""
    blocks: int = 2
    """residual blocks in each of the three stages of a resnet"""
    thresholds: int = 0
    """learned soft thresholds through which a cnn sees each pixel; 0: it sees the pixel"""
    batch_size: int = 64
    """images in a batch"""
    pretrain: int = 100
    """first steps, without attack"""
    eps_warmup: int = 200
    """steps after these in which eps rises to its full size"""
    replays: int = 4
    """free: steps per batch"""
    policy: Policy = "uniform"
    """replay: examples to train on: uniform (epochs), hardest (highest loss) or oldest (attacked longest ago)"""
    memory: int = 0
    """replay: rows of the buffer; 0: one for each example"""
    shift: int = 0
    """shift images by up to this many pixels; replayed perturbations are shifted along"""
    augment: bool = True
    """cifar10: shift images by up to 4 pixels (or --shift), and mirror half of them"""
    validation: int = 200
    """images of an evaluation"""
    validation_steps: int = 40
    """steps of its attack, with two restarts"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.attack.eps and isinstance(self.attack.norm, str):
            eps = usual_eps(self.source, self.attack.norm)
            object.__setattr__(self, "attack", dataclasses.replace(self.attack, eps=eps))
        check_option(self, "beta", 0 <= self.beta < math.inf, "a number of at least 0")
        try:
            self.minimized  # noqa: B018 - It raises where beta does not fit.
        except AttackError as error:
            raise ConfigError(str(error)) from None
        for name in ("width", "blocks", "batch_size", "replays", "validation", "validation_steps"):
            check_option(self, name, getattr(self, name) >= 1, "at least 1")
        for name in ("pretrain", "eps_warmup", "memory", "shift", "thresholds"):
            check_option(self, name, getattr(self, name) >= 0, "at least 0")
        check_option(self, "thresholds", not (self.thresholds and self.is_resnet), "0 for a resnet")
        fits = not self.memory or self.batch_size <= self.memory
        check_option(self, "memory", fits, f"0, or at least the {self.batch_size} images of a batch")
        whole = self.policy == "uniform" or not self.memory
        check_option(self, "policy", whole, "uniform if the buffer does not hold all examples")

    @property
    def is_resnet(self) -> bool:
        return self.network == "resnet" or (self.network == "auto" and self.source == "cifar10")

    @property
    def minimized(self) -> Objective:
        return objective_of(self.objective, self.beta)

    @property
    def augmentation(self) -> Augmentation:
        # Not of digits: a mirrored one is another shape.
        colours = self.augment and self.source == "cifar10"
        return Augmentation(self.shift or (_CROP if colours else 0), flip=colours)


class Batch(NamedTuple):
    """The data of a step. `prepare` replaces the images by attacked ones."""

    images: Float[Array, "batch height width channels"]
    natural: Float[Array, "batch height width channels"]
    """the images without a perturbation"""
    labels: Int[Array, " batch"]
    examples: Int[Array, " batch"]
    view: Int[Array, " batch"]
    deltas: Float[Array, "batch height width channels"]
    """start of the attack, and its end after `prepare`"""
    known: Bool[Array, " batch"]
    """whether `deltas` is a start to use"""
    loss: Float[Array, " batch"]
    """loss of the attack"""
    eps: Float[Array, ""]
    order: Int[Array, " examples"]


BATCH_AXIS = Batch._make(None if name in ("eps", "order") else 0 for name in Batch._fields)


class DataState(NamedTuple):
    """The order of the epoch, and perturbations by example or of the last batch."""

    order: Int[Array, " examples"]
    replay: ReplayBuffer | None = None
    deltas: Float[Array, "batch height width channels"] | None = None


def build(config: Config) -> Task:
    splits = splits_of(config)
    plan = _Plan(config, splits.train)
    return Task(
        init=jax.jit(lambda key: init_network(key, config, splits.train.shape)),
        memory=plan.memory,
        data=plan.batch,
        prepare=None if config.method == "natural" else plan.prepare,
        loss=plan.loss,
        remember=plan.remember,
        evaluate=validation(config, splits.validation),
        batch_axis=BATCH_AXIS,
        predict=lambda network, batch: network(batch.images),
        targets=lambda batch: batch.labels,
        classes=10,
        callbacks=[Closing(config.validation_steps)],
    )


def usual_eps(source: Source, norm: NormName) -> float:
    """The radius that is usual for these images and this norm.

    >>> usual_eps("mnist", "linf")
    0.3
    """
    return _EPS[source][norm]


def evaluate_run(trained: Trained, options: Evaluation) -> Evaluated:
    """The robustness on test images that nothing else has used."""
    return evaluate_robustness(trained, splits_of(trained.config).test, options)


def splits_of(config: Config) -> ImageSplits:
    """The images for training, evaluation and test of a run."""
    return load_images(config.source, config.data, verify=config.verify)


def init_network(key: Key[Array, ""], config: Config, shape: tuple[int, int, int]) -> Network:
    """The network of a config, for images of this shape."""
    if config.is_resnet:
        return ResNet.init(key, shape, config.width, config.blocks)
    return Cnn.init(key, shape, config.width, thresholds=config.thresholds)


@dataclass(frozen=True)
class _Plan:
    """The images of each step, and how they are attacked."""

    config: Config
    train: LabelledImages

    @property
    def attack(self) -> Attack:
        return training_attack(self.config)

    def loss(self, network: Network, batch: Batch) -> tuple[Array, dict[str, Array]]:
        """The objective, and the accuracy on the attacked images and where it is known anyway on the others."""
        objective = self.config.minimized
        attacked = natural = network(batch.images)
        if objective.natural:
            natural = network(batch.natural)
        metrics = {"accuracy": attacked, **({"natural_accuracy": natural} if objective.natural else {})}
        right = {name: jnp.argmax(scores, axis=1) == batch.labels for name, scores in metrics.items()}
        return jnp.mean(objective(attacked, natural, batch.labels)), jax.tree.map(jnp.mean, right)

    def memory(self, key: Key[Array, ""]) -> DataState:
        count, config = len(self.train.labels), self.config
        order = epoch_order(key, count)
        if config.method == "replay":
            rows = min(config.memory or count, count)
            return DataState(order, replay=ReplayBuffer.empty(rows, self.train.shape))
        if config.method == "free":
            return DataState(order, deltas=jnp.zeros((config.batch_size, *self.train.shape)))
        return DataState(order)

    def batch(self, key: Key[Array, ""], step: Int[Array, ""], memory: DataState) -> Batch:
        examples_key, view_key = jax.random.split(key)
        examples, order = self._examples(examples_key, step, memory)
        augmentation = self.config.augmentation
        view = augmentation.draw(view_key, len(examples))
        images = augmentation.apply(self.train.pixels(examples), view)
        deltas, known = jnp.zeros_like(images), jnp.zeros(examples.shape, bool)
        if memory.replay is not None:
            kept, known = memory.replay.recall(examples)
            deltas = augmentation.apply(kept, view)
        if memory.deltas is not None:
            deltas, known = memory.deltas, ~known
        return Batch(
            images=images,
            natural=images,
            labels=jnp.asarray(self.train.labels)[examples],
            examples=examples,
            view=view,
            deltas=deltas,
            known=known,
            loss=jnp.zeros(examples.shape),
            eps=eps_at(self.config, step),
            order=order,
        )

    def _examples(self, key: Array, step: Array, memory: DataState) -> tuple[Array, Array]:
        size, config = self.config.batch_size, self.config
        if memory.replay is not None and config.policy != "uniform":
            return memory.replay.sample(key, size, config.policy), memory.order
        return epoch_batch(key, step, memory.order, size, config.replays if config.method == "free" else 1)

    def prepare(self, network: Network, batch: Batch, key: Key[Array, ""]) -> Batch:
        if self.config.method == "free":
            return self._free(network, batch)
        return jax.lax.cond(batch.eps > 0, lambda: self._attack(network, batch, key), lambda: batch)

    def _attack(self, network: Network, batch: Batch, key: Key[Array, ""]) -> Batch:
        ascent = self.config.minimized.ascent(network(batch.images), batch.labels)
        drawn = self.attack.starts(key, batch.images, batch.eps)
        start = jnp.where(batch.known[:, None, None, None], batch.deltas, drawn)
        found = self.attack(network, batch.images, batch.labels, key, eps=batch.eps, start=start, loss=ascent)
        return batch._replace(images=found.images, deltas=found.deltas, loss=found.loss)

    def _free(self, network: Network, batch: Batch) -> Batch:
        """The images perturbed by the last step, and the perturbations for the next. This gradient is computed by the
        same operations as that of the update, and the compiler merges the two: so it is not in a `cond`."""
        deltas = self.attack.project(batch.deltas, batch.images, batch.eps)
        moved = batch._replace(images=batch.images + deltas)
        gradient = jax.grad(lambda images: self.loss(network, moved._replace(images=images))[0])(moved.images)
        return moved._replace(deltas=self.attack.step(deltas, gradient, batch.images, batch.eps))

    def remember(self, memory: DataState, batch: Batch, metrics: Any) -> DataState:
        replay, deltas = memory.replay, memory.deltas
        if replay is not None:
            # In the frame of the image: the next step sees another view of it.
            kept = self.config.augmentation.undo(batch.deltas, batch.view)
            new = batch.examples, kept, batch.loss
            # Without an attack there is nothing to replay.
            replay = jax.lax.cond(batch.eps > 0, lambda old: old.store(*new), lambda old: old, replay)
        if deltas is not None:
            deltas = batch.deltas
        return DataState(batch.order, replay, deltas)


def training_attack(config: Config) -> Attack:
    """The attack of a step: the config's, with the step length of the method."""
    attack = config.attack
    if config.method in _ONE_STEP:
        return dataclasses.replace(attack, steps=1, step_size=_ONE_STEP[config.method])
    if config.method == "replay":
        return dataclasses.replace(attack, step_size=attack.step_size or _REPLAY_LENGTH / attack.steps)
    return attack


def eps_at(config: Config, step: Int[Array, ""]) -> Float[Array, ""]:
    """The radius of a step's attack: 0, then rising linearly, then constant.

    >>> config = Config(attack=Attack(eps=0.3), pretrain=10, eps_warmup=20)
    >>> [round(float(eps_at(config, jnp.int32(step))), 3) for step in (0, 9, 19, 29, 1000)]
    [0.0, 0.0, 0.15, 0.3, 0.3]
    """
    fraction = (step + 1 - config.pretrain) / max(1, config.eps_warmup)
    return config.attack.eps * jnp.clip(fraction, 0.0, 1.0).astype(jnp.float32)
