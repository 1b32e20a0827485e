"""The edge kernels as torch operators: tensors in, tensors out, with their derivatives.

Shapes, for one flattened batch axis: query (B, T, H, D), key (B, S, H_kv, D), value (B, S, H_kv,
D_v), of one float dtype; sums, weights and whatever is not of nodes are float32 for halves. Edges
by target: ``ptr`` int64 (T + 1,), ``index`` and ``edge`` (E,), row ``r`` for target ``order[r]``
(T,). Edges by source, wanted by the backward alone: ``source_ptr`` int64 (S + 1,), ``target`` and
``place`` (E,), ``source_order`` (S,). In the caller's order: ``bias`` (1 or B, E, 1 or H), and edge
features ``attr`` (1 or B, E, F), whose product with ``attr_query`` (B, T, H, F) joins that of query
and key.
"""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .again import gradients_of_definition
from .arrays import SMALLEST, array, dtype_of_sums, empty, narrow, nodes, results, widest, width
from .bytes_moved import Sizes
from .bytes_moved import kept as bytes_kept
from .edge_softmax import edge_softmax, scatter_sum
from .modes import are_batched, nothing_watches, on_gpu
from .threads import chunks, share

_DIMS = (3, 3, 4)  # of bias, attr, attr_query
_OPERANDS = """Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? attr, Tensor? attr_query, Tensor ptr,
    Tensor index, Tensor edge, Tensor order"""
_OPTIONS = "float scale, float softcap, float dropout_p, Tensor? seed"


def _word(seed: Tensor | None) -> np.uint64:
    return np.uint64(0 if seed is None else int(seed))


