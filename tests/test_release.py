"""What is released: the wheel and the sdist, installed into an empty environment, far from the repository.

They need a package index, and minutes, so most of this is slow.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

import lapwing
from tests.speed import slowness

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MOST_BYTES = 2_000_000
MOST_IMPORT_S = 0.1
MOST_INSTALL_S = 60


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert lapwing.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_citation_has_the_date_of_its_release():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (date,) = re.findall(r"^date-released: (\S+)$", citation, re.MULTILINE)
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    released = [heading for heading in headings if heading.startswith(PROJECT["version"])]
    assert released in ([], [f"{PROJECT['version']} - {date}"])  # None until it is released.


def test_every_test_that_the_policy_names_exists():
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) >= 5
    assert {name for name in named if f"def {name}(" not in tests} == set()


def test_what_is_deprecated_is_in_the_changelog_and_on_the_page():
    """A deprecated name calls `warnings.warn` with a `DeprecationWarning`."""
    warned = [
        path.name
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"warn\([^)]*DeprecationWarning", path.read_text(encoding="utf-8"))
    ]
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert bool(warned) != ("Nothing is deprecated at present." in page)
    assert bool(warned) <= ("### Deprecated" in changelog)


def test_the_versions_of_python_are_those_of_the_page():
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    row = re.search(r"^\| Python \| (\S+) \| (\S+) \|$", page, re.MULTILINE)
    assert row
    named = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert (named[0], named[-1]) == (row[1], row[2])
    assert PROJECT["requires-python"] == f">={row[1]}"


def test_nothing_is_a_placeholder():
    assert "urls" not in PROJECT
    assert PROJECT["license"] == "MIT"
    assert not any("example.com" in str(value) for value in PROJECT.values())


def test_heavy_packages_are_extras():
    needed = {re.split(r"[\[<>=;]", each)[0] for each in PROJECT["dependencies"]}
    assert not needed & {
        "flax",
        "grain",
        "mkdocs",
        "optuna",
        "orbax-checkpoint",
        "plotly",
        "ray",
        "scikit-learn",
        "torch",
    }


def processor_seconds() -> float:
    """What all child processes that have ended have used."""
    used = os.times()
    return used.children_user + used.children_system


def test_importing_lapwing_takes_less_than_a_tenth_of_a_second():
    """In processor time, the best of several new Pythons."""
    code = "import time; start = time.process_time(); import lapwing; print(time.process_time() - start)"
    took = min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))
    assert took < MOST_IMPORT_S * slowness(), f"import lapwing takes {took:.3f} s"


def test_the_package_is_small():
    """Compressed as in a wheel, which the slow tests build."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (ROOT / "src" / "lapwing").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(ROOT / "src"))
    assert len(content.getbuffer()) < MOST_BYTES


def test_the_page_says_what_is_tested():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert f"`import lapwing` takes less than {MOST_IMPORT_S:g} s" in page
    assert f"the wheel has less than {MOST_BYTES // 10**6} MB" in page
    assert f"installing it with `board` takes less than {MOST_INSTALL_S} s" in page


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def environment(distributions: Path, tmp_path_factory) -> Path:
    """The folder of programs of an empty environment with the wheel and its extra `board`."""
    folder = tmp_path_factory.mktemp("an environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (wheel,) = distributions.glob("*.whl")
    install = [folder / "bin" / "pip", "install", "-q", f"lapwing[board] @ {wheel.as_uri()}"]
    start = processor_seconds()
    subprocess.run(install, check=True, cwd=folder)
    (folder / "bin" / "seconds-to-install").write_text(f"{processor_seconds() - start}")
    return folder / "bin"


def run(environment: Path, folder: Path, *words: str | Path) -> str:
    """The output of a program of the environment, run in a folder, without anything of this repository."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "JAX", "XLA"))}
    program, *rest = words
    done = subprocess.run(
        [environment / program, *rest], cwd=folder, env=clean, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_is_small_and_has_only_the_package(distributions: Path):
    (wheel,) = distributions.glob("*.whl")
    assert wheel.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        first = {name.split("/")[0] for name in archive.namelist()}
    assert first == {"lapwing", f"lapwing-{PROJECT['version']}.dist-info"}


@pytest.mark.slow
def test_the_sdist_makes_the_same_wheel(distributions: Path, tmp_path: Path):
    (sdist,) = distributions.glob("*.tar.gz")
    assert sdist.stat().st_size < MOST_BYTES
    subprocess.run(["tar", "-xf", sdist, "-C", tmp_path], check=True)
    (source,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "again", source]
    subprocess.run(command, check=True, capture_output=True)
    names = []
    for folder in (distributions, tmp_path / "again"):
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names.append({info.filename: info.CRC for info in archive.infolist()})
    assert names[0] == names[1]


@pytest.mark.slow
def test_what_is_installed_lists_trains_and_shows(environment: Path, tmp_path: Path):
    assert "adding" in run(environment, tmp_path, "lapwing", "list")
    assert json.loads(run(environment, tmp_path, "lapwing", "info", "--json"))["extras"]["board"] == []
    run(
        environment,
        tmp_path,
        "lapwing",
        "train",
        "adding",
        "--steps",
        "5",
        "--no-check",
        "--name",
        "first",
        "--quiet",
    )
    assert json.loads(run(environment, tmp_path, "lapwing", "show", "first", "--json"))["state"] == "finished"


@pytest.mark.slow
def test_an_example_runs_where_it_is_installed(environment: Path, tmp_path: Path):
    assert "sin(1) is" in run(environment, tmp_path, "python", ROOT / "examples" / "02_training.py")


def commands_of_the_container() -> list[list[str]]:
    """What its file starts by default, and what its page shows."""
    (default,) = re.findall(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    page = (ROOT / "docs" / "container.md").read_text(encoding="utf-8").replace("\\\n", " ")
    shown = re.findall(r"^docker run .* lapwing +([a-z].*)$", page, re.MULTILINE)
    return [json.loads(default), *map(shlex.split, shown)]


def test_the_container_is_told_what_the_command_line_knows():
    default, *shown = commands_of_the_container()
    assert default[0] == "board"
    assert [words[0] for words in shown] == ["sweep", "train", "info"]
    (extras,) = re.findall(r"/src\[(.*?)\]", (ROOT / "Dockerfile").read_text())
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


@pytest.mark.slow
def test_the_board_and_a_sweep_of_the_container(environment: Path, tmp_path: Path):
    default, sweep, *_ = commands_of_the_container()
    sweep[sweep.index("--steps") + 1] = "5"
    run(environment, tmp_path, "lapwing", *sweep)
    assert len(json.loads(run(environment, tmp_path, "lapwing", "runs", "--json"))) == 6
    default[default.index("--port") + 1] = "0"
    board = subprocess.Popen(
        [environment / "lapwing", *default], cwd=tmp_path, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert board.stdout
        link = next(found for line in board.stdout if (found := re.search(r"http://\S+:(\d+)/\S*", line)))
        # On all interfaces the board needs its token, and asks for it.
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{link[1]}/", timeout=60)
        with refused.value as answer:
            assert answer.status == 401
            assert b"this board needs its token" in answer.read()
    finally:
        board.terminate()
        board.communicate(timeout=60)


@pytest.mark.slow
def test_it_is_installed_in_a_minute(environment: Path):
    """In processor time, which is what it takes on a machine with a fast network and nothing else to do."""
    seconds = float((environment / "seconds-to-install").read_text())
    assert seconds < MOST_INSTALL_S * slowness(), f"it took {seconds:.0f} s"
