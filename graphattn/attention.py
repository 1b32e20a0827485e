"""The one front door: check, choose, run."""

import math
import sys
from numbers import Real
from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .arguments import check_flags, device_named, kinds_checked
from .arguments import dtype as checked_dtype
from .backends.choose import BACKENDS, Explanation, HeadsExplanation, choose, explained
from .backends.heads import as_bias, join, split
from .backends.request import Inputs, Outputs, Request
from .backends.weights import EdgeWeights
from .errors import GraphError, OptionError, ShapeError
from .graph import AttentionGraph, Pattern, PerHead
from .graph.advice import no_graph
from .graph.pattern import cache_key

_LARGEST = sys.float_info.max
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_FLAGS = {  # arguments of a call, and what a Request calls them
    "score_bias": "score_bias",
    "softcap": "softcap",
    "dropout_p": "dropout",
    "return_weights": "weights",
    "return_lse": "lse",
    "edge_attr": "edge_features",
    "score": "score",
    "normalize": "normalize",
}


class AttentionOutput(NamedTuple):
    """The output, and what else was asked for; ``None`` where it was not."""

    output: Tensor
    weights: EdgeWeights | None
    lse: Tensor | None


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: AttentionGraph | PerHead | Pattern,
    score_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    backend: str = "auto",
    return_weights: bool = False,
    return_lse: bool = False,
) -> Tensor | AttentionOutput:
    r"""Softmax attention in which target ``t`` reads the sources ``s`` with an edge ``s -> t``, and no others.

    .. math::
        \mathrm{score}_{ts} = c \tanh(\lambda \langle q_t, k_s \rangle / c) + b_{ts}, \qquad
        o_t = \sum_{s \in \mathcal{N}(t)} \mathrm{softmax}_s(\mathrm{score}_{ts}) \, v_s

    A target without an edge gives 0, with gradients of exactly 0. Leading dimensions share the graph and broadcast.
    All is computed in the inputs' dtype, softmax in float32 or wider. Under ``torch.autocast`` query, key and value are
    cast to its dtype unless they are float64, as by torch's SDPA; scores, biases and edge features are not. It can be
    differentiated any number of times, and by ``torch.func``; compiled code, once.

    Tensors are node-first: nodes, then heads, then width (torch's SDPA has heads first).

    A NaN or inf in a source that nobody reads is not heard, nor one in a target that reads nobody. One in a source that
    is read spoils its readers; on the backends made of dense products (dense, tiles, parts) possibly other targets, too
    (:func:`explain` notes it). Where only readers may be spoilt, ask for ``backend="edges"`` or ``"message_passing"``;
    :func:`graphattn.find_nonfinite` finds the culprit.

    Args:
        query: (..., T, H, D), of float16, bfloat16, float32 or float64.
        key: (..., S, H_kv, D); head ``h`` of the query reads head ``h // (H / H_kv)``.
        value: (..., S, H_kv, D_v).
        graph: T targets and S sources. Or a :class:`PerHead`, a graph for each head or group of heads, whose edge order
            is that of its union; or a :class:`Pattern`, which becomes a graph of T targets and S sources.
        score_bias: Added to the scores, in the graph's edge order: (E,), (E, H) or (..., E, H), where 1 may stand for
            H. An edge with -inf is an edge removed: with (B, E, 1), for examples of lengths of their own,
            ``torch.zeros(B, E, 1).masked_fill((graph.source >= lengths[:, None])[..., None], -torch.inf)``, though
            :func:`graphattn.disjoint_union` computes less. A row of the dtype's lowest number gives equal weights.
        scale: Factor on the product, ``D ** -0.5`` by default; 0.0 means 0.0.
        softcap: The bound c on the scaled product, > 0; none by default.
        dropout_p: Probability of dropping a weight, per edge and head, after normalising. A seed fixes what is dropped
            on one backend; another backend drops other weights.
        backend: "auto", the fastest by estimate of those that can run, or the one to use. "dense": torch's SDPA on all
            T x S pairs, with the graph as its mask. "tiles": blocks of targets, each with the sources that they read,
            as a few batched dense products. "parts": the crowded part of a graph as tiles, the rest as edges, mixed
            exactly by log-sum-exp. "edges": fused kernels over the edges (CPU). "message_passing": plain torch
            operations edge by edge, the definition; runs everything, slowly.
        return_weights: Also return :class:`EdgeWeights`: alpha (..., E, H), before dropout.
        return_lse: Also return the log of the sum of exponentials, (..., T, H); -inf for targets without an edge.

    Returns:
        The output (..., T, H, D_v) in the inputs' dtype (or autocast's), or an :class:`AttentionOutput` if weights or
        lse were asked for; these are float32 or wider.

    Raises:
        ShapeError: If the tensors do not fit the graph or each other.
        GraphError: If the graph's edges are on another device.
        OptionError: If a number or name is out of range.
        BackendError: If the backend named cannot run this, with its reasons.

    Example:
        >>> import torch, graphattn as ga
        >>> x = torch.arange(6.0).reshape(3, 1, 2)
        >>> ga.attention(x, x, x, ga.graphs.causal(3))[0, 0]  # the first token reads only itself
        tensor([0., 1.])
    """
    check_flags(return_weights=return_weights, return_lse=return_lse)
    found = sized(graph, query, key)
    inputs = check(query, key, value, found, score_bias, scale, softcap, dropout_p)
    return run(found, inputs, backend, return_weights, return_lse)