def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Output (B, T, H, D_v); lse (B, T, H) and weights before dropout (B, E, H), empty unless
    requested; the weighted sum of edge features (B, T, H, F); and the weights by place for the
    backward (empty if there is none, or if it recomputes them).
    """
    from . import edges_numba

    query, key, value, bias, attr, attr_query, ptr, index, edge, order, source_ptr = arguments[:11]
    scale, softcap, dropout_p, seed, weights, lse = arguments[14:]
    B, T, H, _ = query.shape
    wide = dtype_of_sums(query)
    output = results(query, B, T, H, value.shape[-1])
    none = (0, 0, 0)
    every = (B, edge.numel(), H)
    levels = query.new_empty((B, T, H) if lse else none, dtype=wide)
    alpha = query.new_empty(every if weights else none, dtype=wide)
    keep = source_ptr is not None and _keeps_weights(query, key, value, edge.numel(), softcap)
    kept = empty(wide, *(every if keep else none))
    attr_output = query.new_empty(
        (0, 0, 0, 0) if attr_query is None else attr_query.shape, dtype=wide
    )
    q, k, v, out = (nodes(x) for x in (query, key, value, output))
    b, a, aq = (array(x, wide, n) for x, n in zip((bias, attr, attr_query), _DIMS, strict=True))
    p, i, e, rows = (x.numpy() for x in (ptr, index, edge, order))
    sizes = _sizes(query, key, value, i, e)
    written = (out, *(x.numpy() for x in (levels, alpha, kept.flatten(), attr_output)))
    given = (rows, q, k, v, a, aq, b, p, i, e)
    options = (scale, softcap, dropout_p)
    word = _word(seed)

    def run(lo: int, hi: int, *space: Any) -> None:
        for batch in range(B):
            edges_numba.forward(*sizes, lo, hi, batch, *given, options, word, *written, space)

    def space() -> tuple[Any, ...]:
        return edges_numba.workspace(
            *sizes, len(i), widest(p), len(p) - 1, levels.numpy().dtype, i.dtype
        )

    if B * T * H:
        work = B * edge.numel() * H * 8 * (sizes[0].eights + sizes[1].eights)
        share(chunks(p, work), work, run, space)
    return narrow(output, value), levels, alpha, attr_output, kept


edge_attention = torch.library.custom_op(
    "graphattn::edge_attention",
    _forward,
    mutates_args=(),
    device_types="cpu",
    schema=f"({_OPERANDS}, Tensor? source_ptr, Tensor? target, Tensor? place, Tensor? "
    f"source_order, {_OPTIONS}, "
    "bool weights, bool lse) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


_on_gpu = on_gpu(edge_attention, "edges_triton", "forward")


def _forward_where_it_is(*arguments: Any) -> tuple[Tensor, ...]:
    return (_on_gpu if arguments[0].is_cuda else _forward)(*arguments)


def _sizes(
    query: Tensor, key: Tensor, value: Tensor, *indices: np.ndarray
) -> tuple[Any, Any, tuple[int, int]]:
    """The padded widths of keys and of values; heads, and the number that share a key."""
    return (
        width(query, *indices),
        width(value, *indices),
        (query.shape[2], query.shape[2] // max(1, key.shape[2])),
    )


def _keeps_weights(query: Tensor, key: Tensor, value: Tensor, edges: int, softcap: float) -> bool:
    """True if the forward keeps its weights for the backward."""
    (B, T, H, D), (_, S, group, _), number = query.shape, key.shape, query.element_size()
    sizes = Sizes(
        B, T, S, edges, H, group, D, value.shape[-1], number, dtype_of_sums(query).itemsize
    )
    return bytes_kept(sizes, softcap != 0)[1] > 0


@edge_attention.register_fake
def _(query, key, value, bias, attr, attr_query, ptr, index, edge, order, source_ptr, *rest):
    softcap, weights, lse = rest[4], *rest[-2:]
    B, T, H, _ = query.shape
    none = (0, 0, 0)
    every = (B, edge.shape[0], H)
    keep = source_ptr is not None and _keeps_weights(query, key, value, edge.shape[0], softcap)
    if attr_query is not None:
        features = (B, T, H, attr_query.shape[-1])
    else:
        features = (0, 0, 0, 0)
    shapes = (
        (B, T, H) if lse else none,
        every if weights else none,
        features,
        every if keep else none,
    )
    output = query.new_empty((B, T, H, value.shape[-1]))
    return output, *(query.new_empty(shape, dtype=dtype_of_sums(query)) for shape in shapes)


def _gradients(
    *arguments: Any, last: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key and value, of every edge's score (B, E, H) in the caller's order (no
    entries without a bias), and of the edge features (B, E, F) and their queries.

    The ``last`` backward of a call may write to the kept weights: each row's are read before its
    results are written.
    """
    from . import edges_numba

    query, key, value, bias, attr, attr_query, ptr, index, edge, order = arguments[:10]
    source_ptr, target, place, source_order, scale, softcap, dropout_p, seed, kept = arguments[
        10:19
    ]
    grad_output, grad_lse, grad_alpha, grad_attr_output = arguments[19:]
    B, T, H, _ = query.shape
    wide = dtype_of_sums(query)
    edges = (B, edge.numel(), H)
    grads = [results(x, *x.shape) for x in (query, key, value)]
    gq, gk, gv, q, k, v, go = (nodes(x) for x in (*grads, query, key, value, grad_output))
    grad_bias = query.new_empty(edges if bias is not None else (0, 0, 0), dtype=wide)
    b, a, aq = (array(x, wide, n) for x, n in zip((bias, attr, attr_query), _DIMS, strict=True))
    ga = array(grad_alpha, wide, 3)
    gao = array(grad_attr_output, wide, 4)
    gl = array(query.new_zeros((B, T, H), dtype=wide) if grad_lse is None else grad_lse, wide, 3)
    grad_attr_query = query.new_empty(aq.shape, dtype=wide)
    grad_attr = query.new_empty((B, *a.shape[1:]) if attr is not None else (0, 0, 0), dtype=wide)
    p, i, e, rows = (x.numpy() for x in (ptr, index, edge, order))
    sp, t, where, source_rows = (x.numpy() for x in (source_ptr, target, place, source_order))
    # then the kept weights are those of the sums
    memory = kept.flatten()
    as_kept = kept.numel() > 0 and dropout_p == 0
    last = last and bias is None and kept.nbytes >= SMALLEST
    if last and as_kept:
        products = memory
    else:
        products = empty(wide, math.prod(edges))
    if as_kept:
        weights = empty(wide, 0)
    elif last:
        weights = memory
    else:
        weights = empty(wide, math.prod(edges))
    sizes = _sizes(query, key, value, t, where)
    options = (scale, softcap, dropout_p)
    word = _word(seed)
    given = (rows, q, k, v, a, aq, b, p, i, e, options, word, memory.numpy(), go, ga, gl, gao)
    written = (gq, *(x.numpy() for x in (grad_bias, grad_attr, grad_attr_query, products, weights)))
    shares = products.numpy(), (memory if as_kept else weights).numpy()
    removed = array(None, torch.bool)

    def by_target(lo: int, hi: int, *own: Any) -> None:
        for n in range(B):
            edges_numba.backward_targets(*sizes, lo, hi, n, *given, *written, own)

    def by_source(lo: int, hi: int, *own: Any, keys: bool = True, values: bool = True) -> None:
        rows = sp, lo, hi, source_rows, t, where, removed, True
        for n in range(B):
            if keys:
                edges_numba.edge_sums(sizes[0], sizes[2], shares[0], n, q, *rows, gk, own)
            if values:
                edges_numba.edge_sums(sizes[1], sizes[2], shares[1], n, go, *rows, gv, own)

    def space() -> tuple[Any, ...]:
        return edges_numba.workspace(*sizes, len(i), widest(p), len(p) - 1, gl.dtype, i.dtype)

    if gl.size == 0:  # no target
        for grad in (*grads[1:], grad_attr):
            grad.zero_()
    else:
        work = 16 * B * edge.numel() * H * max(sizes[0].eights, sizes[1].eights)
        space_of_row = partial(edges_numba.row_space, *sizes, widest(sp), gl.dtype, t.dtype)
        if products is memory:  # which holds the weights until then
            share(chunks(sp, work), work, partial(by_source, keys=False), space_of_row)
        share(chunks(p, work), work, by_target, space)
        if bias is not None:  # a removed edge passes not even a NaN
            removed = ((shares[0] == 0) & (shares[1] == 0)).reshape(edges)
        share(
            chunks(sp, work), work, partial(by_source, values=products is not memory), space_of_row
        )
    grad_q, grad_k, grad_v = (
        narrow(x, like) for x, like in zip(grads, (query, key, value), strict=True)
    )
    return grad_q, grad_k, grad_v, grad_bias, grad_attr, grad_attr_query


