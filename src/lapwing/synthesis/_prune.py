"""Pruning by threshold: weak soft leaves go, hard ones stay."""

from lapwing import trees
from lapwing.dmm import Machine, MachineError


def prune(machine: Machine, below: float) -> Machine:
    """Returns the machine without the soft leaves of |x| < below: links, and trained mixes and initial outputs.
    Neurons stay, perhaps without links.

    >>> from lapwing import dmm
    >>> len(prune(dmm.readable_detector(), below=0.5).soft())
    13
    """
    if not below >= 0:
        raise MachineError(f"below should be 0 or more, since it is compared with |weight|, but is {below}")
    leaves = trees.paths(machine.values)
    kept = {path: leaf for path, leaf in leaves.items() if path in machine.hard or not abs(leaf) < below}
    return machine.with_values(trees.from_paths(kept))
