"""Tiles of consecutive targets with their distinct sources, on CUDA: neighbours along a curve.

It is used only if ``graphattn doctor --calibrate --device cuda`` has compared it with plain
attention on that device, and measured it.
"""

import torch

from ..graph import AttentionGraph
from ..graph.modes import plain_operations_only
from ..operands import Inputs, Outputs, are_tracked
from ..plans.compacted import Compacted, reuse, reuse_of_sources, tiles_of_sources, tiles_of_targets
from .device import without_kernels
from .request import Request, edges_too_many, flat_batch, reasons_against_products, with_lead
from .tiles_flex import reasons_against_fused

WIDEST = 1 << 12  # columns of a tile, which one program reads: the others are done before
WIDEST_HEAD = 128  # for which blocks fit registers and shared memory


def reasons_against(graph: AttentionGraph, request: Request) -> list[str]:
    """Reasons why tiles with compacted sources do not run a call."""
    reasons = reasons_against_products(request)
    reasons += reasons_against_fused("a tile with compacted sources", request)
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
    if reasons:
        return reasons
    return [*without_kernels(request.device), *edges_too_many(graph), *_hubs(graph)]


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
    """For a call on CUDA that runs otherwise: the reuse, or the reason against such tiles."""
    reasons = reasons_against(graph, request)
    if reasons:
        return [f"no tiles with compacted sources: {reasons[0]}"]
    return [note(graph)]


def work(graph: AttentionGraph) -> float:
    """The cost in rows that are read."""
    return reuse(graph).cost(graph.num_targets)


def bytes_needed(graph: AttentionGraph, request: Request) -> int:
    """Approximate bytes of the lse and of the tables of columns."""
    wide = torch.finfo(request.statistics).bits // 8
    lse = request.batch * graph.num_targets * request.heads * wide
    return lse + 12 * reuse(graph).columns


def trials() -> list[AttentionGraph]:
    """Graphs along a curve: cells with their neighbours, and a mesh of several scales."""
    from ..graphs import curve_order, grid_neighbourhood, icosphere, icosphere_mesh

    cells = torch.cartesian_prod(*[torch.arange(16.0)] * 3)
    near = grid_neighbourhood((16, 16, 16), (3, 3, 3))
    mesh = icosphere(4)
    return [
        graph.relabel(curve_order(pos, "hilbert").argsort())
        for graph, pos in ((near, cells), (mesh, icosphere_mesh(4).pos))
    ]


def compacted_run(graph: AttentionGraph, inputs: Inputs, lse: bool) -> Outputs:
    """Attention on a graph without repeated edges."""
    device = inputs.query.device
    sources = None
    if are_tracked(inputs.query, inputs.key, inputs.value):
        sources = tiles_of_sources(graph, device)
    return run_on(tiles_of_targets(graph, device), sources, inputs, lse)


def run_on(
    targets: Compacted, sources: Compacted | None, inputs: Inputs, lse: bool = False
) -> Outputs:
    """Attention on tiles of targets and, for gradients, those of sources."""
    from ..kernels.compacted import compacted_attention, plain  # registering operators is slow

    nodes = [flat_batch(x) for x in (inputs.query, inputs.key, inputs.value)]
    softcap = 0.0
    if inputs.softcap is not None:
        softcap = inputs.softcap
    rest = (*targets, *(sources or _NO_SOURCES), inputs.scale, softcap)
    if plain_operations_only():
        output, log_sum = plain(*nodes, *rest)
    else:
        output, log_sum = compacted_attention(*nodes, *rest)
    lead = inputs.query.shape[:-3]
    output = with_lead(output, lead)
    if not lse:
        return Outputs(output)
    return Outputs(output, None, with_lead(log_sum, lead))


_NO_SOURCES = (0, None, None, None)
