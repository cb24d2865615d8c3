"""Damaged checkpoints: each is named, none is used, and the one before it is."""

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import pytest

from lapwing.journal import write_checkpoint
from lapwing.train._checkpoints import CheckpointError, Checkpoints

from .test_checkpoints import assert_same_bits, save, state_at, steps


def edit(change):
    def damage(path: Path):
        content = bytearray(path.read_bytes())
        change(content)
        path.write_bytes(content)

    return damage


def flip(at: int):
    def change(content: bytearray):
        content[at] ^= 1

    return edit(change)


def replace(old: bytes, new: bytes):
    return edit(lambda content: content.__setitem__(slice(None), content.replace(old, new)))


def a_folder(path: Path):
    path.unlink()
    path.mkdir()


def a_pipe(path: Path):
    path.unlink()
    os.mkfifo(path)


flip_data = flip(-1)
CHANGED = "its header was changed after it was written"
DAMAGES = {
    "data changed": (flip_data, "w/1 was changed after it was written"),
    "cut off": (edit(lambda content: content.pop()), "w/1 was changed after it was written"),
    "too long": (edit(lambda content: content.append(0)), "it is longer than it was written"),
    "header cut off": (edit(lambda content: content.__delitem__(slice(100, None))), CHANGED),
    "empty": (edit(lambda content: content.clear()), CHANGED),
    "length changed": (flip(0), CHANGED),
    "huge length": (flip(7), CHANGED),
    "start changed": (flip(9), CHANGED),
    "checksum changed": (flip(50), CHANGED),
    "step changed": (replace(b'step\\": 2', b'step\\": 3'), CHANGED),
    "missing": (lambda path: path.unlink(), r"it cannot be read \(No such file or directory\)"),
    "a folder": (a_folder, "it is not a file"),
    "a pipe": (a_pipe, "it is not a file"),
}


@pytest.fixture(scope="module")
def two_saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    checkpoints = Checkpoints(folder)
    save(checkpoints, 1)
    save(checkpoints, 2)
    return folder


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_noticed_and_the_one_before_is_used(two_saved: Path, tmp_path: Path, damage, message: str):
    folder = Path(shutil.copytree(two_saved, tmp_path / "checkpoints"))
    newest = Checkpoints(folder).all()[-1]
    damage(newest.path)
    checkpoints = Checkpoints(folder)
    with pytest.raises(CheckpointError, match=f"the checkpoint {newest.path} is damaged: {message}$"):
        checkpoints.restore(state_at(0), checkpoints.find(2) if newest.path.exists() else newest)
    found = checkpoints.newest_sound(state_at(0))
    assert found is not None
    state, checkpoint, errors = found
    assert checkpoint.step == 1
    assert_same_bits(state, state_at(1))
    assert len(errors) == newest.path.exists()
    assert all("000002-step-2.safetensors is damaged" in error for error in errors)


def test_no_changed_byte_is_accepted(two_saved: Path, tmp_path: Path):
    """Of the whole file: of its length, its header and its data."""
    folder = Path(shutil.copytree(two_saved, tmp_path / "checkpoints"))
    path = folder / "000002-step-2.safetensors"
    content = path.read_bytes()
    checkpoints, choice = Checkpoints(folder), random.Random(0)
    with open(path, "r+b", buffering=0) as file:
        for at in [
            *range(40),
            *range(len(content) - 40, len(content)),
            *choice.sample(range(len(content)), 200),
        ]:
            os.pwrite(file.fileno(), bytes([content[at] ^ (1 << choice.randrange(8))]), at)
            with pytest.raises(CheckpointError, match=r"step-2\.safetensors is damaged: "):
                checkpoints.arrays(checkpoints.find(2))
            os.pwrite(file.fileno(), content[at : at + 1], at)
    assert_same_bits(checkpoints.restore(state_at(0), checkpoints.find(2)), state_at(2))


@pytest.mark.parametrize(
    "about",
    ["[]", "{}", '{"schema": 2, "arrays": 3}', '{"schema": 2, "arrays": {"w": ["x", [1], ""]}}', "[" * 9999],
)
def test_a_header_with_its_checksum_may_be_of_somebody_else(tmp_path: Path, about: str):
    rest = f'", "lapwing": {json.dumps(about)}}}}}'.encode()
    header = b'{"__metadata__": {"sha256": "' + hashlib.sha256(rest).hexdigest().encode() + rest
    path = tmp_path / "000001-step-1.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(
        CheckpointError, match=f"the checkpoint {path} is damaged: its header is not one that Lap"
    ):
        Checkpoints(tmp_path).find(1)


def test_a_damaged_one_does_not_count_among_those_kept(two_saved: Path, tmp_path: Path):
    folder = Path(shutil.copytree(two_saved, tmp_path / "checkpoints"))
    flip_data(folder / "000002-step-2.safetensors")
    checkpoints = Checkpoints(folder, keep=2)
    checkpoints.newest_sound(state_at(0))
    assert save(checkpoints, 3) == 3
    assert steps(checkpoints) == [1, 3]


def test_where_all_are_damaged_it_says_so(two_saved: Path, tmp_path: Path):
    folder = Path(shutil.copytree(two_saved, tmp_path / "checkpoints"))
    for path in folder.iterdir():
        flip_data(path)
    with pytest.raises(
        CheckpointError,
        match=r"no checkpoint in .* can be used: .*step-2.\w+ is damaged.*step-1.\w+ is damaged",
    ):
        Checkpoints(folder).newest_sound(state_at(0))


def test_a_schema_of_the_future_is_not_passed_over(two_saved: Path, tmp_path: Path, monkeypatch):
    folder = Path(shutil.copytree(two_saved, tmp_path / "checkpoints"))
    with monkeypatch.context() as future:
        future.setattr("lapwing.journal._checkpoint.SCHEMA", 3)
        save(Checkpoints(folder), 3)
    with pytest.raises(
        CheckpointError, match=r"000003-step-3.\w+ has schema 3, but this .* reads schema 2; use the version"
    ):
        Checkpoints(folder).newest_sound(state_at(0))


def test_the_first_one_is_read_back(tmp_path: Path, monkeypatch):
    """On a disk that stores something else."""
    checkpoints = Checkpoints(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(
            "lapwing.train._checkpoints.write_checkpoint",
            lambda which, arrays: (write_checkpoint(which, arrays), flip_data(which.path)),
        )
        with pytest.raises(
            CheckpointError, match=r"cannot write the checkpoint of step 1 .*: w/1 was changed after"
        ):
            save(checkpoints, 1)
    save(checkpoints, 2)
