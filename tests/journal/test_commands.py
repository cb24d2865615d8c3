"""The table of commands: what it accepts, and that every other place that knows commands agrees with it."""

import re
from pathlib import Path

import pytest

from lapwing import cli
from lapwing.journal import COMMANDS, CommandError, CommandSpec, Run
from lapwing.journal._commands import COUNT, Argument, check_command
from lapwing.journal._inbox import Inbox

NAMES = ["set", "pause", "resume", "checkpoint", "rollback", "laps", "stop", "note"]


@pytest.mark.parametrize(
    ("command", "arguments", "checked"),
    [
        ("set", {"lr": 0.01, "clip": float("inf")}, {"learning_rate": 0.01, "clip": float("inf")}),
        ("set", {"rate": 1}, {"learning_rate": 1.0}),
        ("set", {"l1": 0}, {"l1": 0.0}),
        ("rollback", {}, {"to": "best"}),
        ("rollback", {"to": 120}, {"to": 120}),
        ("laps", {"every": 7}, {"every": 7}),
        ("note", {"text": "NaN"}, {"text": "NaN"}),
        ("pause", {}, {}),
    ],
)
def test_names_are_canonical_and_defaults_filled_in(command, arguments, checked):
    assert check_command(command, arguments, ["learning_rate", "clip", "l1"]) == (command, checked)


@pytest.mark.parametrize(
    ("command", "arguments", "reason"),
    [
        ("set", {"lr": -1}, "learning_rate should be a positive number, but is -1"),
        ("set", {"lr": float("nan")}, "learning_rate should be a positive number, but is nan"),
        ("set", {"lr": "fast"}, "learning_rate should be a positive number, but is 'fast'"),
        ("set", {"lr": True}, "learning_rate should be a positive number, but is True"),
        ("set", {"clip": 0}, "clip should be a positive number, or inf for none, but is 0"),
        ("set", {"weight_decay": -0.1}, "weight_decay should be a number of at least 0, but is -0.1"),
        ("set", {"l1": float("inf")}, "l1 should be a finite number, but is inf"),
        ("set", {"weightdecay": 1}, "'weightdecay' cannot be set; did you mean weight_decay?"),
        ("set", {}, "set needs a name and a value, such as learning_rate=0.01"),
        ("stopp", {}, "'stopp' is not a command; did you mean stop?"),
        ("explode", {}, f"'explode' is not a command; there are {', '.join(NAMES)}"),
        ("pause", {"for": 3}, "pause takes no arguments, not for"),
        ("rollback", {"to": "worst"}, "to should be best or the step of a checkpoint, but is 'worst'"),
        ("rollback", {"to": 1.5}, "to should be best or the step of a checkpoint, but is 1.5"),
        ("laps", {"every": -1}, "every should be an integer of at least 0, but is -1"),
        ("laps", {}, "every should be an integer of at least 0, but is None"),
        ("note", {"text": "x" * 10_001}, "text should be a text of at most 10000 characters, but is 'xxx"),
    ],
)
def test_what_the_table_does_not_allow_is_one_sentence_before_and_after_posting(
    tmp_path: Path, command, arguments, reason
):
    with Run.create("demo", runs_dir=tmp_path) as run:
        run.announce_controls({"learning_rate": 0.1, "clip": 1.0, "weight_decay": 0.0, "l1": 0.0})
        with pytest.raises(CommandError) as refusal:
            run.send(command, arguments)
        assert str(refusal.value).startswith(reason)
        # A file that another program wrote into the inbox passes the same check.
        posted = Inbox(run.folder / "control").post(command, arguments)
        assert run.poll() == []
        assert run.answer(posted)["reason"] == str(refusal.value)


def test_old_names_in_the_inbox_are_understood(tmp_path: Path):
    with Run.create("demo", runs_dir=tmp_path) as run:
        inbox = Inbox(run.folder / "control")
        inbox.post("go on", {})
        inbox.post("set", {"rate": 0.5})
        assert [str(command) for command in run.poll()] == ["resume", "set learning_rate=0.5"]


