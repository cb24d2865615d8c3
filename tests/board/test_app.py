"""What the board answers, asked over a real connection."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.journal import Histogram, Image, Table

from .serving import Board, falling, serving, started, timed_laps, until

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def board(runs: Path):
    with serving(runs) as found:
        yield found


def test_everything_about_a_run(board: Board, runs: Path):
    run = started(runs, falling(50), model={"width": 8})
    run.event("rollback", "rolled back", step=40, to=30, reason="it ran away")
    run.save_laps({**timed_laps(), "fused": {"p50": 0.5, "steps_per_call": 10}})
    run.add_picture(PNG, "machine.png", "the machine of 8 links")
    run.note("calmer now")
    told = board.get("run", run=run.name).json
    assert ["model.width", 8] in told["config"]
    assert dict(told["environment"])["device"] == "cpu"
    assert told["marks"] == [{"step": 30, "text": "back from 40", "color": "#d1453b", "note": "it ran away"}]
    assert told["notes"][0]["text"] == "calmer now"
    assert list(told["laps"]["bars"]) == ["data", "forward", "unaccounted"]
    assert told["laps"]["bars"]["unaccounted"] == [0.125] * 4  # The first step is never steady.
    assert told["laps"]["rows"][-1][0] == "step"
    assert told["laps"]["remarks"][-1] == "Fused, as it runs: 50.0 ms per step."
    (picture,) = told["pictures"]
    assert (picture["name"], picture["caption"]) == ("machine.png", "the machine of 8 links")
    assert f'src="api/picture?run={run.name}&amp;name=machine.png"' in told["journal"]
    shown = board.get("picture", run=run.name, name="machine.png")
    assert (shown.status, shown.headers["content-type"], shown.body) == (200, "image/png", PNG)
    assert "sandbox" in shown.headers["content-security-policy"]


def test_the_path_of_a_machine_that_is_pruned(board: Board, runs: Path):
    run = started(runs, [1.0])
    run.event("round", step=1, links=[90, 80], error_after=[0.5, float("inf")])
    run.event("round", step=2, links=[9, 8], error_after=[0.25, 0.1])
    told = board.get("run", run=run.name).json["path"]
    assert told == [
        {"links": [90, 9], "errors": [0.5, 0.25]},
        {"links": [80, 8], "errors": ["Infinity", 0.1]},
    ]


def test_what_differs_and_where_runs_part(board: Board, runs: Path):
    a, b = started(runs, [3.0, 2.0, 1.0], clip=1), started(runs, [3.0, 2.0, 1.5], clip=2)
    assert board.get("compare", run=[a.name, b.name]).json["config"] == [["clip", [1, 2]]]
    told = board.get("difference", run=[a.name, b.name]).json
    assert (told["differs_at"], told["metrics"][0]["name"], told["metrics"][0]["difference"]) == (
        2,
        "loss",
        0.5,
    )
    assert board.get("difference", run=[a.name]).json == {"error": "expected two runs to compare, but got 1"}
    other = started(runs, [])
    assert (
        "have logged no metric at the same step"
        in board.get("difference", run=[a.name, other.name]).json["error"]
    )


def test_a_sweep_is_its_files(board: Board, runs: Path):
    folder = runs / "grid"
    folder.mkdir()
    (folder / "sweep.json").write_text(
        '{"experiment": "adding", "grid": {"learning_rate": [0.1, 0.2]}, "config": {"clip": "Infinity"}}'
    )
    point = started(folder, [1.0])
    assert board.get("sweep", sweep="grid").json["summary"] is None
    (folder / "summary.json").write_text('[{"learning_rate": 0.1, "mean": 0.5}]')
    told = board.get("sweep", sweep="grid").json
    assert told["asked"] == [["experiment", "adding"], ["grid.learning_rate", [0.1, 0.2]]]
    assert told["config"] == [["clip", "Infinity"]]
    assert told["summary"] == [{"learning_rate": 0.1, "mean": 0.5}]
    assert board.get("run", run=f"grid/{point.name}").json["run"] == f"grid/{point.name}"
    (folder / "summary.json").write_text("{")
    assert board.get("sweep", sweep="grid").json["summary"] is None
    assert board.get("sweep", sweep="none").json["error"].startswith("there is no sweep 'none'")


def test_runs_in_folders_are_grouped_and_only_sweeps_are_sweeps(board: Board, runs: Path):
    plain, deep = started(runs / "mine", [1.0]), started(runs / "mine" / "grid", [1.0])
    (runs / "mine" / "grid" / "sweep.json").write_text('{"seeds": 3}')
    rows = [board.shelf.get(name).row for name in (f"mine/{plain.name}", f"mine/grid/{deep.name}")]
    assert [row["group"] for row in rows] == ["mine", "mine/grid"]
    assert rows[0]["sweep"] is None
    assert board.get("sweep", sweep="mine").status == 404
    assert board.get("sweep", sweep="mine/grid").json["asked"] == [["seeds", 3]]


def test_what_was_logged_step_by_step(board: Board, runs: Path):
    run = started(runs, [1.0, 0.5])
    for step in (0, 1):
        run.log(step=step, sample=f"<b>{step}</b>", noise=Image(np.full((2, 3), float(step)), caption="flat"))
    run.log(step=1, worst=Table([{"word": "a", "score": float("nan")}]), spread=Histogram([1.0, 2.0], bins=2))
    until(lambda: board.shelf.get(run.name).row["logged"] == 6)
    names = board.get("logged", run=run.name).json
    assert {(each["name"], each["kind"]): each["steps"] for each in names} == {
        ("sample", "text"): [0, 1],
        ("noise", "image"): [0, 1],
        ("worst", "table"): [1],
        ("spread", "histogram"): [1],
    }

    def entry(name: str, kind: str, step: int):
        return board.get("entry", run=run.name, name=name, kind=kind, step=step)

    assert entry("sample", "text", 1).json["text"] == "<b>1</b>"
    assert entry("worst", "table", 1).json["content"] == {
        "columns": ["word", "score"],
        "rows": [["a", "NaN"]],
    }
    assert entry("spread", "histogram", 1).json["counts"] == [1, 1]
    image = entry("noise", "image", 0).json
    assert (image["width"], image["height"], image["caption"]) == (3, 2, "flat")
    shown = board.get("media", run=run.name, file=image["file"])
    assert (shown.status, shown.headers["content-type"]) == (200, "image/png")
    assert shown.body == (run.folder / image["file"]).read_bytes()
    assert "sandbox" in shown.headers["content-security-policy"]
    assert entry("sample", "text", 7).json == {"error": "the run has logged no text 'sample' at step 7"}
    assert board.get("media", run=run.name, file="media/none.png").status == 404
    run.back_to(1)
    until(lambda: board.shelf.get(run.name).row["logged"] == 2)
    assert [each["steps"] for each in board.get("logged", run=run.name).json] == [[0], [0]]


def test_what_a_run_uses_of_its_machine(board: Board, runs: Path):
    run = started(runs, [1.0])
    assert board.get("system", run=run.name).json == {}
    lines = [{"time": run.created + 1, "cpu_percent": 50.0}, {"time": run.created + 11, "memory_bytes": 2e9}]
    run.put("system.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert board.get("system", run=run.name).json == {
        "seconds": [1.0, 11.0],
        "cpu_percent": [50.0, None],
        "memory_bytes": [None, 2e9],
    }


def test_the_table_gets_metrics_and_settings_of_all_runs(board: Board, runs: Path):
    run = started(runs, [3.0, 1.0, 2.0], model={"width": 8})
    run.log({"step": 3, "eval_loss": 1.5, "loss": float("nan")})
    until(lambda: board.shelf.get(run.name).row["step"] == 3)
    with board.listen() as messages:
        message = next(messages)
    assert message["settings"][run.name]["model.width"] == 8
    (row,) = (row for row in message["rows"] if row["run"] == run.name)
    assert row["metrics"]["loss"] == [None, 1.0, 3.0]  # The latest is not a number.
    assert row["metrics"]["eval_loss"] == [1.5, 1.5, 1.5]
    with board.listen(run=run.name) as messages:  # Without names all curves are sent.
        (message,) = next(each for each in messages if "eval_loss" in each[0]["series"])
    assert {"loss", "eval_loss", "gradient_norm"} <= message["series"].keys()


def follow(messages: Iterator[Any], curve: list[float], is_there: Callable[[dict], bool]) -> dict:
    """Does with a curve what the page does, until a row is as it should be."""
    for (message,) in messages:
        if news := message["series"].get("loss"):
            assert news["from"] <= len(curve)
            curve[news["from"] :] = news["low"]
        if is_there(message["row"]):
            return message["row"]
    raise AssertionError("the stream has ended")


def test_a_curve_grows_over_the_stream(board: Board, runs: Path):
    run = started(runs, [3.0, 2.0])
    with board.listen(run=run.name, metric=["loss", "learning_rate"]) as messages:
        curve: list[float] = []
        row = follow(messages, curve, lambda row: row["loss"] == 2.0 and len(curve) == 2)
        run.log({"step": 2, "loss": 1.0}, {"step": 3, "loss": 0.5})
        row = follow(messages, curve, lambda row: row["loss"] == 0.5 and len(curve) == 4)
        assert (curve, row["state"]) == ([3.0, 2.0, 1.0, 0.5], "running")
        run.end("finished", "done")
        follow(messages, curve, lambda row: row["state"] == "finished")
        assert curve == [3.0, 2.0, 1.0, 0.5]


def test_the_table_gets_what_has_changed(board: Board, runs: Path):
    first, second = started(runs, [3.0]), started(runs, [4.0])
    with board.listen() as messages:
        message = next(messages)
        assert message["first"]
        seen = {row["run"] for row in message["rows"]}
        while not {first.name, second.name} <= seen:
            message = next(messages)
            assert not message["first"]
            seen |= {row["run"] for row in message["rows"]}
        until(lambda: all(kept.row["loss"] for kept in map(board.shelf.get, (first.name, second.name))))
        second.log({"step": 1, "loss": 0.25})
        message = next(each for each in messages if any(row.get("loss") == 0.25 for row in each["rows"]))
        assert [row["run"] for row in message["rows"]] == [second.name]
        assert not message["first"]


def test_a_run_that_is_gone_ends_its_stream(board: Board, runs: Path):
    run = started(runs, [3.0])
    with board.listen(run=run.name, metric="loss") as messages:
        next(messages)
        run.folder.rename(runs.parent / f"gone-{run.name}")
        assert any("there is no run" in str(message) for message in messages)
    assert board.get("live", run="nobody").status == 404


def test_a_command_reaches_the_inbox_and_its_answer_comes_back(board: Board, runs: Path):
    run = started(runs, [3.0])
    given = board.steer(run.name, "set", lr="0.01", clip="inf").json["id"]
    (command,) = run.poll()
    assert (command.id, command.name, command.arguments) == (
        given,
        "set",
        {"learning_rate": 0.01, "clip": float("inf")},
    )
    run.applied(command, "learning_rate 0.1 → 0.01", step=0)
    answers = board.get("run", run=run.name).json["answers"]
    assert [(each["id"], each["event"], each["outcome"]) for each in answers] == [
        (given, "applied", "learning_rate 0.1 → 0.01")
    ]
    for command, arguments, meant in [
        ("pause", {}, {}),
        ("resume", {}, {}),
        ("checkpoint", {}, {}),
        ("rollback", {"to": "best"}, {"to": "best"}),
        ("rollback", {"to": "120"}, {"to": 120}),
        ("laps", {"every": 7}, {"every": 7}),
        ("stop", {}, {}),
    ]:
        assert board.steer(run.name, command, **arguments).status == 200
        (heard,) = run.poll()
        assert (heard.name, heard.arguments) == (command, meant)
        run.refused(heard, "not now")
    assert board.steer(run.name, "note", text="so far so good").json == {"id": None}
    assert "note: so far so good" in run.story


def test_what_is_no_command_is_one_sentence(board: Board, runs: Path):
    run = started(runs, [3.0])
    for answer, status, sentence in [
        (
            board.steer(run.name, "explode"),
            400,
            "'explode' is not a command; there are set, pause, resume, checkpoint, ",
        ),
        (board.steer(run.name, "set", lr="much"), 400, "lr should be a positive number, but is 'much'"),
        (board.steer(run.name, "set", clip="-1"), 400, "clip should be a positive number, or inf for none, "),
        (
            board.steer(run.name, "rollback", to="worst"),
            400,
            "to should be best or the step of a checkpoint, but",
        ),
        (board.steer(run.name, "note", text=5), 400, "text should be a text of at most 10000 characters"),
        (board.steer(run.name, "note", text=" "), 409, "the note is empty; write a text"),
        (board.steer("nobody", "pause"), 404, "there is no run 'nobody' in "),
        (board.steer(run.name, "note", text="x" * 70_000), 400, "a command has at most 65536 bytes"),
        (board.get("run"), 400, "the request lacks run=NAME"),
    ]:
        assert (answer.status, answer.json["error"][: len(sentence)]) == (status, sentence)
    for body in ("5", "{", '{"run": 5}', json.dumps({"command": "set", "arguments": 5, "run": run.name})):
        answer = board.ask("/api/steer", method="POST", body=body, Content_Type="application/json")
        assert answer.status in (400, 404)
        assert json.loads(answer.body)["error"]
    assert run.poll() == []
    run.end("stopped", "")
    answer = board.steer(run.name, "pause")
    assert (answer.status, answer.json["error"]) == (
        409,
        f"the run {run.name} is stopped, and only a running one takes commands",
    )


def test_files_that_a_browser_has_are_not_sent_again(board: Board):
    first = board.ask("/static/plotly.min.js")
    assert first.status == 200
    assert len(first.body) > 1_000_000
    again = board.ask("/static/plotly.min.js", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert board.ask("/").headers["content-type"].startswith("text/html")
