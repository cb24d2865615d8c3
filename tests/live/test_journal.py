"""The journal of a session, and its replay: the same values, cycle for cycle, to the last bit."""

import json
import os
import random

import pytest

from lapwing import dmm, trees
from lapwing.live import LiveError, Session, replay
from lapwing.live._journal import digest
from tests.slow import some

NORM = {"to": "norm.dict", "from": "accum.dict"}


def random_edit(running: Session, choose: random.Random) -> dict:
    """An edit that fits the machine as it is."""
    machine = running.machine
    present = [path for path in trees.paths(running.matrix) if path[1] != dmm.FUNCTION]
    to = [f"{name}.{field}" for name, neuron in machine.neurons.items() for field in neuron.inputs]
    source = [f"{name}.{field}" for name, neuron in machine.neurons.items() for field in neuron.outputs]
    absent = [(t, s) for t in to for s in source if (*t.split(".", 1), *s.split(".", 1)) not in present]
    link = choose.choice(present)
    named = {"to": ".".join(link[:2]), "from": ".".join(link[2:])}
    new = dict(zip(("to", "from"), choose.choice(absent), strict=True))
    weight = choose.gauss(0, 1)
    kinds = [
        {"edit": "weight", **named, "weight": weight},
        {"edit": "remove", **named},
        {"edit": "add", **new, "weight": weight},
        {"edit": "append", "text": choose.choice(["b", "c.", "aab"])},
        {"edit": "text", "text": choose.choice(["test", "aab."])},
        {"edit": "restart"},
        *({"edit": name} for name, words in running.can().items() if words),
    ]
    return choose.choice(kinds)


@pytest.mark.parametrize("seed", some(range(6), 0, 3))
def test_a_replay_has_the_same_values_in_every_cycle(tmp_path, seed):
    choose = random.Random(seed)
    make = [dmm.duplicate_detector, dmm.readable_detector][seed % 2]
    running = Session(make(), text="test string.", journal=tmp_path / "j.jsonl")
    seen = []
    for _ in range(25):
        for _ in range(choose.randrange(6)):
            running.step()
            seen.append((running.cycle, running.outputs))
        running.apply(random_edit(running, choose))
    running.run(7)
    seen += [(running.cycle, running.outputs)]
    running.close()
    again = replay(tmp_path / "j.jsonl")
    found = list(zip(again.numbers, (cycle.outputs for cycle in again.trace.cycles), strict=True))
    assert found[:-7] == seen[:-1]
    assert [digest(outputs) for _, outputs in found[:-7]] == [digest(outputs) for _, outputs in seen[:-1]]
    assert found[-1] == seen[-1]
    assert (again.compared, len(again.edits)) == (26, 25)
    assert again.session.machine.to_json() == running.machine.to_json()


def test_a_self_modifying_machine_is_replayed(tmp_path):
    running = Session(dmm.wave_machine(), journal=tmp_path / "j.jsonl")
    running.run(4)
    running.apply({"edit": "add", "to": "self.delta", "from": "self.result", "weight": 0.1})
    running.run(3)
    running.apply({"edit": "undo"})
    running.run(3)
    running.close()
    again = replay(tmp_path / "j.jsonl")
    assert again.session.outputs == running.outputs
    assert again.numbers == list(range(1, 11))


def test_the_journal_is_complete_without_a_close(tmp_path):
    file = tmp_path / "j.jsonl"
    running = Session(dmm.duplicate_detector(), text="aab", journal=file)
    running.run(5)
    running.apply({"edit": "weight", **NORM, "weight": 0.1})
    running.run(100)  # and then it is killed
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[1] == {"cycle": 5, "edit": "weight", **NORM, "weight": 0.1, "state": lines[1]["state"]}
    assert replay(file).session.cycle == 5
    assert replay(file, cycles=105).session.outputs == running.outputs
    with file.open("ab") as half:
        half.write(b'{"cycle": 105, "edit": "unda')
    assert len(replay(file).edits) == 1
    running.close()


