import pytest

from lapwing.experiments.latent_thinker import Config
from lapwing.journal import from_json, to_json
from lapwing.sweep import Halving, Random, Sweep, SweepError, search_of

GRID = ["model.latents=4..5", "learning_rate=0.1,0.01"]


def test_a_grid_is_every_combination_with_every_seed():
    sweep = Sweep.of("latent-thinker", Config(seed=7), GRID, seeds=2)
    points = sweep.points(sweep.candidates())
    assert [point.name for point in points][:3] == [
        "latents=4,learning_rate=0.1,seed=7",
        "latents=4,learning_rate=0.1,seed=8",
        "latents=4,learning_rate=0.01,seed=7",
    ]
    assert len(points) == 8
    last = points[-1].settings
    assert (last["model"]["latents"], last["learning_rate"], last["seed"]) == (5, 0.01, 8)
    assert last["model"]["heads"] == Config().model.heads
    assert sweep.settings["model"]["latents"] == Config().model.latents, "points must not share settings"


def test_names_of_points_can_be_folders_and_are_never_shared():
    sweep = Sweep.of(
        "latent-thinker", Config(), ["model.steps=1", "steps=1", "learning_rate=0.12345678,0.12345679"]
    )
    assert [each.name for each in sweep.candidates()] == [
        "model.steps=1,steps=1,learning_rate=0.123457",
        "model.steps=1,steps=1,learning_rate=0.123457-2",
    ]
    from lapwing.experiments.dmm_lite import Config as Machines

    (hidden,) = Sweep.of("dmm-lite", Machines(), ["text=../a/b c"]).candidates()
    assert hidden.name == "text=..-a-b-c"


def test_a_sweep_written_and_read_is_the_same_one():
    sweep = Sweep.of("latent-thinker", Config(clip=float("inf")), GRID, seeds=3, search=Halving(eta=2))
    again = Sweep.from_json(from_json(to_json(sweep.to_json())))
    assert again == sweep
    assert again.name == sweep.name
    assert again.points(again.candidates()) == sweep.points(sweep.candidates())


def test_an_older_sweep_is_read_and_its_folders_keep_their_names():
    """It calls the learning rate `rate`, and its search has the options of all searches."""
    written = from_json(to_json(Sweep.of("latent-thinker", Config(), ["rate=0.1,0.2"]).to_json()))
    written["config"]["rate"] = written["config"].pop("learning_rate")
    written["search"] = {"kind": "random", "samples": 1, "seed": 0, "rungs": 3, "eta": 3}
    sweep = Sweep.from_json(written)
    assert sweep.search == Random(1)
    (point,) = sweep.points(sweep.candidates())
    assert point.name == "rate=0.2,seed=0"
    assert point.settings["learning_rate"] == 0.2


@pytest.mark.parametrize(
    "other",
    [
        Sweep.of("latent-thinker", Config(), GRID, seeds=2),
        Sweep.of("latent-thinker", Config(steps=5), GRID),
        Sweep.of("latent-thinker", Config(), [*GRID, "base=8,16"]),
        Sweep.of("latent-thinker", Config(), GRID, search=Random(3)),
    ],
)
def test_another_sweep_has_another_name(other: Sweep):
    sweep = Sweep.of("latent-thinker", Config(), GRID)
    assert sweep.name == Sweep.of("latent-thinker", Config(), GRID).name
    assert sweep.name.startswith("latent-thinker-latents-learning_rate-")
    assert sweep != other
    assert sweep.name != other.name


def test_a_random_search_draws_the_same_points_again_and_none_twice():
    def drawn(seed: int) -> list[str]:
        search = Random(6, seed)
        sweep = Sweep.of(
            "latent-thinker", Config(), ["learning_rate=1e-4..1e-2:log", "model.latents=1..3"], search=search
        )
        return [each.name for each in sweep.candidates()]

    assert drawn(0) == drawn(0) != drawn(1)
    assert len(set(drawn(0))) == 6
    few = Sweep.of("latent-thinker", Config(), ["model.latents=1..3"], search=Random(50))
    assert sorted(each.name for each in few.candidates()) == ["latents=1", "latents=2", "latents=3"]


def test_the_rounds_of_a_halving():
    """The best go on, in their order; a failed one is dropped, and one without a number is the last choice."""
    grid = ["model.latents=1..8"]
    sweep = Sweep.of("latent-thinker", Config(steps=1000), grid, search=Halving(rungs=3, eta=2))
    rounds = sweep.rounds()
    first = next(rounds)
    assert (len(first.values), first.steps) == (8, 250)
    second = rounds.send([0.1, None, 0.4, float("inf"), 0.2, None, None, None])
    assert ([values["model.latents"] for values in second.values], second.steps) == ([1, 3, 4, 5], 500)
    third = rounds.send([2.0, 1.0, None, 3.0])
    assert ([values["model.latents"] for values in third.values], third.steps) == ([1, 3], 1000)
    with pytest.raises(StopIteration):
        rounds.send([1.0, 2.0])
    assert all(point.settings["steps"] == 250 for point in sweep.points(sweep.candidates(), 250))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Sweep.of("latent-thinker", Config(), ["learning_rate=0.1..0.2"]),
            "a grid needs the values of learning_rate as a list, such as learning_rate=A,B; a range is for "
            "--search random or optuna",
        ),
        (
            lambda: Sweep.of("latent-thinker", Config(), ["learning_rate=0.1", "learning_rate=0.2"]),
            "learning_rate is swept over twice; write all its values in one list",
        ),
        (lambda: Sweep.of("latent-thinker", Config(), GRID, seeds=0), "a sweep needs at least 1 seed, not 0"),
        (
            lambda: search_of("random"),
            "a random search needs the number of samples to draw; write --samples 20",
        ),
        (
            lambda: search_of("grid", samples=3),
            "a grid has no samples; write --search random, or leave --samples out",
        ),
        (
            lambda: Halving(eta=1),
            "samples should be at least 0, rungs at least 1 and eta at least 2",
        ),
        (
            lambda: Sweep.of("latent-thinker", Config(), ["steps=1,2"], search="halving"),
            "halving sets the steps of each point; leave them out of the grid",
        ),
    ],
)
def test_what_makes_no_sense_is_told_in_a_sentence(make, sentence: str):
    with pytest.raises(SweepError) as error:
        make()
    assert str(error.value) == sentence
