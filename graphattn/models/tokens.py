"""Tokens, lengths, and biases that remove the edges from padding."""

from typing import Any

import torch
from torch import Tensor

from ..arguments import check_range, check_shape, integers
from ..errors import OptionError, PositionIndexError, ShapeError
from ..graph import AttentionGraph
from ..graph.like import GraphLike, sized
from ..kernels.modes import can_read_values
from ..nn import KeyValueCache
from ..nn.blocks import EVERY, Graph


def check_lengths(lengths: Any, source: Tensor, graph: Any = None) -> None:
    """Check the numbers of valid tokens of sequences (..., S), of which a shard has a part."""
    longest = source.shape[-1]
    shape = tuple(source.shape[:-1])
    if isinstance(graph, GraphLike) and graph.positions is not None:
        longest = graph._whole_graph.num_sources
    check_shape(lengths, "lengths", shape)
    if can_read_values(lengths):
        lengths = integers(lengths, "lengths", f"{shape}", ShapeError)
        check_range(lengths, "lengths", longest + 1, ", of the tokens", ShapeError, first=1)


def check_tokens(name: str, tokens: Any, size: int) -> None:
    """Refuse anything but integers (..., N) within a table of ``size`` rows."""
    if can_read_values(tokens):
        check_range(tokens, name, size, ", the rows of the table", PositionIndexError)


def padding_bias(graph: Any, lengths: Tensor, x: Tensor) -> Tensor:
    """Biases (..., E, 1) that remove the edges from sources beyond the lengths (...)."""
    edges: AttentionGraph = graph._whole_graph
    padding = edges.source.to(x.device) >= graph._spread_to_edges(lengths.to(x.device))
    return x.new_zeros(padding.shape).masked_fill(padding, -torch.inf).unsqueeze(-1)


def positions_of(graph: Any, past: range, x: Tensor) -> Tensor | None:
    """Positions of cached tokens and of ``x`` (..., N), or None where they count from 0.

    ``past`` tokens are cached, or a shard has some of the nodes.
    """
    of_shard = None
    if isinstance(graph, GraphLike):
        of_shard = graph.positions
    if of_shard is not None and past.start:
        raise OptionError("positions must be passed to a shard whose cache has dropped tokens")
    if of_shard is not None:
        return of_shard[1].to(x.device)  # new tokens are the last sources
    if past.stop:
        return torch.arange(past.start, past.stop + x.shape[-1], device=x.device)
    return None


def memory_up_to(
    lengths: Tensor | None, memory: Tensor | list[KeyValueCache], graph: Graph | None, x: Tensor
) -> tuple[Graph | None, Tensor | None]:
    """The graph from a memory to ``x`` (..., T, C), and its biases; unchanged without lengths."""
    if lengths is None:
        return graph, None
    key: Any = memory
    if isinstance(memory, list):
        key = memory[0].key
    else:
        key = memory.unsqueeze(-2)
    if graph is None:
        graph = EVERY
    graph = sized(graph, x.unsqueeze(-2), key)
    return graph, padding_bias(graph, lengths, x)
