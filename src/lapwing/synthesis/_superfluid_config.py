"""The options of a superfluid synthesis."""

from dataclasses import dataclass

from lapwing.train import check_option

from ._config import SynthesisConfig
from ._corners import Choice, Corner


@dataclass(frozen=True)
class SuperfluidConfig(SynthesisConfig):
    """Machines whose neurons mix functions are trained, each neuron is reduced to one, and the links are pruned."""

    spread: float = 0.05
    lasso: float = 0.025
    train_steps: int = 1500
    """updates with mixed functions, before the first neuron is reduced to one"""
    bound: float = 0.03
    right_error: float = 1e-5
    right_links: int = 15
    mix: float = 0.7
    """mean of the initial weights in the mixes; their standard deviation is 0.1"""
    memory: float = 1.0
    """the part of its sum that a neuron keeps from cycle to cycle at first: its link to itself times its accumulator's
    weight in the mix"""
    corner: Corner = "none"
    """penalty that drives each mix to one function: the entropy of the shares, the products of pairs, the sum of all
    |weights|, or the difference between an accumulator's weight and its recurrent weight"""
    corner_weight: float = 0.3
    """weight of this penalty in the loss; it grows from 0 in the second half of the training"""
    choice: Choice = "trial"
    """the one function of a neuron: the largest of its mix, or that with which the error is smallest"""
    choice_rounds: int = 4
    """rounds in which the neurons are reduced to one function, the same number of neurons in each"""
    settle_steps: int = 500
    """updates with one function per neuron before the first link is pruned"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option(self, "choice_rounds", self.choice_rounds >= 1, "at least 1")
        check_option(self, "settle_steps", self.settle_steps >= 0, "at least 0")
        check_option(self, "corner_weight", self.corner_weight >= 0, "at least 0")
