"""PyG, imported without what message passing never reads: torch's compiler and PyG's datasets.

These import TorchInductor and, where it is installed, transformers: 3 of PyG's 3.5 seconds. Both are
loaded at the first use of an attribute. All of the package imports PyG's names from this file.
"""

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from typing import Any

COMPILER = "torch._dynamo"
DATASETS = "torch_geometric.datasets"


class _Lazily:
    """A finder of modules that are loaded when an attribute is asked for."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        if name not in (COMPILER, DATASETS):
            return None
        for finder in sys.meta_path:
            if finder is cls:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = importlib.util.LazyLoader(spec.loader)
                return spec
        return None


@contextmanager
def _lazily() -> Iterator[None]:
    """Import lazily inside; nothing changes where PyG is imported already."""
    if "torch_geometric" in sys.modules:
        yield
        return
    import torch

    has_compiler = COMPILER in sys.modules
    sys.meta_path.insert(0, _Lazily)
    try:
        yield
    finally:
        sys.meta_path.remove(_Lazily)
        if not has_compiler:  # torch imports it itself, under the lock of imports
            sys.modules.pop(COMPILER, None)
            vars(torch).pop("_dynamo", None)


with _lazily():
    from torch_geometric import EdgeIndex as EdgeIndex
    from torch_geometric.data import Batch as Batch
    from torch_geometric.data import Data as Data
    from torch_geometric.loader import DataLoader as DataLoader
    from torch_geometric.nn import GATConv as GATConv
    from torch_geometric.nn import GATv2Conv as GATv2Conv
    from torch_geometric.nn import MessagePassing as MessagePassing
    from torch_geometric.nn import PointTransformerConv as PointTransformerConv
    from torch_geometric.nn import TransformerConv as TransformerConv
    from torch_geometric.transforms import AddLaplacianEigenvectorPE as AddLaplacianEigenvectorPE
    from torch_geometric.transforms import AddRandomWalkPE as AddRandomWalkPE
    from torch_geometric.transforms import BaseTransform as BaseTransform
    from torch_geometric.transforms import Compose as Compose
    from torch_geometric.transforms import RandomJitter as RandomJitter
