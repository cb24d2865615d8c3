"""Puts what `lapwing bench doctor` measured into docs/silent-bugs.md.

`python docs/silent_bugs_table.py` writes the page; a test compares the page with what this script makes.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "doctor-cpu.json"
PAGE = ROOT / "docs" / "silent-bugs.md"
BEGIN, END = "<!-- made by docs/silent_bugs_table.py -->\n", "<!-- end of the tables -->\n"
# The sets of planted mistakes: the name in the page's marks, and in those of the files of results.
PLANTED = {"planted": "planted-mistakes", "planted again": "planted-again"}
RUNS = {"when it first saw them": "", "after they were looked at": "-later"}
PARTS = {
    "all": "all",
    "open": "seen while the rules were made",
    "seen_later": "held out at first, seen since",
    "held_out": "held out",
}


def tables(results: Mapping[str, Any]) -> str:
    """The counts, the bugs one by one, and the false alarms."""
    lines = [*counts(results["summary"]), "", *bugs(results["bugs"]), "", *alarms(results), ""]
    return "\n".join(lines) + "\n"


def counts(summary: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = {
        "bugs found": lambda c: _share(c["found"], c["bugs"]),
        "cause named": lambda c: _share(c["named"], c["bugs"]),
        "false alarms on fixed twins": lambda c: f"{c['alarms on twins']} of {c['bugs']}",
        "false alarms on correct programs": lambda c: f"{c['alarms on clean']} of {c['clean']}",
        "crashes": lambda c: str(c["crashes"]),
        "longest, processor time": lambda c: f"{c['most processor seconds']:.0f} s",
        "the same without compiling": lambda c: f"{c['most processor seconds without compiling']:.1f} s",
    }
    head = [_line(["", *PARTS.values()]), _line(["---", *["---:"] * len(PARTS)])]
    return head + [_line([name, *(cell(summary[part]) for part in PARTS)]) for name, cell in rows.items()]


def planted(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """The counts of the planted mistakes in each run, and what the last one does not find."""
    counted = [each["summary"]["all"] for each in runs.values()]
    lines = [_line(["", *runs]), _line(["---", *["---:"] * len(runs)])]
    lines += [
        _line(["mistakes found", *(_share(each["found"], each["bugs"]) for each in counted)]),
        _line(["cause named", *(_share(each["named"], each["bugs"]) for each in counted)]),
        _line(["false alarms on fixed twins", *(str(each["alarms on twins"]) for each in counted)]),
        _line(
            [
                "correct programs without an alarm",
                *(_share(each["clean"] - each["alarms on clean"], each["clean"]) for each in counted),
            ]
        ),
        _line(["crashes", *(str(each["crashes"]) for each in counted)]),
    ]
    last = list(runs.values())[-1]
    missed = [f"`{row['name']}`" for row in last["bugs"] if not row["found"]]
    end = ["", f"Not found in the last run: {', '.join(missed) or 'none'}.", "", *alarms(last), ""]
    return "\n".join([*lines, *end]) + "\n"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "0"


def bugs(rows: list[Mapping[str, Any]]) -> list[str]:
    lines = [
        _line(["bug", "found", "named", "by", "seconds"]),
        _line(["---", ":---:", ":---:", "---", "---:"]),
    ]
    for row in rows:
        mark = " (held out)" if row["held_out"] else " (seen since)" if row.get("seen_later") else ""
        twin = {each["check"] for each in row["twin"]["failed"]}
        by = ", ".join(f"`{each['check']}`" for each in row["bug"]["failed"] if each["check"] not in twin)
        name = f"[{_title(row)}]({row['source']}){mark}"
        seconds = f"{row['bug']['cpu_without_compiling']:.1f}"
        lines.append(_line([name, _mark(row["found"]), _mark(row["named"]), by, seconds]))
    return lines


def _title(row: Mapping[str, Any]) -> str:
    """The name as people write it: transformers 33844."""
    return re.sub(r"[_ ](\d+)$", r" \1", row["name"]).replace("_", "-")


def _mark(is_so: bool) -> str:
    return "yes" if is_so else "no"


def alarms(results: Mapping[str, Any]) -> list[str]:
    twins = [(f"{_title(row)}, fixed", row["twin"]) for row in results["bugs"]]
    rows = [
        (name, run)
        for name, run in [*twins, *((row["name"], row) for row in results["clean"])]
        if run["failed"]
    ]
    if not rows:
        return ["There is no false alarm."]
    lines = ["False alarms:", ""]
    return lines + [f"- {name}: " + "; ".join(_short(each) for each in run["failed"]) for name, run in rows]


def _short(finding: Mapping[str, str]) -> str:
    what = finding["detail"].partition(". Look at ")[0]
    return f"`{finding['check']}`: {what[:160]}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(text: str) -> str:
    """The page with the tables in it, made from the results."""
    text = _between(text, BEGIN, END, tables(json.loads(RESULTS.read_text())))
    for mark, name in PLANTED.items():
        paths = {run: RESULTS.with_name(f"{name}{suffix}-cpu.json") for run, suffix in RUNS.items()}
        runs = {run: json.loads(path.read_text()) for run, path in paths.items() if path.exists()}
        begin, end = f"<!-- {mark}: made by docs/silent_bugs_table.py -->\n", f"<!-- end of {mark} -->\n"
        text = _between(text, begin, end, planted(runs))
    return text


def _between(text: str, begin: str, end: str, made: str) -> str:
    head, rest = text.split(begin)
    return head + begin + made + end + rest.split(end)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
