"""Checks of a caller's edge_index, made once, when the graph is built."""

import torch
from torch import Tensor

from ..arguments import one_of
from ..errors import GraphError, GraphIndexError
from .edges import Edges, check_pairs, listed

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


def _check_layout(edge_index: object) -> Tensor:
    if not isinstance(edge_index, Tensor):
        try:
            edge_index = torch.as_tensor(edge_index)
        except (TypeError, ValueError, RuntimeError) as error:
            kind = type(edge_index).__name__
            raise GraphError(f"edge_index must be an integer tensor (2, E), got a {kind}: {error}") from error
    if edge_index.device.type == "meta":
        raise GraphError("edge_index is on meta, whose tensors hold no numbers; build it on another device")
    shape = tuple(edge_index.shape)
    if edge_index.numel() == 0 and (len(shape) != 2 or shape == (0, 2) or shape == (2, 0)):
        return torch.empty(2, 0, dtype=torch.int64, device=edge_index.device)
    if len(shape) != 2 or shape[0] != 2:
        hint = "; pass edge_index.t()" if len(shape) == 2 and shape[1] == 2 else ""
        raise GraphError(
            f"edge_index must have shape (2, E), row 0 sources and row 1 targets: "
            f"expected [2, E], got {list(shape)}{hint}"
        )
    if edge_index.dtype not in INTEGERS:
        kind = str(edge_index.dtype).removeprefix("torch.")
        raise GraphError(
            f"edge_index must be integers (int64), got {kind}; pass edge_index.long() if these are indices"
        )
    return edge_index


def _check_range(index: Tensor, size: int, row: int, other: int, others: Tensor) -> None:
    side = ("source", "target")[row]
    lowest, highest = torch.stack(index.aminmax()).tolist()
    if lowest >= 0 and highest < size:
        return
    bad = torch.nonzero((index < 0) | (index >= size)).flatten()
    edge, worst = int(bad[0]), int(index[bad[0]])
    swapped = highest < other and int(others.max()) < size and lowest >= 0
    hint = "Rows swapped? Then use edge_index.flip(0)." if swapped else f"Are there more {side}s than {size}?"
    if worst < 0:
        hint = "Indices count from 0; negative ones are not wrapped."
    raise GraphIndexError(
        f"edge {edge}: {side} {worst} is outside [0, {size}) ({size} {side}s); row {row} of edge_index holds the "
        f"{side}s, and {bad.numel()} of {index.numel()} edges are outside. {hint}"
    )


def checked(edge_index: object, num_targets: int, num_sources: int, duplicates: str = "error") -> Edges:
    """Listed edges from a caller's tensor, copied and validated, on the tensor's device.

    Raises:
        GraphError: If the tensor is not an integer (2, E), or an edge is repeated and ``duplicates="error"``.
        GraphIndexError: If an index lies outside its range.
    """
    one_of(duplicates, "duplicates", ("error", "keep", "merge"), GraphError)
    check_pairs(num_targets, num_sources)
    source, target = _check_layout(edge_index).detach().to(torch.int64).unbind(0)
    if source.numel():
        _check_range(source, num_sources, 0, num_targets, target)
        _check_range(target, num_targets, 1, num_sources, source)
    edges = listed(target, source, num_targets, num_sources)
    if not edges.has_repeats or duplicates == "keep":
        return edges
    if duplicates == "merge":
        return edges.distinct()
    where = int(torch.nonzero(edges.is_copy())[0])
    first, second = sorted(edges.order[where - 1 : where + 1].tolist())
    raise GraphError(
        f"edges {first} and {second} are both {int(source[first])} -> {int(target[first])}: repeated edges. "
        'from_edge_index(..., duplicates="merge") drops copies, duplicates="keep" counts each one (a multigraph)'
    )
