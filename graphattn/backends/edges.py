"""Fused kernels over edges: the cost of a sparse graph is that of its edges."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.modes import constant_result, plain_operations_only, without_autocast
from ..kernels.bytes_moved import Sizes, forward, kept
from ..operands import Inputs, Outputs
from ..plans.cache import cached
from ..plans.edge_tensors import EdgeTensors
from ..plans.grouped import (
    by_source,
    by_target,
    distance,
    effective_edges,
    order,
    rows_by_source,
    rows_by_target,
)
from .base import Backend
from .device import without_kernels
from .request import Request, edges_too_many, flat_batch, flat_batch_of_edges
from .scored import BLOCK, PER_NODE, scored_run, total_of

SCORED = 6  # measured: time of an additive score over that of a product; other functions take more
# measured: time of a step on relabelled nodes over reordered rows; a mesh of 40,962, 16,384 points
RELABELLED = 0.6
# measured: time per edge over that of softmax, forward and backward, windows of 65 to 1,024
NORMALIZED = 3.4
LARGE = 1 << 28  # bytes kept for a backward from which a note says what needs less


class EdgesBackend(Backend):
    """One pass over the edges of each target, and in the backward one more over those of each
    source.

    Numba on the CPU, Triton on CUDA.
    """

    name = "edges"
    call_ms = 0.2
    training_factor = 3.3
    ns = {"edge": 0.027}
    # 2.5 TB a second, the bandwidth of caches and memory together
    cuda = {
        "call_ms": 0.1,
        "byte": 4e-4,
    }
    lists_edges = True

    def reasons_against(self, graph: AttentionGraph, request: Request) -> list[str]:
        return edges_too_many(graph) or without_kernels(request.device)

    def notes(self, graph: AttentionGraph, request: Request) -> list[str]:
        of_nodes, of_edges = kept(
            sizes(request, graph.num_edges, graph.num_targets, graph.num_sources), request.softcap
        )
        remarks = []
        if of_nodes + of_edges >= LARGE:
            remarks.append(
                f"to train, a call keeps {of_nodes / 1e9:.2f} GB of queries, keys and values and "
                f"{of_edges / 1e9:.2f} GB of weights for its backward: "
                "torch.utils.checkpoint.checkpoint(layer, x, "
                "graph, use_reentrant=False) keeps x alone, and autocast to bfloat16 half of the "
                "first"
            )
        nodes = order(graph)
        if nodes is None:
            return remarks
        if request.device.type == "cpu":
            reordered = "rows run in that order from the second call on; "
        else:
            reordered = ""
        before, after = (f"{distance(graph, at):,.0f}" for at in (None, nodes.argsort()))
        return [
            *remarks,
            f"the mean distance from a node to its sources is {before}, and {after} after "
            "graph.relabelled(): "
            f"{reordered}relabelled, a step takes about {RELABELLED} of that on the CPU",
        ]

    def bytes_needed(self, graph: AttentionGraph, request: Request) -> int:
        wide = torch.finfo(request.statistics).bits // 8
        numbers = (request.normalize | request.score) * 4 * request.heads * graph.num_edges
        if request.score:
            block = min(
                graph.num_edges, max(BLOCK, PER_NODE * max(graph.num_targets, graph.num_sources))
            )
            numbers += 4 * request.heads * request.head_dim * block
        return 8 * graph.num_edges + 8 * graph.num_targets + request.batch * numbers * wide

    def work(self, graph: AttentionGraph, request: Request) -> tuple[str, float]:
        """Edges; those of short rows, and those with a custom score or normalisation, count more.

        On CUDA the bytes that the kernels move, for each number of a pair.
        """
        more = 1.0
        if request.normalize:
            more = NORMALIZED
        if request.score:
            more = SCORED
        if request.device.type != "cuda":
            return "edge", effective_edges(graph.num_edges, graph.num_targets) * more
        moved = sum(forward(sizes(request, graph.num_edges, graph.num_targets, graph.num_sources)))
        return "byte", moved * more / max(1, request.floats_per_pair)

    def problems(self) -> list[tuple[AttentionGraph, dict[str, Any]]]:
        """A window, its edges listed."""
        from ..graphs import sliding_window

        return [(sliding_window(8192, 65, causal=False).materialise(), {})]

    def run(
        self, graph: AttentionGraph, inputs: Inputs, *, weights: bool = False, lse: bool = False
    ) -> Outputs:
        with without_autocast(inputs.query.device.type):
            needs_scores = _needs_scores(inputs)
            if weights:
                needs_scores |= inputs.tracks_weights
            if not needs_scores:
                return edges_run(graph, inputs, weights, lse)
            if _is_transformed():
                # imported late: the order of imports is that of backends
                from .message_passing import attend

                return attend(graph, inputs)
            return scored_run(graph, inputs)


def _needs_scores(inputs: Inputs) -> bool:
    """True if the fused kernels lack an option of the call, so that scores are computed beside its
    sums.
    """
    if inputs.normalize is not None or inputs.score is not None:
        return True
    if inputs.edge_attr is not None and inputs.edge_weight is None:
        return True
    return Request.of(inputs).cap_bias


def sizes(request: Request, edges: int, targets: int, sources: int) -> Sizes:
    """The sizes of a call, for :mod:`graphattn.kernels.bytes_moved`; edge features count as a tenth
    of a head.
    """
    nodes = (request.heads, request.kv_heads, request.head_dim, request.value_dim)
    number, wide = (torch.finfo(x).bits // 8 for x in (request.dtype, request.statistics))
    features = max(1, request.head_dim // 10) * request.edge_features
    return Sizes(
        request.batch, targets, sources, edges, *nodes, number, wide, features, request.score_bias
    )


class _Operands(NamedTuple):
    """Operands of the kernels, with one batch axis."""

    query: Tensor  # (B, T, H, D)
    key: Tensor  # (B, S, H_kv, D)
    value: Tensor  # (B, S, H_kv, D_v)
    bias: Tensor | None  # (1 or B, E, H or 1)
    attr: Tensor | None  # (1 or B, E, F)
    attr_query: Tensor | None  # (B, T, H, F), by which features count in the scores


class _Sums(NamedTuple):
    """What the kernels give, with one batch axis."""

    output: Tensor  # (B, T, H, D_v)
    lse: Tensor  # (B, T, H)
    alpha: Tensor  # (B, E, H)
    attr: Tensor  # (B, T, H, F), the weighted sum of features


def edges_run(
    graph: AttentionGraph | EdgeTensors, inputs: Inputs, weights: bool, lse: bool
) -> Outputs:
    """Attention on a graph, or on edges that are inputs of a compiled program."""
    operands, projection = _folded(inputs)
    sums = _sums(graph, inputs, operands, weights, lse)
    output = sums.output
    if projection is not None and inputs.edge_to != "key":
        output = output + torch.einsum("bthf,hdf->bthd", sums.attr, projection)
    lead = inputs.query.shape[:-3]
    found = Outputs(_unfolded(output, lead).to(inputs.query.dtype))
    if lse:
        found = replace(found, lse=_unfolded(sums.lse, lead))
    if not weights:
        return found
    found = replace(found, alpha=_unfolded(sums.alpha, lead))
    if torch.compiler.is_compiling() or plain_operations_only():
        return found  # there nothing computes the output again
    return replace(found, total=total_of(graph, inputs))


def _folded(inputs: Inputs) -> tuple[_Operands, Tensor | None]:
    """The operands of the kernels, and the projection (H, D, F) of edge features.

    <q, W a> = <W' q, a>, so that an edge costs F numbers and not H * D.
    """
    lead = inputs.query.shape[:-3]
    wide = inputs.statistics
    query, key, value = (flat_batch(x) for x in (inputs.query, inputs.key, inputs.value))
    bias = flat_batch_of_edges(inputs.score_bias, lead, wide)
    attr = flat_batch_of_edges(inputs.edge_attr, lead, wide)
    if attr is not None and query.device.type == "cpu":
        query, key, value = (x.to(wide) for x in (query, key, value))
    if inputs.edge_weight is None:
        return _Operands(query, key, value, bias, attr, None), None
    group = query.shape[2] // max(1, key.shape[2])
    projection = inputs.edge_weight.to(wide).repeat_interleave(group, 0)
    attr_query = torch.einsum("bthd,hdf->bthf", query.to(wide), projection)
    if inputs.edge_to == "value":
        attr_query = torch.zeros_like(attr_query)
    return _Operands(query, key, value, bias, attr, attr_query), projection


def _sums(
    graph: AttentionGraph | EdgeTensors,
    inputs: Inputs,
    operands: _Operands,
    weights: bool,
    lse: bool,
) -> _Sums:
    """The kernels' sums; in plain operations where there are no kernels, or they are transformed."""
    from ..kernels.edges_op import attend, plain  # registering operators is slow

    device = operands.query.device
    softcap = inputs.softcap
    if softcap is None:
        softcap = 0.0
    seed = None
    if inputs.dropout_p > 0.0:
        seed = graph.agreed(torch.randint(2**63 - 1, (), device=device))
    options: tuple[Any, ...] = (inputs.scale, softcap, inputs.dropout_p, seed)
    # an edge without features is its row, and dropout then hashes the edge's own number
    named = seed is not None and _is_bare(operands, weights)
    if not _fused(device) or _is_transformed():
        layout = _layout(graph, device, False, named)
        of_targets: tuple[Any, ...] = layout[:4]
        return _Sums(*plain(*operands, *of_targets, *options))
    tracked = _is_tracked(operands)
    layout = _layout(graph, device, tracked, named)
    *sums, _ = attend(*operands, *layout, *options, weights, lse, tracked=tracked)
    return _Sums(*sums)


