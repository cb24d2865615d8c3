"""The page's requests: play, edit, save, the stream; who may, and what a bad request gets."""

import json
import threading
import time

import pytest

from lapwing import dmm
from lapwing.board import Tokens
from lapwing.live import LiveError, Player, Session, replay
from lapwing.live._news import News
from lapwing.live._view import MAX_LINKS, drawing_of, numbers_of, scene_of, show_value
from tests.board.serving import until

from .serving import Live, live

NORM = {"to": "norm.dict", "from": "accum.dict"}
STEER, VIEW = "a-token-to-steer-with", "a-token-to-watch-with"


@pytest.fixture
def served(tmp_path):
    with live(tmp_path) as found:
        yield found


def test_a_machine_is_played_stepped_and_edited(served: Live):
    with served.board.listen() as messages:
        first = next(messages)
        assert (first["cycle"], first["playing"], first["file"]) == (0, False, "machine.json")
        assert len(first["drawing"]["links"]) == 11
        assert served.do("step").status == 200
        assert next(messages)["numbers"]["values"]["input"] == "t 1"
        assert served.do("speed", speed=200).status == 200
        assert served.do("play").status == 200
        seen = next(each for each in messages if each["cycle"] > 40)
        assert (seen["playing"], seen["speed"]) == (True, 200.0)
        assert served.edit("remove", **NORM).status == 200
        changed = next(each for each in messages if "drawing" in each)
        assert len(changed["drawing"]["links"]) == 10
        assert changed["undo"] == "remove norm.dict ← accum.dict"
        assert served.do("pause").status == 200
        assert not next(each for each in messages if not each["playing"])["playing"]
        stopped = served.cycle
        time.sleep(0.1)
        assert served.cycle == stopped


def test_the_answers_come_once_each_and_again_after_a_restart(served: Live):
    with served.board.listen() as messages:
        assert next(messages)["answers"] == {
            "first": True,
            "cycles": [],
            "fields": {"dict-1": [], "dict-2": []},
        }
        served.do("speed", speed=300)
        served.do("play")
        cycles = []
        for message in messages:
            assert not message["answers"]["first"]
            cycles += message["answers"]["cycles"]
            if len(cycles) > 60:
                break
        assert cycles == list(range(1, len(cycles) + 1))
        served.do("pause")
        served.edit("restart")
        again = next(each for each in messages if each["answers"]["first"])
        assert (again["cycle"], again["answers"]["cycles"]) == (0, [])


def test_what_was_done_over_http_is_replayed(tmp_path):
    with live(tmp_path) as served:
        served.do("speed", speed=500)
        served.do("play")
        for weight in (0.5, -1.0, 2.0):
            before = served.cycle
            until(lambda before=before: served.cycle > before + 5)
            assert served.edit("weight", **NORM, weight=weight).status == 200
        assert served.edit("append", text="xyz").status == 200
        assert served.edit("undo").status == 200
    again = replay(tmp_path / "machine.live.jsonl")
    with served.player.held() as session:
        assert again.session.outputs == session.outputs
        assert again.session.cycle == session.cycle
    assert [words for _, _, words in again.edits][-2:] == ["append 'xyz'", "undo: append 'xyz'"]
    assert again.compared == 6


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            {"do": "edit", "edit": {"edit": "remove", "to": "norm.dict", "from": "eos.char"}},
            "there is no link",
        ),
        ({"do": "edit", "edit": 5}, 'expected an edit such as {"edit": "undo"}'),
        ({"do": "speed", "speed": 0}, "the speed is from 0.1 to 1000 cycles a second, but got 0"),
        ({"do": "speed", "speed": "fast"}, "the speed is from 0.1 to 1000"),
        ({"do": "fly"}, 'expected a command such as {"do": "play"}'),
        ([], 'expected a command such as {"do": "play"}'),
        (
            {"do": "save", "file": "../up.json"},
            "expected the name of a file beside the machine, like 'mine.json'",
        ),
        ({"do": "save", "file": "/tmp/up.json"}, "expected the name of a file beside the machine"),
        ({"do": "save", "file": ".hidden.json"}, "expected the name of a file beside the machine"),
        ({"do": "save", "file": "machine.py"}, "expected the name of a file beside the machine"),
    ],
)
def test_a_bad_command_is_one_sentence(served: Live, message, sentence):
    answer = served.board.ask(
        "/api/steer", method="POST", body=json.dumps(message), Content_Type="application/json"
    )
    assert answer.status == 400
    assert sentence in answer.json["error"]
    assert sorted(path.name for path in served.file.parent.iterdir()) == [
        "machine.json",
        "machine.live.jsonl",
    ]


