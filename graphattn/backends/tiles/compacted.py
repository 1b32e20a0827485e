"""Tiles of consecutive targets with their distinct sources, on CUDA: neighbours along a curve.

It is used only if ``graphattn doctor --calibrate --device cuda`` has compared it with plain
attention on that device, and measured it.
"""

import torch
from torch import Tensor

from ...graph import AttentionGraph
from ...operands import Inputs, Outputs, are_tracked
from ...plans.compacted import (
    Compacted,
    edges_of_rows,
    reuse,
    reuse_of_sources,
    tiles_of_sources,
    tiles_of_targets,
)
from ...plans.grouped import by_target
from ..device import without_kernels
from ..request import (
    Request,
    edges_too_many,
    flat_batch,
    flat_batch_of_edges,
    reasons_against_products,
    with_lead,
)

WIDEST = 1 << 12  # columns of a tile, which one program reads: the others are done before
MOST_READ = 256  # sources of a target in the mean: tiles of more are full enough for other kernels
WIDEST_HEAD = 128  # for which blocks fit registers and shared memory


def reasons_against(graph: AttentionGraph, request: Request) -> list[str]:
    """Reasons why tiles with compacted sources do not run a call."""
    reasons = reasons_against_products(request)
    if request.normalize:
        reasons.append("a tile with compacted sources supports softmax only")
    if graph.has_repeated_edges:
        reasons.append("edges are repeated, and a bit holds each pair once")
    if request.device.type != "cuda":
        reasons.append(
            f"compacted sources are for tensor cores, and the tensors are on {request.device}"
        )
    if max(request.head_dim, request.value_dim) > WIDEST_HEAD:
        widths = f"{request.head_dim} and {request.value_dim}"
        reasons.append(
            f"compacted sources are for heads of a width up to {WIDEST_HEAD}, got {widths}"
        )
    reasons += edges_too_many(graph)
    mean = graph.num_edges / max(1, graph.num_targets)
    if mean > MOST_READ:
        reasons.append(f"a target reads {mean:,.0f} sources in the mean, over {MOST_READ}")
    if not reasons:
        reasons += without_kernels(request.device)
    if reasons:
        return reasons
    return _hubs(graph)


def _hubs(graph: AttentionGraph) -> list[str]:
    """The reason against a graph of which one tile is far wider than the others."""
    if graph.num_edges == 0:
        return []
    widest = max(int(graph.in_degree.max()), int(graph.out_degree.max()))
    if widest <= WIDEST:
        widest = max(reuse(graph).widest, reuse_of_sources(graph).widest)
    if widest <= WIDEST:
        return []
    return [f"a tile would have {widest:,} columns, and the program for it takes {WIDEST:,}"]


def note(graph: AttentionGraph) -> str:
    """The reuse of sources, in words."""
    edges = graph.num_edges / max(1, reuse(graph).columns)
    return (
        f"consecutive targets share sources: tiles of {reuse(graph).rows} targets with compacted "
        f"sources read one for {edges:.1f} edges"
    )


def notes_of_others(graph: AttentionGraph, request: Request) -> list[str]:
    """Notes on a call on CUDA that runs otherwise: the reuse, or the reason against such tiles."""
    reasons = reasons_against(graph, request)
    if reasons:
        return [f"no tiles with compacted sources: {reasons[0]}"]
    return [note(graph)]


def work(graph: AttentionGraph) -> float:
    """The cost in rows that are read."""
    return reuse(graph).cost(graph.num_targets)


def bytes_needed(graph: AttentionGraph, request: Request) -> int:
    """Approximate bytes of the lse and of the tables of columns."""
    itemsize = torch.finfo(request.statistics).bits // 8
    lse = request.batch * graph.num_targets * request.heads * itemsize
    return lse + 12 * reuse(graph).columns


def trials() -> list[AttentionGraph]:
    """Graphs along a curve: cells with their neighbours, and a mesh of several scales."""
    from ...graphs import grid_neighbourhood, icosphere
    from ...graphs.mesh.icosphere import icosphere_mesh
    from ...graphs.points.curves import curve_order

    cells = torch.cartesian_prod(*[torch.arange(16.0)] * 3)
    near = grid_neighbourhood((16, 16, 16), (3, 3, 3), causal=False)
    mesh = icosphere(4)
    return [
        graph.relabel(curve_order(pos, "hilbert").argsort())
        for graph, pos in ((near, cells), (mesh, icosphere_mesh(4).pos))
    ]


def compacted_run(graph: AttentionGraph, inputs: Inputs, lse: bool) -> Outputs:
    """Attention on a graph without repeated edges."""
    device = inputs.query.device
    sources = None
    if are_tracked(inputs.query, inputs.key, inputs.value, inputs.score_bias):
        sources = tiles_of_sources(graph, device)
    edges: tuple[Tensor | None, ...] | None = None
    seed = None
    if inputs.score_bias is not None or inputs.dropout_p > 0:
        into = by_target(graph, device)
        edges = into.ptr, into.edge, None, None
        if sources is not None:
            edges = edges_of_rows(graph, device)
    if inputs.dropout_p > 0:
        seed = graph._shared_seed(torch.randint(2**63 - 1, (), device=device))
    return run_on(tiles_of_targets(graph, device), sources, edges, seed, inputs, lse)


def run_on(
    targets: Compacted,
    sources: Compacted | None,
    edges: tuple[Tensor | None, ...] | None,
    seed: Tensor | None,
    inputs: Inputs,
    lse: bool = False,
) -> Outputs:
    """Attention on tiles of targets and, for gradients, those of sources.

    A bias and dropout need the edges of the rows, and dropout a seed.
    """
    from ...kernels.tiles.operator import attend  # registering operators is slow

    lead = inputs.query.shape[:-3]
    nodes = [flat_batch(x) for x in (inputs.query, inputs.key, inputs.value)]
    bias = flat_batch_of_edges(inputs.score_bias, lead, inputs.statistics)
    softcap = 0.0
    if inputs.softcap is not None:
        softcap = inputs.softcap
    tables = (*targets, *(sources or _NO_SOURCES), *(edges or _NO_EDGES))
    arguments = (*nodes, bias, *tables, inputs.scale, softcap, inputs.dropout_p, seed)
    output, log_sum = attend(*arguments, tracked=sources is not None)
    output = with_lead(output, lead)
    if not lse:
        return Outputs(output)
    return Outputs(output, None, with_lead(log_sum, lead))


_NO_SOURCES = (0, None, None, None)
_NO_EDGES = (None,) * 4
