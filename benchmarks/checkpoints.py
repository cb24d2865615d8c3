"""Checkpoints: Lapwing's files against Orbax's CheckpointManager and the safetensors library.

    python benchmarks/checkpoints.py --before OLD/src > benchmarks/results/checkpoints-cpu.json

Each rival runs in a process of its own, in turn, `--rounds` times; the least time counts, since a busy disk or a busy
machine only adds. `--before` is the `src` of a checkout of Lapwing 0.1, which wrote its arrays by Orbax. A second part
asks what each rival does with awkward paths, awkward leaves and damaged files.
"""

import argparse
import inspect
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

SIZES = {
    "1 MB": (16, 1 << 14),
    "128 MB": (16, 1 << 21),
    "1000 leaves": (1000, 256),
}  # Leaves, and floats in each.
FLIPS = 40


class Lapwing:
    """Those of this checkout."""

    package = "lapwing.train._checkpoints"

    def __init__(self, folder: Path):
        from lapwing.train import Checkpoints

        self._checkpoints = Checkpoints(folder)

    def save(self, state: Any, step: int) -> None:
        self._checkpoints.save(state, step, {"loss": 0.5})

    def wait(self) -> None:
        self._checkpoints.wait()

    def load(self, like: Any) -> Any:
        found = self._checkpoints.newest_sound(like)
        assert found is not None
        return found[0]


class Before(Lapwing):
    """Those of `--before`, which have the same interface."""

    package = "orbax.checkpoint"


class Orbax:
    """Orbax's CheckpointManager with what Lapwing needs and it has: async, the last two, the best, every n-th.

    Not here, since it would be code of our own: checksums, errors that name a leaf or a file in one sentence, going on
    to the checkpoint before a damaged one, room on the disk, arrays without elements.
    """

    package = "orbax.checkpoint"

    def __init__(self, folder: Path, *, keep_every: int = 1_000_000):
        import orbax.checkpoint as orbax

        self._orbax = orbax
        policies = orbax.checkpoint_managers
        options = orbax.CheckpointManagerOptions(
            preservation_policy=policies.AnyPreservationPolicy(
                [policies.LatestN(2), policies.EveryNSteps(keep_every)]
            ),
            enable_async_checkpointing=True,
            cleanup_tmp_directories=True,
            create=True,
        )
        self._manager = orbax.CheckpointManager(folder.absolute(), options=options)

    def save(self, state: Any, step: int) -> None:
        args = self._orbax.args
        record = args.JsonSave({"loss": 0.5})
        self._manager.save(step, args=args.Composite(state=args.StandardSave(state), record=record))

    def wait(self) -> None:
        self._manager.wait_until_finished()

    def load(self, like: Any) -> Any:
        args = self._orbax.args
        parts = args.Composite(state=args.StandardRestore(like), record=args.JsonRestore())
        return self._manager.restore(self._manager.latest_step(), args=parts)["state"]


class Safetensors:
    """The library alone, on named arrays: no thread, no atomic file, no sync, no checksum. The floor."""

    package = "safetensors.numpy"

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "state.safetensors"

    def save(self, state: Any, step: int) -> None:
        import numpy as np
        from safetensors.numpy import save_file

        save_file({name: np.asarray(leaf) for name, leaf in state.items()}, self._file)

    def wait(self) -> None:
        pass

    def load(self, like: Any) -> Any:
        import jax
        from safetensors.numpy import load_file

        return jax.tree.map(jax.numpy.asarray, load_file(self._file))


RIVALS = {
    "lapwing": Lapwing,
    "lapwing 0.1": Before,
    "orbax manager": Orbax,
    "safetensors library": Safetensors,
}


def times(rival: str) -> dict[str, Any]:
    """Seconds to import what it needs, until `save` returns, until all is on disk (of the third save), and to load."""
    import jax

    import lapwing.train  # noqa: F401  What it imports anyway does not count.

    keys = iter(jax.random.split(jax.random.key(0), 10_000))
    start = time.perf_counter()
    __import__(RIVALS[rival].package)
    found: dict[str, Any] = {"import_s": time.perf_counter() - start}
    for name, (leaves, floats) in SIZES.items():
        state = {f"w{i}": jax.random.normal(next(keys), (floats,)) for i in range(leaves)}
        jax.block_until_ready(state)
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = RIVALS[rival](Path(folder) / "checkpoints")
            for step in (1, 2, 3):
                start = time.perf_counter()
                checkpoints.save(state, step)
                block = time.perf_counter() - start
                checkpoints.wait()
                total = time.perf_counter() - start
            start = time.perf_counter()
            jax.block_until_ready(checkpoints.load(state))
            load = time.perf_counter() - start
            files = [file for file in Path(folder).rglob("*") if file.is_file()]
            size = sum(file.stat().st_size for file in files)
            copies = 1 if rival == "safetensors library" else 2
            found[name] = {
                "block_s": block,
                "total_s": total,
                "load_s": load,
                "bytes": size // copies,
                "files": len(files) // copies,
            }
    return found