def test_save_writes_a_new_file_and_overwrites_only_when_asked(served: Live):
    before = served.file.read_bytes()
    served.edit("weight", **NORM, weight=0.125)
    assert served.do("save", file="mine.json").json == {"saved": "mine.json"}
    saved = dmm.Machine.load(served.file.with_name("mine.json"))
    assert saved.matrix["norm"]["dict"]["accum"]["dict"] == 0.125
    assert (
        saved.neurons["input"].functions[0].options["text"] is None
    )  # The text is the run's, not the machine's.
    refused = served.do("save", file="machine.json")
    assert (refused.status, served.file.read_bytes()) == (409, before)
    assert refused.json["error"] == "there is already a file 'machine.json'; save once more to overwrite it"
    assert served.do("save", file="machine.json", overwrite=True).status == 200
    assert served.file.read_bytes() == served.file.with_name("mine.json").read_bytes()


def test_the_rules_of_the_board_hold(served: Live):
    play = {"method": "POST", "body": '{"do": "play"}'}
    assert served.board.ask("/api/steer", **play).status == 400  # no JSON: a form of another site
    assert (
        served.board.ask(
            "/api/steer", **play, Content_Type="application/json", Origin="http://evil.example"
        ).status
        == 403
    )
    for path in ("/", "/api/live", "/static/dmm.js"):
        assert served.board.ask(path, Host_="evil.example").status == 403
    assert not served.player.is_playing
    page = served.board.ask("/")
    assert page.status == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    for name in ("dmm.js", "dmm.css", "dmm-drawing.js", "dmm-links.js", "dmm-plot.js", "dom.js", "board.css"):
        assert served.board.ask(f"/static/{name}").status == 200
    assert served.board.ask("/static/..%2f_app.py").status == 404
    assert b"//" not in page.body.replace(b"http://www.w3.org", b"")  # nothing from elsewhere


def test_a_token_to_watch_does_not_edit(tmp_path):
    with live(tmp_path, tokens=Tokens(STEER, VIEW)) as served:
        message = {"method": "POST", "body": '{"do": "step"}', "Content_Type": "application/json"}
        assert served.board.ask("/api/live").status == 401
        assert served.board.ask("/api/steer", **message).status == 401
        assert served.board.ask("/api/steer", **message, Authorization=f"Bearer {VIEW}").status == 403
        assert served.cycle == 0
        assert served.board.ask("/api/steer", **message, Authorization=f"Bearer {STEER}").status == 200
        assert served.cycle == 1


def test_a_cycle_that_fails_pauses_and_says_why(tmp_path):
    with live(tmp_path, dmm.readable_detector()) as served, served.board.listen() as messages:
        next(messages)
        served.do("play")
        trouble = next(each for each in messages if each["trouble"])
        assert (trouble["playing"], trouble["cycle"]) == (False, 0)
        assert trouble["trouble"].startswith("the input neuron has no text to read")
        served.edit("text", text="aab")
        assert next(messages)["trouble"] is None
        served.do("step")
        assert next(messages)["cycle"] == 1


def test_edits_from_many_threads_are_between_cycles(tmp_path):
    player = Player(Session(dmm.duplicate_detector(), text="aab", journal=tmp_path / "j.jsonl"), speed=1000)
    player.start()
    player.play()

    def edit(number: int) -> None:
        for weight in range(20):
            player.apply({"edit": "weight", **NORM, "weight": number + weight / 100})

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    player.stop()
    with player.held() as session:
        assert replay(tmp_path / "j.jsonl").session.outputs == session.outputs
    with pytest.raises(LiveError, match="the session has ended"):
        player.apply({"edit": "restart"})


