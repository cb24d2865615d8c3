import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lapwing import __version__
from lapwing.cli import main, subcommands
from lapwing.journal import Run
from tests.slow import some

LAPWING = [sys.executable, "-m", "lapwing"]


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def runs() -> list[Run]:
    """Three runs, oldest first: finished, failed, running."""
    first = Run.create("adding", {"width": 8}, device="cpu")
    first.log(*({"step": step, "loss": 1 / step, "time": 0.0} for step in range(1, 51)))
    first.end("finished", "loss 0.02")
    second = Run.create("copy")
    second.log({"step": 7, "loss": math.nan})
    second.end("failed", "ValueError: no")
    return [first, second, Run.create("adding")]


def ask(capsys, *words: str) -> tuple[int, str, str]:
    status = main(words)
    said = capsys.readouterr()
    return status, said.out, said.err


def refusal(capsys, *words: str) -> str:
    """The one sentence that a wrong call gets."""
    status, out, err = ask(capsys, *words)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"lapwing: [^\n]+\n", err)
    return err.removeprefix("lapwing: ").rstrip("\n")


def test_help_names_every_command(capsys):
    for words in (["--help"], ["-h"], ["help"]):
        status, out, _ = ask(capsys, *words)
        assert status == 0
        for name, about in subcommands().items():
            assert re.search(rf"^  {name} +{re.escape(about)}$", out, re.MULTILINE)


def test_without_a_command_the_help_is_an_error(capsys):
    status, out, err = ask(capsys)
    assert (status, out) == (2, "")
    assert err.startswith("usage: lapwing COMMAND")


@pytest.mark.parametrize("command", subcommands())
def test_every_command_has_help(capsys, command: str):
    try:
        status = main([command, "--help"])
    except SystemExit as end:
        status = end.code
    assert status == 0
    assert f"usage: lapwing {command}" in capsys.readouterr().out


def test_version(capsys):
    assert ask(capsys, "--version") == (0, f"lapwing {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["shwo"], "'shwo' is not a command; did you mean show?"),
        (["zzz"], f"'zzz' is not a command; there are {', '.join(subcommands())}"),
        (["runs", "--jsn"], "unrecognized options: --jsn; perhaps you meant: --json print JSON"),
        (["runs", "extra"], "unrecognized options: extra; see `lapwing runs --help`"),
        (["show"], "missing from lapwing show: RUN name of a run, a part of one, a path, or latest"),
        (
            ["show", "latest"],
            "there is no run 'latest' in 'runs'; there are no runs there yet; `lapwing list`",
        ),
        (
            ["show", "../../no-such-run"],
            "there is no run folder at '../../no-such-run'; `lapwing runs` lists the names of runs",
        ),
        (["show", "..%2f..%2fx"], "there is no run '..%2f..%2fx' in 'runs'; "),
        (["show", "."], "'.' is not a run folder: it has no config.json"),
        (["note"], "missing from lapwing note: RUN name of a run"),
        (["runs", "--runs", "file"], "cannot read the runs folder file: Not a directory"),
        (["bench"], "which benchmark? there are "),
        (["bench", "zzz"], "'zzz' is not a benchmark; there are "),
        (["time"], "expected a command to time, found none; write: lapwing time -- python train.py"),
        (["time", "--"], "expected a command to time, found none"),
        (
            ["time", "--", "no-such-command"],
            "expected a command that can be started, found 'no-such-command'",
        ),
        (["time", "--marker"], "--marker needs a value; see `lapwing time --help`"),
        (["time", "--trace", "no/x", "--", "true"], "cannot write the trace 'no/x': No such file"),
        (["time", "--trace", ".", "--", "true"], "cannot write the trace '.': Is a directory"),
        (["train"], "which experiment? there are "),
        (["train", "adding", "--steps", "1e3"], "--steps takes an integer, not '1e3'; see `lapwing train"),
        (
            ["train", "adding", "--learning-rate", "high"],
            "--learning-rate takes a number, not 'high'; see `lapwing train adding",
        ),
        (["train", "adding", "--lr", "high"], "--learning-rate takes a number, not 'high'; see "),
        (
            ["train", "adding", "--rate=1"],
            "--rate is now called --learning-rate; write --learning-rate or --lr",
        ),
        (["sweep", "adding", "--rate", "1"], "--rate is now called --learning-rate; "),
        (["--versoin"], "'--versoin' is not a command; did you mean --version?"),
    ],
)
def test_bad_input_gets_one_sentence_and_status_2(capsys, words: list[str], sentence: str):
    Path("file").write_text("")
    assert refusal(capsys, *words).startswith(sentence)


