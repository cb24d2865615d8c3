"""Puts what benchmarks/thinking.py and thinking_speed.py measured into docs/thinking-longer.md.

`python docs/thinking_tables.py` writes the page, with a table for each file of results that there is; a test compares
the page with what this script makes.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "thinking-longer.md"
BEGIN, END = "<!-- made by docs/thinking_tables.py -->\n", "<!-- end of the tables -->\n"
TITLES = {
    "addition": "Sums of at most 10 digits in training",
    "addition_halting": "The same with `--model.halting`, and up to 500 digits",
    "addition_base2": "Sums of at most 10 digits in base 2 in training",
    "addition_base16": "Sums of at most 10 digits in base 16 in training",
    "addition20": "Sums of at most 20 digits in training",
    "text_rotary": "Sums in one line, of at most 6 digits in training, by distance (`rotary`)",
    "text_random": "The same, with drawn positions (`random`)",
    "text_abacus": "The same, with vectors of places (`abacus`)",
    "text_places": "The same, by places (`places`)",
    "prefix_sums": "Prefix sums of 32 bits in training",
    "maze": "Mazes of 9 × 9 in training",
    "maze_wide": "The same with `--model.width 64 --batch-size 64 --steps 1500 --learning-rate 2e-3`",
    "maze_clipped": "The same with `--clip 0.05 --schedule.kind cosine` as well",
    "sudoku": "Hard Sudoku, 1,000 puzzles in training",
    "sudoku_wide": "Hard Sudoku, with `--model.width 64 --batch-size 256 --learning-rate 1e-3 --random-starts 0.5 "
    "--ema 0.999`, in two parts",
}
RULES = {"fixed": "in proportion to the size", "settled": "settled", "sure": "sure"}
RIVALS = {
    "plain": "plainly, jax",
    "torch": "plainly, PyTorch",
    "products, lax.scan": "this network's products with `jax.lax.scan`",
    "lapwing": "as it is",
}
CASES = {
    "addition": "addition, 128 sums of 10 digits",
    "prefix_sums": "prefix sums, 64 of 32 bits",
    "maze": "mazes, 32 of 9 × 9",
}


def tables(folder: Path) -> str:
    """All tables: what is solved, problem by problem, then the time of a step."""
    lines: list[str] = []
    for name, title in TITLES.items():
        for path in sorted(folder.glob(f"thinking-{name}-*.json")):
            results = json.loads(path.read_text())
            lines += [f"**{title}** ({results['environment']['device']})", "", *solved(results["seeds"]), ""]
            rows = [] if name.startswith("text") else rules(results["seeds"])
            if rows:
                lines += ["When it stops: least solved by a seed, and mean steps.", "", *rows, ""]
            if "puzzles" in results["seeds"][0]:
                lines += [
                    "Of all test puzzles, by the surest of several thoughts:",
                    "",
                    *puzzles(results["seeds"]),
                    "",
                ]
    for path in sorted(folder.glob("thinking-speed-*.json")):
        results = json.loads(path.read_text())
        lines += [
            f"**A step of training**, in ms ({results['environment']['device']})",
            "",
            *speed(results["table"]),
            "",
        ]
    return "\n".join(lines) + "\n"


def solved(seeds: list[dict[str, Any]]) -> list[str]:
    """A row for each seed: what is solved of each size, and of hard problems where there are such."""
    sizes = [row["size"] for row in seeds[0]["sizes"]]
    header = ["seed", "seconds", *(f"size {size}" for size in sizes), "least, up to twice the steps"]
    lines = [_line(header), _line(["---:"] * len(header))]
    for seed in sorted(seeds, key=lambda seed: seed["seed"]):
        cells = [_cell(row, "solved") for row in seed["sizes"]]
        worst = min(seed["sizes"], key=lambda row: row["least in between"])["least in between"]
        hard = [row["hard"]["least in between"] for row in seed["sizes"] if "hard" in row]
        least = _share(worst) + (f" · {_share(min(hard))}" if hard else "")
        lines.append(_line([str(seed["seed"]), f"{seed['seconds']:.0f}", *cells, least]))
    return lines


def rules(seeds: list[dict[str, Any]]) -> list[str]:
    """A row for each size, with what each rule of stopping solves and for how many steps it thinks."""
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        for row in seed["sizes"]:
            for name, part in {"": row, ", long carries": row.get("hard", {})}.items():
                if "rules" in part:
                    found.setdefault(f"{row['size']}{name}", []).append(part["rules"])
    if not found:
        return []
    names = list(next(iter(found.values()))[0])
    lines = [_line(["size", *(RULES[name] for name in names)]), _line(["---:"] * (1 + len(names)))]
    for size, each in found.items():
        cells = [
            f"{_share(min(rule[name]['solved'] for rule in each))}, "
            f"{sum(rule[name]['steps'] for rule in each) / len(each):.0f}"
            for name in names
        ]
        lines.append(_line([size, *cells]))
    return lines


def puzzles(seeds: list[dict[str, Any]]) -> list[str]:
    """A row for each number of thoughts: what the surest of them solves after how many steps, what any of them does,
    and what is solved of each quarter of the puzzles, by the guesses that a solver needs. Means of the seeds."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in (row for seed in seeds for row in seed["puzzles"] if row["by"] == "answers"):
        found.setdefault((row["latents"], row["steps"]), []).append(row)
    thoughts, steps = (sorted(set(numbers)) for numbers in zip(*found, strict=True))
    guesses = [f"{count:.0f} guesses" for count in seeds[0]["puzzles"][0]["guesses"]]
    header = ["thoughts", *(f"{count} steps" for count in steps), "by any of them", *guesses]
    lines = [_line(header), _line(["---:"] * len(header))]
    for count in thoughts:
        last = found[count, steps[-1]]
        solved = [_mean([row["solved"] for row in found[count, many]]) for many in steps]
        quarters = zip(*(row["solved of each quarter"] for row in last), strict=True)
        shares = [*solved, _mean([row["solved by any"] for row in last]), *map(_mean, quarters)]
        lines.append(_line([str(count), *map(_share, shares)]))
    return lines


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _cell(row: dict[str, Any], name: str) -> str:
    return _share(row[name]) + (f" · {_share(row['hard'][name])}" if "hard" in row else "")


def _share(share: float) -> str:
    """In percent; what is not all is not rounded to all."""
    return "100%" if share == 1 else f"{min(100 * share, 99.9):.1f}%"


def speed(table: list[dict[str, Any]]) -> list[str]:
    rivals = [rival for rival in RIVALS if any(rival in row["ms"] for row in table)]
    lines = [_line(["", *(RIVALS[rival] for rival in rivals)]), _line(["---", *["---:"] * len(rivals)])]
    for row in table:
        cells = [f"{row['ms'][rival]:.0f}" if rival in row["ms"] else "" for rival in rivals]
        lines.append(_line([CASES[row["case"]], *cells]))
    return lines


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(text: str, folder: Path) -> str:
    """The page with the tables in it."""
    head, rest = text.split(BEGIN)
    return head + BEGIN + tables(folder) + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), RESULTS), encoding="utf-8")
