"""The two commands of a newcomer, in a folder with a space in its name."""

import os
import re
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STAMPS = (".venv/.installed", ".venv/.installed-dev")


def make(folder: Path, *words: str, **options) -> subprocess.CompletedProcess[str]:
    # Not the flags of a `make test` that may be running these tests.
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", *words], cwd=folder, env=environment, capture_output=True, text=True, **options
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `make` reads, where nothing is installed yet."""
    folder = tmp_path / "a folder with spaces"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def installed(checkout: Path) -> Path:
    """The same after the first time: a .venv that finds what is installed here."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    (packages,) = (checkout / ".venv").glob("lib/python*/site-packages")
    here = [*site.getsitepackages(), str(ROOT / "src")]
    (packages / "here.pth").write_text("".join(path + "\n" for path in here))
    for stamp in STAMPS:
        (checkout / stamp).touch()
    return checkout


@pytest.mark.parametrize(("target", "stamps"), [("demo", STAMPS[:1]), ("test", STAMPS)])
def test_the_first_time_it_installs_and_the_second_time_not(checkout: Path, target: str, stamps: list[str]):
    first = make(checkout, "-n", target).stdout
    assert first.count("-m venv .venv") == 1
    assert first.count("pip install") == len(stamps)
    (checkout / ".venv").mkdir()
    for stamp in stamps:
        (checkout / stamp).touch()
    assert "pip" not in make(checkout, "-n", target).stdout


def test_new_dependencies_are_installed(installed: Path):
    later = (installed / STAMPS[1]).stat().st_mtime + 10
    os.utime(installed / "pyproject.toml", (later, later))
    assert make(installed, "-n", "test").stdout.count("pip install") == 2


def test_the_checks_are_lint_types_the_site_and_tests(installed: Path):
    commands = make(installed, "-n", "test").stdout
    tools = ["ruff check .", "ruff format --check .", "pyright", "mkdocs build --strict", "pytest"]
    assert re.findall(r"\.venv/bin/python -m ([^;&\n]*[^;& \n])", commands) == tools


@pytest.mark.parametrize(
    ("wrong", "status"), [("", 0), ("pyright", 2), ("pytest", 2), ("ruff", 2), ("mkdocs", 2)]
)
def test_each_of_the_checks_can_fail(installed: Path, wrong: str, status: int):
    """With a Python whose tools pass, all but one."""
    python = installed / ".venv/bin/python"
    python.unlink()
    python.write_text(f'#!/bin/sh\n[ "$2" != "{wrong}" ]\n')
    python.chmod(0o755)
    done = make(installed, "test")
    assert done.returncode == status
    assert ("Lint, types, tests and the site passed in " in done.stdout) == (status == 0)


def test_a_warning_about_the_site_is_an_error(installed: Path):
    (installed / ".venv/.installed-docs").touch()
    (installed / "mkdocs.yml").write_text("site_name: A site\nsite_dir: build/site\n")
    page = installed / "docs" / "index.md"
    page.parent.mkdir()
    page.write_text("[here](index.md)")
    assert make(installed, "docs").returncode == 0
    page.write_text("[nowhere](nowhere.md)")
    done = make(installed, "docs")
    assert done.returncode == 2
    assert "nowhere.md" in done.stderr


def test_what_the_checks_say_counts(installed: Path):
    (installed / "wrong.py").write_text("import os\n")
    done = make(installed, "lint")
    assert done.returncode == 2
    assert "`os` imported but unused" in done.stdout


def test_an_old_python_is_told_what_is_needed(checkout: Path):
    done = make(checkout, "demo", "PYTHON=false")
    assert done.returncode == 2
    assert "Lapwing needs Python 3.11 or newer; name one with: make demo PYTHON=python3.12" in done.stdout
    assert not (checkout / ".venv").exists()


def test_continuous_integration_runs_what_a_person_runs():
    """And nothing else, after it has seen to a browser."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[-1] == "make test"
    assert {line.split()[0] for line in commands if not line.startswith(" ")} <= {
        "set", "cd", "install_chromium()", "}", "command", "make",
    }  # fmt: skip


@pytest.mark.slow
def test_the_demo_trains_and_ends_with_the_run_folder(installed: Path):
    done = make(installed, "demo", check=True)
    assert "step " in done.stdout
    assert "phase " in done.stdout
    folder = done.stdout.splitlines()[-1].removeprefix("run folder: ")
    assert (installed / folder / "journal.md").read_text().count("**finished**") == 1


@pytest.mark.slow
def test_a_fresh_clone_needs_nothing_but_make_and_python(tmp_path: Path):
    """Installs everything anew, so it needs a package index."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    clone = tmp_path / "a fresh clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    done = make(clone, "demo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("run folder: runs/")
    help_ = subprocess.run(
        [clone / ".venv/bin/lapwing", "--help"], capture_output=True, text=True, check=True
    )
    assert help_.stdout.startswith("usage: lapwing COMMAND")


@pytest.mark.slow
def test_pip_installs_it_into_an_empty_environment(tmp_path: Path):
    environment = tmp_path / "an empty one"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin/python", "-m", "pip", "install", "-q", ROOT], check=True, cwd=tmp_path)
    listed = subprocess.run(
        [environment / "bin/lapwing", "list"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "adding" in listed.stdout
