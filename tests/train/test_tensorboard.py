import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lapwing.train._tensorboard import TensorBoard
from tests.speed import slowness


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads from a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(os.fspath(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def test_it_reads_what_was_written(tmp_path: Path):
    board = TensorBoard(tmp_path / "tensorboard")
    losses = np.array([1.0, math.nan, math.inf, -math.inf, 0.1], np.float32)
    board.add(range(5), {"loss": losses, "learning_rate": np.full(5, 0.5)})
    board.add(range(5, 6), {"eval_accuracy": np.array([0.75])})
    board.add(range(5, 7), {"loss": np.array([0.25, 0.125]), "learning_rate": np.full(2, 0.5)})
    board.close()
    found = read(tmp_path / "tensorboard")
    np.testing.assert_equal(found["loss"], [*enumerate(losses.tolist()), (5, 0.25), (6, 0.125)])
    assert found["learning_rate"] == [(step, 0.5) for step in range(7)]
    assert found["eval_accuracy"] == [(5, 0.75)]


def test_what_is_undone_by_going_back_is_left_out(tmp_path: Path):
    board = TensorBoard(tmp_path)
    board.add(range(100), {"loss": np.arange(100.0)})
    board.add(range(90, 91), {"eval_loss": np.array([7.0])})
    board.add(range(40, 60), {"loss": np.full(20, -1.0)})
    board.add(range(60, 70), {"loss": np.full(10, -2.0)})
    # Before the last evaluation, which was undone: the run does not go back once more.
    board.add(range(60, 61), {"eval_loss": np.array([8.0])})
    board.close()
    found = read(tmp_path)
    expected = [*range(40), *[-1.0] * 20, *[-2.0] * 10]
    assert found["loss"] == list(enumerate(expected))
    assert found["eval_loss"] == [(60, 8.0)]


def test_a_run_taken_up_again_goes_on_in_the_same_folder(tmp_path: Path):
    for first, value in ((0, 1.0), (10, 2.0), (15, 3.0)):
        board = TensorBoard(tmp_path)
        board.add(range(first, first + 20), {"loss": np.full(20, value)})
        board.close()
    assert len(list(tmp_path.iterdir())) == 3
    assert read(tmp_path)["loss"] == list(enumerate([1.0] * 10 + [2.0] * 5 + [3.0] * 20))


def test_of_a_long_run_ever_fewer_steps_are_written(tmp_path: Path):
    board = TensorBoard(tmp_path)
    for first in range(0, 40_000, 100):
        board.add(range(first, first + 100), {"loss": np.arange(first, first + 100)})
        if first % 10_000 == 0:
            board.add(range(first, first + 1), {"eval_loss": np.array([1.0])})
    board.close()
    found = read(tmp_path)
    steps = [step for step, _ in found["loss"]]
    assert steps[:2048] == list(range(2048))
    assert set(np.diff(steps)) == {1, 2, 4, 8, 16}
    assert 8000 < len(steps) < 10_000
    assert found["eval_loss"] == [(first, 1.0) for first in range(0, 40_000, 10_000)]


@pytest.mark.slow
def test_a_killed_run_leaves_files_that_are_read_and_gone_on_with(tmp_path: Path):
    code = "import os, sys, pathlib, numpy as np\nfrom lapwing.train._tensorboard import TensorBoard\n"
    code += "board = TensorBoard(pathlib.Path(sys.argv[1]))\nboard.add(range(9), {'loss': np.ones(9)})\n"
    code += "board.add(range(9, 999), {'loss': np.ones(990)})\nos.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    (torn,) = tmp_path.iterdir()
    torn.write_bytes(torn.read_bytes()[:-3])
    steps = [step for step, _ in read(tmp_path)["loss"]]
    assert steps == list(range(len(steps)))
    assert 8 <= len(steps) < 999
    board = TensorBoard(tmp_path)
    board.add(range(5, 20), {"loss": np.zeros(15)})
    board.close()
    assert read(tmp_path)["loss"] == list(enumerate([1.0] * 5 + [0.0] * 15))


def test_it_is_cheap_enough_for_a_training_loop(tmp_path: Path):
    board = TensorBoard(tmp_path)
    columns = {
        name: np.ones(100, np.float32) for name in ("loss", "gradient_norm", "clipped_norm", "learning_rate")
    }
    start = time.process_time()
    for first in range(0, 50_000, 100):
        board.add(range(first, first + 100), columns)
    took = (time.process_time() - start) / 50_000
    board.close()
    assert took < 30e-6 * slowness(), f"a step took {took * 1e6:.1f} µs"


def test_without_the_package_it_is_said_what_to_install(tmp_path: Path):
    code = "import sys\nsys.modules['tensorboardX'] = None\nimport pathlib\n"
    code += "from lapwing.train._tensorboard import TensorBoard, TensorBoardError\n"
    code += "try:\n    TensorBoard(pathlib.Path(sys.argv[1], 'x'))\nexcept TensorBoardError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "writing event files for TensorBoard needs the package tensorboardX, which is not installed; "
        "pip install 'lapwing[tensorboard]'\n"
    )
    assert list(tmp_path.iterdir()) == []
