"""The origin of a NaN or an infinity: the node or edge that has it, before attention spreads it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..backends.inputs import inputs_of
from ..graph import AttentionGraph, PerHead
from ..graph.like import need_fixed
from ..operands import Inputs

_EDGES_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Nonfinite:
    """One node or edge with numbers that are not finite; made to be printed."""

    what: str  # "query", "key", "value", "score_bias" or "score"
    number: int  # index of the target, the source or the edge
    ends: tuple[int, int] | None  # source and target of an edge
    value: float  # the first such number
    count: int  # number of such numbers
    spoils: int  # number of targets that read it

    def __str__(self) -> str:
        side = {"query": "target", "key": "source", "value": "source"}.get(self.what, "edge")
        if self.ends is None:
            place = f"{side} {self.number}"
        else:
            place = f"edge {self.number} ({self.ends[0]} -> {self.ends[1]})"
        if self.count == 1:
            numbers = f"{self.value}"
        else:
            numbers = f"{self.value} and {self.count - 1} more"
        if self.spoils == 0:
            readers = "no targets"
        elif self.spoils == 1:
            readers = "1 target"
        else:
            readers = f"{self.spoils} targets"
        return f"{self.what} of {place} is {numbers}: read by {readers}"


def find_nonfinite(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: AttentionGraph | PerHead,
    score_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> list[Nonfinite]:
    """The nodes and edges whose numbers are NaN or infinite, or whose score overflows.

    The list is empty if all are finite. A ``score_bias`` of -inf removes an edge, and is no fault.
    One sum per tensor shows that it is finite; edges are examined only if every node is.

    Args:
        query: As in :func:`graphattn.attention`, like the others.

    Returns:
        One entry per node or edge: queries, keys, values, biases, then scores.

    Example:
        >>> import graphattn as ga
        >>> x = torch.ones(3, 1, 2)
        >>> value = x.clone()
        >>> value[1, 0, 0] = torch.nan
        >>> print(*find_nonfinite(x, x, value, ga.graphs.causal(3)))
        value of source 1 is nan: read by 2 targets
    """
    need_fixed(graph, "graph must be an AttentionGraph or a PerHead")
    inputs = inputs_of(query, key, value, graph, score_bias, scale, softcap)
    inputs = inputs.with_tensors(graph.union())
    inputs = graph._call_on_union(inputs)
    graph = graph.union()
    sides = (("query", query, (graph.in_degree > 0).long()), ("key", key, graph.out_degree))
    result = []
    for name, x, readers in (*sides, ("value", value, graph.out_degree)):
        dtype = None
        if x.element_size() < 4:
            dtype = torch.float32
        if bool(torch.isfinite(x.sum(dtype=dtype))):
            finite = True
        else:
            finite = bool(torch.isfinite(x).all())
        if not finite:
            result += _entries(name, ~torch.isfinite(x), x, -3, readers)
    bias = inputs.score_bias
    if bias is not None:
        wrong = torch.isnan(bias) | (bias == torch.inf)
        result += _entries("score_bias", wrong, bias, -2, None, graph)
    if result:
        return result
    return _overflowing(inputs, graph)


def _overflowing(inputs: Inputs, graph: AttentionGraph) -> list[Nonfinite]:
    """Edges whose score is not finite although all of its inputs are."""
    dtype = inputs.statistics
    group = inputs.query.shape[-2] // max(1, inputs.key.shape[-2])
    result = []
    edges = graph._listed()
    for first in range(0, graph.num_edges, _EDGES_AT_ONCE):
        target, source = (x[first : first + _EDGES_AT_ONCE] for x in (edges.target, edges.source))
        query = inputs.query[..., target, :, :].to(dtype)
        key = inputs.key[..., source, :, :].to(dtype)
        score = (query * key.repeat_interleave(group, -2)).sum(-1) * inputs.scale
        if inputs.softcap is not None:
            score = inputs.softcap * torch.tanh(score / inputs.softcap)
        if inputs.score_bias is not None:
            bias = inputs.score_bias[..., first : first + _EDGES_AT_ONCE, :].to(dtype)
            score = (score + bias).masked_fill(bias == -torch.inf, 0.0)
        result += _entries("score", ~torch.isfinite(score), score, -2, None, graph, first)
    return result


def _entries(
    name: str,
    wrong: Tensor,
    x: Tensor,
    axis: int,
    readers: Tensor | None,
    graph: AttentionGraph | None = None,
    first: int = 0,
) -> list[Nonfinite]:
    """An entry for each index along ``axis`` with a number that is not finite."""
    wrong, x = (y.movedim(axis, 0).flatten(1) for y in (wrong, x))
    result = []
    for place in torch.nonzero(wrong.any(1)).flatten().tolist():
        numbers = x[place][wrong[place]]
        number = first + place
        if graph is None:
            ends = None
        else:
            ends = (int(graph._listed().source[number]), int(graph._listed().target[number]))
        if readers is None:
            spoils = 1
        else:
            spoils = int(readers[place])
        result.append(Nonfinite(name, number, ends, float(numbers[0]), numbers.numel(), spoils))
    return result