def test_it_plays_at_its_speed():
    player = Player(Session(dmm.wave_machine()), speed=100)
    player.start()
    player.play()
    begun = time.monotonic()
    time.sleep(0.5)
    player.set_speed(0.1)
    with player.held() as session:
        cycles, seconds = session.cycle, time.monotonic() - begun
        assert 5 <= cycles <= 100 * seconds + 2
    time.sleep(0.2)  # Now it waits for the next cycle, ten seconds from the last.
    player.set_speed(1000)  # The wait is over.
    until(lambda: session.cycle > cycles + 10, 5)
    player.stop()


def test_nothing_new_is_no_message():
    player = Player(Session(dmm.duplicate_detector(), text="aab"))
    news = News(player, "machine.json")
    with player.held() as session:
        session.run(300)  # above the numbers that Python keeps once
    assert news.message() is not None
    assert news.message() is None
    player.set_speed(20)
    assert json.loads(news.message() or "")["speed"] == 20


def test_the_drawing_has_a_box_for_every_neuron_and_flows():
    machine = dmm.duplicate_detector()
    machine.neuron("dot-2", dmm.dot)  # without links
    session = Session(machine, text="aab")
    session.run(12)
    session.apply({"edit": "weight", **NORM, "weight": -3.0})
    scene = scene_of(session)
    drawing, numbers = drawing_of(scene), numbers_of(scene, session)
    assert {box["name"] for box in drawing["boxes"]} == set(machine.neurons)
    assert all(
        0 <= x <= drawing["width"] and 0 <= y <= drawing["height"]
        for box in drawing["boxes"]
        for x, y in [box["at"]]
    )
    assert all(0 <= y <= drawing["height"] for link in drawing["links"] for _, y in link["curve"])
    at = [(link["to"], link["from"]) for link in drawing["links"]].index(("norm.dict", "accum.dict"))
    assert numbers["flows"][at] == [-3.0, -6.0]
    at = [(link["to"], link["from"]) for link in drawing["links"]].index(("accum.dict-2", "input.char"))
    assert numbers["flows"][at] == [1.0, 0.0]  # No character is read in this cycle.
    assert numbers["values"]["accum"] == "a 2"
    assert numbers["values"]["output"] == "dict-1 0  dict-2 0"


def test_of_very_many_links_the_strongest_are_drawn():
    session = Session(dmm.lite_start(), text="a")
    scene = scene_of(session)
    assert len(scene.links) == MAX_LINKS
    assert scene.hidden == len(dmm.lite_start().links()) - MAX_LINKS
    assert not drawing_of(scene)["labels"]


def test_a_superfluid_machine_is_drawn_with_the_links_it_holds_now():
    session = Session(dmm.superfluid_start(), text="aab")
    session.run(2)
    scene = scene_of(session)
    assert numbers_of(scene, session)["values"]["self"].endswith(" links")
    assert not any(":function" in name for name in drawing_of(scene)["fields"]["to"])


def test_neurons_that_came_to_be_are_drawn():
    session = Session(dmm.growing_machine(capacity=4))
    session.run(9)
    scene = scene_of(session)
    boxes = {box["name"] for box in drawing_of(scene)["boxes"]}
    assert boxes == set(session.outputs) > set(session.machine.neurons)
    assert set(numbers_of(scene, session)["values"]) == boxes


def test_the_flow_of_a_link_with_a_key_is_that_of_its_part():
    machine = dmm.duplicate_detector()
    machine.link("output.dict-2", "accum.dict", 10.0, key="b")
    session = Session(machine, text="aab")
    session.run(25)
    scene = scene_of(session)
    [at] = [
        n
        for n, link in enumerate(drawing_of(scene)["links"])
        if link["name"] == "output.dict-2 ← accum.dict/b"
    ]
    assert numbers_of(scene, session)["flows"][at] == [10.0, 10.0]


def test_a_matrix_that_is_none_is_trouble_and_not_the_end_of_the_stream():
    machine = dmm.Machine(matrix_from="self.result")
    machine.neuron("self", dmm.constant, value={"self": 1.0})
    player = Player(Session(machine))
    news = News(player, "machine.json")
    player.step()
    assert "weights at [to][to_field][from][from_field]" in json.loads(news.message() or "")["trouble"]


def test_a_long_value_is_cut():
    assert show_value({f"key-{n}": 1.0 for n in range(9)}, 30) == "key-0 1 key-1 1 key-2 1 key-3 1 … 5 more"
    assert show_value({"a": float("inf")}) == "a inf"