def test_list(capsys):
    from lapwing.experiments import REGISTRY

    status, out, _ = ask(capsys, "list", "--json")
    assert status == 0
    assert json.loads(out) == REGISTRY.about()
    out = ask(capsys, "list")[1]
    assert all(re.search(rf"^{name} ", out, re.MULTILINE) for name in REGISTRY.entries)


def test_runs_are_listed_newest_first_with_their_state(capsys, runs: list[Run]):
    status, out, _ = ask(capsys, "runs")
    assert status == 0
    header, _, *lines = [line.split() for line in out.splitlines()]
    assert header == ["run", "state", "step", "loss", "best", "loss", "age"]
    assert [line[:2] for line in lines] == [
        [run.name, state] for run, state in zip(runs[::-1], ["running", "failed", "finished"], strict=True)
    ]
    assert lines[2][2:4] == ["50", "0.02"]
    assert lines[1][2:4] == ["7", "nan"]


def test_runs_as_json(capsys, runs: list[Run]):
    found = json.loads(ask(capsys, "runs", "--json")[1])
    assert [run["state"] for run in found] == ["running", "failed", "finished"]
    assert found[2]["latest"] == {"step": 50, "loss": 0.02, "time": 0.0}
    assert found[1]["latest"]["loss"] == "NaN"
    assert found[0]["folder"] == f"runs/{runs[2].name}"


def test_a_folder_that_cannot_be_read_does_not_hide_the_others(capsys, runs: list[Run]):
    (runs[1].folder / "config.json").write_text("{")
    out = ask(capsys, "runs")[1]
    assert out.count("\n") == 6
    assert "config.json: it is not JSON" in out.splitlines()[-1]
    found = json.loads(ask(capsys, "runs", "--json")[1])
    assert sorted(run["state"] for run in found) == ["finished", "running", "unreadable"]
    assert "config.json" in refusal(capsys, "show", runs[1].name)


def test_a_run_whose_process_died_is_listed_as_lost(capsys):
    code = "import os, lapwing; lapwing.Run.create('adding'); os._exit(1)"
    subprocess.run([sys.executable, "-c", code], check=False)
    assert [run["state"] for run in json.loads(ask(capsys, "runs", "--json")[1])] == ["lost"]


DAMAGE = {
    "config.json": ["[1]", '"x"', "{}", '{"format": "1"}', '{"format": 1, "created": "NaN"}', "[" * 99999],
    "metrics.jsonl": ['{"step": [1]}', '{"step": {"a": 1}}', '{"step": ' + "9" * 400 + "}", "\0", '{"": 1}'],
    "events.jsonl": ['{"event": []}', '{"event": {}}', '{"time": "x"}', "5"],
    "laps.json": ["{}", "5", '{"format": "lapwing laps 1"}', '{"phases": 3}', "x"],
    "environment.json": ["5", "x"],
}


@pytest.mark.parametrize("file", some([*DAMAGE, "journal.md", "lock"], 1, 2, 6))
def test_whatever_is_in_a_file_of_a_run_there_is_no_traceback(capsys, runs: list[Run], file: str):
    path = runs[0].folder / file
    for content in DAMAGE.get(file, ["\0\n"]):
        path.write_text(content + "\n")
        for words in (["show", runs[0].name], ["show", runs[0].name, "--json"], ["runs"], ["runs", "--json"]):
            status, out, err = ask(capsys, *words)
            assert (status, err) == (0, "") or (status, out, err.count("\n")) == (2, "", 1)
            if words[0] == "runs":
                assert runs[1].name in out
    path.unlink()
    path.mkdir()
    assert runs[1].name in ask(capsys, "runs")[1]
    status, _, err = ask(capsys, "show", runs[0].name)
    if file in ("metrics.jsonl", "events.jsonl", "laps.json", "journal.md"):
        assert (status, err) == (
            2,
            f"lapwing: cannot read runs/{runs[0].name}/{file}: it is not a regular file\n",
        )


def test_laps_that_are_none_do_not_hide_the_run(capsys, runs: list[Run]):
    runs[2].save_laps({"attack": [1.0]})
    status, out, _ = ask(capsys, "show", "latest")
    assert status == 0
    assert "laps.json cannot be shown: expected the dict of LapSummary.to_json()" in out
    assert "started" in out


