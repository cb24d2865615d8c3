"""The page on livecoding does what it says."""

from tests.docs import DOCS, pictures_of, run_page

from .test_commands import main

PAGE = DOCS / "livecoding.md"


def test_the_code_of_the_page_runs_and_prints_what_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    [block] = run_page(PAGE, {})
    assert block.printed.strip() == block.shown.strip()
    assert pictures_of(PAGE) == {"live.png"}
    assert main(["dmm", "replay", "detector.live.jsonl"]) == 0
    printed = capsys.readouterr().out.splitlines()
    shown = (
        PAGE.read_text(encoding="utf-8")
        .split("lapwing dmm replay detector.live.jsonl\n```\n```text\n")[1]
        .split("```")[0]
    )
    assert printed[:-1] == shown.splitlines()  # The last one names the plot.
