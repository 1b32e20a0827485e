"""Packages whose names are imported when they are used, so that a graph does not wait for PyG, nor a
layer for all builders.

The names stand once, in the ``__init__.pyi`` beside a package, where type checkers read them and
:func:`attach_stub` does, too (Scientific Python, SPEC 1, "Lazy loading of submodules and functions").
"""

import ast
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any


def attach_stub(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package, and its ``__all__``.

    Its files are attributes, too, as they are of a package that imports them all.

    Args:
        package: Its ``__name__``.
        file: Its ``__file__``. Public is what the stub beside it imports under its own name,
            ``from .file import name as name``.
    """
    homes = _homes(Path(file).with_suffix(".pyi"))

    def load(name: str) -> Any:
        home = homes.get(name, ".")
        if home != ".":
            value = getattr(import_module(home, package), name)
            setattr(sys.modules[package], name, value)
            return value
        if name.startswith("__") or find_spec(f"{package}.{name}") is None:
            raise AttributeError(_missing(name, package, homes))
        return import_module(f"{package}.{name}")

    def names() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*own["__all__"], *(name for name in own if name.startswith("__"))})

    return load, names, list(homes)


def public_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The same of a package that has imported its public names: all but its own files."""
    names = vars(sys.modules[package])
    public = [
        name
        for name, value in names.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]

    def load(name: str) -> Any:
        raise AttributeError(_missing(name, package, public))

    def shown() -> list[str]:
        return sorted({*public, *(name for name in names if name.startswith("__"))})

    return load, shown, public


def _missing(name: str, package: str, names: Iterable[str]) -> str:
    from .missing import instead_of  # of an error alone

    hint = ""
    if not name.startswith("_"):
        hint = instead_of(name, package, names)
    return f"module {package!r} has no attribute {name!r}{hint}"


def _homes(stub: Path) -> dict[str, str]:
    """The public names of a stub, each with the file that defines it, relative to the package."""
    imports = [
        node
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    return {
        alias.name: "." * node.level + (node.module or "")
        for node in imports
        for alias in node.names
        if alias.asname == alias.name
    }
