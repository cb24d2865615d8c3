"""The page on thinking longer: its tables are those that were measured."""

import importlib.util
import json
import re

from lapwing.experiments._thinker_defaults import DEFAULTS
from lapwing.experiments.thinker import Config
from tests.docs import DOCS

spec = importlib.util.spec_from_file_location("thinking_tables", DOCS / "thinking_tables.py")
assert spec is not None
assert spec.loader is not None
thinking_tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(thinking_tables)


def test_the_tables_are_those_that_were_measured():
    text = thinking_tables.PAGE.read_text(encoding="utf-8")
    made = thinking_tables.page(text, thinking_tables.RESULTS)
    assert text == made, "`python docs/thinking_tables.py` makes them again"


def test_tables_take_the_place_of_the_last_ones(tmp_path):
    shares = {"solved": 1.0, "solved after twice as many": 1.0, "least in between": 0.9999}
    rows = [{"size": 10, **shares, "hard": {**shares, "solved": 0.5, "least in between": 0.25}}]
    results = {"environment": {"device": "cpu"}, "seeds": [{"seed": 1, "seconds": 9.6, "sizes": rows}]}
    (tmp_path / "thinking-addition-cpu.json").write_text(json.dumps(results))
    table = [{"case": "maze", "ms": {"lapwing": 2.0, "plain": 5.4}}]
    (tmp_path / "thinking-speed-cpu.json").write_text(json.dumps({**results, "table": table}))
    begin, end = thinking_tables.BEGIN, thinking_tables.END
    once = thinking_tables.page(f"before\n{begin}old\n{end}after\n", tmp_path)
    assert "| seed | seconds | size 10 | least, up to twice the steps |\n" in once
    assert "| 1 | 10 | 100% · 50.0% | 99.9% · 25.0% |\n" in once
    assert "| mazes, 32 of 9 × 9 | 5 | 2 |\n" in once
    assert (once.startswith("before\n"), once.endswith("after\n"), "old" in once) == (True, True, False)
    assert thinking_tables.page(once, tmp_path) == once
    assert "When it stops" not in once
    rules = {"fixed": {"solved": 1.0, "steps": 40.0}, "sure": {"solved": 0.5, "steps": 3.25}}
    rows[0]["hard"]["rules"] = rules
    (tmp_path / "thinking-addition-cpu.json").write_text(json.dumps(results))
    stops = thinking_tables.page(once, tmp_path)
    assert "| size | in proportion to the size | sure |\n" in stops
    assert "| 10, long carries | 100%, 40 | 50.0%, 3 |\n" in stops


def test_a_table_of_puzzles_is_of_means():
    def row(latents, steps, solved):
        shares = {
            "solved": solved,
            "solved by any": 0.75,
            "guesses": [10, 20.4],
            "solved of each quarter": [1.0, solved],
        }
        return {"latents": latents, "steps": steps, "by": "answers", **shares}

    seeds = [
        {"puzzles": [row(1, 64, 0.25), row(1, 128, share), {**row(1, 64, 0.0), "by": "halting"}]}
        for share in (0.5, 0.6)
    ]
    header, _, line = thinking_tables.puzzles(seeds)
    assert header == "| thoughts | 64 steps | 128 steps | by any of them | 10 guesses | 20 guesses |"
    assert line == "| 1 | 25.0% | 55.0% | 75.0% | 100% | 55.0% |"


def test_the_page_has_the_defaults_of_every_problem():
    text = thinking_tables.PAGE.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| `[a-z_]+`.*\d", line)]
    for name, row in DEFAULTS.items():
        (line,) = [line for line in rows if f"`{name}`" in line]
        config = Config(problem=name)
        assert f" {row.mixer} | {row.before}, {row.gradient_steps} | {row.batch_size} |" in line
        assert re.search(rf"\b{row.size}\b", line)
        assert f"| {config.far or ''} |".replace("|  |", "| |") in line
