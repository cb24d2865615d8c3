"""What is not needed is not imported: jax takes a second, and help or reading a run must not wait for it."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import lapwing
from tests.slow import some
from tests.speed import slowness

HEAVY = ("jax", "jaxlib", "numpy", "matplotlib", "optax", "equinox", "orbax")


def heavy_imports_after(code: str, cwd: Path) -> list[str]:
    code += f"\nimport sys\nprint('heavy:', *[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=True)
    return done.stdout.rpartition("heavy:")[2].split()


def time_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("place")
    with lapwing.Run.create("demo", runs_dir=place / "runs") as run:
        run.log({"step": 1, "loss": 0.5})
        laps = lapwing.Laps()
        laps.step()
        laps.step()
        run.save_laps(laps.summary().to_json())
    return place


def test_importing_lapwing_imports_nothing_heavy(place: Path):
    assert heavy_imports_after("import lapwing; lapwing.Run; lapwing.Laps", place) == []


@pytest.mark.parametrize(
    "words",
    some(
        [
            ["--help"],
            ["--version"],
            ["list"],
            ["new", "mine.py", "--force"],
            ["runs"],
            ["runs", "--json"],
            ["note", "latest", "x"],
            ["time", "--", "true"],
            ["bench", "--help"],
            ["bench", "laps", "--rounds", "1", "--long-run", "10"],
            ["nonsense"],
        ],
        0,
        4,
        9,
        10,
    ),
    ids=" ".join,
)
def test_a_command_imports_no_jax_unless_it_computes(place: Path, words: list[str]):
    assert heavy_imports_after(f"from lapwing.cli import main; main({words!r})", place) == []


def test_showing_a_run_imports_only_what_its_columns_are(place: Path):
    assert heavy_imports_after("from lapwing.cli import main; main(['show', 'latest'])", place) == ["numpy"]


def test_the_check_itself_finds_jax(place: Path):
    assert "jax" in heavy_imports_after("import jax", place)


@pytest.mark.parametrize("words", some([["--help"], ["runs"]], 0), ids=" ".join)
def test_an_answer_comes_in_under_half_a_second(place: Path, words: list[str]):
    """In processor time, which is the time it takes on a machine that has nothing else to do."""

    def once() -> float:
        start = time_of_children()
        subprocess.run([sys.executable, "-m", "lapwing", *words], cwd=place, check=True, capture_output=True)
        return time_of_children() - start

    bound = 0.5 * slowness()
    best = min(once() for _ in range(3))
    assert best < bound, f"it took {best:.2f} s"


def test_every_public_name_is_there():
    for name in lapwing.__all__:
        assert getattr(lapwing, name) is not None
    with pytest.raises(AttributeError, match="module 'lapwing' has no attribute 'lap'; it has"):
        _ = lapwing.lap
