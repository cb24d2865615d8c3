"""A running machine without a browser: edits between cycles, undo, the text, what an edit leaves alone."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing import dmm, trees
from lapwing.core import LapwingError
from lapwing.live import LiveError, Session, replay
from lapwing.live._edits import FIELDS

NORM = {"to": "norm.dict", "from": "accum.dict"}


def session(**options) -> Session:
    return Session(dmm.duplicate_detector(), **{"text": "aab", **options})


def weight(value: float, **more) -> dict:
    return {"edit": "weight", **NORM, "weight": value, **more}


def weights(running: Session) -> dict:
    return trees.paths(running.matrix)


def test_a_session_runs_as_the_interpreter_does():
    running = session()
    running.run(30)
    trace = dmm.interpret(dmm.duplicate_detector(), 30, text="aab")
    assert running.outputs == trace.cycles[-1].outputs
    assert [answers["dict-1"] for _, answers in running.answers] == trace.answers["dict-1"]


@pytest.mark.parametrize(
    "edit",
    [
        weight(0.25),
        {"edit": "remove", **NORM},
        {"edit": "add", "to": "norm.dict", "from": "input.char", "weight": -1.0},
    ],
)
def test_an_edit_takes_effect_in_the_next_cycle_and_leaves_the_values(edit):
    running = session()
    running.run(11)  # the second "a" has just been read
    before = running.outputs
    running.apply(edit)
    assert running.outputs is before
    assert running.step() == dmm.step(running.machine.with_options(text="aab"), before)
    unedited = dmm.step(dmm.duplicate_detector().with_options(text="aab"), before).outputs
    assert [name for name in unedited if running.outputs[name] != unedited[name]] == ["norm"]


def test_undo_and_redo_go_through_the_versions():
    running = session()
    seen = [weights(running)]
    for edit in (weight(2.0), {"edit": "remove", **NORM}, {"edit": "add", **NORM, "weight": 3.0}):
        running.apply(edit)
        running.step()
        seen.append(weights(running))
    assert len({json.dumps(sorted(map(str, each.items()))) for each in seen}) == 4
    for expected in reversed(seen[:-1]):
        running.apply({"edit": "undo"})
        assert weights(running) == expected
    assert running.can() == {"undo": None, "redo": "norm.dict ← 2 accum.dict"}
    for expected in seen[1:]:
        running.apply({"edit": "redo"})
        assert weights(running) == expected
    running.apply({"edit": "undo"})
    running.apply(weight(5.0) | {"edit": "add"})
    assert running.can() == {"undo": "add norm.dict ← 5 accum.dict", "redo": None}
    assert [cycle for cycle, _ in running.edits] == [0, 1, 2, *[3] * 8]


def test_undo_gives_back_a_hard_link_as_it_was():
    running = session()
    clock = {"to": "timer.timer", "from": "timer.timer"}
    running.apply({"edit": "remove", **clock})
    running.apply({"edit": "undo"})
    assert running.machine.to_json() == Session(dmm.duplicate_detector()).machine.to_json()


def test_the_edits_of_one_drag_are_undone_at_once():
    running = session()
    running.apply(weight(2.0))
    running.apply(weight(3.0))
    running.apply(weight(3.5, continues=True))
    running.apply(weight(4.0, continues=True))
    running.apply({"edit": "undo"})
    assert weights(running)["norm", "dict", "accum", "dict"] == 2.0
    running.apply({"edit": "redo"})
    assert weights(running)["norm", "dict", "accum", "dict"] == 4.0
    for expected in (2.0, 1.0):
        running.apply({"edit": "undo"})
        assert weights(running)["norm", "dict", "accum", "dict"] == expected
    assert running.can()["undo"] is None


def test_the_text_is_replaced_or_continued():
    running = session(text="a")
    running.run(25)  # "a", and twice more, since the last character is repeated
    running.apply({"edit": "append", "text": "xy"})
    running.run(20)
    assert running.outputs["accum"]["dict"] == {"a": 3.0, "x": 1.0, "y": 1.0}
    running.apply({"edit": "text", "text": "q"})
    running.run(10)
    assert running.outputs["accum"]["dict"]["q"] == 1.0
    running.apply({"edit": "undo"})
    assert running.version.options == {"text": "aaaxy"}


def test_more_can_be_typed_before_the_text_has_ended():
    running = session(text="ab")
    running.run(3)
    running.apply({"edit": "append", "text": "c"})
    assert running.version.options == {"text": "abc"}


def test_a_stream_of_trees_is_continued_too():
    running = session(text=({"a": 2.0}, "b"))
    running.run(15)
    running.apply({"edit": "append", "text": "c"})
    running.run(10)
    assert running.outputs["accum"]["dict"] == {"a": 2.0, "b": 1.0, "c": 1.0}


def test_restart_keeps_the_machine_as_edited():
    running = session()
    running.run(15)
    running.apply(weight(10.0))
    running.apply({"edit": "restart"})
    assert (running.cycle, running.outputs, list(running.answers)) == (0, running.machine.outputs, [])
    running.run(15)
    assert running.answers[-1] == (15, {"dict-1": 19.0, "dict-2": 0.0})


def test_a_link_that_reads_a_part_of_a_field():
    running = session(text="aab")
    running.run(12)
    part = {"to": "output.dict-2", "from": "accum.dict", "key": ["a"]}
    running.apply({"edit": "add", **part, "weight": 10.0})
    running.step()
    assert running.answers[-1][1]["dict-2"] == 20.0
    assert running.edits[-1] == (12, "add output.dict-2 ← 10 accum.dict/a")
    with pytest.raises(LiveError, match=r"reads what another link reads a part of, or a part of it"):
        running.apply({"edit": "add", **part, "key": [], "weight": 1.0})
    with pytest.raises(LiveError, match=r"reads what another link reads a part of, or a part of it"):
        running.apply({"edit": "add", **part, "key": ["a", "b"], "weight": 1.0})
    with pytest.raises(LiveError, match=r"the key of a link is a list of texts, like \['a'\], but got 5"):
        running.apply({"edit": "remove", **part, "key": 5})
    running.apply({"edit": "weight", **part, "weight": 1.0})
    running.apply({"edit": "remove", **part})
    assert running.machine.links() == dmm.duplicate_detector().links()


def test_a_machine_that_grows_is_edited_too(tmp_path):
    machine = dmm.growing_machine(capacity=4)
    machine.capacity = 3  # one less than it grows
    running = Session(machine, journal=tmp_path / "j.jsonl")
    running.run(9)
    born = [name for name in running.outputs if name not in running.machine.neurons]
    path = next(path for path in weights(running) if path[0] == born[0])
    running.apply({"edit": "weight", "to": ".".join(path[:2]), "from": ".".join(path[2:4]), "weight": 0.5})
    assert weights(running)[path] == 0.5
    running.run(3)
    with pytest.raises(LapwingError, match=r"in cycle 15 the machine has 4 neurons .* its capacity is 3"):
        running.run(50)
    assert running.cycle == 14
    running.close()
    assert replay(tmp_path / "j.jsonl").session.outputs == running.outputs


def test_an_edit_before_the_first_cycle_is_part_of_it():
    edit = {"edit": "weight", "to": "self.delta", "from": "update-1.result", "weight": 0.5}
    running = Session(dmm.wave_machine())
    running.apply(edit)
    assert running.step().matrix["self"]["delta"]["update-1"]["result"] == 0.5


def test_the_matrix_that_a_machine_holds_is_edited_where_it_is_now():
    running = Session(dmm.wave_machine())
    running.run(2)
    row = lambda: {path[2]: w for path, w in weights(running).items() if path[:2] == ("self", "delta") and w}  # noqa: E731
    assert row() == {"update-3": 1.0}
    edit = {"edit": "weight", "to": "self.delta", "from": "update-3.result", "weight": 0.5}
    running.apply(edit)
    assert row() == {"update-3": 0.5}
    # The machine has made this link itself: what is saved begins without it.
    assert running.machine.to_json() == Session(dmm.wave_machine()).machine.to_json()
    running.apply({"edit": "undo"})
    assert row() == {"update-3": 1.0}
    running.step()
    assert row() == {"update-1": 1.0}
    assert running.machine.to_json() == Session(dmm.wave_machine()).machine.to_json()


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (None, 'expected an edit such as {"edit": "undo"}, but got none'),
        ({"edit": "weigh"}, "'weigh' is no edit; did you mean"),
        (weight(float("nan")), "a weight is a finite number, but got nan"),
        (weight(10**400), "a weight is a finite number, but got 1000"),
        (weight(True), "a weight is a finite number, but got True"),
        ({"edit": "weight", **NORM}, "a weight is a finite number, but got None"),
        ({"edit": "remove", "to": "norm.dict"}, "the edit 'remove' needs from=…, a text that is not empty"),
        (
            {"edit": "remove", "to": "norm", "from": "accum.dict"},
            "expected a neuron and its field, like 'norm.dict'",
        ),
        (
            {"edit": "remove", "to": "norm.dict", "from": "dot.dot"},
            "there is no link norm.dict ← dot.dot; add it",
        ),
        (
            weight(1.0) | {"edit": "add"},
            "the link norm.dict ← accum.dict is there already; set its weight instead",
        ),
        (
            weight(1.0) | {"edit": "add", "to": "nom.dict"},
            "there is no neuron 'nom' to link to; did you mean",
        ),
        (
            weight(1.0) | {"edit": "add", "to": "norm.dct"},
            "the neuron 'norm' reads no field 'dct'; did you mean",
        ),
        ({"edit": "text", "text": ""}, "the edit 'text' needs text=…, a text that is not empty"),
        ({"edit": "undo"}, "there is nothing to undo"),
        ({"edit": "redo"}, "there is nothing to redo"),
        (weight(1.0, continues=True), "this one cannot continue it"),
    ],
)
def test_a_bad_edit_is_one_sentence_and_changes_nothing(tmp_path, edit, sentence):
    running = session(journal=tmp_path / "j.jsonl")
    running.run(3)
    before = running.version, running.outputs, running.can(), (tmp_path / "j.jsonl").read_bytes()
    with pytest.raises(LapwingError, match=r"^.*$") as caught:
        running.apply(edit)
    assert sentence in str(caught.value)
    assert (running.version, running.outputs, running.can(), (tmp_path / "j.jsonl").read_bytes()) == before
    running.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
ADDRESS = st.sampled_from(["norm.dict", "accum.dict", "norm", ".", "dot.dot", "timer.timer"]) | st.text()
ANY_EDIT = st.fixed_dictionaries(
    {"edit": st.sampled_from([*FIELDS]) | JSON},
    optional={
        "to": ADDRESS | JSON,
        "from": ADDRESS | JSON,
        "weight": st.floats() | JSON,
        "text": st.text() | JSON,
    },
)


@given(st.lists(ANY_EDIT | JSON, max_size=8))
@settings(max_examples=25, deadline=None)
def test_whatever_is_sent_is_an_edit_or_one_sentence(edits):
    running = session()
    for edit in edits:
        with contextlib.suppress(LapwingError):
            running.apply(edit)
        running.step()
    assert running.machine.to_json()


def test_a_machine_without_a_reader_takes_no_text():
    with pytest.raises(LiveError, match="this machine has no neuron that reads a text"):
        Session(dmm.wave_machine()).apply({"edit": "text", "text": "a"})


def test_a_cycle_that_fails_changes_nothing():
    @dmm.activation(inputs=("dict",), outputs=("dict",))
    def divide(inputs):
        return {"dict": 1.0 / trees.number(inputs["dict"])}

    machine = dmm.Machine()
    machine.neuron("divide", divide)
    machine.initial("divide.dict", 2.0)
    machine.link("divide.dict", "divide.dict", 1.0)
    running = Session(machine)
    running.step()
    running.apply({"edit": "weight", "to": "divide.dict", "from": "divide.dict", "weight": 0.0})
    with pytest.raises(
        LiveError, match=r"cycle 2 failed with ZeroDivisionError: .*; undo the last edit, or restart"
    ):
        running.step()
    assert running.cycle == 1
    running.apply({"edit": "undo"})
    running.step()
    assert running.outputs["divide"]["dict"] == {":number": 2.0}