edge_attention_backward = torch.library.custom_op(
    "graphattn::edge_attention_backward",
    _gradients,
    mutates_args=(),
    device_types="cpu",
    schema=f"({_OPERANDS}, Tensor source_ptr, Tensor target, Tensor place, Tensor source_order, "
    f"{_OPTIONS}, "
    "Tensor kept, Tensor grad_output, Tensor? grad_lse, Tensor? grad_alpha, Tensor? "
    "grad_attr_output) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


_gradients_on_gpu = on_gpu(edge_attention_backward, "edges_triton", "backward")


def _gradients_where_they_are(*arguments: Any) -> tuple[Tensor, ...]:
    if arguments[0].is_cuda:
        return _gradients_on_gpu(*arguments)
    return _gradients(*arguments, last=not torch._C._autograd._get_current_graph_task_keep_graph())


@edge_attention_backward.register_fake
def _(query, key, value, bias, attr, attr_query, ptr, index, edge, *rest):
    B, _, H, _ = query.shape
    grads = [
        torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value)
    ]
    shapes = (
        (B, edge.shape[0], H) if bias is not None else (0, 0, 0),
        (B, *attr.shape[1:]) if attr is not None else (0, 0, 0),
        attr_query.shape if attr_query is not None else (0, 0, 0, 0),
    )
    return *grads, *(query.new_empty(shape, dtype=dtype_of_sums(query)) for shape in shapes)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:14], inputs[17], output[4])
    ctx.options = inputs[14:17]
    ctx.mark_non_differentiable(output[4])
    ctx.set_materialize_grads(False)


def _sum_to(grad: Tensor, like: Tensor) -> Tensor:
    return grad.sum_to_size(like.shape)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    *operands, seed, kept = ctx.saved_tensors
    query, _, value, bias, attr, attr_query = operands[:6]
    scale, softcap, dropout_p = ctx.options
    absent = [None] * 14
    # a second derivative, or vmap: the same in plain operations
    if torch.is_grad_enabled() or are_batched(*grads):
        rest = *operands[6:10], scale, softcap, dropout_p, seed
        return *gradients_of_definition(plain, operands[:6], rest, grads), *absent
    if grads[0] is not None:
        grad_output = grads[0]
    else:
        grad_output = query.new_zeros(*query.shape[:-1], value.shape[-1])
    run: Any = (
        _gradients_where_they_are
        if nothing_watches(query, grad_output)
        else edge_attention_backward
    )
    gq, gk, gv, gb, ga, gaq = run(
        *operands,
        scale,
        softcap,
        dropout_p,
        seed,
        kept,
        grad_output,
        *grads[1:3],
        _features(grads[3], attr_query),
    )
    return (
        *(gq, gk, gv),
        None if bias is None else _sum_to(gb, bias),
        None if attr is None else _sum_to(ga, attr),
        None if attr_query is None else gaq,
        *absent,
    )


