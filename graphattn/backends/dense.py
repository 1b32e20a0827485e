"""Dense attention: torch's SDPA on T x S, with the graph as its mask where it needs one."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.limits import MAX_BYTES
from ..graph.modes import without_autocast
from ..kernels.modes import can_read_values
from ..operands import Inputs, Outputs
from ..plans.cache import planned
from ..plans.grouped import ends
from .base import Backend
from .request import EMPTY, Request, reasons_against_products
from .rows import WORK, of_rows
from .sdpa import Mask, fused, is_unfused, unfused_attention, unfused_weights


class DenseLayout(NamedTuple):
    """The tensors of a graph for dense attention, on one device."""

    kind: str  # "full", "causal" or "mask"
    # bool (T, S); rows without an edge are all True, and set to 0 afterwards
    allowed: Tensor | None
    isolated: Tensor | None  # bool (T,), None if no target is isolated
    unused: Tensor | None  # bool (S,), None if every source is read
    # (T, S) float64, log of the copies of an edge, for softmax; None without repeats
    log_copies: Tensor | None


def kind(graph: AttentionGraph) -> str:
    """ "full", "causal" (SDPA's own, aligned upper left) or "mask"; computed from the edges."""
    if graph.is_full:
        return "full"
    if graph._is_lower_triangle:
        return "causal"
    return "mask"


@planned
def layout(graph: AttentionGraph, device: torch.device) -> DenseLayout:
    """The mask of a graph and its rows to clear; no mask where SDPA has its own."""
    if kind(graph) != "mask":
        # a tall triangle reads only the first T
        unused = torch.arange(graph.num_sources) >= graph.num_targets
        if kind(graph) == "causal" and bool(unused.any()):
            return DenseLayout("causal", None, None, unused.to(device), None)
        return DenseLayout(kind(graph), None, None, None, None)
    allowed = graph.mask().to(device)
    isolated = ~allowed.any(1)
    unused = ~allowed.any(0)
    copies = None
    if graph.has_repeated_edges:
        count = torch.zeros(allowed.shape, dtype=torch.float64, device=device)
        pairs = (graph.target.to(device), graph.source.to(device))
        count.index_put_(pairs, count.new_ones(()), accumulate=True)
        copies = torch.where(allowed, count, 1.0).log()
    plan = DenseLayout("mask", allowed | isolated[:, None], isolated, unused, copies)
    if not bool(isolated.any()):
        plan = plan._replace(isolated=None)
    if not bool(unused.any()):
        plan = plan._replace(unused=None)
    return plan


def _reasons_against_repeats(request: Request) -> list[str]:
    """Reasons why a product with the logs of counts of repeated edges does not run a call."""
    if request.of_rows:
        return [
            "a dense product can count repeated edges under softmax alone, not under this "
            "normalisation"
        ]
    if request.score_bias or request.dropout or request.weights:
        return [
            "each copy of an edge has its own bias, dropout and weight; a pair of nodes has one"
        ]
    return []


def _reasons_on_cuda(graph: AttentionGraph, request: Request) -> list[str]:
    """Reasons why torch's kernels on CUDA do not run a call."""
    if max(graph.num_targets, graph.num_sources) < 65_536:
        return []
    if kind(graph) != "mask" and not request.score_bias:
        return []
    return [
        "torch's masked kernels on CUDA read wrong addresses from 65,536 nodes on (pytorch#145040)"
    ]


class DenseBackend(Backend):
    """One product over all T x S pairs; the graph is a mask, a bias, or SDPA's ``is_causal``."""

    name = "dense"
    call_ms = 0.035
    training_factor = 3.3
    biased_training = 0.65
    ns = {"full": 0.027, "masked": 0.031, "unfused": 0.058}
    least_width = {"full": 20, "masked": 20, "unfused": 48}
    cuda = {"call_ms": 0.03, "full": 1e-4, "masked": 2e-4, "unfused": 5e-4}
    halves = {"full": 0.25, "masked": 0.25}  # on tensor cores
    amx = {"full": 0.3, "masked": 0.3}

    def reasons_against(self, graph: AttentionGraph, request: Request) -> list[str]:
        reasons = reasons_against_products(request)
        if 0 in (graph.num_targets, graph.num_sources):
            reasons.append(EMPTY)
        if graph.has_repeated_edges:
            reasons += _reasons_against_repeats(request)
        if request.device.type == "cuda":
            reasons += _reasons_on_cuda(graph, request)
        if graph.edges.num_blocks > 1:
            reasons.append(
                f"one product would join all pairs of {graph.edges.num_blocks} examples; a "
                'PerExample runs backend="dense" graph by graph'
            )
        needed = self.bytes_needed(graph, request)
        if needed > MAX_BYTES:
            reasons.append(
                f"it would hold {needed:,} bytes for {graph.num_targets:,} x "
                f"{graph.num_sources:,} pairs"
            )
        return reasons

    def notes(self, graph: AttentionGraph, request: Request) -> list[str]:
        if kind(graph) == "full" and not request.score_bias:
            return []
        return [
            "a NaN or inf in a source reaches every target in the same dense product, edge or not"
        ]

    def bytes_needed(self, graph: AttentionGraph, request: Request) -> int:
        pairs = graph.num_targets * graph.num_sources
        itemsize = torch.finfo(request.statistics).bits // 8
        scores = request.batch * request.heads * pairs * itemsize
        # the numbers of score matrices are measured
        if request.softcap or request.weights or request.lse:
            return 7 * scores
        if is_unfused(request):
            return 5 * scores
        if kind(graph) != "mask":
            return 0
        # SDPA converts the mask to numbers; in float64, twice
        if itemsize == 8:
            return pairs * 16
        return pairs * (1 + itemsize)

    def work(self, graph: AttentionGraph, request: Request) -> tuple[str, float]:
        """All pairs of nodes."""
        pairs = graph.num_targets * graph.num_sources
        shape = kind(graph)
        if is_unfused(request) or request.lse:
            if request.of_rows:
                return "unfused", pairs * WORK
            return "unfused", pairs
        if shape == "mask":
            return "masked", pairs
        if shape == "causal":
            return "full", 0.6 * pairs  # measured: SDPA skips most pairs above the diagonal
        return "full", pairs

    def problems(self) -> list[tuple[AttentionGraph, dict[str, Any]]]:
        """A window, all pairs, and all pairs with a cap, which SDPA does not offer."""
        from ..graphs import full, sliding_window

        return [
            (sliding_window(1024, 511, causal=False), {}),
            (full(1024), {}),
            (full(512), {"softcap": 50.0}),
        ]

    def run(
        self, graph: AttentionGraph, inputs: Inputs, *, weights: bool = False, lse: bool = False
    ) -> Outputs:
        with without_autocast(inputs.query.device.type):
            return self._run(graph, inputs, weights, lse)

    def _run(self, graph: AttentionGraph, inputs: Inputs, weights: bool, lse: bool) -> Outputs:
        plan = layout(graph, inputs.query.device)
        # heads first
        query = inputs.query.transpose(-3, -2)
        key = inputs.key.transpose(-3, -2)
        value = inputs.value.transpose(-3, -2)
        bias, blank = _bias(graph, plan, inputs)
        # Unread sources and isolated targets: not even their NaN may enter a product, forward or
        # backward.
        if plan.unused is not None:
            key = key.masked_fill(plan.unused[:, None], 0.0)
            value = value.masked_fill(plan.unused[:, None], 0.0)
        if blank is not None:
            query = query.masked_fill(blank, 0.0)
        if query.shape[-3] != key.shape[-3]:
            group = query.shape[-3] // key.shape[-3]
            key = key.repeat_interleave(group, -3)
            value = value.repeat_interleave(group, -3)
        mask = Mask(plan.allowed, bias, plan.kind == "causal" and bias is None)
        if weights:
            return _of_edges(graph, inputs, (query, key, value), mask, blank)
        if lse or inputs.softcap is not None or inputs.normalize is not None:
            return _written_out(inputs, (query, key, value, mask), blank)
        output = fused(query, key, value, mask, inputs.scale, inputs.dropout_p)
        if blank is not None:
            output = output.masked_fill(blank, 0.0)
        return Outputs(output.transpose(-3, -2))


def _written_out(
    inputs: Inputs, operands: tuple[Tensor, Tensor, Tensor, Mask], blank: Tensor | None
) -> Outputs:
    """The outputs of options that SDPA lacks."""
    weigh = of_rows(inputs.normalize)
    numbers = (inputs.scale, inputs.softcap, inputs.dropout_p)
    output, _, log_sum = unfused_attention(*operands, *numbers, weigh)
    if blank is not None:
        output = output.masked_fill(blank, 0.0)
        log_sum = log_sum.masked_fill(blank, -torch.inf)
    output = output.to(inputs.query.dtype).transpose(-3, -2)
    return Outputs(output, None, log_sum.squeeze(-1).transpose(-2, -1))


def _of_edges(
    graph: AttentionGraph,
    inputs: Inputs,
    operands: tuple[Tensor, Tensor, Tensor],
    mask: Mask,
    blank: Tensor | None,
) -> Outputs:
    """The outputs with weights of edges; where autograd records these, they give the output."""
    query, key, value = operands
    alpha, lse = unfused_weights(
        query, key, mask, inputs.scale, inputs.softcap, of_rows(inputs.normalize)
    )
    shape = (graph.num_targets, graph.num_sources)
    place = None  # of each edge among all pairs; those of a full rule are in order
    if not graph._lists_all_pairs:
        target, source = ends(graph, alpha.device)
        place = target * graph.num_sources + source

    def of_pairs(alpha: Tensor) -> Tensor:
        output = torch.nn.functional.dropout(alpha, inputs.dropout_p) @ value.to(alpha.dtype)
        if blank is not None:
            output = output.masked_fill(blank, 0.0)
        return output.to(inputs.query.dtype).transpose(-3, -2)

    def total(weights: Tensor) -> Tensor:
        with without_autocast(weights.device.type):
            pairs = inputs.present(weights).transpose(-2, -1)  # (..., H, E)
            if place is not None:
                nothing = pairs.new_zeros(*pairs.shape[:-1], shape[0] * shape[1])
                pairs = nothing.index_copy(-1, place, pairs)
            return of_pairs(pairs.unflatten(-1, shape))

    if blank is not None:
        alpha = alpha.masked_fill(blank, 0.0)
        lse = lse.masked_fill(blank, -torch.inf)
    edges = alpha.flatten(-2)
    if place is not None:
        edges = edges.index_select(-1, place)
    edges = edges.transpose(-2, -1)
    if inputs.tracks_weights:
        output = total(edges)
    else:
        output = of_pairs(alpha)
    return Outputs(output, edges, lse.squeeze(-1).transpose(-2, -1), total)


def _bias(
    graph: AttentionGraph, plan: DenseLayout, inputs: Inputs
) -> tuple[Tensor | None, Tensor | None]:
    """The additive mask (..., H, T, S), if one is needed, and the rows (..., H, T, 1) to clear."""
    blank = None
    if plan.isolated is not None:
        blank = plan.isolated[:, None]
    if plan.log_copies is not None:
        assert plan.allowed is not None
        copies = torch.where(plan.allowed, plan.log_copies, -torch.inf)
        return copies.to(inputs.statistics), blank
    if inputs.score_bias is None:
        return None, blank
    of_pairs = inputs.score_bias.to(inputs.statistics)
    T = graph.num_targets
    S = graph.num_sources
    if not graph._lists_all_pairs:
        target, source = ends(graph, inputs.query.device)
        no_edges = of_pairs.new_full((*of_pairs.shape[:-2], T * S, of_pairs.shape[-1]), -torch.inf)
        of_pairs = no_edges.index_copy(-2, target * S + source, of_pairs)
    bias = of_pairs.unflatten(-2, (T, S)).movedim(-1, -3)
    on_host = bias.numel() > 0 and bias.device.type == "cpu" and can_read_values(bias)
    if on_host and bool(bias.detach().amin() > -torch.inf):
        return bias, None
    blank = (bias == -torch.inf).all(-1, keepdim=True)
    return bias.masked_fill(blank, 0.0), blank
