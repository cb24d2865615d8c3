"""Checkpoints on a real disk: what comes back, what is kept, what is noticed."""

import json
import math
import threading
import time
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from lapwing.train._checkpoints import CheckpointError, Checkpoints


class Moments(NamedTuple):
    mean: jax.Array
    spread: jax.Array | None


@jax.tree_util.register_pytree_with_keys_class
class Twins(NamedTuple("Twins", [("a", jax.Array), ("b", jax.Array)])):
    def tree_flatten_with_keys(self):
        return [(jax.tree_util.DictKey("same"), leaf) for leaf in self], None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


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
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), path


KNOWN = ["float32", "float16", "bfloat16", "int32", "uint32", "int8", "bool", "complex64", "float8_e4m3fn"]
UNKNOWN = ["int4", "float8_e4m3b11fnuz"]  # To safetensors, which holds their bytes.
DTYPES = KNOWN + UNKNOWN


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
        pytest.param(
            {"one": jax.random.key(3), "some": jax.random.split(jax.random.key(4, impl="rbg"), 3)}, id="keys"
        ),
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
    assert (found.step, found.serial, found.path) == (1, 1, tmp_path / "000001-step-1.safetensors")


def test_another_state_is_refused_leaf_by_leaf(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 3)
    like = {"step": jnp.float32(0), "w": [jnp.zeros((2, 3))], "b": jnp.zeros(1)}
    message = (
        r"the checkpoint .*/000001-step-3.safetensors is of another state: "
        r"b is missing in the checkpoint and float32\[1\] in the state; "
        r"step is int32\[\] in the checkpoint and float32\[\] in the state; "
        r"w/0 is float32\[3, 2\] in the checkpoint and float32\[2, 3\] in the state; "
        r"w/1 is float32\[4\] in the checkpoint and missing in the state; "
        r"resume with the task, the optimizer and the version of Lapwing that wrote it"
    )
    with pytest.raises(CheckpointError, match=message):
        checkpoints.restore(like, checkpoints.all()[0])
    with pytest.raises(CheckpointError, match="is of another state"):
        checkpoints.newest_sound(like)


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        (0.5, "a checkpoint holds arrays, but x/0 is a float; write jnp.asarray of it"),
        (np.array([None]), "a checkpoint holds arrays, but x/0 is a ndarray; write jnp.asarray of it"),
        (
            Twins(jnp.ones(1), jnp.ones(2)),
            "the path x/0/same of a leaf is already in use; give the leaf another",
        ),
    ],
)
def test_what_is_no_plain_array_is_refused(tmp_path: Path, leaf, message: str):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"x": [leaf]}, 5, {})
    with pytest.raises(CheckpointError, match=message):
        checkpoints.wait()
    assert list(tmp_path.iterdir()) == []


