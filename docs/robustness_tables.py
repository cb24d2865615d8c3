"""Puts what benchmarks/autoattack.py and benchmarks/robust.py measured into docs/autoattack.md and
docs/results/adversarial.md.

`python docs/robustness_tables.py` writes the pages: a table takes the place between its two marks, the first of which
names the file of results. A test compares the pages with what this script makes.
"""

import json
import re
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "docs" / "autoattack.md", ROOT / "docs" / "results" / "adversarial.md")
NORMS = {"linf": "L∞", "l2": "L2", "l1": "L1"}
ATTACKS = {"apgd-ce": "APGD-CE", "apgd-t": "APGD-T", "fab-t": "FAB-T", "square": "Square", "total": "all"}
_MARKED = re.compile(r"(<!-- (\w+): ([\w-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def beside(results: dict[str, Any]) -> list[str]:
    """A row for each network and norm: accuracies of both, images that fell to one only, and seconds."""
    rows = _rows_of_both(results)
    names = [name for name in ATTACKS if name in rows[0]["lapwing"]["accuracy"]]
    header = ["network", *(ATTACKS[name] for name in names), "fell to one only", "seconds"]
    lines = [_line(header), _line(["---", *["---:"] * (len(header) - 1)])]
    for row in rows:
        both = row["lapwing"], row["original"]
        shares = [" / ".join(f"{100 * found['accuracy'][name]:.1f}" for found in both) for name in names]
        only = " / ".join(map(str, row["fell_to_one_only"]["total"]))
        seconds = " / ".join(f"{sum(found['seconds'].values()):.0f}" for found in both)
        network = f"{row['network']}, {NORMS[row['norm']]} {row['eps']:g}"
        lines.append(_line([network, *shares, only, seconds]))
    return lines


def seeds(results: dict[str, Any]) -> list[str]:
    """A row for each network, norm and attack: means over the seeds, and the lowest and highest of both."""
    rows = _rows_of_both(results)
    lines = [
        _line(["network", "attack", "seeds", "Lapwing", "the original"]),
        _line(["---"] * 2 + ["---:"] * 3),
    ]
    for network, norm in dict.fromkeys((row["network"], row["norm"]) for row in rows):
        some = [row for row in rows if (row["network"], row["norm"]) == (network, norm)]
        for name in some[0]["lapwing"]["seconds"]:
            cells = [_spread(row[who]["accuracy"][name] for row in some) for who in ("lapwing", "original")]
            about = f"{network}, {NORMS[norm]} {some[0]['eps']:g}"
            lines.append(_line([about, ATTACKS[name], str(len(some)), *cells]))
    return lines


def trained(results: dict[str, Any]) -> list[str]:
    """A row for each method: means over the seeds, and the lowest and highest."""
    rows = results["compared"]
    attacks = next(iter(rows.values()))[0]["accuracy_after"]
    header = ["", "seeds", "natural", *(f"after {ATTACKS[name]}" for name in attacks), "training"]
    lines = [_line(header), _line(["---", *["---:"] * (len(header) - 1)])]
    for method, some in rows.items():
        shares = [[row["natural"]["accuracy"] for row in some]]
        shares += [[row["accuracy_after"][name] for row in some] for name in attacks]
        seconds = f"{statistics.mean(row['seconds'] for row in some):.0f} s"
        lines.append(_line([f"`{method}`", str(len(some)), *map(_spread, shares), seconds]))
    return lines


def _rows_of_both(results: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in results["rows"] if row["original"]]


def _spread(shares: Iterable[float]) -> str:
    found = [100 * share for share in shares]
    mean = f"{statistics.mean(found):.1f}"
    return mean if len(found) == 1 else f"{mean} ({min(found):.1f} to {max(found):.1f})"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


KINDS = {"beside": beside, "seeds": seeds, "trained": trained}


def page(text: str, folder: Path) -> str:
    """The page with the tables in it."""

    def table(found: re.Match[str]) -> str:
        begin, kind, name, end = found.groups()
        results = json.loads((folder / f"{name}.json").read_text())
        return begin + "\n".join(["", *KINDS[kind](results), "", ""]) + end

    return _MARKED.sub(table, text)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path.read_text(encoding="utf-8"), RESULTS), encoding="utf-8")
