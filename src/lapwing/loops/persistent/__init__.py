"""Recurrent loops as one GPU kernel each way: weights stay where they are used, blocks exchange what they must."""

from lapwing.loops.persistent._lower import described as described
from lapwing.loops.persistent._lower import lowering as lowering
