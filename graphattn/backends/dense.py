"""Dense attention: torch's SDPA on T x S with the graph as its mask, or none where the edges allow it."""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..errors import BackendError
from ..graph import AttentionGraph
from ..graph.algebra import MAX_BYTES
from ..graph.facts import is_full, is_lower_triangle
from .request import Inputs, Outputs, Request

sdpa = torch.nn.functional.scaled_dot_product_attention


class Layout(NamedTuple):
    """What dense attention needs to know of a graph, on one device."""

    kind: str  # "full", "causal" or "mask"
    allowed: Tensor | None  # bool (T, S); rows without an edge are all True, and blanked afterwards
    isolated: Tensor | None  # bool (T,), None if no target is
    unused: Tensor | None  # bool (S,), None if every source is read
    log_copies: Tensor | None  # (T, S) float64, log of how often an edge repeats; None if none does


_layouts: WeakKeyDictionary[AttentionGraph, dict[torch.device, Layout]] = WeakKeyDictionary()


def layout(graph: AttentionGraph, device: torch.device) -> Layout:
    """The graph's layout on a device, made once."""
    made = _layouts.setdefault(graph, {})
    if device not in made:
        with torch.inference_mode(False):
            made[device] = _layout(graph, device)
    return made[device]


def kind(graph: AttentionGraph) -> str:
    """ "full", "causal" (SDPA's own, aligned upper left) or "mask"; computed from the edges."""
    return "full" if is_full(graph) else "causal" if is_lower_triangle(graph) else "mask"


@torch.compiler.assume_constant_result
def constant_layout(graph: AttentionGraph, device: torch.device) -> Layout:
    """The layout; torch.compile keeps it as a constant, guarded by the graph's identity."""
    return layout(graph, device)


@torch.compiler.assume_constant_result
def constant_edges(graph: AttentionGraph, device: torch.device) -> tuple[Tensor, Tensor]:
    """Target and source of every edge (E,), in the caller's order; a constant likewise."""
    return graph.target.to(device), graph.source.to(device)


def _layout(graph: AttentionGraph, device: torch.device) -> Layout:
    if kind(graph) != "mask":
        unused = torch.arange(graph.num_sources) >= graph.num_targets  # a tall triangle reads only the first T
        late = bool(unused.any()) and kind(graph) == "causal"
        return Layout(kind(graph), None, None, unused.to(device) if late else None, None)
    allowed = graph.mask().to(device)
    isolated, unused = ~allowed.any(1), ~allowed.any(0)
    copies = None
    if graph.has_repeated_edges:
        count = torch.zeros(allowed.shape, dtype=torch.float64, device=device)
        count.index_put_((graph.target.to(device), graph.source.to(device)), count.new_ones(()), accumulate=True)
        copies = torch.where(allowed, count, 1.0).log()
    return Layout(
        "mask",
        allowed | isolated[:, None],
        isolated if bool(isolated.any()) else None,
        unused if bool(unused.any()) else None,
        copies,
    )


class DenseBackend:
    """One product over all T x S pairs; the graph is a mask, a bias, or SDPA's ``is_causal``."""

    name = "dense"

    def reasons_against(self, graph: AttentionGraph, request: Request) -> list[str]:
        """Why it cannot run; empty if it can."""
        reasons = []
        if request.edge_features:
            reasons.append(
                "edge features differ from edge to edge, and a dense product has one key for all its readers"
            )
        if 0 in (graph.num_targets, graph.num_sources, request.heads, request.head_dim, request.value_dim):
            reasons.append("an axis has size 0")
        if graph.has_repeated_edges and (request.score_bias or request.dropout or request.weights):
            reasons.append("repeated edges have a bias, a dropout and a weight of their own; a pair of nodes has one")
        needed = self.bytes_needed(graph, request)
        if needed > MAX_BYTES:
            reasons.append(f"it would hold {needed:,} bytes for {graph.num_targets:,} x {graph.num_sources:,} pairs")
        return reasons

    def notes(self, graph: AttentionGraph, request: Request) -> list[str]:
        """What its user should know."""
        if kind(graph) == "full":
            return []
        return ["a NaN or inf in a source reaches every target that some dense product pairs it with, edge or not"]

    def bytes_needed(self, graph: AttentionGraph, request: Request) -> int:
        """About what the forward pass holds beside its inputs, in bytes."""
        pairs = graph.num_targets * graph.num_sources
        wide = torch.finfo(request.statistics).bits // 8
        if request.softcap or request.weights or request.lse or request.score_bias or request.dropout:
            return 4 * request.batch * request.heads * pairs * wide
        return 0 if kind(graph) != "mask" else pairs * (1 + wide)  # SDPA turns the mask into numbers

    def cost_ms(self, graph: AttentionGraph, request: Request) -> float:
        """A rough time for the forward pass on the CPU, to rank backends by; in ms."""
        pairs = request.batch * graph.num_targets * graph.num_sources * request.heads
        return 0.05 + pairs * (request.head_dim + request.value_dim) * NS_PER_PAIR_NUMBER * 1e-6

    def run(self, graph: AttentionGraph, inputs: Inputs, *, weights: bool = False, lse: bool = False) -> Outputs:
        """Attention on checked inputs."""
        plan = constant_layout(graph, inputs.query.device)
        query, key, value = (x.transpose(-3, -2) for x in (inputs.query, inputs.key, inputs.value))  # heads first
        if plan.unused is not None:  # nobody reads them, so that not even a NaN of theirs may enter a product
            key, value = (x.masked_fill(plan.unused[:, None], 0.0) for x in (key, value))
        group = query.shape[-3] // key.shape[-3]
        if group != 1:
            key, value = key.repeat_interleave(group, -3), value.repeat_interleave(group, -3)
        bias, blank = _bias(graph, plan, inputs)
        if weights or lse or inputs.softcap is not None:
            found = _in_full(graph, plan, query, key, value, bias, blank, inputs, weights)
        else:
            call = (query, key, value, bias, plan.allowed, plan.kind == "causal" and bias is None)
            output = _run_sdpa(*call, inputs.scale, inputs.dropout_p)
            found = Outputs(output if blank is None else output.masked_fill(blank, 0.0))
        return Outputs(found.output.transpose(-3, -2), found.alpha, found.lse)


