"""Sources of several lengths in one batch: biases that remove the edges from padding."""

from typing import Any

import torch
from torch import Tensor

from ..arguments import shown
from ..errors import ShapeError
from ..graph import AttentionGraph, PerHead
from ..graph.chosen import Chosen
from ..graph.pattern import sized
from ..nn import KeyValueCache
from ..nn.blocks import EVERY, Graph


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
