"""Checkpoints in a process of their own: killed at random moments, on a full disk, on a read-only one, and silent."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from lapwing.train._checkpoints import Checkpoints

PRELUDE = """
import sys
from pathlib import Path
import jax.numpy as jnp
from lapwing.train._checkpoints import CheckpointError, Checkpoints
folder = Path(sys.argv[1])
checkpoints = Checkpoints(folder)
def state_at(step, size=20_000):
    return {"step": jnp.int32(step), "w": [jnp.arange(size) * 0.5 + step, jnp.full((7,), -1.0 * step)]}
"""

GOES_ON = """
found = checkpoints.newest_sound(state_at(0))
step = found[1].step if found else 0
while True:
    step += 1
    checkpoints.save(state_at(step), step, {"step": step})
    if step % 3:
        checkpoints.wait()
        print(step, flush=True)
"""


def state_at(step: int) -> dict:
    return {"step": jnp.int32(step), "w": [jnp.arange(20_000) * 0.5 + step, jnp.full((7,), -1.0 * step)]}


def kill_and_look(folder: Path, kills: int) -> None:
    """Each process goes on where the last one was killed."""
    chance = random.Random(kills)
    for _ in range(kills):
        writer = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + GOES_ON, folder], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout
        first = writer.stdout.readline()
        time.sleep(chance.uniform(0, 0.2))
        writer.kill()
        said = [first, *writer.stdout]
        writer.stdout.close()
        assert writer.wait() == -9
        on_disk = int([line for line in said if line.endswith("\n")][-1])

        found = Checkpoints(folder).newest_sound(state_at(0))
        assert found is not None
        state, checkpoint, damaged = found
        assert damaged == []
        assert checkpoint.step == checkpoint.record["step"] >= on_disk
        assert int(state["step"]) == checkpoint.step
        for found_array, array in zip(state["w"], state_at(checkpoint.step)["w"], strict=True):
            assert np.asarray(found_array).tobytes() == np.asarray(array).tobytes()
        assert len(list(folder.glob("[0-9]*"))) <= 3, "two, and one whose removal was not reached"
        assert len(list(folder.glob(".*"))) <= 2, "one being written, one being removed"


def test_a_killed_process_leaves_a_whole_checkpoint(tmp_path: Path):
    kill_and_look(tmp_path, kills=4)


@pytest.mark.slow
def test_many_killed_processes_leave_whole_checkpoints(tmp_path: Path):
    kill_and_look(tmp_path, kills=30)


def told_by(code: str, folder: Path, around: tuple[str, ...] = ()) -> tuple[list[str], str]:
    """The lines that the code prints, and what is said beside them, where warnings are errors and logs are shown."""
    code = f"import logging; logging.basicConfig(level=logging.INFO)\n{PRELUDE}\n{code}"
    done = subprocess.run(
        [*around, sys.executable, "-W", "error", "-c", code, folder],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    beside = [line for line in done.stderr.splitlines() if "jax._src" not in line]
    return done.stdout.splitlines(), "\n".join(beside)


def test_nothing_is_said_and_nothing_more_is_imported(tmp_path: Path):
    code = """
checkpoints.save(state_at(1), 1, {})
checkpoints.close()
checkpoints.newest_sound(state_at(0))
assert not {"orbax", "safetensors", "tensorstore"} & set(sys.modules)
"""
    assert told_by(code, tmp_path) == ([], "")


def test_a_process_that_falls_over_ends(tmp_path: Path):
    code = """
checkpoints.save(state_at(1), 1, {})
checkpoints.wait()
checkpoints.save(state_at(2), 2, {})
raise SystemExit(0)
"""
    assert told_by(code, tmp_path) == ([], "")
    found = Checkpoints(tmp_path).newest_sound(state_at(0))
    assert found is not None
    assert found[1].step in (1, 2)
    assert found[2] == []


TELLS = """
def attempt(step, size=20_000):
    checkpoints.save(state_at(step, size), step, {})
    try:
        checkpoints.wait()
    except CheckpointError as error:
        print(error)
    print(sorted(path.name for path in folder.iterdir()))
"""


def test_a_file_that_cannot_grow(tmp_path: Path):
    """A limit of the system that is reached in the middle of a file, as a quota would be."""
    told, beside = told_by(
        TELLS
        + """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
attempt(1, 10)
attempt(2, 500_000)
attempt(3, 10)
print(checkpoints.failed())
""",
        tmp_path,
    )
    assert told == [
        "['000001-step-1.safetensors']",
        f"cannot write the checkpoint of step 2 to {tmp_path}: File too large; "
        "earlier checkpoints are unchanged",
        "['000001-step-1.safetensors']",
        "['000001-step-1.safetensors', '000003-step-3.safetensors']",
        "None",
    ]
    assert beside == ""


def own_mounts() -> tuple[str, ...]:
    """The beginning of a command that may mount, in a namespace that ends with it."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare on this machine to mount a small disk with")
    command = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    if subprocess.run([*command, "mount -t tmpfs lapwing /mnt"], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a small disk")
    return command


def test_a_full_and_then_a_read_only_disk(tmp_path: Path):
    code = (
        TELLS
        + """
import subprocess
attempt(1)
attempt(2, 300_000)
attempt(3)
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
attempt(4)
print(checkpoints.newest_sound(state_at(0))[1].step)
"""
    )
    script = 'folder=$1; shift; mount -t tmpfs -o size=1m lapwing "$folder" && exec "$@"'
    told, beside = told_by(code, tmp_path, (*own_mounts(), script, "sh", str(tmp_path)))
    assert told == [
        "['000001-step-1.safetensors']",
        f"cannot write the checkpoint of step 2 to {tmp_path}: No space left on device; free some space there; "
        "earlier checkpoints are unchanged",
        "['000001-step-1.safetensors']",
        "['000001-step-1.safetensors', '000003-step-3.safetensors']",
        f"cannot write the checkpoint of step 4 to {tmp_path}: Read-only file system; make it writable; "
        "earlier checkpoints are unchanged",
        "['000001-step-1.safetensors', '000003-step-3.safetensors']",
        "3",
    ]
    assert beside == ""
