"""Writes the weights that `dmm.lite_start` reads, from the published file of DMM Lite:

    python -m benchmarks.dmm_lite_weights dmm-lite-1032-steps.json

The published file is JSON, a network matrix of 20,308 numbers in single precision with all links of
`dmm.lite_student()`. So the numbers in the order of its links are enough: 75 kB in place of 478.
"""

import sys
from pathlib import Path

import numpy as np

from lapwing import dmm, trees
from lapwing.dmm._published import LITE_WEIGHTS


def convert(published: Path, target: Path = LITE_WEIGHTS) -> None:
    weights = trees.paths(trees.from_json(published.read_text()))
    links = trees.paths(dmm.lite_student().matrix)
    if weights.keys() != links.keys():
        raise SystemExit(f"{published} has other links than dmm.lite_student()")
    packed = np.array([weights[path] for path in links], np.float32)
    # The shortest decimals of single precision are what the file has: nothing is lost.
    if [float(str(weight)) for weight in packed] != [weights[path] for path in links]:
        raise SystemExit(f"{published} has numbers that are not in single precision")
    np.savez_compressed(target, weights=packed)


if __name__ == "__main__":
    convert(Path(sys.argv[1]))
