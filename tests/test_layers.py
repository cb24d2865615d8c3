"""The layer table of the design as data, and a walk over every import that holds the code to it.

Each layer may import the standard library, itself, and what its row names: other layers and outside packages.
"""

import ast
import re
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "lapwing"

JAX = {"jax", "numpy", "jaxtyping"}
LAYERS: dict[str, set[str]] = {
    "core": {"matplotlib"},  # imported when a picture is drawn; the rest needs the standard library alone
    "timing": {"core"},
    "journal": {"core", "timing", "numpy", "ml_dtypes"},  # arrays, imported when they are asked for
    "store": {"core", "journal", "fsspec"},  # fsspec is imported when a URL is opened
    "trees": {
        "core",
        "numpy",
        "jax",
    },  # jax for trees that are not V-values, imported when they are asked for
    "jaxprs": JAX | {"core"},
    "loops": JAX | {"core", "jaxprs"},
    "task": JAX | {"core", "optax", "equinox", "flax"},
    "train": JAX
    | {"core", "optax", "orbax", "rich", "tensorboardX", "task", "journal", "jaxprs", "timing", "trees"},
    # torch is imported when a check of check.torch is called.
    "check": JAX | {"core", "trees", "timing", "jaxprs", "task", "train", "torch"},
    "dmm": JAX | {"core", "trees", "jaxprs", "loops", "llvmlite"},
    "synthesis": JAX | {"core", "optax", "trees", "dmm", "task", "train", "journal", "report"},
    "models": JAX | {"core", "equinox", "loops"},
    "data": JAX | {"core", "sklearn"},  # for the images that it bundles, imported when they are asked for
    "attacks": JAX | {"core", "loops"},
    "report": {"core", "numpy", "rich", "matplotlib", "plotly", "journal", "timing"},
}
LAYERS["experiments"] = set().union(*LAYERS.values(), LAYERS)
LAYERS["sweep"] = {"core", "jax", "timing", "train", "experiments", "journal", "report", "ray", "optuna"}
LAYERS["board"] = {
    "core",
    "numpy",
    "starlette",
    "uvicorn",
    "sse_starlette",
    "plotly",
    "journal",
    "timing",
    "report",
}
LAYERS["live"] = {"core", "trees", "dmm", "journal", "report", "board", "starlette"}
# Benchmarks time public names against rivals, which are imported only where installed.
LAYERS["bench"] = JAX | {
    "core",
    "flax",
    "torch",
    "optax",
    "loops",
    "timing",
    "journal",
    "task",
    "train",
    "check",
}
# A command knows everybody; the command line itself only knows where the commands are.
LAYERS["_commands"] = set().union(*LAYERS.values(), LAYERS, {"tyro"})
LAYERS["cli"] = {"_commands", "core", "journal"}
LAYERS["__init__"] = set(LAYERS)
LAYERS["__main__"] = {"cli"}


def layer_of(file: Path) -> str:
    first = file.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imports(code: str) -> set[str]:
    """What a module imports, anywhere in it: `lapwing.x` as the layer `x`, others by their first word."""
    names = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module or "")
            if node.module == "lapwing":
                names += [f"lapwing.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level > 1:
            names.append("lapwing.<relative import out of the folder>")
    found = set()
    for name in names:
        parts = name.split(".")
        if parts[0] == "lapwing":
            found |= set(parts[1:2])
        elif parts[0] not in sys.stdlib_module_names:
            found.add(parts[0])
    return found


def violations(layer: str, code: str) -> set[str]:
    return imports(code) - LAYERS[layer] - {layer, "__version__"}


def test_a_layer_imports_only_what_its_row_names():
    found = {
        str(file.relative_to(SOURCE)): sorted(violations(layer_of(file), file.read_text()))
        for file in sorted(SOURCE.rglob("*.py"))
    }
    wrong = {file: names for file, names in found.items() if names}
    assert not wrong, f"imports that the file's layer may not have: {wrong}"


@pytest.mark.parametrize(
    ("layer", "code", "wrong"),
    [
        ("timing", "import jax", {"jax"}),
        ("journal", "def f():\n    import jax.numpy as np", {"jax"}),
        ("loops", "from lapwing.dmm import Machine", {"dmm"}),
        ("loops", "from lapwing import train", {"train"}),
        ("board", "import jax.numpy as jnp", {"jax"}),
        ("trees", "from ..loops import scan", {"<relative import out of the folder>"}),
    ],
)
def test_a_planted_wrong_import_is_found(layer: str, code: str, wrong: set[str]):
    assert violations(layer, code) == wrong


def test_nothing_reaches_into_private_jax():
    for file in SOURCE.rglob("*.py"):
        assert not re.search(r"jax\._src|from jax import .*\b_src", file.read_text()), f"{file} uses jax._src"
