"""Tokens, lengths, and biases that remove the edges from padding."""

from typing import Any

import torch
from torch import Tensor

from ..arguments import outside, shown
from ..errors import PositionIndexError, ShapeError
from ..graph import AttentionGraph, PerHead
from ..graph.chosen import Chosen
from ..graph.pattern import sized
from ..kernels.modes import can_read_values
from ..nn import KeyValueCache
from ..nn.blocks import EVERY, Graph


def check_lengths(lengths: Any, source: Tensor) -> None:
    """Refuse anything but a number of valid tokens for each sequence (..., S)."""
    longest, wanted = source.shape[-1], tuple(source.shape[:-1])
    wrong = not isinstance(lengths, Tensor) or lengths.is_floating_point() or lengths.dtype == torch.bool
    if wrong or tuple(lengths.shape) != wanted:
        raise ShapeError(f"lengths must be a tensor of {wanted} integers in [1, {longest}], got {shown(lengths)}")
    if can_read_values(lengths) and bool(((lengths < 1) | (lengths > longest)).any()):
        least, most = int(lengths.min()), int(lengths.max())
        raise ShapeError(f"lengths must be a tensor of {wanted} integers in [1, {longest}], got {least} to {most}")


def check_tokens(name: str, tokens: Any, size: int) -> None:
    """Refuse anything but integers (..., N) within a table of ``size`` rows."""
    if not isinstance(tokens, Tensor) or tokens.dtype not in (torch.int32, torch.int64) or tokens.dim() < 1:
        raise ShapeError(f"{name} must be an int64 or int32 tensor (..., nodes), got {shown(tokens)}")
    bad = outside(tokens, size) if can_read_values(tokens) else ""
    if bad:
        raise PositionIndexError(f"{name} must be in [0, {size}), the rows of the table; got {bad}")


def padding_bias(graph: Any, lengths: Tensor, x: Tensor) -> Tensor:
    """Biases (..., E, 1) that remove the edges from sources beyond the lengths (...)."""
    edges: AttentionGraph = graph.union() if isinstance(graph, PerHead | Chosen) else graph
    if not isinstance(lengths, Tensor) or lengths.dtype == torch.bool:
        raise ShapeError(f"lengths must be a tensor of whole numbers, one for each example, got {shown(lengths)}")
    padding = edges.source.to(x.device) >= lengths.to(x.device).unsqueeze(-1)
    return x.new_zeros(padding.shape).masked_fill(padding, -torch.inf).unsqueeze(-1)


def memory_up_to(
    lengths: Tensor | None, memory: Tensor | list[KeyValueCache], graph: Graph | None, x: Tensor
) -> tuple[Graph | None, Tensor | None]:
    """The graph from a memory to ``x`` (..., T, C), and its biases; unchanged without lengths."""
    if lengths is None:
        return graph, None
    key = memory[0].key if isinstance(memory, list) else memory.unsqueeze(-2)
    graph = sized(EVERY if graph is None else graph, x.unsqueeze(-2), key)
    return graph, padding_bias(graph, lengths, x)
