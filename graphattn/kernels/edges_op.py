"""The edge kernels as torch operators: tensors in, tensors out, with their derivatives.

Shapes, for one flattened batch axis: query (B, T, H, D), key (B, S, H_kv, D), value (B, S, H_kv, D_v), all float32 or
all float64. Edges by target: ``ptr`` int64 (T + 1,), ``index`` and ``edge`` (E,). Edges by source, wanted by the
backward alone: ``source_ptr`` int64 (S + 1,), ``target`` and ``place`` (E,). In the caller's order: ``bias``
(1 or B, E, 1 or H), and edge features ``attr`` (1 or B, E, F), whose product with ``attr_query`` (B, T, H, F) joins
that of query and key.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .edge_softmax import edge_softmax, scatter_sum
from .memory import room
from .threads import CHUNKS_PER_THREAD, LARGE, share

_DIMS = (3, 3, 4)  # of bias, attr, attr_query


def _array(x: Tensor | None, like: Tensor, dims: int = 3) -> np.ndarray:
    """A contiguous array in the dtype of ``like``; an absent tensor has no entries."""
    if x is None:
        return torch.empty((0,) * dims, dtype=like.dtype).numpy()
    return x.detach().to(like.dtype).contiguous().numpy()


def _dtype(x: Tensor) -> np.dtype:
    return x.detach().numpy().dtype


def _width(x: Tensor) -> int:
    """The kernels' width for rows of ``x``: a multiple of eight."""
    return max(8, -(-x.shape[-1] // 8) * 8)


def _nodes(x: Tensor, like: Tensor) -> np.ndarray:
    """:func:`_array` of (B, N, H, D), with zeros up to the kernels' width."""
    spare = _width(x) - x.shape[-1]
    return _array(F.pad(x.detach(), (0, spare)) if spare else x, like, 4)


def _narrow(x: Tensor, like: Tensor) -> Tensor:
    return x if x.shape[-1] == like.shape[-1] else x[..., : like.shape[-1]].contiguous()


def _wide(x: np.ndarray) -> tuple[int, ...]:
    return (0,) * (x.shape[-1] // 8)


def _chunks(ptr: np.ndarray, work: int) -> list[int]:
    """Bounds of chunks of rows of about equal cost: the edges, and a little for the row itself."""
    rows = len(ptr) - 1
    count = max(1, min(rows, max(torch.get_num_threads() * CHUNKS_PER_THREAD, work // LARGE)))
    cost = ptr + 2 * np.arange(rows + 1)
    inner = np.searchsorted(cost, cost[-1] * np.arange(1, count) / count)
    return sorted({0, rows, *inner.tolist()})


def _word(seed: Tensor | None) -> np.uint64:
    return np.uint64(0 if seed is None else int(seed))


def _widest(ptr: np.ndarray) -> int:
    return int(np.diff(ptr).max(initial=0))


@torch.library.custom_op("graphattn::edge_attention", mutates_args=(), device_types="cpu")
def edge_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    attr: Tensor | None,
    attr_query: Tensor | None,
    ptr: Tensor,
    index: Tensor,
    edge: Tensor,
    source_ptr: Tensor | None,
    target: Tensor | None,
    place: Tensor | None,
    scale: float,
    softcap: float,
    dropout_p: float,
    seed: Tensor | None,
    weights: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output (B, T, H, D_v), lse (B, T, H), weights (B, E, H) before dropout (no entries unless requested), and the
    weighted sum of edge features (B, T, H, F).
    """
    from . import edges_numba

    B, T, H, _ = query.shape
    output = room(_dtype(query), B, T, H, _width(value))
    lse = query.new_empty(B, T, H)
    alpha = query.new_empty((B, edge.numel(), H) if weights else (0, 0, 0))
    attr_output = (
        torch.empty_like(attr_query, memory_format=torch.contiguous_format)
        if attr_query is not None
        else query.new_empty(0, 0, 0, 0)
    )
    q, k, v = (_nodes(x, query) for x in (query, key, value))
    b, a, aq = (_array(x, query, n) for x, n in zip((bias, attr, attr_query), _DIMS, strict=True))
    p, i, e = ptr.numpy(), index.numpy(), edge.numpy()
    results = tuple(x.numpy() for x in (output, lse, alpha, attr_output))
    wide, given, options, word = (
        (_wide(q), _wide(v)),
        (q, k, v, a, aq, b, p, i, e),
        (scale, softcap, dropout_p),
        _word(seed),
    )

    def make() -> Any:
        space = edges_numba.workspace(H, len(i), _widest(p), len(p) - 1, q.dtype, i.dtype)

        def run(lo: int, hi: int) -> None:
            for batch in range(B):
                edges_numba.forward(*wide, lo, hi, batch, *given, options, word, *results, space)

        return run

    if lse.numel():
        work = B * edge.numel() * H * (q.shape[-1] + v.shape[-1])
        share(_chunks(p, work), work, make)
    return _narrow(output, value), lse, alpha, attr_output


@edge_attention.register_fake
def _(
    query,
    key,
    value,
    bias,
    attr,
    attr_query,
    ptr,
    index,
    edge,
    source_ptr,
    target,
    place,
    scale,
    softcap,
    p,
    seed,
    weights,
):
    B, T, H, _ = query.shape
    alpha = (B, edge.shape[0], H) if weights else (0, 0, 0)
    features = (B, T, H, attr_query.shape[-1]) if attr_query is not None else (0, 0, 0, 0)
    shapes = ((B, T, H, value.shape[-1]), (B, T, H), alpha, features)
    return tuple(query.new_empty(shape) for shape in shapes)


@torch.library.custom_op("graphattn::edge_attention_backward", mutates_args=(), device_types="cpu")
def edge_attention_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    attr: Tensor | None,
    attr_query: Tensor | None,
    ptr: Tensor,
    index: Tensor,
    edge: Tensor,
    source_ptr: Tensor,
    target: Tensor,
    place: Tensor,
    scale: float,
    softcap: float,
    dropout_p: float,
    seed: Tensor | None,
    lse: Tensor,
    grad_output: Tensor,
    grad_lse: Tensor | None,
    grad_alpha: Tensor | None,
    grad_attr_output: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, of every edge's score (B, E, H) in the caller's order (no entries without a
    bias), and of the edge features (B, E, F) and their queries.
    """
    from . import edges_numba

    B, _, H, _ = query.shape
    grads = [room(_dtype(x), *x.shape[:-1], _width(x)) for x in (query, key, value)]
    gq, gk, gv = (x.numpy() for x in grads)
    grad_bias = query.new_empty((B, edge.numel(), H) if bias is not None else (0, 0, 0))
    q, k, v, go = (_nodes(x, query) for x in (query, key, value, grad_output))
    b, a, aq = (_array(x, query, n) for x, n in zip((bias, attr, attr_query), _DIMS, strict=True))
    ga, gao = _array(grad_alpha, query, 3), _array(grad_attr_output, query, 4)
    gl = _array(torch.zeros_like(lse) if grad_lse is None else grad_lse, query, 3)
    grad_attr_query = query.new_empty(aq.shape)
    grad_attr = query.new_empty((B, *a.shape[1:]) if attr is not None else (0, 0, 0))
    level, p, i, e = (x.numpy() for x in (lse, ptr, index, edge))
    sp, t, where = (x.numpy() for x in (source_ptr, target, place))
    scratch = room(q.dtype, 2, B, edge.numel(), H)
    shares = scratch.numpy()
    wide, options, word = (_wide(q), _wide(v)), (scale, softcap, dropout_p), _word(seed)
    given = (q, k, v, a, aq, b, p, i, e, options, word, level, go, ga, gl, gao)
    results = (gq, *(x.numpy() for x in (grad_bias, grad_attr, grad_attr_query)), shares)

    def by_target() -> Any:
        own = edges_numba.workspace(H, len(i), _widest(p), len(p) - 1, q.dtype, i.dtype)

        def run(lo: int, hi: int) -> None:
            for n in range(B):
                edges_numba.backward_targets(*wide, lo, hi, n, *given, *results, own)

        return run

    def by_source() -> Any:
        own = edges_numba.kept_space(_widest(sp), q.dtype, t.dtype)

        def run(lo: int, hi: int) -> None:
            for n in range(B):
                edges_numba.backward_sources(
                    *wide, lo, hi, n, q, go, sp, t, where, shares, bias is not None, gk, gv, own
                )

        return run

    if lse.numel() == 0:  # nobody reads
        gk[...], gv[...] = 0, 0
        grad_attr.zero_()
    else:
        work = 2 * B * edge.numel() * H * max(q.shape[-1], v.shape[-1])
        share(_chunks(p, work), work, by_target)
        share(_chunks(sp, work), work, by_source)
    narrow = [_narrow(x, like) for x, like in zip(grads, (query, key, value), strict=True)]
    return narrow[0], narrow[1], narrow[2], grad_bias, grad_attr, grad_attr_query


@edge_attention_backward.register_fake
def _(query, key, value, bias, attr, attr_query, ptr, index, edge, *rest):
    B, _, H, _ = query.shape
    grads = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value)]
    grad_bias = query.new_empty((B, edge.shape[0], H) if bias is not None else (0, 0, 0))
    grad_attr = query.new_empty((B, *attr.shape[1:]) if attr is not None else (0, 0, 0))
    grad_attr_query = query.new_empty(attr_query.shape if attr_query is not None else (0, 0, 0, 0))
    return *grads, grad_bias, grad_attr, grad_attr_query


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:12], inputs[15], output[1])
    ctx.options = inputs[12:15]
    ctx.set_materialize_grads(False)


def _sum_to(grad: Tensor, like: Tensor) -> Tensor:
    return grad.sum_to_size(like.shape)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    *operands, seed, lse = ctx.saved_tensors
    query, _, value, bias, attr, attr_query, ptr, index, edge = operands[:9]
    scale, softcap, dropout_p = ctx.options
    absent = [None] * 11
    if torch.is_grad_enabled():  # a second derivative is wanted: the same in plain operations
        # Through views of their own: one operand may have been computed from another.
        inner: list[Any] = [x if x is None else x.view_as(x) for x in operands[:6]]
        wanted = [x for x in inner if x is not None and x.requires_grad]
        rest: tuple[Any, ...] = (ptr, index, edge, scale, softcap, dropout_p, seed)
        again = plain(*inner, *rest)
        given = [(x, g) for x, g in zip(again, grads, strict=True) if g is not None]
        outputs, grad_outputs = zip(*given, strict=True)
        results = iter(torch.autograd.grad(outputs, wanted, grad_outputs, create_graph=True, materialize_grads=True))
        return *(next(results) if x is not None and x.requires_grad else None for x in inner), *absent
    grad_output = grads[0] if grads[0] is not None else query.new_zeros(*query.shape[:-1], value.shape[-1])
    gq, gk, gv, gb, ga, gaq = edge_attention_backward(
        *operands, scale, softcap, dropout_p, seed, lse, grad_output, *grads[1:3], _features(grads[3], attr_query)
    )
    return (
        *(gq, gk, gv),
        None if bias is None else _sum_to(gb, bias),
        None if attr is None else _sum_to(ga, attr),
        None if attr_query is None else gaq,
        *absent,
    )


def _features(grad: Tensor | None, attr_query: Tensor | None) -> Tensor | None:
    return torch.zeros_like(attr_query) if grad is None and attr_query is not None else grad


edge_attention.register_autograd(_backward, setup_context=_save)


def plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    attr: Tensor | None,
    attr_query: Tensor | None,
    ptr: Tensor,
    index: Tensor,
    edge: Tensor,
    scale: float,
    softcap: float,
    dropout_p: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same in plain operations, edge by edge: slow, differentiable any number of times."""
    T, H = query.shape[1:3]
    source, order = index.long(), edge.long()
    target = torch.repeat_interleave(torch.arange(T, device=ptr.device), ptr[1:] - ptr[:-1])
    group = H // max(1, key.shape[2])
    keys, values = (x[:, source].repeat_interleave(group, 2) for x in (key, value))
    absent = query.new_zeros((), dtype=torch.bool)
    if bias is not None:
        bias = bias[:, order].expand(query.shape[0], -1, H)
        absent = bias == -torch.inf
        keys, values = (x.masked_fill(absent.unsqueeze(-1), 0.0) for x in (keys, values))
    score = (query[:, target] * keys).sum(-1)
    features = None
    if attr is not None and attr_query is not None:
        features = attr[:, order]
        score = score + (attr_query[:, target] * features.unsqueeze(2)).sum(-1)
    score = score * scale
    if softcap > 0:
        score = softcap * torch.tanh(score / softcap)
    if bias is not None:
        score = (score + bias).masked_fill(absent, -torch.inf)
    by_place, lse = edge_softmax(score, target, T)
    weight = by_place * dropout_factors(by_place, dropout_p, seed)
    output = scatter_sum(weight.unsqueeze(-1) * values, target, T, 1)
    alpha = torch.empty_like(by_place).index_copy(1, order, by_place)
    if features is None:
        return output, lse, alpha, query.new_empty(0, 0, 0, 0)
    return output, lse, alpha, scatter_sum(weight.unsqueeze(-1) * features.unsqueeze(2), target, T, 1)


def dropout_factors(like: Tensor, dropout_p: float, seed: Tensor | None) -> Tensor | float:
    """What the kernels multiply each weight (B, E, H), by place, with: their splitmix64, in torch's integers."""
    if dropout_p <= 0:
        return 1.0
    if seed is not None and torch._C._functorch.is_batchedtensor(seed):  # vmap(randomness="different")
        return F.dropout(torch.ones_like(like), dropout_p)
    batch, place, head = (torch.arange(size, device=like.device) for size in like.shape)
    x = batch[:, None, None] * _signed(0xD6E8FEB86659FD93) + place[:, None] * _signed(0x9E3779B97F4A7C15)
    x = x + (head + 1) * _signed(0xC2B2AE3D27D4EB4F) + (0 if seed is None else int(seed))
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    uniform = _shifted(x ^ _shifted(x, 31), 11).double() / 2**53
    kept = 1.0 / (1.0 - dropout_p) if dropout_p < 1 else 0.0
    return ((uniform >= dropout_p).double() * kept).to(like.dtype)


def _signed(word: int) -> int:
    """A word of 64 bits as torch has it; products and sums wrap."""
    return word - (1 << 64) if word >> 63 else word


def _shifted(x: Tensor, bits: int) -> Tensor:
    """``x`` shifted to the right, zeros coming in."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
