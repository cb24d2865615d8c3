"""What a run has learned: which checkpoint, and its arrays as nested dicts and lists.

A checkpoint stores arrays by path ("params/layers/0/w"), so reading it needs none of the classes that the tree was
made of, and no jax.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from ._checkpoint import (
    SUFFIX,
    Checkpoint,
    CheckpointError,
    DamagedCheckpointError,
    checkpoint_files,
    read_arrays,
    read_checkpoint,
    serial_of,
)

if TYPE_CHECKING:
    import numpy as np

Which = Literal["best", "newest"]
"""The checkpoint to read: the best one, or the newest."""


def choose_checkpoint(
    folder: Path, which: Which | int, run: str, read: Callable[[Path], Checkpoint] = read_checkpoint
) -> Checkpoint:
    """The best checkpoint in a folder, the newest, or the newest of a step.

    **Raises** `CheckpointError` if it is damaged or missing: the numbers of another one are other numbers.

    >>> import tempfile
    >>> from lapwing.journal import write_checkpoint
    >>> folder = Path(tempfile.mkdtemp())
    >>> for serial, step in enumerate((100, 200), 1):
    ...     write_checkpoint(Checkpoint(step, folder / f"{serial:06d}-step-{step}.safetensors", {"best": 1}), {})
    >>> [choose_checkpoint(folder, which, "demo").step for which in ("best", "newest", 200)]
    [100, 200, 200]
    """
    if isinstance(which, str) and which not in ("best", "newest"):
        raise CheckpointError(f"which checkpoint? 'best', 'newest' or a step, but not {which!r}")
    files = checkpoint_files(folder)
    if read is read_checkpoint and files and not any(path.name.endswith(SUFFIX) for path in files):
        raise CheckpointError(
            f"the checkpoints of {run} were written by Lapwing 0.1; use lapwing.train.Checkpoints"
        )
    found, errors = _read_all(files, read)
    fitting = [each for each in found.values() if isinstance(which, str) or each.step == which]
    if not fitting:
        steps = ", ".join(map(str, sorted({each.step for each in found.values()}))) or "none"
        of = "" if isinstance(which, str) else f" of step {which}"
        damaged = "".join(f"; {error}" for error in errors.values())
        raise CheckpointError(f"{run} has no checkpoint{of}; there are: {steps}{damaged}")
    newest = fitting[-1]
    chosen, word = newest.serial, "newest"
    if isinstance(which, str) and max(errors, default=0) > chosen:
        chosen = max(errors)
    elif which == "best":
        chosen, word = newest.record.get("best") or chosen, "best"
    if chosen in found:
        return found[chosen]
    error = errors.get(chosen) or DamagedCheckpointError(folder / f"{chosen:06d}", "it is missing")
    raise CheckpointError(
        f"{error}; it is the {word} one of {run}, and the newest complete one is that of step {newest.step}: ask for "
        "that step to use it"
    )


def _read_all(
    files: list[Path], read: Callable[[Path], Checkpoint]
) -> tuple[dict[int, Checkpoint], dict[int, CheckpointError]]:
    """The checkpoints by serial, and what is wrong with the others."""
    found: dict[int, Checkpoint] = {}
    errors: dict[int, CheckpointError] = {}
    for path in files:
        serial = serial_of(path) or 0
        try:
            found[serial] = read(path)
        except CheckpointError as error:
            if path.exists():  # The run may have removed an old one meanwhile.
                errors[serial] = error
    return found, errors


def arrays_of(checkpoint: Checkpoint, part: str = "params") -> "dict[str, np.ndarray]":
    """The arrays of a part of the state by their paths in it; one that is a single array has the empty path.

    >>> import tempfile
    >>> import numpy as np
    >>> from lapwing.journal import write_checkpoint
    >>> path = Path(tempfile.mkdtemp()) / "000001-step-10.safetensors"
    >>> write_checkpoint(Checkpoint(10, path, {}), {"params/w": np.ones(2), "step": np.array(10)})
    >>> arrays_of(read_checkpoint(path))
    {'w': array([1., 1.])}
    """
    arrays = read_arrays(checkpoint, under=part)
    if not arrays:
        parts = ", ".join(dict.fromkeys(name.partition("/")[0] for name in checkpoint.leaves)) or "none"
        raise CheckpointError(f"the checkpoint {checkpoint.path} has no part {part!r}; it has {parts}")
    return {name[len(part) + 1 :]: array for name, array in arrays.items()}


def nested(arrays: "Mapping[str, np.ndarray]") -> Any:
    """Nested dicts of arrays by path; where the keys are 0, 1, 2 and so on, a list.

    >>> nested({"layers/0/w": 1, "layers/1/w": 2, "a%2Fb": 3})
    {'layers': [{'w': 1}, {'w': 2}], 'a/b': 3}
    """
    if list(arrays) == [""]:
        return arrays[""]
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        *parents, last = (unquote(key, errors="surrogatepass") for key in path.split("/"))
        inner = tree
        for key in parents:
            inner = inner.setdefault(key, {})
        inner[last] = array
    return _with_lists(tree)


def _with_lists(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    inner = {key: _with_lists(value) for key, value in tree.items()}
    numbers = [str(index) for index in range(len(inner))]
    return [inner[number] for number in numbers] if inner.keys() == set(numbers) else inner