def sized(graph: Any, query: Any, key: Any, past: int = 0) -> Any:
    """A pattern as a graph of as many targets and sources as ``query`` and ``key`` (..., nodes, heads, width) have.

    ``past`` sources come before those of ``key``: those in a cache.
    """
    if not isinstance(graph, Pattern):
        return graph
    for name, x in (("query", query), ("key", key)):
        if not isinstance(x, Tensor) or x.dim() < 3:
            raise ShapeError(f"{name} must be a tensor (..., nodes, heads, width), got {_shape_of(x)}")
    return of_size(graph, query.shape[-3], key.shape[-3] + past)


def of_size(pattern: Pattern, size: int | tuple[int, ...], num_sources: int | None = None) -> AttentionGraph:
    """``pattern(size, num_sources)``, where torch.compile may follow the caller; a grid's size is a tuple."""
    size = tuple(map(index, size)) if isinstance(size, tuple) else index(size)  # a dynamic size becomes a constant
    num_sources = None if num_sources is None else index(num_sources)
    _make(pattern, size, num_sources)
    return getattr(pattern.made, cache_key(size, num_sources))


@torch.compiler.assume_constant_result  # Python that torch.compile does not follow
def _make(pattern: Pattern, size: int | tuple[int, ...], num_sources: int | None) -> None:
    pattern(size, num_sources)


def _shape_of(x: Any) -> str:
    return str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__


def run(
    graph: AttentionGraph | PerHead, inputs: Inputs, backend: str, weights: bool, lse: bool
) -> Tensor | AttentionOutput:
    """Choose a backend for checked inputs and run it."""
    per_head = graph if isinstance(graph, PerHead) else None
    if isinstance(graph, PerHead) and (inputs.score is not None or inputs.normalize is not None):
        inputs, graph = as_bias(graph, inputs), graph.union()  # these take all heads at once
    if isinstance(graph, PerHead):
        found = join(
            graph,
            [_run(part, its, backend, weights, lse) for part, its in split(graph, inputs)],
            inputs.query.shape[-2],
        )
    else:
        found = _run(graph, inputs, backend, weights, lse)
    if not (weights or lse):
        return found.output
    edges = graph.union() if isinstance(graph, PerHead) else graph
    alpha = EdgeWeights(edges, found.alpha, per_head) if weights and found.alpha is not None else None
    return AttentionOutput(found.output, alpha, found.lse if lse else None)


def _run(graph: AttentionGraph, inputs: Inputs, backend: str, weights: bool, lse: bool) -> Outputs:
    request = inputs.request(weights, lse)
    name = _constant_choice(
        graph,
        backend,
        *(request.heads, request.kv_heads, request.head_dim, request.value_dim, request.batch),
        *(request.dtype, request.device, request.score_bias, request.softcap, request.dropout),
        *(weights, lse, request.edge_features, request.score, request.normalize),
    )
    return BACKENDS[name].run(graph, inputs, weights=weights, lse=lse)


@torch.compiler.assume_constant_result  # Python on the graph's structure: torch.compile keeps the answer
def _constant_choice(graph: AttentionGraph, backend: str, *request: Any) -> str:
    return choose(graph, Request(*request), backend)


