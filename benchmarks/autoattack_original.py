"""The original AutoAttack on given weights: run by `benchmarks.autoattack` with a Python that has PyTorch.

Arguments: a file with images, labels, weights and our scores; a checkout of the original; options as JSON. Prints, as
JSON, the accuracy under each attack alone and under all, the images that fell, and the seconds of each: of the
processor, or with a GPU of the clock.
"""

# PyTorch and the original belong to another Python, which checks of types do not see.
# pyright: reportMissingImports=false, reportCallIssue=false, reportAttributeAccessIssue=false

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import nn

_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


class Network(nn.Module):
    """Lapwing's `Cnn` in PyTorch: two convolutions and pools, two dense layers."""

    def __init__(self, arrays: Any, device: str):
        super().__init__()
        self.weights = {name: torch.tensor(values, device=device) for name, values in arrays.items()}

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        w, hidden = self.weights, images
        for number in ("1", "2"):
            kernel = w[f"kernel{number}"].permute(3, 2, 0, 1)
            hidden = nn.functional.conv2d(hidden, kernel, w[f"bias{number}"], padding=2)
            hidden = torch.relu(nn.functional.max_pool2d(hidden, 2))
        hidden = hidden.permute(0, 2, 3, 1).flatten(1)  # The dense layer was trained with channels last.
        return torch.relu(hidden @ w["dense"] + w["dense_bias"]) @ w["out"] + w["out_bias"]


def main(data: str, original: str, said: str) -> None:
    options = json.loads(said)
    sys.path.insert(0, original)
    from autoattack import AutoAttack

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    clock = time.process_time if device == "cpu" else time.perf_counter
    torch.backends.cudnn.allow_tf32 = (
        False  # The weights are attacked in the precision in which Lapwing does.
    )
    arrays = dict(np.load(data))
    images = torch.tensor(arrays.pop("images"), device=device).permute(0, 3, 1, 2)
    labels = torch.tensor(arrays.pop("labels"), device=device).long()
    scores = torch.tensor(arrays.pop("scores"), device=device)
    network = Network(arrays, device).eval()
    difference = float((network(images) - scores).abs().max())
    if difference > 1e-3:
        raise SystemExit(f"the networks differ by {difference}")
    natural = network(images).argmax(1) == labels
    robust, accuracy, seconds, fell = natural.clone(), {}, {}, {}
    for name in options["attacks"]:
        attack = AutoAttack(
            network, norm=_NORMS[options["norm"]], eps=options["eps"], seed=options["seed"], version="standard",
            device=device, verbose=False,
        )  # fmt: skip
        attack.attacks_to_run, attack.square.n_queries = [name], options["queries"]
        begin = clock()
        found = attack.run_standard_evaluation(images, labels, bs=options["batch_size"])
        seconds[name] = clock() - begin
        with torch.no_grad():
            right = natural & (network(found).argmax(1) == labels)
        robust &= right
        fell[name] = (~right).tolist()
        accuracy[name] = float(right.float().mean())
        print(name, accuracy[name], seconds[name], file=sys.stderr, flush=True)
    fell["total"] = (~robust).tolist()
    accuracy["total"] = float(robust.float().mean())
    print(
        json.dumps(
            {
                "natural": float(natural.float().mean()),
                "accuracy": accuracy,
                "seconds": seconds,
                "fell": fell,
                "scores_differ": difference,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