def test_no_runs_yet(capsys):
    assert ask(capsys, "runs")[1].startswith("There are no runs in runs yet; `lapwing list` shows")
    assert json.loads(ask(capsys, "runs", "--json", "--runs", "elsewhere")[1]) == []


def test_show_tells_state_numbers_and_story(capsys, runs: list[Run]):
    runs[0].note("looks good")
    status, out, _ = ask(capsys, "show", runs[0].name)
    assert status == 0
    for pattern in [
        "state +finished",
        "experiment +adding",
        "step +50",
        r"loss +1 +0\.02 +0\.02 +1$",
        r"\*\*finished\*\*: loss 0\.02",
        "note: looks good",
    ]:
        assert re.search(pattern, out, re.MULTILINE), pattern


def test_show_as_json(capsys, runs: list[Run]):
    found = json.loads(ask(capsys, "show", str(runs[0].folder), "--json")[1])
    assert found["config"] == {"width": 8}
    assert found["environment"]["device"] == "cpu"
    assert found["metrics"]["loss"] == {"first": 1.0, "latest": 0.02, "lowest": 0.02, "highest": 1.0}
    assert [event["event"] for event in found["events"]] == ["started", "finished"]


def test_show_says_what_a_run_uses_of_its_machine(capsys, runs: list[Run]):
    line = {
        "time": 1.0,
        "cpu_percent": 150.0,
        "memory_bytes": 2e9,
        "gpu0_percent": 90,
        "gpu0_memory_bytes": 30e9,
    }
    runs[2].put("system.jsonl", json.dumps(line) + "\n")
    out = ask(capsys, "show", "latest")[1]
    assert re.search(r"^CPU +150% of one core, at most 150%", out, re.MULTILINE)
    assert re.search(r"^GPU 0 +90%, at most 90%; 30 GB, at most 30 GB", out, re.MULTILINE)
    found = json.loads(ask(capsys, "show", "latest", "--json")[1])
    assert found["system"]["memory_bytes"]["highest"] == 2e9


def test_show_prints_the_lap_table(capsys, runs: list[Run]):
    from lapwing import Laps

    laps = Laps()
    for _ in range(3):
        with laps("attack"):
            pass
        laps.step()
    runs[2].save_laps(laps.summary().to_json())
    assert re.search(r"^attack +2 ", ask(capsys, "show", "latest")[1], re.MULTILINE)


def test_an_ambiguous_beginning_lists_the_candidates(capsys, runs: list[Run]):
    sentence = refusal(capsys, "show", "2")
    assert sentence.startswith("'2' could be ")
    assert all(run.name in sentence for run in runs)


def test_a_typo_in_a_runs_name_gets_a_suggestion(capsys, runs: list[Run]):
    wrong = runs[1].name[:-1] + "!"
    assert refusal(capsys, "note", wrong, "x").endswith(f"did you mean {runs[1].name}?")


def test_notes_go_into_the_journal(capsys, runs: list[Run]):
    status, out, _ = ask(capsys, "note", "latest", "the loss", "looks odd")
    assert (status, out) == (0, f"{runs[2].name}: note applied: written to runs/{runs[2].name}/journal.md\n")
    assert runs[2].story.endswith("note: the loss looks odd\n")
    assert refusal(capsys, "note", "latest", " ") == "the note is empty; write a text"


def test_what_a_journal_says_cannot_command_the_terminal(capsys, runs: list[Run]):
    runs[2].note("\x1b[2J\x07 [red]no markup[/red]")
    out = ask(capsys, "show", "latest")[1]
    assert "�[2J� [red]no markup[/red]" in out


def test_time_laps_lines_and_passes_the_status_on(capfd):
    code = "import time\nfor i in range(4): print('step', i)\nprint('done'); raise SystemExit(3)"
    assert main(["time", "--marker", "step", "--json", "--", sys.executable, "-c", code]) == 3
    said = capfd.readouterr()
    assert said.out == "step 0\nstep 1\nstep 2\nstep 3\ndone\n"
    timing = json.loads(said.err)
    assert timing["status"] == 3
    assert timing["laps"]["step"]["count"] == 3


def test_time_prints_a_table_and_writes_a_trace(capfd):
    words = ["time", "--trace", "trace.json", "--", sys.executable, "-c", "print(1); print(2)"]
    assert main(words) == 0
    assert re.search(r"^step +1 ", capfd.readouterr().err, re.MULTILINE)
    assert json.loads(Path("trace.json").read_text())["traceEvents"]


