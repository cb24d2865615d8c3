"""`lapwing info` answers everywhere, also where jax does not, and the help of each command ends with an example."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing import __version__
from lapwing._commands import info as info_module
from lapwing._commands.dmm import ACTIONS
from lapwing._commands.examples import EXAMPLES
from lapwing.cli import main, subcommands
from lapwing.core import REDACTED
from tests.slow import some


def described(capsys, *options: str) -> dict:
    assert main(["info", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_has_versions_devices_and_extras(capsys):
    found = described(capsys, "--timeout", "300")
    assert found["lapwing"] == __version__
    assert found["packages"]["jax"]["needs"].startswith(">=")
    assert found["packages"]["jax"]["version"]
    assert found["extras"]["board"] == []
    assert {each["platform"] for each in found["devices"]["found"]} <= {"cpu", "gpu", "tpu"}


def test_noise_on_standard_output_is_not_an_answer(tmp_path: Path, capsys, monkeypatch):
    (tmp_path / "jax.py").write_text(
        "import atexit; print('a plugin'); atexit.register(print, '[]')\n"
        "class Device: platform, device_kind, process_index = 'gpu', 'H200', 0\n"
        "devices = lambda: [Device]"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}")
    found = described(capsys, "--timeout", "300")["devices"]
    assert found == {"found": [{"platform": "gpu", "kind": "H200", "process": 0}]}


def test_a_package_that_is_too_old_is_missing(capsys, monkeypatch):
    there = info_module._version
    monkeypatch.setattr(
        info_module, "_version", lambda name: {"optuna": "4.9", "rich": "1.0"}.get(name, there(name))
    )
    assert main(["info", "--no-devices"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^extra optuna +missing: optuna *$", printed, re.MULTILINE)
    assert re.search(r"^rich +1\.0, needs >=13\.7 *$", printed, re.MULTILINE)
    assert re.search(r"^jaxlib +\d", printed, re.MULTILINE)


def test_the_table_shows_what_is_missing(capsys, monkeypatch):
    there = info_module._version
    monkeypatch.setattr(info_module, "_version", lambda name: None if name == "plotly" else there(name))
    assert main(["info", "--no-devices"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^extra board +missing: plotly *$", printed, re.MULTILINE)
    assert re.search(r"^extra cloud +complete *$", printed, re.MULTILINE)
    assert "devices: not asked for" in printed


@pytest.mark.parametrize(
    ("jax", "says"),
    some(
        [
            ("raise ImportError('libcuda.so.1 is missing')", "libcuda.so.1 is missing"),
            ("import os; os._exit(3)", "status 3"),
            ("import sys; print('noise'); sys.exit()", "status 0"),
            ("def devices():\n    assert 'gpu' in ()", "AssertionError at assert 'gpu' in \\(\\)"),
        ],
        0,
        1,
    ),
    ids=["raises", "dies", "ends", "says nothing"],
)
def test_it_works_where_jax_does_not(tmp_path: Path, jax: str, says: str):
    (tmp_path / "jax.py").write_text(jax)
    code = "import sys; from lapwing.cli import main; main(['info']); assert 'jax' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={
            "PYTHONPATH": f"{tmp_path}:{Path(info_module.__file__).parents[2]}",
            "PATH": "/usr/bin",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(rf"^devices: jax does not work here: .*{says}$", done.stdout, re.MULTILINE)


def test_a_device_that_does_not_answer_is_not_waited_for(capsys, monkeypatch):
    monkeypatch.setattr(info_module, "_DEVICES", "import time; time.sleep(60)")
    found = described(capsys, "--timeout", "0.2")
    assert found["devices"] == {
        "error": "jax has not answered within 0.2 s; another process may use the device"
    }


def test_no_secret_and_no_name_of_a_user_is_printed(capsys, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LAPWING_DATA", f"{tmp_path}/mnist")
    monkeypatch.setenv("LAPWING_CACHE", "s3://name:hunter2hunter2@host/cache")
    monkeypatch.setenv("LAPWING_BOARD_TOKEN", "a-secret-of-the-board")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    found = described(capsys, "--no-devices")
    assert found["places"]["cache"] == "~/.cache/lapwing"
    assert found["places"]["LAPWING_DATA"] == "~/mnist"
    assert found["variables"]["XLA_FLAGS"] == "--xla_dump_to=x"
    assert REDACTED in found["places"]["LAPWING_CACHE"]
    assert not {"hunter2hunter2", "a-secret-of-the-board"} & set(re.findall(r"[\w-]+", json.dumps(found)))


def help_of(words: list[str], capsys) -> str:
    with contextlib.suppress(SystemExit):  # The parser of options exits.
        assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_every_command_has_an_example():
    assert set(EXAMPLES) == {*subcommands(), *(f"dmm {action}" for action in ACTIONS)}
    assert [each for name, each in EXAMPLES.items() if not each.startswith(f"lapwing {name}")] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_help_ends_with_the_example_and_knows_its_options(name: str, capsys):
    shown, _, example = help_of(name.split(), capsys).rpartition("\nExample: ")
    assert example == f"{EXAMPLES[name]}\n"
    if "NAME --help shows the options" in shown:
        experiment = shlex.split(EXAMPLES[name])[2]
        shown = help_of([name, experiment if experiment.isidentifier() else "adding"], capsys)
        shown = shown.rpartition("\nExample: ")[0]
    options = [word for word in shlex.split(EXAMPLES[name]) if word.startswith("--") and word != "--"]
    assert [option for option in options if option not in shown] == []


def test_what_is_not_a_request_for_help_has_no_example(capfd):
    assert main(["time", "--", sys.executable, "--help"]) == 0
    assert "Example:" not in capfd.readouterr().out