def _features(grad: Tensor | None, attr_query: Tensor | None) -> Tensor | None:
    if grad is None and attr_query is not None:
        return torch.zeros_like(attr_query)
    return grad


edge_attention.register_autograd(_backward, setup_context=_save)


class EdgeAttention(torch.autograd.Function):
    """The operator as a plain autograd function."""

    forward = staticmethod(_forward_where_it_is)
    setup_context = staticmethod(_save)
    backward = staticmethod(_backward)


def attend(*arguments: Any, tracked: bool) -> tuple[Tensor, ...]:
    """``edge_attention``, without torch's dispatcher if no mode is active."""
    if not nothing_watches(*arguments[:6]):
        return edge_attention(*arguments)
    if tracked:
        return EdgeAttention.apply(*arguments)
    return _forward_where_it_is(*arguments)


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
    order: Tensor,
    scale: float,
    softcap: float,
    dropout_p: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same in plain operations, edge by edge: slow, differentiable any number of times."""
    T, H = query.shape[1:3]
    source = index.long()
    edge = edge.long()
    target = torch.repeat_interleave(order.long(), ptr[1:] - ptr[:-1])
    group = H // max(1, key.shape[2])
    keys, values = (x[:, source].repeat_interleave(group, 2) for x in (key, value))
    absent = query.new_zeros((), dtype=torch.bool)
    if bias is not None:
        bias = bias[:, edge].expand(query.shape[0], -1, H)
        absent = bias == -torch.inf
        keys, values = (x.masked_fill(absent.unsqueeze(-1), 0.0) for x in (keys, values))
    score = (query[:, target] * keys).sum(-1)
    features = None
    if attr is not None and attr_query is not None:
        features = attr[:, edge]
        score = score + (attr_query[:, target] * features.unsqueeze(2)).sum(-1)
    score = score * scale
    if softcap > 0:
        score = softcap * torch.tanh(score / softcap)
    if bias is not None:
        score = (score + bias).masked_fill(absent, -torch.inf)
    by_place, lse = edge_softmax(score, target, T)
    weight = by_place * dropout_factors(by_place, edge, dropout_p, seed)
    output = scatter_sum(weight.unsqueeze(-1) * values, target, T, 1)
    alpha = torch.empty_like(by_place).index_copy(1, edge, by_place)
    if features is None:
        return output, lse, alpha, query.new_empty(0, 0, 0, 0)
    return (
        output,
        lse,
        alpha,
        scatter_sum(weight.unsqueeze(-1) * features.unsqueeze(2), target, T, 1),
    )


def dropout_factors(
    like: Tensor, edge: Tensor, dropout_p: float, seed: Tensor | None
) -> Tensor | float:
    """The kernels' dropout factors of weights ``like`` (B, E, H): splitmix64 of ``edge``, in
    torch's integers.
    """
    if dropout_p <= 0:
        return 1.0
    # vmap(randomness="different")
    if seed is not None and torch._C._functorch.is_batchedtensor(seed):
        return F.dropout(torch.ones_like(like), dropout_p)
    batch, head = (torch.arange(like.shape[axis], device=like.device) for axis in (0, 2))
    x = batch[:, None, None] * _signed(0xD6E8FEB86659FD93) + edge[:, None] * _signed(
        0x9E3779B97F4A7C15
    )
    x = x + (head + 1) * _signed(0xC2B2AE3D27D4EB4F) + (0 if seed is None else int(seed))
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    uniform = _shifted(x ^ _shifted(x, 31), 11).double() / 2**53
    if dropout_p < 1:
        kept = 1.0 / (1.0 - dropout_p)
    else:
        kept = 0.0
    return ((uniform >= dropout_p).double() * kept).to(like.dtype)


def _signed(word: int) -> int:
    """A word of 64 bits as torch's signed integer; products and sums wrap."""
    if word >> 63:
        return word - (1 << 64)
    return word


def _shifted(x: Tensor, bits: int) -> Tensor:
    """``x`` shifted to the right, filled with zeros."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