@pytest.mark.slow
def test_a_benchmark_has_options_and_json(capsys):
    found = json.loads(ask(capsys, "bench", "laps", "--rounds", "1", "--long-run", "10", "--json")[1])
    assert found["memory_kb_after_10_steps"] < 100
    assert re.search(r"^phase_us +[\d.]+$", ask(capsys, "bench", "laps", "--rounds", "1")[1], re.MULTILINE)
    assert refusal(capsys, "bench", "laps", "--rounds").startswith("--rounds needs a value")
    assert refusal(capsys, "bench", "laps", "--rounds", "0") == "rounds should be at least 1, but is 0"


def test_an_option_of_a_command_is_not_taken_for_the_old_name_of_another(capsys):
    words = ("bench", "doctor", "--folder", "nowhere")
    assert refusal(capsys, *words).startswith("folder should contain the package silent_bugs, but nowhere")
    assert refusal(capsys, "bench", "laps", "--folder", "x") == "--folder is now called --out; write --out"
    unknown = refusal(capsys, "bench", "doctor", "--folder", "nowhere", "--foldr", "x")
    assert unknown.startswith("unrecognized options: --foldr, x")


def test_the_dashes_may_be_left_out(capfd):
    assert main(["time", sys.executable, "-c", "print('--')"]) == 0
    assert capfd.readouterr().out == "--\n"


def test_a_command_that_prints_nothing_has_no_table(capfd):
    assert main(["time", "--", sys.executable, "-c", ""]) == 0
    err = capfd.readouterr().err
    assert re.fullmatch(
        r"`.*` ended with status 0 after .* \(processor time .*\); it printed no line to lap\.\n", err
    )


def test_an_error_of_ours_is_one_sentence_wherever_its_class_was_made(monkeypatch, capsys):
    from lapwing.core import LapwingError

    class PluginError(LapwingError):
        """Its module is this test."""

    def fail(_):
        raise PluginError("the plugin says no")

    monkeypatch.setattr("lapwing._commands.runs.run_folders", fail)
    assert refusal(capsys, "runs") == "the plugin says no"


def test_a_bug_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("lapwing._commands.runs.run_folders", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["runs"])


def test_a_reader_that_goes_away_gets_no_traceback(runs: list[Run]):
    for _ in range(300):
        runs[2].log({f"metric {i}": 1.0 for i in range(300)} | {"step": 1})
    shown = subprocess.Popen(
        [*LAPWING, "show", "latest", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert shown.stdout
    assert shown.stderr
    shown.stdout.close()
    assert shown.stderr.read() == b""
    shown.stderr.close()
    assert shown.wait() == 141


def test_ctrl_c_ends_with_130():
    code = "import sys, time, lapwing.cli as cli\n"
    code += "def wait(words):\n    print('waiting', flush=True)\n    time.sleep(300)\n"
    code += "cli._run = wait\nsys.exit(cli.main([]))"
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout
    running.stdout.readline()
    time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (130, "lapwing: interrupted\n")


ON_A_PLAIN_TERMINAL = {**os.environ, "PYTHONIOENCODING": "ascii"}


def test_a_terminal_that_knows_only_ascii_still_shows_the_rest(runs: list[Run]):
    runs[2].note("zögert 2 µs")
    words = [*LAPWING, "show", "latest"]
    done = subprocess.run(words, env=ON_A_PLAIN_TERMINAL, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("note: z?gert 2 ?s\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
@pytest.mark.parametrize("words", some([["list"], ["show", "latest", "--json"]], 0), ids=" ".join)
def test_output_that_does_not_fit_on_the_disk_gets_one_sentence(runs: list[Run], words: list[str]):
    runs[2].log({f"metric {i}": 1.0 for i in range(1000)} | {"step": 1})
    with open("/dev/full", "w") as full:
        done = subprocess.run([*LAPWING, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    sentence = "lapwing: cannot write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, sentence)


def test_the_installed_command_is_this_one():
    script = Path(sys.executable).with_name("lapwing")
    if not script.exists():
        pytest.skip("lapwing is not installed as a command beside this Python")
    done = subprocess.run([script, "shwo"], capture_output=True, text=True, env={**os.environ})
    assert (done.returncode, done.stderr) == (2, "lapwing: 'shwo' is not a command; did you mean show?\n")
