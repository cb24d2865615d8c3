"""The original AutoAttack on given weights: run by `benchmarks.autoattack` with a Python that has PyTorch.

Arguments: a file with images, labels, weights and our scores; a checkout of the original; options as JSON; and a file,
which gets after each attack, as JSON, the accuracy under each attack alone and under all, the images that fell, and the
seconds of each: of the processor, or with a GPU of the clock. Attacks that the file has already are not run again.
"""

# PyTorch and the original belong to another Python, which checks of types do not see.
# pyright: reportMissingImports=false, reportCallIssue=false, reportAttributeAccessIssue=false

import json
import sys
import time
from pathlib import Path
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
        if "slope" in w:
            slope, threshold = (w[name][:, None, None] for name in ("slope", "threshold"))
            hidden = torch.sigmoid(slope * (hidden[:, :, None] - threshold)).flatten(1, 2)
        for number in ("1", "2"):
            kernel = w[f"kernel{number}"].permute(3, 2, 0, 1)
            hidden = nn.functional.conv2d(hidden, kernel, w[f"bias{number}"], padding=2)
            hidden = torch.relu(nn.functional.max_pool2d(hidden, 2))
        hidden = hidden.permute(0, 2, 3, 1).flatten(1)  # The dense layer was trained with channels last.
        return torch.relu(hidden @ w["dense"] + w["dense_bias"]) @ w["out"] + w["out_bias"]


def use_tensorfloat32(allowed: bool) -> None:
    """Products of less precision on a GPU; what counts is decided without."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed


def main(data: str, original: str, said: str, into: str) -> None:
    options = json.loads(said)
    sys.path.insert(0, original)
    from autoattack import AutoAttack

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    clock = time.process_time if device == "cpu" else time.perf_counter
    use_tensorfloat32(False)
    arrays = dict(np.load(data))
    images = torch.tensor(arrays.pop("images"), device=device).permute(0, 3, 1, 2)
    labels = torch.tensor(arrays.pop("labels"), device=device).long()
    scores = torch.tensor(arrays.pop("scores"), device=device)
    network = Network(arrays, device).eval()
    with torch.no_grad():
        answers = network(images)
    difference = float((answers - scores).abs().max())
    if difference > 1e-3 * float(scores.abs().max()):
        raise SystemExit(f"the networks differ by {difference}")
    natural = answers.argmax(1) == labels
    path = Path(into)
    none: dict[str, Any] = {"accuracy": {}, "seconds": {}, "fell": {}}
    found = json.loads(path.read_text()) if path.exists() else none
    found |= {"natural": float(natural.float().mean()), "scores_differ": difference, "device": device}
    for name in options["attacks"]:
        if name in found["accuracy"]:
            continue
        attack = AutoAttack(
            network, norm=_NORMS[options["norm"]], eps=options["eps"], seed=options["seed"], version="standard",
            device=device, verbose=False,
        )  # fmt: skip
        attack.attacks_to_run, attack.square.n_queries = [name], options["queries"]
        use_tensorfloat32(options["precision"] != "float32")
        begin = clock()
        attacked = attack.run_standard_evaluation(images, labels, bs=options["batch_size"])
        found["seconds"][name] = clock() - begin
        use_tensorfloat32(False)
        with torch.no_grad():
            right = natural & (network(attacked).argmax(1) == labels)
        found["fell"][name], found["accuracy"][name] = (~right).tolist(), float(right.float().mean())
        print(name, found["accuracy"][name], found["seconds"][name], file=sys.stderr, flush=True)
        if len(found["seconds"]) == len(options["attacks"]):
            fell = np.any([found["fell"][attack] for attack in options["attacks"]], axis=0)
            found["fell"]["total"], found["accuracy"]["total"] = fell.tolist(), float(1 - fell.mean())
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(json.dumps(found))
        partial.replace(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
