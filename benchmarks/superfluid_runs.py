"""The whole superfluid synthesis from several seeds: what became of every start, and what it cost.

    python -m benchmarks.superfluid_runs --seeds 0 1

A seed whose run is in the folder of runs, and has ended, is not trained again; after Ctrl-C the same command continues
the run that was stopped. Processor time is the integral of the processor use that the run's journal recorded.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lapwing.bench.measure import environment, main, save

NAME = "superfluid-synthesis"
STOPPED = 300  # Between samples this many seconds apart, a run was stopped.


@dataclass(frozen=True)
class Config:
    """Whole runs of the superfluid synthesis."""

    seeds: tuple[int, ...] = (0, 1)
    """seeds of the runs, each with eight starts"""
    runs: str = "runs"
    """folder of the runs"""
    out: str = "benchmarks/results"
    """folder for the results as JSON; empty for none"""


def run(config: Config) -> dict[str, Any]:
    results: dict[str, Any] = {"environment": environment(), "seeds": list(config.seeds), "runs": []}
    for seed in config.seeds:
        folder = _of_seed(Path(config.runs), seed)
        if folder is None or not (folder / "starts.json").exists():
            lapwing = [sys.executable, "-m", "lapwing"]
            if folder is None:
                subprocess.run(
                    [*lapwing, "train", NAME, "--seed", str(seed), "--runs", config.runs], check=True
                )
            else:
                subprocess.run([*lapwing, "resume", str(folder)], check=True)
            folder = _of_seed(Path(config.runs), seed)
        assert folder is not None
        results["runs"].append({"seed": seed, **collected(folder)})
        save(results, "superfluid-seeds", config.out)
    return results


def collected(folder: Path) -> dict[str, Any]:
    """What a run's folder says about its starts and its costs."""
    use = [json.loads(line) for line in (folder / "system.jsonl").read_text(encoding="utf-8").splitlines()]
    metrics = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    spans = [(b["time"] - a["time"], b["cpu_percent"] / 100) for a, b in pairwise(use)]
    spans = [(seconds, share) for seconds, share in spans if seconds < STOPPED]
    return {
        "steps": json.loads(metrics[-1])["step"] + 1,
        "seconds": sum(seconds for seconds, _ in spans),
        "processor_seconds": sum(seconds * share for seconds, share in spans),
        "starts": json.loads((folder / "starts.json").read_text(encoding="utf-8")),
    }


def _of_seed(runs: Path, seed: int) -> Path | None:
    for folder in sorted(runs.glob(f"*{NAME}*"), reverse=True):
        if json.loads((folder / "config.json").read_text(encoding="utf-8"))["config"]["seed"] == seed:
            return folder
    return None


def show(results: dict[str, Any]) -> None:
    """Prints a table of the starts of each seed."""
    for each in results["runs"]:
        met = sum(row["meets"] for row in each["starts"])
        print(
            f"seed {each['seed']}: {met} of {len(each['starts'])}; {each['steps']} steps, "
            f"{each['processor_seconds']:.0f} s of a processor, {each['seconds']:.0f} s in all"
        )
        for row in each["starts"]:
            worst = max(row["worst_error"].values())
            functions = ", ".join(f"{n} {name}" for name, n in row["functions"].items())
            print(f"  start {row['start']}: {row['links']:3} links  worst answer {worst:.2g}  {functions}")


if __name__ == "__main__":
    main(Config, run, show)
