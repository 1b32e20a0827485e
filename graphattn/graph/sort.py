"""Edges sorted by target, then by source: the index of listed edges."""

from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

FEW = 1 << 13  # edges below which one sort costs less than counting twice


class Sorted(NamedTuple):
    """Edges by row: ``ptr`` int64 (rows + 1,), and the ``column`` and ``place`` (E,) of each edge.

    Columns ascend in each row; ``place`` is the former index of the edge.

    ``column`` and ``place`` are int32 if the edges were counted, int64 if they were sorted.
    """

    ptr: Tensor
    column: Tensor
    place: Tensor


def by_row(row: Tensor, column: Tensor, rows: int, columns: int) -> Sorted:
    """The edges, int64 (E,) each, by row, then by column; copies of an edge in the order given."""
    if countable(row, rows, columns):
        return counted(row, column, rows, columns)
    return placed(ascending(torch.add(column, row, alpha=columns)), row, column, rows)


def ascending(key: Tensor) -> Tensor:
    """A stable sort order of the keys; quick on the CPU for keys that are nearly sorted."""
    if key.is_cuda:
        return torch.argsort(key, stable=True)
    return torch.from_numpy(np.argsort(key.numpy(), kind="stable"))


def sorted_keys(key: Tensor) -> Tensor:
    """The keys sorted; numpy's sort is quicker on the CPU."""
    if key.is_cuda:
        return torch.sort(key).values
    return torch.from_numpy(np.sort(key.numpy()))


def placed(place: Tensor, row: Tensor, column: Tensor, rows: int) -> Sorted:
    """The edges in a given order by row."""
    return Sorted(offsets(torch.bincount(row, minlength=rows)), column[place], place)


def offsets(degrees: Tensor) -> Tensor:
    """int64 (rows + 1,): where each row starts."""
    ptr = torch.zeros(degrees.numel() + 1, dtype=torch.int64, device=degrees.device)
    torch.cumsum(degrees, 0, out=ptr[1:])
    return ptr


def rows_of(ptr: Tensor) -> Tensor:
    """int64 (E,): the row of each entry."""
    return torch.repeat_interleave(torch.arange(ptr.numel() - 1, device=ptr.device), ptr.diff())


def countable(index: Tensor, rows: int, columns: int) -> bool:
    """True if scipy's counting beats sorting: many edges on the CPU, among few nodes, in int32."""
    size = index.numel()
    if not FEW <= size < 2**31:
        return False
    if index.is_cuda or find_spec("scipy") is None:
        return False
    return max(rows, columns) <= min(4 * size, 2**31 - 1)


def counted(row: Tensor, column: Tensor, rows: int, columns: int) -> Sorted:
    """:func:`by_row` of many edges on the CPU.

    They are counted into place twice, by column and then by row, as a sparse matrix is transposed:
    linear in the edges, and fast where neighbours in the graph are neighbours in memory.
    """
    from scipy.sparse import coo_array

    place = np.arange(row.numel(), dtype=np.int32)
    by_column = coo_array((place, (_int32(column), _int32(row))), shape=(columns, rows))
    by_column.has_canonical_format = True  # else copies would be summed
    return _sorted(by_column.tocsr().tocsc())


def transposed(edges: Sorted, columns: int) -> Sorted:
    """Edges by column, then by row; ``place`` is the index of each in ``edges``."""
    rows = edges.ptr.numel() - 1
    if not countable(edges.column, rows, columns):
        return by_row(edges.column.long(), rows_of(edges.ptr), columns, rows)
    from scipy.sparse import csr_array

    place = np.arange(edges.column.numel(), dtype=np.int32)
    matrix = csr_array((place, _int32(edges.column), _int32(edges.ptr)), shape=(rows, columns))
    return _sorted(matrix.tocsc())


def _int32(x: Tensor) -> np.ndarray:
    return x.to(torch.int32).numpy()


def _sorted(matrix: Any) -> Sorted:
    ptr, column, place = (torch.from_numpy(x) for x in (matrix.indptr, matrix.indices, matrix.data))
    return Sorted(ptr.to(torch.int64), column, place)
