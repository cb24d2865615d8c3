import json

import pytest

from lapwing import dmm
from lapwing.dmm import Machine
from lapwing.dmm._commands import prune_command, run_command, show_command


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "machine.json"
    dmm.readable_detector().save(path)
    return path


def test_show_prints_the_listing_and_draws_beside_the_file(file):
    text = show_command(file)
    assert text == f"{dmm.listing(dmm.readable_detector(), 8)}\npicture: {file.with_suffix('.png')}"
    assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_show_draws_where_it_is_told(file, tmp_path):
    show_command(file, picture=tmp_path / "other.svg")
    assert (tmp_path / "other.svg").exists()
    assert not file.with_suffix(".png").exists()


def test_show_as_json(file):
    content = json.loads(show_command(file, as_json=True))
    assert (content["links"][0]["to"], len(content["links"])) == ("accum-1-2", 22)
    assert content["soft"] == 19


def test_run_prints_the_answers_where_something_happens(file):
    lines = run_command(file, cycles=140, text="test string.").splitlines()
    assert lines[0].split() == ["cycle", "read", "dict-1", "dict-2"]
    assert lines[1].split() == ["1", "'t'", "0", "0"]
    assert ["35", "1.0012", "0"] in [line.split() for line in lines]
    assert lines[-2].split() == ["140", "1.998", "2.999"]
    assert lines[-1] == f"plot: {file.with_suffix('.answers.png')}"
    assert file.with_suffix(".answers.png").read_bytes().startswith(b"\x89PNG")


def test_run_as_json_has_every_cycle(file):
    content = json.loads(run_command(file, cycles=40, text="aa", governor=4.0, as_json=True))
    assert content["answers"] == dmm.interpret(Machine.load(file), 40, text="aa", governor=4.0).answers


def test_prune_writes_a_machine(file):
    text = prune_command(file, below=0.5)
    target = file.with_suffix(".pruned.json")
    assert text == f"pruned below 0.5: links 22 → 16, soft 19 → 13, dead 0 → 0\nmachine: {target}"
    assert len(Machine.load(target).soft()) == 13


def test_prune_as_json(file, tmp_path):
    content = json.loads(prune_command(file, below=0.5, out=tmp_path / "out.json", as_json=True))
    assert content["after"] == {"links": 16, "soft": 13, "dead": 0}
    assert Machine.load(content["file"]).hard == dmm.readable_detector().hard


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(
        ValueError, match=r"expected a machine in the file '.*nothing.json', but there is no such"
    ):
        show_command(tmp_path / "nothing.json")
