"""Attention of a patched module along a graph, with transformers' tensors in and out."""

import sys
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arguments import shown
from ..backends.inputs import inputs_of
from ..backends.run import run
from ..backends.weights import EdgeWeights
from ..convert import from_edge_index
from ..errors import OptionError, ShapeError
from ..graph.modes import not_followed
from ..operands import Outputs, with_weights
from .graph_option import OWN_MASKS
from .masks import ticket_of
from .mixing import without_mixing
from .state import Patch, Slot
from .tokens.frame import BREAK
from .tokens.rows import Graph, Index, Job, edges_of

#: Arguments that change the sources or their weights, which cannot be expressed as a graph.
_REFUSED = ("block_indices", "head_mask", "cache")


@partial(not_followed, reason=BREAK)
def attend(
    patch: Patch,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, EdgeWeights | None]:
    """Attention for transformers' interface: query (B, H, T, D), key and value (B, H_kv, S, D)."""
    if patch.running.is_cut:
        return without_mixing(query, key, value)
    slot: Slot | None = getattr(module, "_graphattn", None)
    ticket = ticket_of(patch, attention_mask)
    if slot is None and all(part is not module for part in patch.model.modules()):
        raise carries_patch()
    if slot is None or slot.graph is None:
        if slot is not None:
            patch.frame(slot, ticket, query.shape[2], key.shape[2])
        extra = {"position_bias": position_bias, "softcap": softcap, "s_aux": s_aux}
        options |= {name: x for name, x in extra.items() if x is not None}
        implementation = patch.implementation(getattr(module, "config", None))
        mask = attention_mask
        if ticket is not None and not ticket.is_given:
            mask = ticket.mask(implementation)
        stock = own_function(implementation, module)
        return stock(module, query, key, value, mask, dropout=dropout, scaling=scaling, **options)
    if s_aux is None:
        s_aux = options.get("sinks")  # of each query: (B, H, T, 1)
    refused = [name for name in _REFUSED if options.get(name) is not None]
    if refused or query.dim() != 4:
        raise OptionError(
            f"{slot.place.name} must pass a query (B, H, N, D) and none of {', '.join(_REFUSED)}, "
            f"which no graph can express, got {', '.join(refused) or shown(query)}; leave this "
            "layer out of patch()"
        )
    is_causal = options.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    is_causal = bool(is_causal)
    dense = None
    if ticket is None or ticket.is_given:
        dense = _checked_mask(attention_mask, query, key)
    size = (query.shape[0], query.shape[2], key.shape[2])
    job = patch.job(slot, ticket, dense, size, query.device, is_causal=is_causal)
    bias = _dense_bias(dense, position_bias, query)
    indices = options.get("indices")
    if indices is not None:
        is_seen = slot.graph == OWN_MASKS or patch.slot_of_masks is not None
        if indices.shape[2] < key.shape[2] and not is_seen:
            raise OptionError(
                f"{slot.place.name} chooses {indices.shape[2]} of {key.shape[2]} keys by an "
                "indexer, which must see the graph: give all layers one graph"
            )
        # -inf but at the sources (B, T, k) that the indexer chose; -1 is none
        S = key.shape[2]
        chosen = indices.new_zeros(*indices.shape[:2], S + 1, dtype=torch.bool)
        chosen = chosen.scatter(
            2, indices.long() % (S + 1), torch.ones_like(indices, dtype=torch.bool)
        )
        hidden = torch.zeros_like(chosen, dtype=query.dtype).masked_fill(~chosen, -torch.inf)[
            :, None, :, :S
        ]
        bias = hidden if bias is None else bias + hidden
    if key.shape[1] < value.shape[1]:
        key = key.repeat_interleave(value.shape[1] // key.shape[1], 1)
    needs_weights = patch.wants_weights(options, ticket)
    has_options = any(option is not None for option in (bias, softcap, s_aux))
    if job.reads_all and not needs_weights and not has_options:
        which = job.spans or job.sources
        key = _held(key, which)
        grouped = key.shape[1] != query.shape[1]
        output = F.scaled_dot_product_attention(
            query, key, _held(value, which), None, dropout, scale=scaling, enable_gqa=grouped
        )
        return output.transpose(1, 2).contiguous(), None
    if job.by_row:
        if needs_weights:
            raise OptionError(
                "output_attentions needs sequences of one length where edges are chosen; call the "
                "model without padding"
            )
        return _one_by_one(
            job, query, key, value, bias, (scaling, softcap, dropout, False), s_aux
        ), None
    outputs = _run(job, query, key, value, bias, scaling, softcap, dropout, needs_weights, s_aux)
    if outputs.alpha is None or not needs_weights:
        return _in_rows(job, outputs.output, query), None
    outputs, graph = _in_places(job, outputs, query.shape[0], query.shape[2], key.shape[2])
    return _in_rows(job, outputs.output, query), EdgeWeights.of(graph, outputs)


def carries_patch() -> OptionError:
    """The error for a model whose configuration names the patch of another model."""
    return OptionError(
        "this model carries another model's patch in its configuration, and would read along its "
        "own masks; patch it too, ga.patch(model, graph), or make it the plain model, "
        "ga.unpatch(model)"
    )


def own_function(implementation: str | None, module: nn.Module) -> Any:
    """The model's own attention function for a module."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    code = sys.modules[type(module).__module__]
    eager = getattr(code, "eager_attention_forward", None)
    return ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager)


def _run(
    job: Job,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float | None,
    softcap: float | None,
    dropout: float,
    needs_weights: bool,
    s_aux: Tensor | None,
) -> Outputs:
    if bias is None:
        score_bias = None
    else:
        score_bias = _at_edges(job, bias)
    if job.missing is not None:
        away = (
            torch.zeros_like(job.missing, dtype=query.dtype)
            .masked_fill(job.missing, -torch.inf)
            .unsqueeze(-1)
        )
        if score_bias is None:
            score_bias = away
        else:
            score_bias = score_bias + away
    q = _picked(query, job.targets)
    k = _picked(key, job.sources)
    v = _picked(value, job.sources)
    if scale is not None:
        scale = float(scale)
    inputs = inputs_of(q, k, v, job.graph, score_bias, scale, softcap, dropout)
    outputs = run(job.graph, inputs, "auto", needs_weights, s_aux is not None)
    if s_aux is None:
        return outputs
    assert outputs.lse is not None
    if s_aux.dim() == 4:
        s_aux = _picked(s_aux, job.targets).squeeze(-1)
    share = torch.sigmoid(outputs.lse - s_aux.to(outputs.lse.dtype))
    alpha = outputs.alpha
    if alpha is not None:
        alpha = alpha * share.index_select(-2, job.graph.union().target)
        if alpha.requires_grad:
            return with_weights(outputs, alpha)
    return replace(
        outputs, output=outputs.output * share.unsqueeze(-1).to(outputs.output.dtype), alpha=alpha
    )


def _one_by_one(
    job: Job,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    options: tuple[float | None, float | None, float, bool],
    s_aux: Tensor | None,
) -> Tensor:
    """(B, T, H, D_v) of separate runs of sequences, with 0 for tokens of none."""
    output = query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[-1])
    for row, part in job.by_row:
        q, k, v = (x[row : row + 1] for x in (query, key, value))
        if bias is None or len(bias) == 1:
            of_row = bias
        else:
            of_row = bias[row : row + 1]
        sinks = s_aux
        if sinks is not None and sinks.dim() == 4:
            sinks = sinks[row : row + 1]
        rows = _run(part, q, k, v, of_row, *options, sinks).output[0]
        assert isinstance(part.targets, Tensor)
        output = output.index_put((torch.full_like(part.targets, row), part.targets), rows)
    return output


def _held(x: Tensor, which: range | tuple[range, ...] | Tensor | Index) -> Tensor:
    """The tokens of (B, H, N, D) selected in all rows, heads first."""
    if isinstance(which, tuple) and not isinstance(which, Index):
        return torch.cat([x[:, :, span.start : span.stop] for span in which], 2)
    if isinstance(which, Tensor):
        return x.index_select(2, which)
    assert isinstance(which, range)
    if len(which) == x.shape[2]:
        return x
    return x[:, :, which.start : which.stop]


def _picked(x: Tensor, which: range | Tensor | Index) -> Tensor:
    """The selected tokens of (B, H, N, D), node-first: (B, n, H, D), or (M, H, D) of all rows."""
    if isinstance(which, Index):
        return x[which.row, :, which.place]
    return _held(x, which).transpose(1, 2)


def _in_rows(job: Job, output: Tensor, query: Tensor) -> Tensor:
    """(B, T, H, D_v), with 0 for tokens that were not selected."""
    B, _, T, _ = query.shape
    which = job.targets
    if isinstance(which, Index):
        return output.new_zeros(B, T, *output.shape[-2:]).index_put(
            (which.row, which.place), output
        )
    if len(which) < T:
        output = F.pad(output, (0, 0, 0, 0, which.start, T - which.stop))  # type: ignore[union-attr]
    return output.contiguous()


def _checked_mask(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """A caller's mask, checked; it may be longer than the written tokens, as of a static cache."""
    (B, H, T, _), S = query.shape, key.shape[2]
    if mask is None or mask.dim() != 4:
        return mask
    broadcasts = all(size in (1, full) for size, full in zip(mask.shape, (B, H, T), strict=False))
    if broadcasts and mask.shape[3] >= S:
        return mask
    raise ShapeError(
        f"attention_mask must have shape ({B}, 1, {T}, {S}), 1 or {B} rows, got {tuple(mask.shape)}"
    )


def _dense_bias(mask: Tensor | None, position_bias: Tensor | None, query: Tensor) -> Tensor | None:
    """The bias of scores (1 or B, 1 or H, 1 or T, S), -inf for pairs that a mask removes."""
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
    elif mask is not None:
        mask = mask.masked_fill(mask <= torch.finfo(mask.dtype).min / 2, -torch.inf)
    added = [x for x in (mask, position_bias) if x is not None]
    if not added:
        return None
    total = sum(added[1:], added[0])
    return total[(None,) * (4 - total.dim())]


def _at_edges(job: Job, bias: Tensor) -> Tensor:
    """A bias of pairs as one of edges: (1 or B, E, 1 or H), or (E, 1 or H) of a union."""
    row, target, source = edges_of(job)
    rows, _, T, width = bias.shape
    if T == 1:
        place = source
    else:
        place = target * width + source
    flat = bias.flatten(-2)
    if row is None:
        return flat.index_select(-1, place).transpose(-1, -2)
    if rows == 1:
        row = torch.zeros_like(row)
    return flat[row, :, place]


def _in_places(job: Job, outputs: Outputs, B: int, T: int, S: int) -> tuple[Outputs, Graph]:
    """Outputs whose weights (B, E, H) are on a graph of a row's positions, 0 for missing edges."""
    if (job.graph.num_targets, job.graph.num_sources) == (T, S) and isinstance(job.sources, range):
        return outputs, job.graph
    assert outputs.alpha is not None
    row, target, source = edges_of(job)
    pairs, place = torch.unique(target * S + source, return_inverse=True)
    graph = from_edge_index(
        torch.stack((pairs % S, pairs // S)), num_sources=S, num_targets=T, name=job.graph.name
    )
    shape = (B, pairs.numel(), outputs.alpha.shape[-1])
    rows: Any = (slice(None), place) if row is None else (row, place)

    def placed() -> Tensor:
        assert outputs.alpha is not None
        if row is None:
            return outputs.alpha.new_zeros(shape).index_add(1, place, outputs.alpha)
        return outputs.alpha.new_zeros(shape).index_put(
            (row, place), outputs.alpha, accumulate=True
        )

    alpha = placed()
    if not alpha.requires_grad:
        return replace(outputs, alpha=alpha), graph
    used = alpha[rows]
    if job.graph.union().has_repeated_edges:  # a copy has its share of the sum
        used = used * (outputs.alpha / placed()[rows]).nan_to_num(0.0)
    return with_weights(outputs, alpha, used), graph