def test_other_readers_of_safetensors_get_the_same_arrays(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    known = [name for name in KNOWN if name not in ("bfloat16", "float8_e4m3fn")]  # numpy alone lacks them.
    state = {name: jnp.arange(7).astype(name) for name in known} | {
        "empty": jnp.zeros((2, 0)),
        "": jnp.ones(()),
    }
    checkpoints.save(state, 7, {})
    checkpoints.wait()
    theirs, ours = load_file(tmp_path / "000001-step-7.safetensors"), checkpoints.arrays(checkpoints.all()[0])
    assert theirs.keys() == ours.keys() == state.keys()
    for name, array in theirs.items():
        assert (array.dtype, array.shape) == (ours[name].dtype, ours[name].shape), name
        assert array.tobytes() == ours[name].tobytes(), name


def test_the_header_is_read_as_the_documentation_says(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(
        {"b": jnp.ones(3, jnp.bfloat16), "f": jnp.ones(3, jnp.int4), "w": jnp.ones(2)}, 7, {"loss": 0.5}
    )
    checkpoints.wait()
    content = (tmp_path / "000001-step-7.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    about = json.loads(header.pop("__metadata__")["lapwing"])
    assert (about["schema"], about["step"], about["record"]) == (2, 7, {"loss": 0.5})
    assert about["arrays"]["f"][:2] == ["int4", [3]]
    assert length % 8 == 0
    assert header == {
        "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "BF16", "shape": [3], "data_offsets": [8, 14]},
        "f": {"dtype": "U8", "shape": [3], "data_offsets": [14, 17]},
    }


@pytest.mark.parametrize(
    "name", ["exp[1]", "a\\b", "*", "?", "~", "%2F", "ä ö", "line\nbreak", "{x}", "$HOME", "-rf"]
)
def test_any_path_works(tmp_path: Path, name: str):
    checkpoints = Checkpoints(tmp_path / name / "checkpoints")
    save(checkpoints, 3)
    found = Checkpoints(tmp_path / name / "checkpoints").newest_sound(state_at(0))
    assert found is not None
    assert_same_bits(found[0], state_at(3))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_no_folder_no_checkpoints(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path / "none")
    assert checkpoints.newest_sound(state_at(0)) is None
    assert checkpoints.all() == []
    checkpoints.close()
    assert not (tmp_path / "none").exists()


def test_the_newest_the_nth_and_the_best_are_kept(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path, keep=2, keep_every=100)
    for step in (50, 100, 110, 120):
        save(checkpoints, step, best=1)
    assert steps(checkpoints) == [50, 100, 110, 120]
    save(checkpoints, 130, best=4)
    assert steps(checkpoints) == [50, 100, 120, 130], "120 still names 50 as its best"
    save(checkpoints, 140, best=4)
    assert [(c.serial, c.step) for c in checkpoints.all()] == [(2, 100), (4, 120), (5, 130), (6, 140)]


def test_drafts_of_a_killed_process_are_removed_and_other_files_are_not(tmp_path: Path):
    (tmp_path / ".000008-step-80" / "arrays").mkdir(parents=True)
    (tmp_path / ".000009-step-90.safetensors.4711").write_text("half")
    (tmp_path / "notes").mkdir()
    (tmp_path / ".hidden").write_text("mine")
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest_sound(state_at(0)) is None
    assert save(checkpoints, 1) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".hidden",
        "000010-step-1.safetensors",
        "notes",
    ]


class Slow:
    """An array that takes its time to come from the device."""

    def __init__(self, ready: threading.Event):
        self.ready = ready
        self.dtype, self.shape = np.dtype("float32"), (1,)

    def __array__(self, *_args, **_kwargs):
        self.ready.wait()
        return np.ones(1, np.float32)


def test_a_third_save_waits_for_the_first(tmp_path: Path):
    ready = threading.Event()
    checkpoints = Checkpoints(tmp_path, keep=9)
    assert not checkpoints.is_busy
    checkpoints.save({"x": Slow(ready)}, 1, {})
    checkpoints.save({"x": jnp.ones(1)}, 2, {})
    third = threading.Thread(target=checkpoints.save, args=({"x": jnp.ones(1)}, 3, {}))
    third.start()
    third.join(0.05)
    had_to_wait, was_busy = third.is_alive(), checkpoints.is_busy
    ready.set()
    third.join()
    checkpoints.wait()
    assert steps(checkpoints) == [1, 2, 3]
    assert had_to_wait
    assert was_busy
    assert not checkpoints.is_busy


def test_saving_costs_the_caller_little(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 0)
    costs = [math.inf]
    while min(costs) >= 0.002 and len(costs) < 30:  # A busy machine leaves it alone once in a while.
        state = state_at(len(costs))
        start = time.perf_counter()
        checkpoints.save(state, len(costs), {"loss": 0.5})
        costs.append(time.perf_counter() - start)
        checkpoints.wait()
    assert min(costs) < 0.002, f"{costs}"


def test_a_file_in_the_place_of_the_folder(tmp_path: Path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot read .*/checkpoints: Not a directory"):
        Checkpoints(tmp_path / "checkpoints")