def test_the_controls_of_a_run_follow_what_happens(tmp_path: Path):
    with Run.create("demo", runs_dir=tmp_path) as run:
        reader = Run.open(run.folder)
        assert reader.controls is None
        run.announce_controls({"learning_rate": 0.1, "clip": float("inf"), "lasso": 0.0})
        reader.post("set", lr=0.2, lasso=1)
        (command,) = run.poll()
        run.applied(command, "")
        assert reader.controls == {"learning_rate": 0.2, "clip": float("inf"), "lasso": 1.0}
        run.event("rollback", step=3, to=1, learning_rate=0.1)
        assert reader.controls["learning_rate"] == 0.1
        run.event("controls", values={"learning_rate": "high", "clip": True, "l1": 1})
        assert reader.controls == {"l1": 1.0}


def test_a_note_needs_no_process_and_other_commands_do(tmp_path: Path):
    with Run.create("demo", runs_dir=tmp_path) as run:
        pass
    assert run.send("note", {"text": "calmer"}) is None
    assert run.story.endswith("note: calmer\n")
    with pytest.raises(Exception, match="is finished, and only a running one takes commands"):
        run.send("pause", {})


def test_a_note_in_the_inbox_is_written_and_answered(tmp_path: Path):
    """The training has no action for it."""
    with Run.create("demo", runs_dir=tmp_path) as run:
        inbox = Inbox(run.folder / "control")
        noted, empty = inbox.post("note", {"text": "calmer"}), inbox.post("note", {"text": " "})
        assert run.poll() == []
        assert "note: calmer\n" in run.story
        assert run.answer(noted)["event"] == "applied"
        assert run.answer(empty)["reason"] == "the note is empty; write a text"


def test_a_penalty_may_have_any_name(tmp_path: Path):
    with Run.create("demo", runs_dir=tmp_path) as run:
        run.announce_controls({"command": 0.0, "self": 0.0})
        run.post("set", command=1, self=2)
        assert [command.arguments for command in run.poll()] == [{"command": 1.0, "self": 2.0}]


def test_a_new_command_is_one_entry_in_the_table(tmp_path: Path, monkeypatch, capsys):
    """It is in the help of the command line, checked by the inbox, and sent to the page of the board."""
    from lapwing.board._details import details

    times = Argument("times", COUNT, "how often", "N")
    monkeypatch.setitem(COMMANDS, "whistle", CommandSpec("let the run whistle", (times,)))
    assert cli.main(["--help"]) == 0
    assert re.search("^  whistle +let the run whistle$", capsys.readouterr().out, re.MULTILINE)
    with pytest.raises(SystemExit, match="0"):
        cli.main(["whistle", "--help"])
    said = capsys.readouterr().out
    assert "usage: lapwing whistle [-h] RUN N" in said
    assert "how often" in said
    with Run.create("demo", runs_dir=tmp_path) as run:
        Inbox(run.folder / "control").post("whistle", {"times": 2})
        wrong = Inbox(run.folder / "control").post("whistle", {"times": -1})
        assert [str(command) for command in run.poll()] == ["whistle times=2"]
        assert run.answer(wrong)["reason"] == "times should be an integer of at least 0, but is -1"
        sent = {entry["name"]: entry for entry in details(run.name, run.folder)["commands"]}
    assert sent["whistle"]["arguments"][0] == {
        "name": "times",
        "help": "how often",
        "default": None,
        "expected": "an integer of at least 0",
        "type": "int",
    }


def test_every_place_that_knows_commands_knows_the_same(tmp_path: Path):
    from lapwing.board._details import details
    from lapwing.train._control import ACTIONS

    assert list(COMMANDS) == NAMES
    assert ACTIONS.keys() == {name for name, spec in COMMANDS.items() if spec.states is not None}
    assert all(hasattr(Run, name) for name, spec in COMMANDS.items() if spec.states is None)
    assert COMMANDS.keys() <= cli.subcommands().keys()
    with Run.create("demo", runs_dir=tmp_path) as run:
        assert [entry["name"] for entry in details(run.name, run.folder)["commands"]] == NAMES
    page = Path(cli.__file__).parent / "board" / "static"
    script = "".join(file.read_text() for file in page.glob("*.js"))
    quoted = [name for name in {*COMMANDS, "weight_decay", "clip"} if f'"{name}"' in script]
    assert quoted == ["note"], "the page names a command itself instead of reading the table"
