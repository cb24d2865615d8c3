"""Tables that were split, scaled or encoded wrongly, and batches with copies: each with a twin that is right."""

from typing import Any

import numpy as np
import pytest

from lapwing.check import CheckError, run_all
from lapwing.check._repeated import check_repeated
from lapwing.check._split import check_encoded, check_groups, check_scaled_apart
from lapwing.task import Arrays, Task

RANDOM = np.random.default_rng(0)


def goal(table: Any) -> Any:
    return table["y"]


def houses(count: int, towns: int = 60) -> tuple[np.ndarray, np.ndarray]:
    return RANDOM.integers(0, towns, count), RANDOM.normal(size=count)


def encoded(by: tuple[np.ndarray, np.ndarray], rows: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
    town, price = by
    mean = np.bincount(town, price, 60) / np.maximum(np.bincount(town, minlength=60), 1)
    x = np.column_stack([RANDOM.normal(size=(len(rows[0]), 3)), mean[rows[0]]])
    return {"x": x.astype(np.float32), "y": rows[1].astype(np.float32)}


@pytest.mark.parametrize("parts", [1, 2], ids=["of the training", "of all rows"])
def test_a_category_that_is_the_mean_target_of_its_own_rows_is_found(parts: int):
    rows, others = houses(600), houses(600)
    table = encoded(rows, rows)
    tables = [
        {name: leaf[part] for name, leaf in table.items()} for part in np.array_split(np.arange(600), parts)
    ]
    with pytest.raises(
        CheckError, match=r"column 3 of the inputs is the mean of the targets of the rows that share"
    ):
        check_encoded(tables, goal)
    check_encoded([encoded(others, rows)], goal)


def test_a_column_that_explains_the_targets_is_no_mean_of_them():
    level = RANDOM.integers(0, 40, 4000)
    table = {
        "x": np.column_stack([level, RANDOM.normal(size=4000)]),
        "y": 0.1 * level + RANDOM.normal(size=4000),
    }
    check_encoded([table], goal)
    check_encoded([{**table, "y": 0.1 * level}], goal)
    column = np.repeat(RANDOM.normal(size=100), 2)  # Pairs, of which many have one row of each class.
    check_encoded([{"x": np.column_stack([column, column**2]), "y": RANDOM.integers(0, 2, 200)}], goal)


@pytest.mark.parametrize("along", [lambda x: x, lambda x: np.sin(3 * x)], ids=["line", "wave"])
def test_a_sum_on_a_grid_is_no_mean_of_targets(along: Any):
    x, y = (each.ravel() for each in np.meshgrid(np.linspace(-1, 1, 24), np.linspace(-1, 1, 24)))
    table = {"x": np.column_stack([x, y]).astype(np.float32), "y": (along(x) + y).astype(np.float32)}
    check_encoded([table], goal)
    order = RANDOM.permutation(576)
    parts = [{name: leaf[rows] for name, leaf in table.items()} for rows in (order[:400], order[400:])]
    check_encoded(parts, goal)


def standard(rows: np.ndarray, by: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": ((rows - by.mean(0)) / by.std(0)).astype(np.float32)}


def test_a_validation_that_is_standardized_by_itself_is_found():
    old, new = RANDOM.normal(size=(400, 3)), RANDOM.normal(size=(100, 3)) + 0.5
    with pytest.raises(
        CheckError, match="standardized by its own statistics: as in the training, the mean of each of"
    ):
        check_scaled_apart(standard(old, old), standard(new, new))
    check_scaled_apart(standard(old, old), standard(new, old))
    both = np.concatenate([old, new])
    check_scaled_apart(standard(old, both), standard(new, both))
    signs = np.where(np.arange(400)[:, None] // np.array([1, 2, 4]) % 2 == 0, 1.0, -1.0).astype(np.float32)
    check_scaled_apart({"x": signs}, {"x": signs})  # Few values are balanced on purpose.


def recordings(people: int = 80, each: int = 6) -> tuple[dict[str, np.ndarray], np.ndarray]:
    person = np.repeat(np.arange(people), each)
    x = RANDOM.normal(size=(people, 8))[person] + 0.02 * RANDOM.normal(size=(people * each, 8))
    return {"x": x.astype(np.float32), "y": RANDOM.integers(0, 2, people)[person]}, person


def test_recordings_of_one_source_on_both_sides_of_a_split_are_found():
    table, person = recordings()
    by_row, by_person = RANDOM.random(len(person)) < 0.7, person < 56
    parts = [
        [{name: leaf[where] for name, leaf in table.items()} for where in (train, ~train)]
        for train in (by_row, by_person)
    ]
    with pytest.raises(CheckError, match="rows of one source are on both sides of the split"):
        check_groups(parts[0][0], parts[0][1], goal)
    check_groups(parts[1][0], parts[1][1], goal)


def test_classes_that_are_far_apart_are_no_sources():
    label = np.repeat(np.arange(40), 10)
    x = 10 * RANDOM.normal(size=(40, 8))[label] + 0.02 * RANDOM.normal(size=(400, 8))
    train = RANDOM.random(400) < 0.7
    check_groups({"x": x[train], "y": label[train]}, {"x": x[~train], "y": label[~train]}, goal)
    smooth = RANDOM.normal(size=(400, 3))
    check_groups(
        {"x": smooth[train], "y": label[train] % 2}, {"x": smooth[~train], "y": label[~train] % 2}, goal
    )


def task_of(table: dict[str, np.ndarray], train: np.ndarray) -> Task:
    parts = [Arrays({name: leaf[where] for name, leaf in table.items()}, 32) for where in (train, ~train)]
    return Task(
        init=lambda key: np.zeros(8, np.float32),
        data=parts[0],
        validation=parts[1],
        loss=lambda w, batch: (((batch["x"] @ w - batch["y"]) ** 2).mean(), {}),
        targets=goal,
    )


def test_run_all_looks_at_the_split_of_a_task():
    table, person = recordings()
    (by_row,) = run_all(task_of(table, RANDOM.random(len(person)) < 0.7), only=["leakage"])
    (by_person,) = run_all(task_of(table, person < 56), only=["leakage"])
    assert (by_row.result, by_person.result) == ("failed", "passed")


def batches(seeds: Any) -> list[dict[str, np.ndarray]]:
    made = [[np.random.default_rng(seed).normal(size=(4, 5)) for seed in seeds(step)] for step in range(3)]
    return [{"x": np.concatenate(parts), "y": np.concatenate(parts)[:, :1]} for parts in made]


def test_workers_with_one_seed_are_found():
    with pytest.raises(
        CheckError, match="each example is in its batch 4 times: of 16 examples 4 are different"
    ):
        check_repeated(batches(lambda step: [step] * 4))
    check_repeated(batches(lambda step: [(step, worker) for worker in range(4)]))


def test_rows_that_come_again_by_chance_or_with_another_target_are_no_copies():
    bits = [np.repeat(RANDOM.integers(0, 2, (4, 3)), 2, axis=0)] * 3
    check_repeated(bits)
    asked = [{**each, "y": RANDOM.normal(size=(16, 1))} for each in batches(lambda step: [step] * 4)]
    check_repeated(asked)
    check_repeated([np.ones((8, 4))] * 3)
    check_repeated([np.ones((0, 4))] * 3)
