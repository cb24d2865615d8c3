"""Checkpoints on a real disk: what comes back, what is kept, what is noticed."""

import json
import shutil
import threading
import time
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.train._checkpoints import CheckpointError, Checkpoints


class Moments(NamedTuple):
    mean: jax.Array
    spread: jax.Array | None


class Layer(eqx.Module):
    weight: jax.Array
    bias: jax.Array | None
    size: int = eqx.field(static=True)


def state_at(step: int) -> dict:
    return {"step": jnp.int32(step), "w": [jnp.full((3, 2), float(step)), jnp.arange(4.0) * step]}


def save(checkpoints: Checkpoints, step: int, **record) -> int:
    serial = checkpoints.save(state_at(step), step, record)
    checkpoints.wait()
    return serial


def steps(checkpoints: Checkpoints) -> list[int]:
    return [checkpoint.step for checkpoint in checkpoints.all()]


def round_trip(folder: Path, state):
    checkpoints = Checkpoints(folder)
    checkpoints.save(state, 7, {})
    checkpoints.wait()
    return checkpoints.restore(state, checkpoints.all()[-1])


def assert_same_bits(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for (path, a), (_, b) in zip(
        jax.tree_util.tree_leaves_with_path(left), jax.tree_util.tree_leaves_with_path(right), strict=True
    ):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), path
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), path


DTYPES = ["float32", "float16", "bfloat16", "int32", "uint32", "int8", "bool", "complex64", "float8_e4m3fn"]


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({name: jnp.arange(6).reshape(2, 3).astype(name) for name in DTYPES}, id="dtypes"),
        pytest.param({name: jnp.asarray(1, name) for name in DTYPES}, id="scalars"),
        pytest.param([jnp.zeros(0), jnp.zeros((3, 0, 2), jnp.int32), jnp.ones(1)], id="empty arrays"),
        pytest.param({"only": jnp.zeros((0, 2), jnp.bfloat16)}, id="nothing but an empty array"),
        pytest.param({"none": None, "nothing": ()}, id="no leaves"),
        pytest.param(jnp.arange(3.0), id="one leaf"),
        pytest.param((Moments(jnp.ones(2), None), [None, jnp.zeros(2)], {3: jnp.ones(1)}), id="containers"),
        pytest.param(Layer(jnp.ones((2, 2)), None, 2), id="equinox"),
    ],
)
def test_a_state_comes_back_bit_by_bit(tmp_path: Path, state):
    assert_same_bits(round_trip(tmp_path, state), state)


def test_float64_comes_back(tmp_path: Path):
    with jax.enable_x64(True):
        state = {"x": jnp.arange(3, dtype=jnp.float64) / 3, "n": jnp.arange(3, dtype=jnp.int64)}
        assert_same_bits(round_trip(tmp_path, state), state)


@pytest.mark.parametrize(
    "bits",
    [[0x80000000] * 5, [0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000, 0x00000001]],
    ids=["-0", "nan"],
)
def test_signs_of_zero_and_payloads_of_nan_come_back(tmp_path: Path, bits: list[int]):
    state = {"x": jnp.asarray(np.array(bits, np.uint32).view(np.float32))}
    assert np.asarray(round_trip(tmp_path, state)["x"]).view(np.uint32).tolist() == bits


def test_different_paths_never_meet(tmp_path: Path):
    keys = ["a", "a/b", "a%2Fb", "a.b", "a b", "..", ".", "", "%", "ä", "日本", "A", "\ud800", "x" * 150, "0"]
    state = {key: {"b": jnp.full(2, float(i)), "": jnp.full(1, -float(i))} for i, key in enumerate(keys)}
    assert_same_bits(round_trip(tmp_path, state), state)


def test_arrays_have_the_names_of_their_paths(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 3)
    arrays = checkpoints.arrays(checkpoints.all()[0])
    assert list(arrays) == ["step", "w/0", "w/1"]
    assert arrays["w/1"].tolist() == [0.0, 3.0, 6.0, 9.0]


def test_a_restored_state_is_where_its_model_is_and_can_be_used_up(tmp_path: Path):
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    like = {"free": jnp.zeros(1000), "bound": jax.device_put(jnp.ones(1000), place)}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(like, 1, {})
    checkpoints.wait()
    state = checkpoints.restore(like, checkpoints.all()[0])
    assert (state["free"].committed, state["bound"].committed) == (False, True)
    assert state["bound"].sharding == place
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), like)
    assert_same_bits(checkpoints.restore(shapes, checkpoints.all()[0]), like)
    used_up = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)(state)
    assert float(used_up["free"].sum() + used_up["bound"].sum()) == 3000.0


