"""A data index that never advances: thousands of steps on the same fifty images."""

import jax
import numpy as np
import pytest

from lapwing.check import CheckError, CheckInputError, fresh_data

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(300, 28)).astype(np.float32)
LABELS = RANDOM.integers(0, 10, 300)


class Loader:
    """Batches of ten images in a shuffled order, as a first version has it."""

    def __init__(self, *, advances: bool = True, shuffles: bool = True, images: int = 300):
        self.at, self.advances, self.shuffles, self.images = 0, advances, shuffles, images
        self.order = RANDOM.permutation(images)

    def __call__(self, step: int):
        rows = self.order[self.at : self.at + 10]
        self.at += 10 if self.advances else 0
        if self.at >= self.images:
            self.at = 0
            self.order = RANDOM.permutation(self.images) if self.shuffles else self.order
        return IMAGES[rows], LABELS[rows]


def test_an_index_that_never_advances_is_found():
    assert fresh_data(Loader()).message == "16 batches, all different"
    with pytest.raises(
        CheckError, match="batch 1 is the same as batch 0, and 1 of 16 batches are different"
    ) as caught:
        fresh_data(Loader(advances=False))
    assert "which should advance at every step" in str(caught.value)


def test_an_order_that_repeats_is_found():
    fresh_data(Loader(images=50))
    with pytest.raises(CheckError, match="the data repeat every 5 batches in the same order"):
        fresh_data(Loader(shuffles=False, images=50))


def test_a_test_set_that_was_trained_on_is_found():
    fresh_data(Loader(images=200), count=20, held_out=(IMAGES[200:], LABELS[200:]))
    with pytest.raises(
        CheckError, match=r"100 of 100 held-out examples are also in the first 30 training batches"
    ):
        fresh_data(Loader(), count=30, held_out=(IMAGES[200:], LABELS[200:]))


def test_few_different_examples_repeat_by_chance():
    bits = np.random.default_rng(3).integers(0, 2, (20, 50, 4))
    report = fresh_data(bits, count=20, held_out=np.random.default_rng(4).integers(0, 2, (50, 4)))
    assert "100% of the held-out examples are training examples, as many as training" in report.message


def test_blank_images_are_found():
    def half_read(step):
        images, labels = Loader()(step)
        images = np.array(images)
        images[4:] = 0
        return images, labels

    with pytest.raises(
        CheckError,
        match=r"6 of 10 examples of batch\[0\] in batch 0 are blank .* the first is example 4",
    ):
        fresh_data(half_read)


def test_tokens_that_are_all_padding_are_no_blank_images():
    def words(step):
        made = np.random.default_rng(step).integers(1, 9, (10, 20))
        made[3:5] = 0
        return made

    fresh_data(words)


def test_labels_in_constant_blocks_are_found():
    ordered = np.argsort(LABELS, kind="stable")
    batches = [(IMAGES[ordered[i : i + 10]], LABELS[ordered[i : i + 10]]) for i in range(0, 300, 10)]
    with pytest.raises(CheckError, match="come in constant blocks"):
        fresh_data(batches, count=30)
    with pytest.raises(CheckError, match="the labels are 3 in all 16 batches"):
        fresh_data(lambda step: (Loader()(step)[0], np.full(10, 3)))


def test_sorted_labels_are_named_with_two_that_differ():
    labels = np.sort(np.arange(320) % 2)
    batches = [(IMAGES[i : i + 10], labels[i : i + 10]) for i in range(0, 300, 10)]
    with pytest.raises(CheckError, match="have a single label, 0 then 1: the labels come in constant blocks"):
        fresh_data(batches, count=30)
    mixed = [(IMAGES[i : i + 25], np.arange(i, i + 25) // 10) for i in range(0, 300, 25)]
    with pytest.raises(CheckError, match="the labels of the first 12 batches never decrease, from 0 to"):
        fresh_data(mixed)


def test_a_shuffle_with_the_same_seed_in_each_epoch_is_found_after_a_long_epoch():
    def batch(step, reseeded):
        epoch, place = divmod(step, 40)
        order = np.random.default_rng(0 if reseeded else epoch).permutation(200)
        return IMAGES[order[5 * place : 5 * place + 5]]

    fresh_data(lambda step: batch(step, False), later=100)
    with pytest.raises(
        CheckError, match=r"repeat every 40 batches in the same order: batches 40 and 41 are batches"
    ):
        fresh_data(lambda step: batch(step, True), later=100)


def test_a_rare_class_that_is_missing_in_some_batches_is_no_fault():
    labels = np.zeros(300, int)
    labels[::40] = 1
    fresh_data([(IMAGES[i : i + 10], labels[i : i + 10]) for i in range(0, 300, 10)], count=30)


def test_as_many_labels_as_examples():
    batches = [{"x": IMAGES[i : i + 10], "y": LABELS[i : i + 9]} for i in range(0, 100, 10)]
    with pytest.raises(CheckError, match=r"there are 10 examples in batch\['x'\] and 9 labels"):
        fresh_data(batches, labels=lambda batch: batch["y"])


def test_the_same_example_all_over_a_batch_and_numbers_that_are_none():
    with pytest.raises(CheckError, match="all 10 examples of batch in batch 0 are the same"):
        fresh_data(lambda step: np.tile(IMAGES[step], (10, 1)))
    with pytest.raises(CheckError, match="batch contains nan in batch 1, example 2"):
        fresh_data(
            lambda step: np.where(
                (np.arange(10) == 2)[:, None] & (step == 1), np.nan, IMAGES[step : step + 10]
            )
        )


def test_jax_arrays_keys_and_another_axis():
    def batch(step):
        key = jax.random.fold_in(jax.random.key(0), step)
        return {"x": jax.random.normal(key, (3, 20)), "key": key}

    fresh_data(batch, count=4, batch_axis=1)


def test_torch_tensors_are_read_without_importing_torch():
    torch = pytest.importorskip("torch")
    with pytest.raises(CheckError, match="batch 1 is the same as batch 0"):
        fresh_data([torch.ones(4, 2).cumsum(0)] * 3)


def test_one_batch_is_refused():
    with pytest.raises(CheckInputError, match="expected two batches or more, found 1"):
        fresh_data([IMAGES])