@kinds_checked("heads", "head_dim", "kv_heads", "value_dim", "batch")
def explain(
    graph: AttentionGraph | PerHead,
    *,
    heads: int = 8,
    head_dim: int = 64,
    kv_heads: int | None = None,
    value_dim: int | None = None,
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    **options: Any,
) -> Explanation | HeadsExplanation:
    """What would run on this graph, at what estimated cost, and why not the others.

    Args:
        graph: The graph, or graphs of heads.
        heads: H, heads of the query; ``kv_heads`` of key and value, the same by default.
        head_dim: D, width of a head; ``value_dim`` of the values, the same by default.
        batch: Product of the leading dimensions.
        dtype: Of query, key and value.
        device: Where they are.
        options: What else the call would pass, spelled as there: ``score_bias``, ``softcap``, ``dropout_p``,
            ``return_weights``, ``return_lse``; and ``edge_attr``, ``score``, ``normalize`` of a layer. ``True`` stands
            for any tensor, number or function.

    Returns:
        An :class:`Explanation`, or one for each group of heads; print it.
    """
    if isinstance(graph, Pattern):
        raise GraphError(f"{graph!r} has no size yet; explain the graph of one, pattern(num_nodes)")
    if not isinstance(graph, AttentionGraph | PerHead):
        raise no_graph(graph, "graph must be an AttentionGraph")
    for option in options:
        if option not in _FLAGS:
            raise OptionError(f"explain knows the options {', '.join(_FLAGS)}; got {option!r}")
    flags = {_FLAGS[option]: isinstance(value, Tensor) or bool(value) for option, value in options.items()}
    checked_dtype(dtype, floating=True)
    for name, size in (("head_dim", head_dim), ("value_dim", value_dim), ("batch", batch)):
        if size is not None and size < 0:
            raise OptionError(f"{name} must be a whole number >= 0, got {size}")
    value_dim = head_dim if value_dim is None else value_dim
    kv_heads = heads if kv_heads is None else kv_heads
    if min(heads, kv_heads) < 0 or (heads % kv_heads if kv_heads else heads) != 0:
        raise OptionError(f"heads must be a multiple of kv_heads >= 1, got heads={heads} and kv_heads={kv_heads}")
    request = Request(heads, kv_heads, head_dim, value_dim, batch, dtype, device_named(device), **flags)
    if isinstance(graph, PerHead):
        return HeadsExplanation.of(graph, request)
    return explained(graph, request)


def check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: AttentionGraph | PerHead,
    score_bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    edge_attr: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> Inputs:
    """The arguments of :func:`attention` as inputs for a backend, or the error that says what does not fit.

    ``edge_weight`` (H_kv, D, F) times ``edge_attr`` (..., E, F) is added to the key and to the value of each edge.
    """
    if not isinstance(graph, AttentionGraph | PerHead):
        raise no_graph(graph, "graph must be an AttentionGraph")
    query, key, value = _under_autocast(query, key, value)
    _check_tensors(query, key, value, graph)
    if score_bias is not None:
        score_bias = _check_bias(score_bias, query, graph)
    for name, x in (("edge_attr", edge_attr), ("edge_weight", edge_weight)):
        if x is not None:
            _check_storage(name, x, query)
    check_numbers(scale, softcap, dropout_p)
    lead = _common_lead(query, key, value, score_bias, edge_attr)
    query, key, value = (x.expand(*lead, *x.shape[-3:]) for x in (query, key, value))
    scale, softcap = (x if x is None else float(x) for x in (scale, softcap))  # torch's whole numbers end at 2**63
    if scale is None:
        scale = query.shape[-1] ** -0.5 if query.shape[-1] else 1.0
    return Inputs(query, key, value, scale, softcap, score_bias, dropout_p, edge_attr, edge_weight)


def check_numbers(scale: float | None, softcap: float | None, dropout_p: float) -> None:
    """Refuse a scale that is not finite, a softcap that is not above 0, a dropout that is no probability."""
    numbers = (("scale", scale), ("softcap", softcap), ("dropout_p", dropout_p))
    for name, number in numbers:
        if not (isinstance(number, Real) or (number is None and name != "dropout_p")):
            hint = "; a learned factor multiplies the query" * isinstance(number, Tensor)
            raise OptionError(f"{name} must be a number, got {type(number).__name__}{hint}")
        if isinstance(number, int) and abs(number) > _LARGEST:
            raise OptionError(f"{name} must be a number within float64, got an int of {number.bit_length()} bits")
    if scale is not None and not -math.inf < scale < math.inf:
        raise OptionError(f"scale must be finite, got {scale}")
    if softcap is not None and not 0 < softcap < math.inf:
        raise OptionError(f"softcap must be finite and > 0, got {softcap}; None means no cap")
    if not 0.0 <= dropout_p <= 1.0:
        raise OptionError(f"dropout_p must be in [0, 1], got {dropout_p}")


def _check_storage(name: str, x: Tensor, query: Tensor) -> None:
    """Refuse a tensor that is elsewhere than the query, or that does not store its numbers one by one."""
    if x.is_nested:
        raise ShapeError(
            f"{name} must be one strided tensor, got a nested one; graphs of several sizes are one disjoint_union, and "
            "their nodes are concatenated"
        )
    if x.layout != torch.strided:
        raise ShapeError(f"{name} must be strided, got {x.layout}; pass {name}.to_dense()")
    if x.device != query.device:
        raise ShapeError(f"{name} is on {x.device} and query on {query.device}; move one of them")


