"""Fewer links: what is weak and trained goes, what is fixed stays."""

from lapwing import trees

from ._machine import Machine


def prune(machine: Machine, below: float) -> Machine:
    """The machine without the soft leaves of |x| < below (links, and the parts of mixes and initial outputs
    that are trained). Hard leaves stay whatever they are; neurons stay too, perhaps without links.

    >>> from lapwing import dmm
    >>> len(dmm.prune(dmm.readable_detector(), below=0.5).soft())
    13
    """
    leaves = trees.paths(machine.values)
    kept = {path: leaf for path, leaf in leaves.items() if path in machine.hard or not abs(leaf) < below}
    return machine.with_values(trees.from_paths(kept))
