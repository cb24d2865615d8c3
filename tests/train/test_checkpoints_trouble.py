"""Checkpoints in a process of their own: killed at random moments, on a full disk, on a read-only one, and silent."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.train._checkpoints import Checkpoints

PRELUDE = """
import sys
from pathlib import Path
import jax.numpy as jnp
from lapwing.journal import checkpoint_files
from lapwing.train._checkpoints import CheckpointError, Checkpoints
folder = Path(sys.argv[1])
checkpoints = Checkpoints(folder)
def state_at(step, size=20_000):
    return {"step": jnp.int32(step), "w": [jnp.arange(size) * 0.5 + step, jnp.full((7,), -1.0 * step)]}
"""

KILLS = """
import os, random, signal, time
import numpy as np

def plain_state_at(step):  # Without a device, so that a process can be forked; some files take longer to write.
    return {"step": np.int32(step), "w": np.arange(10 ** (step % 7), dtype=np.float32) + step}

def write_until_killed(step, pipe):
    checkpoints = Checkpoints(folder)
    while True:
        step += 1
        checkpoints.save(plain_state_at(step), step, {"step": step})
        if step % 3:
            checkpoints.wait()
            os.write(pipe, f"{step}\\n".encode())

chance, on_disk, interrupted = random.Random(0), 0, 0
for kill in range(int(sys.argv[2])):
    found = checkpoints.all()
    from_child, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        write_until_killed(found[-1].step if found else 0, pipe)
    os.close(pipe)
    first = os.read(from_child, 1) if kill % 2 else b""  # So that some have written, on any machine.
    time.sleep(chance.uniform(0.005, 0.03))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with open(from_child, "rb") as reported:
        on_disk = max([on_disk, *map(int, (first + reported.read()).split(b"\\n")[:-1])])
    interrupted += bool(checkpoint_files(folder, drafts=True))
    found = checkpoints.all()
    assert len(found) == len(checkpoint_files(folder)), "what is not hidden is complete"
    for checkpoint in found:
        arrays = checkpoints.arrays(checkpoint)
        assert checkpoint.record == {"step": checkpoint.step}
        for name, array in plain_state_at(checkpoint.step).items():
            assert arrays[name].dtype == array.dtype and arrays[name].tobytes() == array.tobytes()
    assert on_disk <= (found[-1].step if found else 0)
checkpoints = Checkpoints(folder)
checkpoints.save(plain_state_at(0), 0, {})
checkpoints.wait()
assert len(list(folder.iterdir())) == 2, "the drafts of killed processes are removed"
print(on_disk, interrupted)
"""


@pytest.mark.parametrize("kills", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_killed_process_leaves_complete_checkpoints(tmp_path: Path, kills: int):
    """Each process continues where the last one was killed."""
    command = [sys.executable, "-c", PRELUDE + KILLS, tmp_path, str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    on_disk, interrupted = map(int, done.stdout.split())
    assert on_disk >= 5
    assert interrupted >= 5, "it was killed while it was writing"


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


@pytest.mark.slow
def test_nothing_is_said_and_nothing_more_is_imported(tmp_path: Path):
    code = """
checkpoints.save(state_at(1), 1, {})
checkpoints.close()
checkpoints.newest_sound(state_at(0))
assert not {"orbax", "safetensors", "tensorstore"} & set(sys.modules)
"""
    assert told_by(code, tmp_path) == ([], "")


@pytest.mark.slow
def test_a_process_that_falls_over_ends(tmp_path: Path):
    code = """
checkpoints.save(state_at(1), 1, {})
checkpoints.wait()
checkpoints.save(state_at(2), 2, {})
raise SystemExit(0)
"""
    assert told_by(code, tmp_path) == ([], "")
    assert Checkpoints(tmp_path).all()[-1].step in (1, 2)


TELLS = """
def attempt(step, size=20_000):
    checkpoints.save(state_at(step, size), step, {})
    try:
        checkpoints.wait()
    except CheckpointError as error:
        print(error)
    print(sorted(path.name for path in folder.iterdir()))
"""


@pytest.mark.slow
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
