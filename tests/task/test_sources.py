import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.task import Arrays, Batches, DataError, Stream, Task, TaskError, source_of
from lapwing.task._iterate import decoded, encoded
from tests.slow import some


def batches_of(count=4):
    return [np.full((2, 3), number, np.float32) for number in range(count)]


class Loader:
    """Can be read again and again."""

    def __iter__(self):
        return iter(batches_of())


@pytest.mark.parametrize(
    "data",
    [
        Loader(),
        batches_of(),
        iter(batches_of()),
        lambda: batches_of(),
        lambda epoch: batches_of(),
        functools.partial(batches_of, 4),
        (batch for batch in batches_of()),
        batches_of,
    ],
)
def test_what_can_be_iterated_is_a_stream(data):
    assert isinstance(source_of(data), Stream)


@pytest.mark.parametrize("data", [lambda key, step: key, functools.partial(lambda n, key, step: key, 3)])
def test_a_function_of_key_and_step_is_itself(data):
    assert source_of(data) is data


def generator(key, step):
    yield key


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (generator, "is a generator; return the batch of that step"),
        (lambda key: key, "write data\\(key, step\\)"),
        (lambda a, b, c: a, "a function of key, step, but it has 3 arguments"),
        ((np.ones((5, 2)), np.ones(5)), "write lapwing.task.Arrays\\(data, batch_size=...\\)"),
        ({"x": np.ones(5)}, "write lapwing.task.Arrays"),
        (3, "not a int"),
        ("file.csv", "not a str"),
    ],
)
def test_what_is_no_source_is_refused_with_what_to_write(data, sentence):
    with pytest.raises(DataError, match=sentence):
        source_of(data)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Arrays({"x": np.ones(5), "y": np.ones(4)}, 2), "one length .* \\(5,\\), \\(4,\\)"),
        (lambda: Arrays(np.ones(5), 6), "batch_size should be from 1 to the 5 rows"),
        (lambda: Arrays(np.ones(5), 2, epochs=0), "epochs should be at least 1"),
        (lambda: Stream(3), "not a int"),
        (lambda: Stream([], prefetch=0), "prefetch should be at least 1"),
    ],
)
def test_bad_arguments(make, sentence):
    with pytest.raises(DataError, match=sentence):
        make()


def test_arrays_and_memory_do_not_go_together():
    with pytest.raises(TaskError, match="needs data\\(key, step, memory\\)"):
        Task(jnp.zeros, Arrays(np.ones(5), 2), jnp.dot, memory=lambda key: 0, remember=lambda m, b, x: m)


@pytest.mark.parametrize("wrap", [lambda batches: batches, Stream])
def test_validation_is_read_again_and_again(wrap):
    with pytest.raises(
        TaskError, match=r"validation is an iterator, .*; give a list, or a function that returns"
    ):
        Task(jnp.zeros, lambda key, step: key, jnp.dot, validation=wrap(iter([np.ones(3)])))


class Counter:
    """An iterator with a state."""

    def __init__(self):
        self.number = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.number += 1
        return np.full(2, self.number)

    def get_state(self):
        return {"number": self.number}

    def set_state(self, state):
        self.number = state["number"]


def test_a_look_ahead_is_no_part_of_the_state():
    source = Stream(Counter()).source
    assert [int(each[0]) for each in source.peek(3)] == [1, 2, 3]
    batches = Batches(Stream(source))
    assert values(batches, 2) == [1, 2]
    assert batches.position()["state"] == encoded({"number": 2})


def test_the_loss_has_a_known_number_of_arguments():
    with pytest.raises(TaskError, match="it takes 1 arguments"):
        Task(jnp.zeros, lambda key, step: key, lambda params: 0)


def values(batches, count):
    return [float(np.asarray(next(batches)).ravel()[0]) for _ in range(count)]


def test_epochs_follow_each_other_and_a_limit_ends_them():
    assert values(Batches(Stream(Loader())), 6) == [0, 1, 2, 3, 0, 1]
    assert len(list(Batches(Stream(Loader(), epochs=2)))) == 8
    assert len(list(Batches(Stream(iter(batches_of()))))) == 4
    with pytest.raises(DataError, match="no batch in epoch 0"):
        next(Batches(Stream([])))


def shuffled():
    rng = np.random.default_rng(0)
    while True:
        yield rng.normal(size=2)


