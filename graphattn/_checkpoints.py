"""Graphs in checkpoints: ``torch.load``, which trusts no function by default, may call the one that restores them.

``import graphattn`` does not import torch, and a script may read its checkpoint before it uses any name of ours: so
the function is registered when torch is imported.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_NAME = "graphattn.graph.pickles.restored"


def _restored(*parts: Any) -> Any:
    """The function of that name, imported when a checkpoint calls it."""
    return import_module("graphattn.graph.pickles").restored(*parts)


def _tell(torch: ModuleType) -> None:
    torch.serialization.add_safe_globals([(_restored, _NAME)])


class _WhenImported(MetaPathFinder):
    """Finds torch as others do, and tells it once it is there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            spec = find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._telling(spec.loader.exec_module)  # type: ignore[method-assign]
        return spec

    def _telling(self, execute: Any) -> Any:
        def execute_and_tell(torch: ModuleType) -> None:
            execute(torch)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _tell(torch)

        return execute_and_tell


def let_torch_load_graphs() -> None:
    """Now where torch is imported, else as soon as it is."""
    if hasattr(sys.modules.get("torch"), "serialization"):
        _tell(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _WhenImported())