def test_no_edits_no_journal(tmp_path):
    running = Session(dmm.duplicate_detector(), text="aab", journal=tmp_path / "j.jsonl")
    assert (tmp_path / "j.jsonl").exists()
    running.close()
    assert not (tmp_path / "j.jsonl").exists()


def test_a_journal_is_never_overwritten(tmp_path):
    file = tmp_path / "j.jsonl"
    file.write_text("mine")
    with pytest.raises(LiveError, match=r"there is already a file .*; name another one for this journal"):
        Session(dmm.duplicate_detector(), journal=file)
    with pytest.raises(LiveError, match=r"cannot write the journal '.*': No such file or directory"):
        Session(dmm.duplicate_detector(), journal=tmp_path / "no" / "j.jsonl")
    assert file.read_text() == "mine"


def test_options_that_a_journal_cannot_hold_are_refused(tmp_path):
    with pytest.raises(
        LiveError, match=r"a journal has options of JSON alone, but .*; leave the journal out"
    ):
        Session(dmm.wave_machine(), value={1, 2}, journal=tmp_path / "j.jsonl")
    assert not (tmp_path / "j.jsonl").exists()


def test_an_edit_that_cannot_be_written_is_not_made(tmp_path, monkeypatch):
    running = Session(dmm.duplicate_detector(), text="aab", journal=tmp_path / "j.jsonl")
    before, version = (tmp_path / "j.jsonl").read_bytes(), running.version
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, content: write(file, content[:10]))
    with pytest.raises(
        LiveError, match=r"cannot write the journal .* the disk is full; the edit was not made"
    ):
        running.apply({"edit": "weight", **NORM, "weight": 2.0})
    monkeypatch.undo()
    assert ((tmp_path / "j.jsonl").read_bytes(), running.version) == (before, version)
    running.apply({"edit": "weight", **NORM, "weight": 3.0})
    running.close()
    assert replay(tmp_path / "j.jsonl").compared == 2


def edited(tmp_path) -> list[dict]:
    file = tmp_path / "j.jsonl"
    running = Session(dmm.duplicate_detector(), text="aab", journal=file)
    running.run(5)
    running.apply({"edit": "weight", **NORM, "weight": 0.1})
    running.run(10)
    running.close()
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    ("line", "damage", "sentence"),
    [
        (1, {"weight": 0.2}, "the values at cycle 15 are not those of the journal"),
        (1, {"cycle": 4}, "the values at cycle 4 are not those of the journal"),
        (1, {"cycle": "4"}, "line 2 of the journal .* is damaged: its cycle is '4'"),
        (2, {"cycle": 2}, "is damaged: an edit at cycle 2 follows one at cycle 5"),
        (1, {"edit": "weigh"}, "'weigh' is no edit"),
        (1, {"edit": {"a": [1]}}, "expected an edit"),
        (0, {"journal": "other"}, "is not the journal of a session: its first line lacks"),
        (0, {"options": []}, r"is damaged: its options are \[\]"),
    ],
)
def test_a_journal_that_was_changed_is_found(tmp_path, line, damage, sentence):
    lines = edited(tmp_path)
    lines[line] |= damage
    (tmp_path / "j.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    with pytest.raises(LiveError, match=sentence):
        replay(tmp_path / "j.jsonl")


@pytest.mark.parametrize("content", [b"", b"\xff\n", b"[]\n", b"{\n}\n"])
def test_another_file_is_no_journal(tmp_path, content):
    (tmp_path / "j.jsonl").write_bytes(content)
    with pytest.raises(
        LiveError, match="is not the journal of a session: its first line lacks 'lapwing dmm live 1'"
    ):
        replay(tmp_path / "j.jsonl")
    with pytest.raises(LiveError, match=r"cannot read the journal '.*none': No such file or directory"):
        replay(tmp_path / "none")