def test_a_record_comes_back_as_it_was_at_the_save(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    record = {
        "loss": float("nan"),
        "best": None,
        "list": [1, float("-inf"), "NaN", True],
        "deep": {"a": -0.0},
    }
    checkpoints.save(state_at(1), 1, record)
    record["list"].append("later")
    checkpoints.wait()
    (found,) = checkpoints.all()
    assert repr(found.record) == repr(record).replace(", 'later'", "")
    assert (found.step, found.serial, found.folder) == (1, 1, tmp_path / "000001-step-1")
    head = json.loads((found.folder / "checkpoint.json").read_text())
    assert (head["schema"], head["step"], head["serial"]) == (1, 1, 1)


def test_another_state_is_refused_leaf_by_leaf(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 3)
    like = {"step": jnp.float32(0), "w": [jnp.zeros((2, 3))], "b": jnp.zeros(1)}
    message = (
        r"the checkpoint .*/000001-step-3 is of another state: b is missing there; w/1 is only there; "
        r"step is int32\[\] there and float32\[\] here; w/0 is float32\[3, 2\] there and float32\[2, 3\] here; "
        r"go on with the task and the optimizer that it was made with"
    )
    with pytest.raises(CheckpointError, match=message):
        checkpoints.restore(like, checkpoints.all()[0])
    with pytest.raises(CheckpointError, match="is of another state"):
        checkpoints.newest_sound(like)


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (0.5, "a checkpoint holds arrays, but x/0 is a float; write jnp.asarray of it"),
        (jax.random.key(0), "but x/0 is an array of key<fry>; write jax.random.key_data of it"),
    ],
)
def test_what_is_no_plain_array_is_refused(tmp_path: Path, leaf, message: str):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"x": [leaf]}, 5, {})
    with pytest.raises(CheckpointError, match=message):
        checkpoints.wait()
    assert list(tmp_path.iterdir()) == []


def largest_file(folder: Path) -> Path:
    return max(
        (file for file in (folder / "arrays").rglob("*") if file.is_file()), key=lambda f: f.stat().st_size
    )


def cut(folder: Path):
    file = largest_file(folder)
    file.write_bytes(file.read_bytes()[:-1])


def flip(folder: Path):
    file = largest_file(folder)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def edit_step(folder: Path):
    head = folder / "checkpoint.json"
    head.write_text(head.read_text().replace('"step": 2', '"step": 3'))


def cut_head(folder: Path):
    head = folder / "checkpoint.json"
    head.write_bytes(head.read_bytes()[:-40])


def empty(folder: Path):
    shutil.rmtree(folder)
    folder.mkdir()


DAMAGES = {
    cut: r"its file arrays/\S+ has \d+ bytes of \d+",
    flip: r"its file arrays/\S+ was changed after it was written",
    lambda folder: largest_file(folder).unlink(): r"its file arrays/\S+ is missing",
    lambda folder: shutil.rmtree(folder / "arrays"): r"its file arrays/\S+ is missing",
    edit_step: "its checkpoint.json was changed after it was written",
    cut_head: "its checkpoint.json is not what was written",
    lambda folder: (folder / "checkpoint.json").write_text(
        "[1]"
    ): "its checkpoint.json is not what was written",
    lambda folder: (folder / "checkpoint.json").unlink(): "it has no checkpoint.json",
    empty: "it has no checkpoint.json",
}


@pytest.fixture(scope="module")
def two_saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    checkpoints = Checkpoints(folder)
    save(checkpoints, 1)
    save(checkpoints, 2)
    return folder


@pytest.mark.parametrize(("damage", "message"), DAMAGES.items(), ids=map(str, range(len(DAMAGES))))
def test_damage_is_noticed_and_the_one_before_is_used(two_saved: Path, tmp_path: Path, damage, message: str):
    folder = Path(shutil.copytree(two_saved, tmp_path / "checkpoints"))
    newest = Checkpoints(folder).all()[-1]
    damage(newest.folder)
    checkpoints = Checkpoints(folder)
    with pytest.raises(CheckpointError, match=f"the checkpoint {newest.folder} is damaged: {message}$"):
        checkpoints.restore(state_at(0), newest)
    found = checkpoints.newest_sound(state_at(0))
    assert found is not None
    state, checkpoint, (sentence,) = found
    assert checkpoint.step == 1
    assert_same_bits(state, state_at(1))
    assert "000002-step-2 is damaged" in sentence


def test_a_damaged_one_does_not_count_among_those_kept(two_saved: Path, tmp_path: Path):
    folder = Path(shutil.copytree(two_saved, tmp_path / "checkpoints"))
    flip(folder / "000002-step-2")
    checkpoints = Checkpoints(folder, keep=2)
    checkpoints.newest_sound(state_at(0))
    assert save(checkpoints, 3) == 3
    assert steps(checkpoints) == [1, 3]