def _under_autocast(*given: Any) -> tuple[Any, ...]:
    """Query, key and value as autocast gives them to SDPA: all but float64 in its dtype."""
    device = given[0].device.type if isinstance(given[0], Tensor) else "meta"
    if device == "meta" or not torch.is_autocast_enabled(device):
        return given
    dtype = torch.get_autocast_dtype(device)
    joined = [isinstance(x, Tensor) and x.device.type == device and x.dtype in FLOATS[:3] for x in given]
    return tuple(x.to(dtype) if join else x for x, join in zip(given, joined, strict=True))


def _check_tensors(query: Tensor, key: Tensor, value: Tensor, graph: AttentionGraph | PerHead) -> None:
    sides = (("query", query, graph.num_targets, "targets"), ("key", key, graph.num_sources, "sources"))
    for name, x, size, side in (*sides, ("value", value, graph.num_sources, "sources")):
        if not isinstance(x, Tensor):
            raise ShapeError(f"{name} must be a tensor, got {type(x).__name__}")
        _check_storage(name, x, query)
        if x.dim() < 3:
            raise ShapeError(f"{name} must have shape (..., {side}, heads, width), got {tuple(x.shape)}")
        if x.shape[-3] != size:
            raise ShapeError(
                f"{name} has {x.shape[-3]} nodes (shape {tuple(x.shape)}), but the graph has {size} {side}; "
                "tensors are node-first: (..., nodes, heads, width)"
            )
        if x.dtype not in FLOATS or x.dtype != query.dtype:
            expected = "float16, bfloat16, float32 or float64" if x.dtype not in FLOATS else f"{query.dtype} like query"
            wide = torch.is_autocast_enabled(query.device.type) and torch.float64 in (x.dtype, query.dtype)
            raise ShapeError(f"{name} must be {expected}, got {x.dtype}" + "; autocast leaves float64 as it is" * wide)
    if not graph.is_rule and graph.device != query.device:
        raise GraphError(f"the graph is on {graph.device} and query on {query.device}; use graph.to(query.device)")
    if query.device.type == "meta":
        raise ShapeError("query is on meta, whose tensors hold no numbers; move it to a device that does")
    heads, kv_heads = query.shape[-2], key.shape[-2]
    if key.shape[-1] != query.shape[-1]:
        raise ShapeError(f"key has width {key.shape[-1]} and query {query.shape[-1]}; they are multiplied")
    if value.shape[-2] != kv_heads:
        raise ShapeError(f"value has {value.shape[-2]} heads and key {kv_heads}; they go together")
    if (heads % kv_heads if kv_heads else heads) != 0:
        raise ShapeError(f"query has {heads} heads, which is not a multiple of key's and value's {kv_heads}")


def _common_lead(query: Tensor, key: Tensor, value: Tensor, *of_edges: Tensor | None) -> torch.Size:
    leads = [x.shape[:-3] for x in (query, key, value)] + [x.shape[:-2] for x in of_edges if x is not None]
    try:
        return torch.broadcast_shapes(*leads)
    except RuntimeError:
        shown = ", ".join(str(tuple(lead)) for lead in leads)
        raise ShapeError(
            f"the leading dimensions of query, key, value (and of score_bias and edge_attr) do not broadcast: {shown}"
        ) from None


def _check_bias(score_bias: Tensor, query: Tensor, graph: AttentionGraph | PerHead) -> Tensor:
    E, heads = graph.num_edges, query.shape[-2]
    if not isinstance(score_bias, Tensor):
        raise ShapeError(f"score_bias must be a tensor, got {type(score_bias).__name__}")
    if not score_bias.is_floating_point():
        hint = " (a mask removes edges from the graph: graph & from_mask(mask))" * (score_bias.dtype == torch.bool)
        raise ShapeError(f"score_bias must be floating point, got {score_bias.dtype}{hint}")
    _check_storage("score_bias", score_bias, query)
    shape = tuple(score_bias.shape)
    if shape == (E,):
        return score_bias.unsqueeze(-1)
    if len(shape) >= 2 and shape[-2] == E and shape[-1] in (1, heads):
        return score_bias
    raise ShapeError(
        f"score_bias must have shape ({E},), ({E}, {heads}) or (..., {E}, {heads}) for {E} edges and {heads} heads, "
        f"in the graph's edge order; got {shape}"
    )
