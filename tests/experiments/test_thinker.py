"""The thinker: it learns, solves larger problems by more steps, and shows them."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from lapwing.cli import main
from lapwing.data.problems import PROBLEMS, Addition, Maze, Parity, Sudoku
from lapwing.experiments._options import field_help
from lapwing.experiments._thinker_answer import film_of
from lapwing.experiments._thinker_defaults import DEFAULTS
from lapwing.experiments._thinker_evaluation import default_sizes
from lapwing.experiments._thinker_film import film_files
from lapwing.experiments._thinker_squares import GIVEN, MISSING, RIGHT, TOO_MUCH, maze_colors, sudoku_digits
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


@pytest.mark.slow
def test_it_learns(learned):
    assert learned.metrics["loss"][-1] < 0.3
    assert set(learned.evaluation) == {
        f"eval_{far}{hard}exact{longer}"
        for far in ("", "far_")
        for hard in ("", "hard_")
        for longer in ("", "_longer")
    }
    assert learned.evaluation["eval_exact"] > 0.6


@pytest.mark.slow
def test_several_latents_are_evaluated_and_start_at_random():
    config = dataclasses.replace(SMALL, latents=3, random_starts=0.5, far=0)
    task = build(config)
    starts = [int(jax.jit(lambda key: task.data(key, 0).start)(jax.random.key(at))) for at in range(12)]
    assert 0 < starts.count(0) < 12
    found = task.evaluate(task.init(jax.random.key(0)), jax.random.key(1))
    names = {"exact", "exact_longer", "exact_best_of"}
    assert set(found) == names | {f"hard_{name}" for name in names}


def test_a_batch_is_of_training_problems_and_thinks_before():
    task = build(SMALL)
    draw = jax.jit(lambda key: task.data(key, 0).before)
    before = [int(draw(jax.random.key(at))) for at in range(40)]
    assert set(before) == set(range(SMALL.before + 1))
    assert before.count(0) >= 8  # A share begins at the start.


@pytest.mark.parametrize("memory", ["sqrt", pytest.param("nested", marks=pytest.mark.slow)])
def test_what_is_not_kept_is_computed_again_for_the_same_gradient(memory):
    found, kept = [], []
    for options in ({}, {"memory": memory}):
        config = dataclasses.replace(SMALL, before=0, gradient_steps=64, **options)
        task = build(config)
        params, batch = task.init(jax.random.key(0)), jax.jit(task.data)(jax.random.key(1), 0)
        gradient = jax.jit(jax.grad(lambda params, batch, task=task: task.loss(params, batch)[0]))
        compiled = gradient.lower(params, batch).compile()
        kept.append(compiled.memory_analysis().temp_size_in_bytes)
        found.append(compiled(params, batch))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *found)
    assert kept[1] < 0.8 * kept[0]


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
        ({"problem": "maze"}, "base should be left out for a maze, but is 2"),
        ({"problem": "maze", "base": None}, "least should be odd, and at least 3, but is 1"),
        ({"problem": "maze", "base": None, "least": 3}, "far should be odd, and at least 3, but is 6"),
        (
            {"model": LoopedSize(mixer="attention", positions="abacus", reach=6)},
            "model.reach should be at least 7, the most places of a number of size 6, but is 6",
        ),
        ({"problem": "parity", "hard": 0.5}, "hard should be 0, as parity has no hard ones, but is 0.5"),
    ],
)
def test_options_that_do_not_fit(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        dataclasses.replace(SMALL, **options)


def test_what_is_not_given_is_that_of_the_problem():
    sums, bits, maze, sudoku = (
        Config(problem=name) for name in ("addition", "prefix_sums", "maze", "sudoku")
    )
    assert (sums.base, sums.size, sums.least, sums.far, sums.model.mixer) == (10, 10, 1, 40, "convolution")
    assert (bits.base, bits.size, bits.least, bits.far) == (2, 32, 32, 128)
    assert (maze.base, maze.size, maze.least, maze.far) == (None, 9, 9, 19)
    assert (sudoku.size, sudoku.far, sudoku.model.mixer) == (9, 0, "candidates")
    assert Config(base=7, problem="parity").kind == Parity(base=7)
    assert (Config(size=20).far, Config(problem="prefix_sums", size=8).least) == (80, 8)
    assert Config(model=LoopedSize(mixer="dense")).far == 0
    text = Config(problem="addition_text")
    assert (text.size, text.far, text.model.mixer, text.model.positions) == (8, 16, "attention", "places")
    assert (
        Config(problem="addition_text", model=LoopedSize(mixer="convolution")).model.positions
        == sums.model.positions
        == sudoku.model.positions
        == "rotary"
    )


def test_the_help_says_what_the_defaults_are():
    texts = field_help(Config)
    for name, row in DEFAULTS.items():
        assert f"{name} {row.size}" in texts["size"]
        for option in ("before", "gradient_steps", "batch_size", "evaluated"):
            value = getattr(row, option)
            usual = f"default: {value}" in texts[option] and f" {name} " not in texts[option]
            assert usual or f"{name} {value}" in texts[option], (name, option)


def test_steps_grow_with_the_number_of_positions():
    assert Config().thinking(20) == 2 * Config().thinking(10)
    maze = Config(problem="maze")
    assert maze.thinking(27) == 9 * maze.thinking(9)
    assert maze.thinking(5) == maze.thinking(9)


def test_sizes_to_look_at_grow_from_that_of_training():
    assert default_sizes(SMALL) == (3, 6)
    assert default_sizes(dataclasses.replace(SMALL, far=20)) == (3, 6, 12, 20)
    assert default_sizes(dataclasses.replace(SMALL, far=0)) == (3, 6, 12)
    assert default_sizes(Config(problem="maze", far=59)) == (9, 19, 39, 59)
    assert default_sizes(Config(problem="sudoku")) == (9,)


@pytest.mark.slow
def test_a_film_ends_when_the_answer_does_not_change(learned):
    film = film_of(Addition(base=2), learned.params, Addition(base=2).parse("11+1"), 40)
    assert film.problem == "11+1"
    assert film.solution == "11+1=100"
    assert film.right == (film.answer == film.solution)
    assert list(film.answers) == sorted(film.answers)
    if film.settled is not None:
        assert film.settled == list(film.answers)[-1]


@pytest.mark.slow
def test_a_film_on_a_line_is_one_picture(learned):
    inputs = Addition(base=2).parse("111+1")
    (name, content), *_ = film_files(Addition(base=2), learned.params, inputs, 20).items()
    assert name == "film.png"
    assert content[1:4] == b"PNG"


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "size"), [(Maze(), 5), (Sudoku(), 9)])
def test_a_film_on_a_square_is_an_animation(problem, size):
    model = Looped(
        LoopedSize(width=8), problem.tokens, problem.classes, problem.positions(size), jax.random.key(0)
    )
    inputs = np.asarray(problem.draw(jax.random.key(0), 1, size).inputs[0])
    (name, content), *_ = film_files(problem, model, inputs, 12).items()
    assert name == "film.gif"
    assert content[:6] == b"GIF89a"


def test_a_frame_shows_what_is_found_missing_and_too_much():
    inputs = np.array([[[2], [1]], [[2], [2]]])
    solution, answer = np.array([[1, 0], [1, 0]]), np.array([[1, 0], [0, 1]])
    colors = maze_colors(inputs, answer, solution)
    assert tuple(colors[0, 0]) == RIGHT
    assert tuple(colors[1, 0]) == MISSING
    assert tuple(colors[1, 1]) == TOO_MUCH
    assert colors[0, 1].max() < 50  # A wall.


def test_a_frame_of_a_sudoku_shows_what_is_given_found_and_wrong():
    puzzle = Sudoku().instances("test")
    inputs, solution = np.asarray(puzzle.inputs[0]), np.asarray(puzzle.targets[0])
    assert Sudoku().text(inputs).startswith("37. ...")
    answer = solution.copy()
    answer[0, :4] = (solution[0, :4] + 1) % 9
    digits = {
        (row, column): (digit, color) for row, column, digit, color in sudoku_digits(inputs, answer, solution)
    }
    assert digits[0, 0] == (3, GIVEN)
    assert digits[0, 2] == (answer[0, 2] + 1, TOO_MUCH)
    assert digits[0, 4] == (solution[0, 4] + 1, RIGHT)
    assert len(digits) == 81


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
    assert all(0 <= row["hard"] <= 1 for row in found["solved"])
    assert "hard ones" in capsys.readouterr().out
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


ASKED = {
    "addition": "95+39",
    "addition_text": "95+39",
    "multiplication": "12*34",
    "prefix_sums": "1011",
    "parity": "1011",
    "sorting": "31415",
    "reversal": "31415",
    "maze": "S#E .#. ...",
    "sudoku": "37.....2..9.82..76..49...1......1..9..7..8.....35.9..1..............54.....6.2.8.",
}


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_problem_needs_no_other_option(problem, tmp_path, capsys):
    runs = ["--runs", str(tmp_path)]
    words = f"--problem {problem} --steps 2 --laps-every 0 --evaluated 8"
    assert main(["train", "thinker", *words.split(), *runs]) == 0
    (folder,) = tmp_path.glob("*-thinker-*")
    config = Config(problem=problem)
    recorded = Run.open(folder).config
    assert recorded["size"] == config.size == DEFAULTS[problem].size
    assert recorded["model"]["mixer"] == DEFAULTS[problem].mixer
    assert main(["evaluate", "latest", "--steps", "5", "--count", "4", *runs]) == 0
    assert json.loads((folder / "evaluation.json").read_text())["sizes"] == list(default_sizes(config))
    capsys.readouterr()
    assert main(["think", "latest", ASKED[problem], "--most", "12", "--json", *runs]) == 0
    film = json.loads(capsys.readouterr().out)
    inputs = config.kind.parse(ASKED[problem])
    assert film["solution"] == config.kind.text(inputs, config.kind.solve(inputs))
    assert main(["think", "latest", ASKED[problem], "--most", "3", *runs]) == 0
    assert ("step    1\n" in capsys.readouterr().out) == (config.kind.dimensions == 2)


def test_only_a_thinker_thinks(tmp_path, capsys):
    runs = ["--runs", str(tmp_path)]
    assert main(["train", "adding", "--steps", "2", "--laps-every", "0", "--no-check", *runs]) == 0
    assert main(["think", "latest", "1+1", *runs]) == 2
    assert "only a thinker thinks" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.optimized
def test_sums_of_ten_digits_teach_those_of_forty():
    """The demonstration of docs/thinking-longer.md, with fewer steps: about a minute on two cores."""
    config = Config(laps_every=0, steps=1200, evaluated=256)
    last = fit(build(config), config, quiet=True)
    assert all(last.evaluation[f"eval_far_{name}"] >= 0.99 for name in ("exact", "exact_longer"))
    assert all(last.evaluation[f"eval_far_hard_{name}"] >= 0.99 for name in ("exact", "exact_longer"))
    film = film_of(Addition(), last.state.ema, Addition().parse(f"{'9' * 60}+1"), 400)
    assert film.right
    assert film.settled is not None
    assert film.settled > 60  # A carry has to travel all the way.
