"""The first screen does what it says: its example runs, and its numbers are those that were measured."""

import json
import operator
import re

import pytest

import lapwing
from lapwing.cli import subcommands

from .docs import DOCS, run_page

README = DOCS.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")


def words(table: str) -> list[list[str]]:
    """Line by line, without the memory, in which versions of jax may differ."""
    return [re.sub(r"[\d.]+ [kMG]?B", "# bytes", line).split() for line in table.splitlines()]


def test_the_example_runs_and_prints_what_is_shown():
    (block,) = run_page(README, {})
    assert words(block.printed.replace("README.md", "example.py")) == words(block.shown)
    assert len([line for line in block.code.splitlines() if line]) <= 10


def measured(name: str) -> dict:
    return json.loads((README.parent / "benchmarks" / "results" / f"{name}.json").read_text())


def test_the_numbers_are_the_measured_ones():
    laps, journal = measured("laps-cpu"), measured("journal-cpu")
    cpu, gpu = measured("gru-cpu"), measured("recurrent-gpu")["summary"]
    half, single = (gpu[dtype]["networks"]["geometric_mean"] for dtype in ("bfloat16", "float32"))
    times, in_single = (each["lax.scan"]["times_faster"] for each in (half, single))
    cells = gpu["bfloat16"]["cells"]["geometric_mean"]["lax.scan"]["times_faster"]
    largest = max(row["ratio"] for row in cpu["table"])
    for sentence in [
        f"{cpu['geometric_mean']['float32']:.2f} times faster than `jax.lax.scan` on two CPU cores",
        f"(geometric mean of {len(cpu['table'])} shapes, {largest:.1f} at batch 1)",
        f"{times:.1f} times in bfloat16 and {in_single:.1f} in float32",
        f"({half['lax.scan']['rows']} GRUs and LSTMs), {cells:.0f} times for cells that nobody has a kernel for",
        f"{half['torch bfloat16']['times_faster']:.1f} times faster than cuDNN in bfloat16",
        f"a phase costs {laps['phase_us']:.1f} µs; {laps['memory_kb_after_20000_steps'] / 1000:.1f} MB after 20,000",
        f"a record costs {journal['record_us']:.1f} µs, a look for commands {journal['poll_us']:.1f} µs",
        f"a million lines are read in {journal['read_s']:.1f} s",
    ]:
        assert sentence in TEXT


def test_every_command_is_named():
    row = re.search(r"^\| `lapwing` \| (.*), with `--json` \|", TEXT, re.MULTILINE)
    assert row
    assert set(re.findall(r"`(\w+)`", row[1])) == set(subcommands())


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`lw\.([\w.]+)", TEXT))))
def test_every_name_is_there(name: str):
    operator.attrgetter(name)(lapwing)


def test_what_adversarial_training_reached_is_what_was_measured():
    long = measured("robust-mnist-gpu")["long"]
    natural, robust = (long["test"][kind]["accuracy"] for kind in ("natural", "robust"))
    told = f"{long['seconds']:.0f} s on an H200: {natural:.1%} natural, {robust:.1%} under PGD-100 with 50 restarts"
    assert told in TEXT