def test_where_all_are_damaged_it_says_so(two_saved: Path, tmp_path: Path):
    folder = Path(shutil.copytree(two_saved, tmp_path / "checkpoints"))
    cut(folder / "000001-step-1")
    empty(folder / "000002-step-2")
    with pytest.raises(
        CheckpointError, match=r"no checkpoint is whole in .*: .*step-2 is damaged.*step-1 is da"
    ):
        Checkpoints(folder).newest_sound(state_at(0))


def test_a_schema_of_the_future_is_not_passed_over(two_saved: Path, tmp_path: Path, monkeypatch):
    folder = Path(shutil.copytree(two_saved, tmp_path / "checkpoints"))
    with monkeypatch.context() as future:
        future.setattr("lapwing.train._checkpoint_folder.SCHEMA", 2)
        save(Checkpoints(folder), 3)
    with pytest.raises(
        CheckpointError, match=r"000003-step-3 has schema 2, but this .* reads schema 1; use the v"
    ):
        Checkpoints(folder).newest_sound(state_at(0))


def test_no_folder_no_checkpoints(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path / "none")
    assert checkpoints.newest_sound(state_at(0)) is None
    assert checkpoints.all() == []
    checkpoints.close()
    assert not (tmp_path / "none").exists()


def test_the_newest_the_nth_the_best_and_the_protected_are_kept(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=2, keep_every=100)
    for step in (50, 100, 110, 120):
        save(checkpoints, step, best=1)
    assert steps(checkpoints) == [50, 100, 110, 120]
    save(checkpoints, 130, best=4)
    assert steps(checkpoints) == [50, 100, 120, 130], "120 still calls 50 its best"
    checkpoints.save(state_at(120), 120, {"best": 4}, protect=[1])
    checkpoints.wait()
    assert [c.serial for c in checkpoints.all()] == [1, 2, 4, 5, 6]
    save(checkpoints, 140, best=4)
    assert [(c.serial, c.step) for c in checkpoints.all()] == [(2, 100), (4, 120), (6, 120), (7, 140)]


def test_drafts_of_a_killed_process_are_removed_and_strangers_are_not(tmp_path: Path):
    (tmp_path / ".000009-step-90" / "arrays").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / ".hidden").write_text("mine")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest_sound(state_at(0)) is None
    assert save(checkpoints, 1) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "000010-step-1", "notes"]


class Slow:
    """An array that takes its time to come from the device."""

    def __init__(self, ready: threading.Event):
        self.ready = ready
        self.dtype, self.shape = np.dtype("float32"), (1,)

    def __array__(self, *_args, **_kwargs):
        self.ready.wait()
        return np.ones(1, np.float32)


def test_a_newer_save_replaces_the_one_that_waits_unless_it_is_to_be_kept(tmp_path: Path):
    ready = threading.Event()
    checkpoints = Checkpoints(tmp_path, keep=9, keep_every=100)
    checkpoints.save({"x": Slow(ready)}, 1, {})
    while not list(tmp_path.glob(".*")):
        time.sleep(0.001)
    for step, best in ((2, None), (3, None), (4, 3), (5, 4), (200, 4)):
        checkpoints.save({"x": jnp.ones(1)}, step, {"best": best})
    late = threading.Thread(target=checkpoints.save, args=({"x": jnp.ones(1)}, 300, {"best": 4}))
    late.start()
    late.join(0.05)
    had_to_wait = late.is_alive()
    ready.set()
    late.join()
    checkpoints.wait()
    assert steps(checkpoints) == [1, 4, 200, 300]
    assert had_to_wait, "two that are to be kept wait already"


def test_what_is_half_removed_looks_like_nothing(tmp_path: Path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, 1)
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *_args, **_kwargs: None)
        save(checkpoints, 2)
    assert steps(checkpoints) == [2]
    save(checkpoints, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["000003-step-3"]


def test_saving_costs_the_caller_little(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 0)
    costs = []
    for step in range(1, 6):
        state = state_at(step)
        start = time.perf_counter()
        checkpoints.save(state, step, {"loss": 0.5})
        costs.append(time.perf_counter() - start)
        checkpoints.wait()
    assert min(costs) < 0.002, f"{costs}"


def test_a_file_in_the_place_of_the_folder(tmp_path: Path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot read .*/checkpoints: Not a directory"):
        Checkpoints(tmp_path / "checkpoints").save(state_at(1), 1, {})


def test_a_wrong_rule_is_refused(tmp_path: Path):
    with pytest.raises(
        CheckpointError, match="keep should be at least 1 and keep_every at least 0, but they are 0"
    ):
        Checkpoints(tmp_path, keep=0)
