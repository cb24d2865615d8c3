"""A part of the tests, with the oldest versions of jax and Python that are supported and with the newest ones.

Each gets an environment of its own, so this needs a package index, and minutes.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "beartype", "flax")
# What reads programs of jax, and what runs them.
PART = (
    "tests/jaxprs",
    "tests/loops/test_structure.py",
    "tests/loops/test_known.py",
    "tests/train/test_fit.py",
)
PAST_SECONDS = 3000


def supported(what: str = "jax, tested on a CPU") -> tuple[str, str]:
    """The oldest and the newest version that the page names."""
    row = re.search(rf"^\| {what} \| (\S+) \| (\S+) \|$", PAGE, re.MULTILINE)
    assert row
    return row[1], row[2]


def interpreter(version: str) -> str:
    """A Python of this version, such as 3.11."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    found = shutil.which(f"python{version}")
    if not found or subprocess.run([found, "-V"], capture_output=True).returncode:
        pytest.skip(f"there is no python{version} here")
    return found


def test_the_oldest_is_the_one_that_pip_is_told():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = [each.removeprefix("jax>=") for each in dependencies if each.startswith("jax>=")]
    assert supported()[0] == f"{bound}.0"


@pytest.mark.slow
def test_the_newest_is_the_one_that_installs():
    command = [sys.executable, "-m", "pip", "index", "versions", "jax"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"^Available versions: ([\d.]+)", listed, re.MULTILINE)
    assert found
    assert found[1] == supported()[1], "change the page, and run the test below with the new version"


@pytest.mark.slow
@pytest.mark.parametrize(("version", "of_python"), [*zip(supported(), supported("Python"), strict=True)])
def test_a_part_of_the_tests_passes(version: str, of_python: str, tmp_path: Path):
    python = tmp_path / "bin" / "python"
    subprocess.run([interpreter(of_python), "-m", "venv", tmp_path], check=True)
    wanted = [f"jax=={version}", *TOOLS, str(ROOT)]
    subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True, timeout=PAST_SECONDS)
    found = subprocess.run(
        [python, "-c", "import jax; print(jax.__version__)"], capture_output=True, text=True
    )
    assert found.stdout.strip() == version
    tests = [python, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *PART]
    done = subprocess.run(tests, cwd=ROOT, capture_output=True, text=True, timeout=PAST_SECONDS)
    assert done.returncode == 0, done.stdout[-4000:]
