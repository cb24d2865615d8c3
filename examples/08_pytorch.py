"""A PyTorch loop as a run. `python 08_pytorch.py --resume RUN_FOLDER` continues one that was stopped or killed.

While it runs, from another terminal: `lapwing set latest lr=0.003`, `lapwing pause latest`, `lapwing board`.
"""

import argparse
import io

import torch

import lapwing as lw

parser = argparse.ArgumentParser()
parser.add_argument("--resume", metavar="RUN_FOLDER")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--width", type=int, default=32)
options = parser.parse_args()

run = lw.Run.reopen(options.resume) if options.resume else lw.Run.create("sine-torch", vars(options))
torch.manual_seed(0)
width = run.config["width"]
model = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
optimizer = torch.optim.Adam(model.parameters())
start = 0
if (stored := run.checkpoints / "state.pt").exists():
    state = torch.load(stored)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    start = state["done"]


def save(done):
    parts = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
    }
    torch.save({**parts, "done": done}, content := io.BytesIO())
    run.put("checkpoints/state.pt", content.getvalue())  # The old file or the new one, never half of it.


with run:
    for step in run.steps(options.steps, start=start, checkpoint=save, checkpoint_every=50):
        for group in optimizer.param_groups:
            group["lr"] = run.control("learning_rate", 0.01)
        with run.lap("forward"):
            x = 6 * torch.rand(64, 1) - 3
            loss = ((model(x) - torch.sin(x)) ** 2).mean()
        with run.lap("backward"):
            optimizer.zero_grad()
            loss.backward()
        with run.lap("update"):
            optimizer.step()
        run.log(loss=loss, learning_rate=group["lr"])
        if step % 100 == 0:
            run.log(weights=lw.Histogram(model[0].weight))

print(f"{run.state}: {run.folder}, loss {run.latest()['loss']:.4f}")
