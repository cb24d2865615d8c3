"""The API reference: a page for each package, an entry for each name of its `__all__`.

The packages are read, not imported: so building the site needs no jax, and takes seconds. mkdocstrings writes the
entries, with the signature, the docstring and the example in it.
"""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "lapwing"
FOLDER = "api"
# Packages that are public, though not names of `lapwing` itself.
MORE = ("live", "store")


def packages() -> list[str]:
    """The public packages, in alphabetical order."""
    layers = _value(_tree(SOURCE / "__init__.py"), "_LAYERS")
    return sorted([*ast.literal_eval(layers), *MORE])


def names_of(package: str) -> list[str]:
    """The public names of a package: functions first, then classes, then the rest."""
    tree = _tree(SOURCE / package / "__init__.py")
    try:
        names = ast.literal_eval(_value(tree, "__all__"))
    except ValueError:  # A package that is loaded lazily: its names are imported for the type checker.
        names = _imported_for_types(tree)
    return sorted(names, key=lambda name: (not name.islower(), name.isupper(), name))


def top_names() -> dict[str, str]:
    """The names of `lapwing` itself, with the package that each is from."""
    return ast.literal_eval(_value(_tree(SOURCE / "__init__.py"), "_HOME"))


def nav() -> list[dict[str, str]]:
    """The part of the nav."""
    return [
        {"All packages": f"{FOLDER}/index.md"},
        *({f"lapwing.{name}": f"{FOLDER}/{name}.md"} for name in packages()),
    ]


def pages() -> dict[str, str]:
    """Every page of the reference, by its path on the site."""
    return {f"{FOLDER}/index.md": _index(), **{f"{FOLDER}/{name}.md": _page(name) for name in packages()}}


def _page(package: str) -> str:
    entries = [f"::: lapwing.{package}.{name}\n" for name in names_of(package)]
    hidden = "{members: false, show_root_heading: false, show_root_toc_entry: false}"
    about = f"::: lapwing.{package}\n    options: {hidden}\n"
    return "\n".join([f"# lapwing.{package}\n", about, *entries])


def _index() -> str:
    first = [
        f"- [`lw.{name}`]({home}.md#lapwing.{home}.{name}): {_summary_of(home, name)}"
        for name, home in sorted(top_names().items())
    ]
    rest = [f"- [`lapwing.{name}`]({name}.md): {_summary(name)}" for name in packages()]
    return "\n".join(
        [
            "# API reference\n",
            "Every public name, with its example. `import lapwing as lw` gives all of it; a package is imported when "
            "one of its names is first used.\n",
            "## Names of `lapwing` itself\n",
            *first,
            "\n## Packages\n",
            *rest,
            "",
        ]
    )


def _summary(package: str) -> str:
    text = ast.get_docstring(_tree(SOURCE / package / "__init__.py")) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _summary_of(package: str, name: str) -> str:
    """The first sentence of a docstring, from the module that the package imports the name from."""
    imports = [
        node for node in _tree(SOURCE / package / "__init__.py").body if isinstance(node, ast.ImportFrom)
    ]
    (module,) = [node.module or "" for node in imports if name in {each.name for each in node.names}]
    (found,) = [
        node
        for node in _tree(SOURCE / package / f"{module.rpartition('.')[2]}.py").body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name
    ]
    return re.split(r"[.:](?:\s|$)", ast.get_docstring(found) or "")[0].replace("\n", " ")


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _imported_for_types(tree: ast.Module) -> list[str]:
    """The names that a module imports under `if TYPE_CHECKING`."""
    blocks = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return [name.asname or name.name for node in imports for name in node.names]


def _value(tree: ast.Module, name: str) -> ast.expr:
    """What a module assigns to a name."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            return node.value
    raise LookupError(f"nothing is assigned to {name}")