def behaviour(rival: str) -> dict[str, Any]:
    """What comes back from awkward paths and leaves, and how many flipped bits are noticed."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    leaves = {
        "bfloat16": jnp.ones(3, jnp.bfloat16),
        "int4": jnp.ones(3, jnp.int4),
        "bool": jnp.array([True, False]),
        "scalar": jnp.float32(1),
        "None": None,
        "empty": jnp.zeros((0, 3)),
        "key": jax.random.key(7),
        "nan payload": jnp.asarray(np.array([0x7FC00001, 0x80000000], np.uint32).view(np.float32)),
    }

    def bits(tree: Any) -> list[bytes]:
        plain = [jax.random.key_data(x) if "key" in str(x.dtype) else x for x in jax.tree.leaves(tree)]
        return [np.asarray(leaf).tobytes() for leaf in plain]

    def comes_back(name: str, state: Any) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            try:
                checkpoints = RIVALS[rival](Path(folder) / name)
                checkpoints.save(state, 1)
                checkpoints.wait()
                return bits(checkpoints.load(state)) == bits(state)
            except Exception:
                return False

    def flips() -> dict[str, int]:
        """A bit of the largest file is changed: an error, other numbers, or (in a byte that means nothing) neither."""
        state = {f"w{i}": jax.random.normal(jax.random.key(i), (1 << 12,)) for i in range(4)}
        found, choice = {"noticed": 0, "wrong numbers": 0, "harmless": 0}, random.Random(0)
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = RIVALS[rival](Path(folder) / "checkpoints")
            checkpoints.save(state, 1)
            checkpoints.wait()
            files = [file for file in Path(folder).rglob("*") if file.is_file()]
            largest = max(files, key=lambda file: file.stat().st_size)
            content = largest.read_bytes()
            for _ in range(FLIPS):
                at, bit = choice.randrange(len(content)), 1 << choice.randrange(8)
                largest.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
                try:
                    loaded = RIVALS[rival](Path(folder) / "checkpoints").load(state)
                    found["harmless" if bits(loaded) == bits(state) else "wrong numbers"] += 1
                except Exception:
                    found["noticed"] += 1
        return found

    plain = {"x": jnp.arange(4.0)}
    return {
        "paths": {name: comes_back(name, plain) for name in ("exp[1]", "a\\b", "*", "ä ö")},
        "leaves": {name: comes_back("c", {"x": leaf, "y": jnp.ones(2)}) for name, leaf in leaves.items()},
        "flipped_bits": flips(),
    }


def lines(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def child(rival: str, what: str, before: str) -> dict[str, Any]:
    source = before if rival == "lapwing 0.1" else str(Path(__file__).parents[1] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--child", rival, what]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def least(found: list[Any]) -> Any:
    if isinstance(found[0], dict):
        return {name: least([each[name] for each in found]) for name in found[0]}
    return round(min(found), 5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", default="", help="the src folder of a checkout of Lapwing 0.1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", nargs=2, help="the rival, and times or behaviour")
    options = parser.parse_args()
    if options.child:
        rival, what = options.child
        print(json.dumps({"times": times, "behaviour": behaviour}[what](rival)))
        return
    rivals = [name for name in RIVALS if name != "lapwing 0.1" or options.before]
    rounds: dict[str, list[Any]] = {name: [] for name in rivals}
    for number in range(options.rounds):
        for name in rivals:
            rounds[name].append(child(name, "times", options.before))
            print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
    here = Path(__file__).parents[1] / "src" / "lapwing" / "train"
    ours = [here / f"_checkpoint{name}.py" for name in ("_arrays", "_file", "s")]
    count = {"lapwing": lines(ours), "reader of 0.1": lines([here / "_checkpoint_orbax.py"])}
    if options.before:
        old = Path(options.before) / "lapwing" / "train"
        count["lapwing 0.1"] = lines([old / f"_checkpoint{name}.py" for name in ("_arrays", "_folder", "s")])
    count["orbax manager, without checksums and errors"] = len(inspect.getsource(Orbax).splitlines())
    packages = ("jax", "numpy", "orbax-checkpoint", "safetensors")
    results = {
        "times": {name: least(found) for name, found in rounds.items()},
        "behaviour": {name: child(name, "behaviour", options.before) for name in rivals},
        "lines": count,
        "rounds": options.rounds,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "versions": {name: metadata.version(name) for name in packages},
    }
    print(json.dumps(results, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
