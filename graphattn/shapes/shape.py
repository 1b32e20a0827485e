"""A shape: PyG's ``Data`` with a record of which of its tensors came from a file."""

from collections.abc import Mapping
from typing import Any

from ..errors import singular
from ..pyg import Data

#: Names of what is about a whole shape in a cell that repeats.
LATTICE = ("cell", "pbc")


class Shape(Data):
    r"""A point cloud or a mesh, as :func:`~graphattn.load` returns it: a ``Data`` in every respect.

    PyG takes every name that holds "index" or "batch" for numbers of nodes, and adds to them in a
    batch. A property of a file may have such a name (``cluster_index``); it is left as it is.
    ``shape[name]`` is the tensor of any name, ``shape["keys"]`` and ``shape["_heat"]`` for two;
    ``shape.name`` is it where PyG has no attribute of that name.

    Args:
        tensors: By name; of any names.
        notes: What was done to the contents of the file: corners merged, polygons cut.
        columns: Names of the tensors whose rows are the rows of the file.
        file: The name of the file.
        dropped: Number of points of the file that a depth camera has not seen.
        doubt: What looks wrong with units or lines, of which reading warns.
        depths: Bits that were taken for properties of LAS, which does not say them:
            ``{"color": 8}``.
        unit: Unit of lengths that the file says, such as "US survey feet"; "" if it says none.
        **named: More tensors: ``pos`` (N, 3), ``face`` (3, F), ``normal``, ``color``, ``uv``,
            ``y``, ... A crystal has ``cell`` (3, 3), lattice vectors as rows in the units of
            ``pos``, and ``pbc`` (3,), the axes along which it repeats; a batch has them as (B, 3, 3)
            and (B, 3).
    """

    notes: tuple[str, ...]
    file: str
    dropped: int
    doubt: str
    depths: dict[str, int]
    unit: str

    def __init__(
        self,
        tensors: Mapping[str, Any] | None = None,
        /,
        *,
        notes: tuple[str, ...] = (),
        columns: tuple[str, ...] = (),
        file: str = "",
        dropped: int = 0,
        doubt: str = "",
        depths: Mapping[str, int] | None = None,
        unit: str = "",
        **named: Any,
    ) -> None:
        super().__init__()
        self.__dict__.update(
            notes=tuple(map(singular, notes)), columns=frozenset(columns), file=file
        )
        self.__dict__.update(dropped=dropped, doubt=doubt, depths=dict(depths or {}), unit=unit)
        for name, value in {**(tensors or {}), **named}.items():
            self[name] = value

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        if key in LATTICE:
            return None  # a new first axis: (B, 3, 3) and (B, 3)
        if key in self.__dict__["columns"]:
            return 0
        return super().__cat_dim__(key, value, *args, **kwargs)

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        if key in self.__dict__["columns"]:
            return 0
        return super().__inc__(key, value, *args, **kwargs)