def _is_tracked(operands: _Operands) -> bool:
    """True if autograd records a call."""
    if not torch.is_grad_enabled():
        return False
    present = [x for x in operands if x is not None]
    return any(x.requires_grad for x in present)


def _is_bare(operands: _Operands, weights: bool) -> bool:
    """True if nothing of a call is in the order of edges."""
    if operands.bias is not None or operands.attr is not None:
        return False
    return not weights


def _is_transformed() -> bool:
    """True under torch.func outside a compiled program, where a kernel has no rule."""
    return plain_operations_only() and not torch.compiler.is_compiling()


def _unfolded(x: Tensor, lead: torch.Size) -> Tensor:
    """(..., N, H, D) of (B, N, H, D)."""
    if len(lead) == 1:
        return x
    return x.reshape(lead + x.shape[1:])


@constant_result
def _fused(device: torch.device) -> bool:
    return device.type == "cpu" or not without_kernels(device)


def _layout(
    graph: AttentionGraph | EdgeTensors, device: torch.device, tracked: bool, named: bool
) -> tuple[Tensor | None, ...]:
    if isinstance(graph, EdgeTensors):
        ptr, index, edge, order = graph._by_target
        if named and graph.names is not None:
            edge = graph.names
        return ptr, index, edge, order, *(graph._by_source if tracked else (None,) * 4)
    return constant_layout(graph, device, tracked)


@constant_result
def constant_layout(
    graph: AttentionGraph, device: torch.device, tracked: bool
) -> tuple[Tensor | None, ...]:
    """The edges of a graph by target and, for gradients, by source.

    A constant of compiled code, guarded by the graph's identity. On the CPU an order of the rows is
    computed at the second call, so that a graph used once does not pay for it.
    """
    from ..kernels import edges_op  # noqa: F401 (compiled code finds its operators registered)

    if device.type != "cpu":
        return *by_target(graph, device), *(by_source(graph, device) if tracked else (None,) * 4)
    call = object()
    first = cached(graph, "first call of the edge kernels", lambda: call) is call
    if first:
        targets = by_target
        sources = by_source
    else:
        targets = rows_by_target
        sources = rows_by_source
    return *targets(graph), *(sources(graph) if tracked else (None,) * 4)
