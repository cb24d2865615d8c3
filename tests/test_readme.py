"""The README does what it says: its examples run, and its numbers, and those of the docs' first page, were measured."""

import json
import operator
import re
from pathlib import Path
from typing import Any

import pytest

import lapwing
from lapwing.cli import main, subcommands
from tests.loops import test_random_programs, test_small
from tests.loops.bodies import CASES

from .docs import DOCS, run_page

README = DOCS.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
HOME = (DOCS / "README.md").read_text(encoding="utf-8")


def words(table: str) -> list[list[str]]:
    """Line by line, whatever the spaces between columns."""
    return [line.split() for line in table.splitlines()]


def test_the_first_example_runs_and_prints_what_is_shown():
    block = next(run_page(README, {}))
    assert words(block.printed.replace("README.md", "example.py")) == words(block.shown)
    assert len([line for line in block.code.splitlines() if line]) <= 5


def test_the_second_example_is_a_file_that_trains(tmp_path: Path, monkeypatch):
    (code,) = re.findall(r"```python\n(# my_model.py\n.*?)```", TEXT, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 12
    (tmp_path / "my_model.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "my_model.py", "--steps", "2", "--quiet"]) == 0


def test_the_commands_are_there():
    """Those that are shown, and those that repeat a measurement."""
    shown = re.findall(r"^lapwing (\w+)|`lapwing (\w+)", TEXT, re.MULTILINE)
    assert {first or second for first, second in shown} <= set(subcommands())
    for name in re.findall(r"python -m benchmarks\.(\w+)", TEXT):
        assert (README.parent / "benchmarks" / f"{name}.py").exists()
    rows = re.findall(r"^\| .* \|$", TEXT, re.MULTILINE)[1:]
    assert all(
        re.search(r"`(lapwing bench|python -m benchmarks|make) ?", row.split(" | ")[-1]) for row in rows
    )


def measured(name: str) -> dict:
    return json.loads((README.parent / "benchmarks" / "results" / f"{name}.json").read_text())


def _on_both_pages() -> list[str]:
    cpu, gpu = measured("gru-cpu"), measured("recurrent-gpu")["summary"]
    half, single = (gpu[dtype]["networks"]["geometric_mean"] for dtype in ("bfloat16", "float32"))
    times, in_single = (each["lax.scan"]["times_faster"] for each in (half, single))
    cells = gpu["bfloat16"]["cells"]["geometric_mean"]["lax.scan"]["times_faster"]
    largest = max(row["ratio"] for row in cpu["table"])
    return [
        f"{cpu['geometric_mean']['float32']:.2f} times faster than `jax.lax.scan`",
        f"(geometric mean of {len(cpu['table'])} shapes, {largest:.1f} at batch 1)",
        f"{times:.1f} times in bfloat16 and {in_single:.1f} in float32",
        f"({half['lax.scan']['rows']} GRUs and LSTMs), {cells:.0f} times for cells that nobody has a kernel for",
        f"{half['torch bfloat16']['times_faster']:.1f} times faster than cuDNN in bfloat16",
    ]


@pytest.mark.parametrize("text", [TEXT, HOME], ids=["README", "docs"])
def test_the_numbers_are_the_measured_ones(text: str):
    laps, journal = measured("laps-cpu"), measured("journal-cpu")
    trained = [row for row in measured("robustness-mnist-long-gpu")["long"] if "autoattack" in row]
    beside = measured("autoattack-mnist-thresholds-gpu")
    robust = [row["autoattack"]["accuracy_after"]["square"] for row in trained]
    natural = sum(row["autoattack"]["natural"] for row in trained) / len(trained)
    ours, theirs = (sum(beside["rows"][0][who]["seconds"].values()) for who in ("lapwing", "original"))
    for sentence in [
        *_on_both_pages(),
        f"a phase costs {laps['phase_us']:.1f} µs",
        f"a record costs {journal['record_us']:.1f} µs, a look for commands {journal['poll_us']:.1f} µs",
        f"{100 * min(robust):.1f} to {max(robust):.1%} under",
        f"{natural:.1%} natural",
        f"{theirs / ours:.1f} times less time than the original",
        f"{measured('loops-cpu')['summary']['gradient']['geometric_mean']:.2f} times",
        _slower_than_a_bare_loop(),
    ]:
        assert sentence.lower() in text.lower().replace("**", "")


def _slower_than_a_bare_loop() -> str:
    cpu, gpu = (
        {step: 100 * (row["slower"] - 1) for step, row in measured(name).items() if "slower" in row}
        for name in ("loop-cpu", "loop-gpu")
    )
    on_gpu = f"{gpu['1 ms']:.0f}% with steps of 1 ms, {gpu['20 µs']:.0f}% with steps of 20 µs"
    return f"at most {max(cpu.values()):.0f}% slower than a bare loop on a CPU; on an H200 {on_gpu}"


def test_the_numbers_of_one_page_are_the_measured_ones():
    laps, journal, loops = measured("laps-cpu"), measured("journal-cpu"), measured("loops-cpu")
    machine, kills = measured("dmm-cpu")["interpreter"], measured("kills-09_char_gru-gpu")
    assert f"{laps['memory_kb_after_20000_steps'] / 1000:.1f} MB after 20,000" in HOME
    assert f"a million lines are read in {journal['read_s']:.1f} s" in HOME
    assert f"[{len(loops['table'])} loops that people write]" in TEXT
    assert f"the worst {loops['summary']['gradient']['worst'][1]:.2f}" in TEXT
    assert f"{machine['interpreted']:.1f} s interpreted, {1000 * machine['compiled']:.2f} ms compiled" in TEXT
    assert kills["killed and resumed"] == []
    assert f"{kills['kills']} kills on an H200" in TEXT


def parameters(test: Any) -> list[Any]:
    """What the values of a parametrised test are."""
    (mark,) = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    return list(mark.args[1])


def test_the_same_results_are_counted_by_the_tests_that_compare_them():
    random = max(each.values[0] for each in parameters(test_random_programs.test_random_programs))
    first, second, *more = parameters(
        test_small.test_hundreds_of_random_loops_agree_and_none_ends_the_process
    )
    small = (len(more) + 2) * (second - first)
    assert (
        f"{len(CASES)} loops to 1e-5 in float32, {random} random programs to 1e-12 in float64, "
        f"{small} random small loops to 2e-5 and 1e-12"
    ) in TEXT


def test_every_command_is_named():
    row = re.search(r"^\| `lapwing` \| (.*), with `--json` \|", HOME, re.MULTILINE)
    assert row
    assert set(re.findall(r"`(\w+)`", row[1])) == set(subcommands())


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`lw\.([\w.]+)", TEXT + HOME))))
def test_every_name_is_there(name: str):
    operator.attrgetter(name)(lapwing)