NS_PER_PAIR_NUMBER = 0.09


def _bias(graph: AttentionGraph, plan: Layout, inputs: Inputs) -> tuple[Tensor | None, Tensor | None]:
    """The additive mask (..., H, T, S), if one is needed, and the rows (..., H, T, 1) to blank afterwards."""
    blank = None if plan.isolated is None else plan.isolated[:, None]
    wide = inputs.request().statistics
    if plan.log_copies is not None and plan.allowed is not None:
        return torch.where(plan.allowed, plan.log_copies, -torch.inf).to(wide), blank
    if inputs.score_bias is None:
        return None, blank
    target, source = constant_edges(graph, inputs.query.device)
    given = inputs.score_bias.to(wide)
    T, S = graph.num_targets, graph.num_sources
    nothing = given.new_full((*given.shape[:-2], T * S, given.shape[-1]), -torch.inf)
    bias = nothing.index_copy(-2, target * S + source, given).unflatten(-2, (T, S)).movedim(-1, -3)
    silent = (bias == -torch.inf).all(-1, keepdim=True)
    return bias.masked_fill(silent, 0.0), silent


def scores(query: Tensor, key: Tensor, scale: float, softcap: float | None) -> Tensor:
    """softcap * tanh(scale * q.k / softcap), (..., H, T, S)."""
    score = (query @ key.transpose(-2, -1)) * scale
    return score if softcap is None else softcap * torch.tanh(score / softcap)


def _in_full(
    graph: AttentionGraph,
    plan: Layout,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    blank: Tensor | None,
    inputs: Inputs,
    weights: bool,
) -> Outputs:
    """The product written out, for what SDPA does not offer: softcap, weights, lse."""
    request = inputs.request()
    wide = request.statistics
    with torch.autocast(query.device.type, enabled=False):
        score = scores(query.to(wide), key.to(wide), inputs.scale, inputs.softcap)
        score = _masked(score, bias, plan.allowed, plan.kind == "causal")
        lse = torch.logsumexp(score, -1, keepdim=True)
        alpha = torch.exp(score - lse)
        if blank is not None:
            alpha, lse = alpha.masked_fill(blank, 0.0), lse.masked_fill(blank, -torch.inf)
        output = torch.nn.functional.dropout(alpha, inputs.dropout_p) @ value.to(wide)
    edges = None
    if weights:
        target, source = constant_edges(graph, query.device)
        edges = alpha.movedim(-3, -1)[..., target, source, :]
    return Outputs(output.to(request.dtype), edges, lse.squeeze(-1).transpose(-2, -1))


def _masked(score: Tensor, bias: Tensor | None, allowed: Tensor | None, causal: bool) -> Tensor:
    if bias is not None:
        return score + bias
    if causal:
        allowed = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril()
    return score if allowed is None else score.masked_fill(~allowed, -torch.inf)


def _run_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    allowed: Tensor | None,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    tracked = [x for x in (query, key, value, bias) if x is not None and x.requires_grad]
    if torch.compiler.is_compiling() or not (tracked and torch.is_grad_enabled()):
        mask = allowed if bias is None else bias
        return sdpa(query, key, value, mask, dropout_p, causal, scale=scale)
    return _TwiceDifferentiable.apply(query, key, value, bias, allowed, causal, scale, dropout_p)


class _TwiceDifferentiable(torch.autograd.Function):
    """SDPA, whose fused backward cannot itself be differentiated: a second derivative writes the product out."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        allowed: Tensor | None,
        causal: bool,
        scale: float,
        dropout_p: float,
    ) -> Tensor:
        inner = [
            None if x is None else x.detach().requires_grad_(needed)
            for x, needed in zip((query, key, value, bias), ctx.needs_input_grad, strict=False)
        ]
        with torch.enable_grad():
            q, k, v, b = inner
            output = sdpa(q, k, v, allowed if b is None else b, dropout_p, causal, scale=scale)  # type: ignore[arg-type]
        ctx.save_for_backward(query, key, value, bias)
        ctx.inner, ctx.output = inner, output
        ctx.allowed, ctx.causal, ctx.scale, ctx.dropout_p = allowed, causal, scale, dropout_p
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        needed = [i for i in range(4) if ctx.needs_input_grad[i]]
        found: list[Tensor | None] = [None] * 8
        if not torch.is_grad_enabled():
            inner = [ctx.inner[i] for i in needed]
            first = torch.autograd.grad(ctx.output, inner, grads, retain_graph=True)
        else:
            if ctx.dropout_p > 0.0:
                raise BackendError('second derivatives through dropout need backend="message_passing"')
            outer = ctx.saved_tensors
            query, key, value, bias = outer
            score = _masked(scores(query, key, ctx.scale, None), bias, ctx.allowed, ctx.causal)
            output = torch.softmax(score, -1) @ value
            first = torch.autograd.grad(output, [outer[i] for i in needed], grads, create_graph=True)
        for i, grad in zip(needed, first, strict=True):
            found[i] = grad
        return tuple(found)