class Stateful:
    """An iterator with a state, as Grain's are."""

    def __init__(self):
        self.at = 0
        self.read = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at, self.read = self.at + 1, self.read + 1
        return np.float32([self.at])

    def get_state(self):
        return {"at": self.at, "more": (1, b"x", np.arange(3))}

    def set_state(self, state):
        assert str(state["more"]) == str((1, b"x", np.arange(3)))
        self.at = state["at"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: shuffled, True),
        (lambda: Loader(), True),
        (lambda: shuffled(), True),
        (lambda: Stateful(), False),
        (lambda: lambda epoch: [np.full(2, epoch + part) for part in (0.0, 0.25, 0.5)], False),
    ],
)
def test_a_position_is_restored(make, says):
    one, other = Batches(Stream(make())), Batches(Stream(make()))
    values(one, 7)
    said = other.restore(one.position())
    assert values(other, 6) == values(one, 6)
    assert (said is not None) == says
    assert not says or "7 batches were skipped" in str(said)


def test_an_iterator_with_a_state_reads_nothing_again():
    source = Stateful()
    position = {"epoch": 0, "batch": 5, "total": 5, "state": encoded(source.get_state() | {"at": 5})}
    batches = Batches(Stream(source))
    assert batches.restore(position) is None
    assert source.read == 0
    assert values(batches, 1) == [6.0]


def test_data_that_end_too_soon_to_be_resumed():
    with pytest.raises(DataError, match="end after 4 batches, but the checkpoint is after 9"):
        Batches(Stream(iter(batches_of()))).restore({"epoch": 0, "batch": 9, "total": 9, "state": None})


def test_a_text_in_a_batch_is_named():
    with pytest.raises(DataError, match=r"batch\['name'\] is a str and not a number"):
        next(Batches(Stream([{"x": 1, "name": "a"}])))


def test_states_survive_json():
    state = {"a": [1, None, 2.5], "b": {3: (True, b"\0\xff")}, "c": np.float64([1, 2])}
    assert str(decoded(encoded(state))) == str(state)
    with pytest.raises(TypeError):
        encoded({"a": object()})


@pytest.mark.filterwarnings("ignore")  # Of torch, while torchdata is imported.
@pytest.mark.parametrize("stateful", [False, True])
def test_a_torch_loader_is_read_in_the_same_order_again(stateful):
    torch = pytest.importorskip("torch")
    if stateful:
        kind = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    else:
        kind = torch.utils.data.DataLoader
    data = torch.utils.data.TensorDataset(torch.arange(20.0), torch.arange(20))

    def batches():
        # A stateful loader draws from the global generator when it is made, unless it has one of its own.
        own = torch.Generator().manual_seed(1) if stateful else None
        return Batches(Stream(kind(data, batch_size=4, shuffle=True, generator=own)), seed=3)

    one = batches()
    first = [next(one) for _ in range(8)]
    assert isinstance(first[0][0], np.ndarray)
    other = batches()
    again = [next(other) for _ in range(8)]
    assert str(first) == str(again)
    orders = [np.concatenate([batch[0] for batch in first[k : k + 4]]) for k in (0, 4)]
    assert not np.array_equal(*orders)
    third = batches()
    torch.manual_seed(99)
    assert third.restore(one.position()) is None
    assert [str(next(third)) for _ in range(4)] == [str(next(one)) for _ in range(4)]


@pytest.mark.parametrize("kind", some(["loader", "map", "iter"], 1, 2))
def test_grain_is_resumed_by_its_state(kind):
    grain = pytest.importorskip("grain")

    def source():
        dataset = grain.MapDataset.range(12).shuffle(seed=1).map(lambda x: np.float32([x])).batch(2)
        if kind == "loader":
            sampler = grain.samplers.IndexSampler(12, shuffle=True, seed=1, num_epochs=2)
            return grain.DataLoader(
                data_source=grain.sources.RangeDataSource(0, 12, 1),
                sampler=sampler,
                operations=[grain.transforms.Batch(2)],
            )
        return dataset if kind == "map" else dataset.to_iter_dataset()

    one, other = Batches(Stream(source())), Batches(Stream(source()))
    before = values(one, 8)
    assert len({*before[:6]}) == 6
    position = one.position()
    assert position["state"] is not None
    assert other.restore(position) is None
    assert values(other, 3) == values(one, 3)


def test_jax_arrays_stay_on_the_device():
    batch = next(Batches(Stream([jnp.ones(3)])))
    assert isinstance(batch, jax.Array)


def test_torch_is_not_imported_for_other_data():
    before = "torch" in sys.modules
    next(Batches(Stream(Loader())))
    assert ("torch" in sys.modules) == before
