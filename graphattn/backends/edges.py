"""Fused kernels over edges: the cost of a sparse graph is that of its edges."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.modes import constant_result, plain_operations_only, without_autocast
from ..kernels.cuda.bytes_moved import Sizes, bytes_kept, forward
from ..kernels.modes import is_transformed
from ..operands import Inputs, Outputs, are_tracked
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
from .request import Request, edges_too_many, flat_batch, flat_batch_of_edges, with_lead
from .scored import BLOCK, PER_NODE, scored_run, total_of

SCORED = 6  # measured: time of an additive score over that of a product; other functions take more
# measured: time of a step on relabelled nodes over reordered rows; a mesh of 40,962, 16,384 points
RELABELLED = 0.6
# measured: time per edge over that of softmax, forward and backward, windows of 65 to 1,024
NORMALIZED = 4.2
# measured: numbers of a key and value that take as long as the bias of an edge, forward
BIASED = 64
# measured: time per edge where the sources of a row do not fit into a core's first cache
DISTANT = 1.5
FIRST_CACHE = 48 << 10
LARGE = 1 << 28  # bytes kept for a backward from which a note says what needs less


class EdgesBackend(Backend):
    """One pass over the edges of each target; in the backward, another over those of each source.

    Machine code by LLVM on the CPU, Triton on CUDA.
    """

    name = "edges"
    call_ms = 0.1
    training_factor = 3.4
    biased_training = 1.7
    ns = {"edge": 0.025}
    least_width = {"edge": 12}
    cuda = {"call_ms": 0.1, "byte": 4e-4}  # 2.5 TB a second: caches and memory together
    lists_edges = True

    def reasons_against(self, graph: AttentionGraph, request: Request) -> list[str]:
        reasons = edges_too_many(graph)
        if reasons:
            return reasons
        return without_kernels(request.device)

    def notes(self, graph: AttentionGraph, request: Request) -> list[str]:
        call = sizes(request, graph.num_edges, graph.num_targets, graph.num_sources)
        of_nodes, of_edges = bytes_kept(call, request.softcap)
        remarks = []
        if of_nodes + of_edges >= LARGE:
            remarks.append(
                f"to train, a call keeps {of_nodes / 1e9:.2f} GB of queries, keys and values and "
                f"{of_edges / 1e9:.2f} GB of weights for its backward: "
                "torch.utils.checkpoint.checkpoint(layer, x, graph, use_reentrant=False) keeps x "
                "alone, and autocast to bfloat16 half of the first"
            )
        if request.device.type == "cuda":
            # imported late: only a GPU needs it
            from .tiles.compacted import notes_of_others

            remarks += notes_of_others(graph, request)
        nodes = order(graph)
        if nodes is None:
            return remarks
        if request.device.type == "cpu":
            reordered = "rows run in that order from the second call on; "
        else:
            reordered = ""
        before = distance(graph)
        after = distance(graph, nodes.argsort())
        return [
            *remarks,
            f"the mean distance from a node to its sources is {before:,.0f}, and {after:,.0f} "
            f"after graph.reordered(): {reordered}relabelled, a step takes about {RELABELLED} of "
            "that on the CPU",
        ]

    def bytes_needed(self, graph: AttentionGraph, request: Request) -> int:
        itemsize = torch.finfo(request.statistics).bits // 8
        numbers = 0
        if request.is_custom:
            numbers = 4 * request.heads * graph.num_edges
        if request.score:
            nodes = max(graph.num_targets, graph.num_sources)
            block = min(graph.num_edges, max(BLOCK, PER_NODE * nodes))
            numbers += 4 * request.heads * request.head_dim * block
        return 8 * graph.num_edges + 8 * graph.num_targets + request.batch * numbers * itemsize

    def work(self, graph: AttentionGraph, request: Request) -> tuple[str, float]:
        """Edges; those of short rows, and those with a custom score or normalisation, count more.

        On CUDA the bytes that the kernels move, for each number of a pair.
        """
        factor = 1.0
        if request.score:
            factor = SCORED
        elif request.normalize:
            factor = NORMALIZED
        if request.device.type != "cuda":
            numbers = max(1, request.head_dim + request.value_dim)
            if request.score_bias:
                factor *= 1.0 + BIASED / numbers
            if 4 * numbers * graph.num_edges > FIRST_CACHE * graph.num_targets:
                factor *= DISTANT
            return "edge", effective_edges(graph.num_edges, graph.num_targets) * factor
        moved_bytes = sum(
            forward(sizes(request, graph.num_edges, graph.num_targets, graph.num_sources))
        )
        return "byte", moved_bytes * factor / max(1, request.floats_per_pair)

    def problems(self) -> list[tuple[AttentionGraph, dict[str, Any]]]:
        """A window, its edges listed."""
        from ..graphs import sliding_window

        return [(sliding_window(8192, 65, causal=False).materialise(), {})]

    def run(
        self, graph: AttentionGraph, inputs: Inputs, *, weights: bool = False, lse: bool = False
    ) -> Outputs:
        request = Request.of(inputs, weights, lse)
        with without_autocast(inputs.query.device.type):
            if not _needs_scores(inputs, request):
                return edges_run(graph, inputs, request)
            if _is_in_functorch():
                # imported late: the order of imports is that of backends
                from .message_passing import attend

                return attend(graph, inputs)
            return scored_run(graph, inputs)


def _needs_scores(inputs: Inputs, request: Request) -> bool:
    """True if scores are computed beside sums: the fused kernels lack an option of the call."""
    if request.is_custom or request.cap_bias:
        return True
    if request.weights and inputs.tracks_weights:
        return True
    return request.edge_features and inputs.edge_weight is None


def _is_in_functorch() -> bool:
    """True under torch.func or forward-mode derivatives, but not in compiled code."""
    return not torch.compiler.is_compiling() and plain_operations_only()


def sizes(request: Request, edges: int, targets: int, sources: int) -> Sizes:
    """The sizes of a call for :mod:`graphattn.kernels.cuda.bytes_moved`.

    Edge features count as a tenth of a head.
    """
    nodes = (request.heads, request.kv_heads, request.head_dim, request.value_dim)
    itemsize, statistics_itemsize = (
        torch.finfo(x).bits // 8 for x in (request.dtype, request.statistics)
    )
    features = max(1, request.head_dim // 10) * request.edge_features
    return Sizes(
        request.batch,
        targets,
        sources,
        edges,
        *nodes,
        itemsize,
        statistics_itemsize,
        features,
        request.score_bias,
    )


class _Operands(NamedTuple):
    """The tensors of a call with one dimension for the batch, in the order of the operators."""

    query: Tensor  # (B, T, H, D)
    key: Tensor  # (B, S, H_kv, D)
    value: Tensor  # (B, S, H_kv, D_v)
    bias: Tensor | None  # (1 or B, E, 1 or H)
    edge_attr: Tensor | None  # (1 or B, E, F)
    edge_weight: Tensor | None  # (H, D, F), the projection of edge features


class _Options(NamedTuple):
    """The numbers of a call, in the order of the operators."""

    scale: float
    softcap: float  # 0 for none
    dropout_p: float
    edge_to: str  # what edge features are added to
    seed: Tensor | None


class _Sums(NamedTuple):
    """The results of the operators; weights and lse are empty unless requested."""

    output: Tensor  # (B, T, H, D_v)
    lse: Tensor  # (B, T, H)
    alpha: Tensor  # (B, E, H)


def edges_run(graph: AttentionGraph | EdgeTensors, inputs: Inputs, request: Request) -> Outputs:
    """Attention on a graph, or on edges that are inputs of a compiled program."""
    operands = _operands(inputs, request)
    options = _options(graph, inputs, request)
    sums = _sums(graph, operands, options, request)
    lead = inputs.query.shape[:-3]
    output = with_lead(sums.output, lead).to(request.dtype)
    alpha = None
    total = None
    log_sum = None
    if request.weights:
        alpha = with_lead(sums.alpha, lead)
        if not is_transformed():
            total = total_of(graph, inputs)
    if request.lse:
        log_sum = with_lead(sums.lse, lead)
    return Outputs(output, alpha, log_sum, total)


def _operands(inputs: Inputs, request: Request) -> _Operands:
    """The operands of a call; those of edges in the dtype of sums, and on the CPU nodes with them.

    The kernels of a GPU read halves as they are.
    """
    lead = inputs.query.shape[:-3]
    query = flat_batch(inputs.query)
    key = flat_batch(inputs.key)
    value = flat_batch(inputs.value)
    statistics = request.statistics
    on_gpu = query.device.type != "cpu"
    bias = flat_batch_of_edges(inputs.score_bias, lead, statistics, halves=on_gpu)
    attr = flat_batch_of_edges(inputs.edge_attr, lead, statistics, halves=on_gpu)
    if attr is not None and not on_gpu:
        query = query.to(statistics)
        key = key.to(statistics)
        value = value.to(statistics)
    weight = inputs.edge_weight
    if weight is not None and request.heads != request.kv_heads:
        group = request.heads // max(1, request.kv_heads)
        weight = weight.to(statistics).repeat_interleave(group, 0)
    return _Operands(query, key, value, bias, attr, weight)


def _options(graph: AttentionGraph | EdgeTensors, inputs: Inputs, request: Request) -> _Options:
    """The numbers of a call, with a seed for dropout that all processes of a graph share."""
    seed = None
    if request.dropout:
        seed = graph._shared_seed(torch.randint(2**63 - 1, (), device=request.device))
    softcap = inputs.softcap
    if softcap is None:
        softcap = 0.0
    return _Options(inputs.scale, softcap, inputs.dropout_p, inputs.edge_to, seed)


def _sums(
    graph: AttentionGraph | EdgeTensors, operands: _Operands, options: _Options, request: Request
) -> _Sums:
    """The weighted sums by the fused kernels, or by plain operations where these cannot run."""
    from ..kernels.softmax.operator import attend, plain  # registering operators is slow

    device = operands.query.device
    # dropout hashes the number of an edge, which is also its row in tensors of edges
    needs_names = request.dropout and not (request.weights or request.has_edge_tensors)
    if _is_in_functorch() or not _has_kernels(device):
        layout = _layout(graph, device, False, needs_names)
        arguments: tuple[Any, ...] = (*operands, *layout[:4], *options)
        return _Sums(*plain(*arguments))
    tracked = are_tracked(*operands)
    layout = _layout(graph, device, tracked, needs_names)
    results = attend(*operands, *layout, *options, request.weights, request.lse, tracked=tracked)
    return _Sums(*results[:3])


@constant_result
def _has_kernels(device: torch.device) -> bool:
    return device.type == "cpu" or not without_kernels(device)


_NO_SOURCES = (None,) * 4  # the edges by source of a call without gradients


def _layout(
    graph: AttentionGraph | EdgeTensors, device: torch.device, tracked: bool, needs_names: bool
) -> tuple[Tensor | None, ...]:
    if not isinstance(graph, EdgeTensors):
        return constant_layout(graph, device, tracked)
    ptr, index, edge, order = graph._by_target
    if needs_names and graph.names is not None:
        edge = graph.names
    if tracked:
        return ptr, index, edge, order, *graph._by_source
    return ptr, index, edge, order, *_NO_SOURCES


@constant_result
def constant_layout(
    graph: AttentionGraph, device: torch.device, tracked: bool
) -> tuple[Tensor | None, ...]:
    """The edges of a graph by target and, for gradients, by source.

    A constant of compiled code, guarded by the graph's identity. On the CPU an order of the rows is
    computed at the second call, so that a graph used once does not pay for it.
    """
    from ..kernels.softmax import operator as edges_op  # noqa: F401 (compiled code finds its operators registered)

    if device.type != "cpu":
        targets = by_target(graph, device)
        if tracked:
            return *targets, *by_source(graph, device)
        return *targets, *_NO_SOURCES
    call = object()
    is_first = cached(graph, "first call of the edge kernels", lambda: call) is call
    if is_first:
        layouts = (by_target, by_source)
    else:
        layouts = (rows_by_target, rows_by_source)
    targets = layouts[0](graph)
    if tracked:
        return *targets, *layouts[1](graph)
    return *targets, *_NO_SOURCES
