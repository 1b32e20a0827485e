"""A shape: PyG's ``Data`` that knows which of its tensors came from a file."""

from typing import Any

from torch_geometric.data import Data


class Shape(Data):
    r"""A point cloud or a mesh, as :func:`~graphattn.load` returns it: a ``Data`` in every respect.

    PyG takes every name that holds "index" or "batch" for numbers of nodes, and adds to them in a batch. A property of
    a file may have such a name (``cluster_index``); it is left as it is.

    Args:
        notes: What was done to the contents of the file: corners merged, polygons cut.
        columns: Names of the tensors whose rows are the rows of the file.
        **tensors: ``pos`` (N, 3), ``face`` (3, F), ``normal``, ``color``, ``uv``, ``y``, ...
    """

    notes: tuple[str, ...]

    def __init__(self, *, notes: tuple[str, ...] = (), columns: tuple[str, ...] = (), **tensors: Any) -> None:
        super().__init__(**tensors)
        self.__dict__["notes"], self.__dict__["columns"] = notes, frozenset(columns)

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return 0 if key in self.__dict__["columns"] else super().__cat_dim__(key, value, *args, **kwargs)

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return 0 if key in self.__dict__["columns"] else super().__inc__(key, value, *args, **kwargs)
