"""Attention in two parts: edges that fill tiles run as tiles, the others as edges; their log-sum-exps mix them."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.algebra import MAX_BYTES
from ..graph.modes import constant_result
from ..kernels.modes import without_autocast
from ..plans.blocks import survey
from ..plans.cache import moved
from ..plans.parts import parts, split
from .base import BACKENDS, Backend
from .edges import EdgesBackend, edges_run, without_kernels
from .request import Inputs, Outputs, Request, edges_too_many
from .sdpa import softmax_lse
from .tiles import TilesBackend, tiles_run

TILES, EDGES = TilesBackend(), EdgesBackend()


class PartsBackend(Backend):
    """A dense core in a sparse graph: windows, cells or communities, and far edges between them."""

    name = "parts"

    def reasons_against(self, graph: AttentionGraph, request: Request) -> list[str]:
        edges = EDGES.reasons_against(graph, request) if self.fused(request) else edges_too_many(graph)
        reasons = list(dict.fromkeys(TILES.cannot(graph, request) + edges))
        if request.of_rows and not reasons:
            reasons.append("parts are mixed by their log-sum-exp, which only softmax has")
        if not reasons and self.bytes_needed(graph, request) > MAX_BYTES:
            reasons.append(f"it would hold {self.bytes_needed(graph, request):,} bytes")
        return reasons

    def fused(self, request: Request) -> bool:
        """Whether its edges run in kernels; without any on CUDA they run in plain operations."""
        return request.device.type == "cpu" or not without_kernels(request.device)

    def notes(self, graph: AttentionGraph, request: Request) -> list[str]:
        return TILES.notes(graph, request)

    def bytes_needed(self, graph: AttentionGraph, request: Request) -> int:
        wide = torch.finfo(request.statistics).bits // 8  # no more than tiles for all of it, and another output
        outputs = 2 * request.batch * graph.num_targets * request.heads * (request.value_dim + 1) * wide
        edges = 40 * graph.num_edges
        if not self.fused(request):
            edges += BACKENDS["message_passing"].bytes_needed(graph, request)
        return TILES.bytes_needed(graph, request._replace(lse=True)) + outputs + edges

    def cost_ms(self, graph: AttentionGraph, request: Request) -> float:
        if survey(graph).pairs < 2 * graph.num_edges:  # tiles half full: there is no rest worth parting from
            return 1.5 * TILES.cost_ms(graph, request._replace(lse=True))
        parts, wanted = split(graph), request._replace(lse=True)
        if self.fused(request):
            kind, units = EDGES.units(request, parts.rest, graph.num_targets, graph.num_sources)
            rest = EDGES.work_ms(request, kind, units)
        else:  # in plain operations
            rest = BACKENDS["message_passing"].work_ms(request, "edge", parts.rest)
        tiles = TILES.work_ms(wanted, TILES.kind(wanted), parts.work)
        return self.rates(request.device.type)["call_ms"] + tiles + 2 * rest  # once more, for the height of the scores

    def rates(self, device: str = "cpu") -> dict[str, float]:
        """Those of its two parts; training is bound by the edges."""
        tiles, edges = TILES.rates(device), EDGES.rates(device)
        return {"call_ms": tiles["call_ms"] + 2 * edges["call_ms"], "training_factor": edges["training_factor"]}

    def run(self, graph: AttentionGraph, inputs: Inputs, *, weights: bool = False, lse: bool = False) -> Outputs:
        with without_autocast(inputs.query.device.type):
            return _run(graph, inputs, weights)


class Ends(NamedTuple):
    """The edges of each part by their places in the whole graph's order, and the target of each edge in this order."""

    core: Tensor
    rest: Tensor
    target: Tensor


@constant_result
def constant_ends(graph: AttentionGraph, device: torch.device) -> Ends:
    """Which edge belongs to which part; torch.compile keeps it as a constant, guarded by the graph's identity."""
    return moved(Ends(parts(graph).core_edges, parts(graph).rest_edges, graph._listed().target), device)


def _run(graph: AttentionGraph, inputs: Inputs, weights: bool) -> Outputs:
    ends = constant_ends(graph, inputs.query.device)
    core, rest = _of(inputs, ends.core), _of(inputs, ends.rest)
    level = inputs.query.new_zeros((), dtype=inputs.request().statistics)
    if inputs.softcap is None:  # which bounds the scores itself
        with torch.no_grad():
            level = _level(graph, rest)
        lowered = _with(core.query * core.scale, -level)
        core = replace(core, query=lowered, key=_with(core.key, core.key.new_ones(())), scale=1.0)
        below = -level.index_select(-2, ends.target[ends.rest])
        rest = replace(rest, score_bias=below if rest.score_bias is None else rest.score_bias + below)
    results = tiles_run(graph, core, weights, True, "core"), edges_run(graph, rest, weights, True, "rest")
    share, lse = softmax_lse(torch.stack([part.lse for part in results if part.lse is not None]), 0)
    output = share[0, ..., None] * results[0].output + share[1, ..., None] * results[1].output
    alpha = None
    if weights:
        each = [
            part.alpha * part_share.index_select(-2, ends.target[edges])
            for part, part_share, edges in zip(results, share, ends, strict=False)
            if part.alpha is not None
        ]
        alpha = torch.cat(each, -2).index_select(-2, torch.argsort(torch.cat(ends[:2])))
    return Outputs(output.to(inputs.query.dtype), alpha, lse[0] + level)


def _level(graph: AttentionGraph, rest: Inputs) -> Tensor:
    """About the height of each row's scores (..., T, H), a constant to take from all of them before parts are added up.

    The shares come from the difference of two lse, which carries the rounding of both: it must be one of small numbers.
    """
    lse = edges_run(graph, rest, False, True, "rest").lse
    assert lse is not None
    return torch.where(lse.isfinite(), lse, 0.0)


def _with(x: Tensor, column: Tensor) -> Tensor:
    """``x`` (..., N, H, D) with one more column."""
    return torch.cat((x, column.to(x.dtype)[..., None].expand(*x.shape[:-1], 1)), -1)


def _of(inputs: Inputs, edges: Tensor) -> Inputs:
    """The inputs of one part: each edge brings its bias along. Float32 at least, as the parts are yet to be added."""
    wide = inputs.request().statistics
    bias = inputs.score_bias
    return replace(
        inputs,
        query=inputs.query.to(wide),
        key=inputs.key.to(wide),
        value=inputs.value.to(wide),
        score_bias=None if bias is None else bias.index_select(-2, edges),
    )
