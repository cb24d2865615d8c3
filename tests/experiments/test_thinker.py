"""The thinker: it learns, solves larger problems by more steps, and shows them."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from lapwing.cli import main
from lapwing.data.problems import Addition, Maze
from lapwing.experiments._thinker_answer import film_of
from lapwing.experiments._thinker_evaluation import default_sizes
from lapwing.experiments._thinker_film import MISSING, RIGHT, TOO_MUCH, film_files, square
from lapwing.experiments.thinker import Config, build
from lapwing.journal import Run
from lapwing.models import Looped, LoopedSize
from lapwing.train import ConfigError, fit

SMALL = Config(
    base=2, size=3, far=6, model=LoopedSize(width=16), before=4, gradient_steps=4, batch_size=32, evaluated=32,
    steps=150, learning_rate=1e-2, log_every=50, laps_every=0, ema=0.9,
)  # fmt: skip


@pytest.fixture(scope="module")
def learned():
    """Small binary sums, learned in a few seconds."""
    return fit(build(SMALL), SMALL, quiet=True)


def test_it_learns(learned):
    assert learned.metrics["loss"][-1] < 0.3
    assert set(learned.evaluation) == {
        f"eval_{far}exact{longer}" for far in ("", "far_") for longer in ("", "_longer")
    }
    assert learned.evaluation["eval_exact"] > 0.6


@pytest.mark.slow
def test_several_latents_are_evaluated_and_start_at_random():
    config = dataclasses.replace(SMALL, latents=3, random_starts=0.5, far=0)
    task = build(config)
    starts = [int(jax.jit(lambda key: task.data(key, 0).start)(jax.random.key(at))) for at in range(12)]
    assert 0 < starts.count(0) < 12
    found = task.evaluate(task.init(jax.random.key(0)), jax.random.key(1))
    assert set(found) == {"exact", "exact_longer", "exact_best_of"}


def test_a_batch_is_of_training_problems_and_thinks_before():
    task = build(SMALL)
    draw = jax.jit(lambda key: task.data(key, 0).before)
    before = [int(draw(jax.random.key(at))) for at in range(40)]
    assert set(before) == set(range(SMALL.before + 1))
    assert before.count(0) >= 8  # A share begins at the start.


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"far": 2}, "far should be 0, or at least size, but is 2"),
        ({"least": 9}, r"least should be from 1 to size \(3\), but is 9"),
        (
            {"model": LoopedSize(mixer="dense")},
            r"far should be 0 or size \(3\), as a dense model has one size",
        ),
        ({"from_start": 1.5}, "from_start should be from 0 to 1, but is 1.5"),
    ],
)
def test_options_that_do_not_fit(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        dataclasses.replace(SMALL, **options)


def test_sizes_to_look_at_grow_from_that_of_training():
    assert default_sizes(SMALL) == (3, 6)
    assert default_sizes(dataclasses.replace(SMALL, far=20)) == (3, 6, 12, 20)
    assert default_sizes(dataclasses.replace(SMALL, far=0)) == (3, 6, 12)


def test_a_film_ends_when_the_answer_does_not_change(learned):
    film = film_of(Addition(base=2), learned.params, "11+1", 40)
    assert film.problem == "11+1"
    assert film.solution == "11+1=100"
    assert film.right == (film.answer == film.solution)
    assert list(film.answers) == sorted(film.answers)
    if film.settled is not None:
        assert film.settled == list(film.answers)[-1]


def test_a_film_on_a_line_is_one_picture(learned):
    inputs = Addition(base=2).parse("111+1")
    (name, content), *_ = film_files(Addition(base=2), learned.params, inputs, 20).items()
    assert name == "film.png"
    assert content[1:4] == b"PNG"


@pytest.mark.slow
def test_a_film_on_a_square_is_an_animation():
    problem = Maze()
    model = Looped(
        LoopedSize(width=8), problem.tokens, problem.classes, problem.positions(5), jax.random.key(0)
    )
    inputs = np.asarray(problem.draw(jax.random.key(0), 1, 5).inputs[0])
    (name, content), *_ = film_files(problem, model, inputs, 12).items()
    assert name == "film.gif"
    assert content[:6] == b"GIF89a"


def test_a_frame_shows_what_is_found_missing_and_too_much():
    inputs = np.array([[[2], [1]], [[2], [2]]])
    solution, answer = np.array([[1, 0], [1, 0]]), np.array([[1, 0], [0, 1]])
    colors = square(inputs, answer, solution)
    assert tuple(colors[0, 0]) == RIGHT
    assert tuple(colors[1, 0]) == MISSING
    assert tuple(colors[1, 1]) == TOO_MUCH
    assert colors[0, 1].max() < 50  # A wall.


WORDS = (
    "--base 2 --size 3 --far 6 --model.width 16 --before 4 --gradient-steps 4 --batch-size 32 --evaluated 32 "
    "--steps 150 --lr 1e-2 --laps-every 0 --ema 0.9 --no-check"
)


def test_from_the_command_line(tmp_path, capsys):
    runs = ["--runs", str(tmp_path)]
    assert main(["train", "thinker", *WORDS.split(), *runs]) == 0
    (folder,) = tmp_path.glob("*-thinker-*")
    assert main(["evaluate", "latest", "--sizes", "3", "6", "--count", "16", *runs]) == 0
    assert {"thinking.png", "film.png"} == {path.name for path in (folder / "pictures").iterdir()}
    found = json.loads((folder / "evaluation.json").read_text())
    assert found["sizes"] == [3, 6]
    assert all(0 <= row["best"] <= 1 and row["at the end"] <= row["best"] for row in found["solved"])
    capsys.readouterr()
    assert main(["think", "latest", "101+11", *runs]) == 0
    printed = capsys.readouterr().out
    assert "101+11=" in printed
    assert "settled after" in printed
    assert main(["think", "latest", "101+11", "--json", *runs]) == 0
    assert json.loads(capsys.readouterr().out)["solution"] == "101+11=1000"
    assert main(["think", "latest", "101+12", *runs]) == 2
    assert "found '2'" in capsys.readouterr().err
    assert "evaluated at step 150: size 3:" in Run.open(folder).story


def test_only_a_thinker_thinks(tmp_path, capsys):
    runs = ["--runs", str(tmp_path)]
    assert main(["train", "adding", "--steps", "2", "--laps-every", "0", "--no-check", *runs]) == 0
    assert main(["think", "latest", "1+1", *runs]) == 2
    assert "only a thinker thinks" in capsys.readouterr().err


@pytest.mark.slow
def test_sums_of_ten_digits_teach_those_of_forty():
    """The demonstration of docs/thinking-longer.md: the default command."""
    config = Config(laps_every=0)
    last = fit(build(config), config, quiet=True)
    assert last.evaluation["eval_far_exact"] >= 0.99
    assert last.evaluation["eval_far_exact_longer"] >= 0.99
    nines = "9" * 60
    film = film_of(Addition(), last.params, f"{nines}+1", 400)
    assert film.right
    assert film.settled is not None
    assert film.settled > 60  # A carry has to travel all the way.
