"""Attention on a graph, and the explanation of the backend that runs it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .arguments import device as available
from .arguments import dtype as checked_dtype
from .arguments import whole
from .backends.choose import Explanation, HeadsExplanation, explain_choice
from .backends.edge_terms import with_edge_terms, with_score
from .backends.inputs import FLOATS, inputs_of
from .backends.place_bias import has_places
from .backends.request import Request
from .backends.rows import NAMES, ROWS, is_product, is_softmax, of_rows, sigmoid_of
from .backends.run import run
from .backends.weights import EdgeWeights
from .errors import GraphError, OptionError
from .graph import AttentionGraph, Chosen, Pattern, PerExample, PerHead
from .graph.foreign_names import names_checked
from .graph.kinds.per_example import as_examples
from .graph.like import GraphLike, need_fixed, sized
from .plans.edge_tensors import EdgeTensors

_FLAGS = {  # arguments of a call -> fields of a Request
    "score_bias": "score_bias",
    "softcap": "softcap",
    "dropout_p": "dropout",
    "return_weights": "weights",
    "return_lse": "lse",
    "edge_attr": "edge_features",
    "score": "score",
    "normalize": "normalize",
    "cap_bias": "cap_bias",
}


class AttentionOutput(NamedTuple):
    """The output, with the weights and lse if requested, else ``None``."""

    output: Tensor
    weights: EdgeWeights | None
    lse: Tensor | None


@names_checked
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: AttentionGraph | PerHead | PerExample | Chosen | EdgeTensors | Pattern | Sequence[Any],
    score_bias: Tensor | dict[GraphLike, Tensor | None] | Callable[..., Any] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    backend: str = "auto",
    return_weights: bool = False,
    return_lse: bool = False,
    edge_key: Tensor | None = None,
    edge_value: Tensor | None = None,
    score: Callable[..., Tensor] | None = None,
) -> Tensor | AttentionOutput:
    r"""Softmax attention in which a target reads only the sources with an edge to it.

    .. math::
        \mathrm{score}_{ts} = c \tanh(\lambda \langle q_t, k_s \rangle / c) + b_{ts}, \qquad
        o_t = \sum_{s \in \mathcal{N}(t)} \mathrm{softmax}_s(\mathrm{score}_{ts}) \, v_s

    A target without an edge gives 0, with gradients of exactly 0. Leading dimensions share the
    graph and broadcast, unless it is a graph for each example. Softmax is computed in float32
    or wider, everything else in the inputs' dtype. Under ``torch.autocast`` query, key and value
    are cast to its dtype unless they are float64, as by torch's SDPA; scores, biases and edge
    features are not. It is differentiable any number of times, also by ``torch.func``; compiled
    code, once.

    Tensors are node-first: nodes, then heads, then width (torch's SDPA has heads first).

    A NaN or inf in a source that no target reads, or in a target without edges, changes nothing. In
    a source that is read it spreads to the targets that read it; where a dense product runs
    (dense, tiles but by their block kernel) possibly to other targets, too (:func:`explain` notes
    it), but never on ``backend="edges"`` and ``"message_passing"``. :func:`graphattn.analysis.find_nonfinite` finds the
    origin.

    Args:
        query: (..., T, H, D), float16, bfloat16, float32 or float64.
        key: (..., S, H_kv, D); head ``h`` of the query reads head ``h // (H / H_kv)``.
        value: (..., S, H_kv, D_v).
        graph: T targets and S sources. Or a :class:`PerHead`, a graph for each head or group of
            heads, whose edge order is that of its union; or a :class:`PerExample`, or a list, a
            graph for each example of the last leading dimension; or a :class:`Pattern`, sized to T targets
            and S sources, whose edges ``query`` and ``key`` may choose, ``graphs.top_k(..., 8)``;
            or :class:`EdgeTensors`, which are inputs of a compiled program.
        score_bias: Added to the scores, in the graph's edge order: (E,), (E, H) or (..., E, H); one
            of 1 head or example is shared by all, as SDPA's mask is. Of a matrix (T, S) or
            (..., H, T, S) ``graph.edge_values(matrix)``, and of a full rule the matrix itself; what
            could be either is read as edges, or refused for one source. Or a function of the graph
            that makes it, such as a module: :class:`graphattn.nn.ALiBi`, ``T5Bias``, ``SwinBias``
            and ``SwinV2Bias`` are then read from a table of places where a kernel can, a twentieth
            to a third slower than no bias. Or a dict of biases of
            parts, ``{near: bias}`` for ``top_k(..., 8) | near``, each in its part's edge order or a module, and
            0 elsewhere or for None. -inf removes an edge: with
            (B, E, 1), for examples of different lengths,
            ``torch.zeros(B, E, 1).masked_fill((graph.source >= lengths[:, None])[..., None], -torch.inf)``,
            though :func:`graphattn.disjoint_union` costs less. A row of the dtype's lowest number gives
            equal weights.
        scale: Factor on the product, ``D ** -0.5`` by default; 0.0 means 0.0.
        softcap: The bound c on the scaled product, > 0; none by default.
        dropout_p: Probability of dropping a weight, per edge and head, after normalising. A seed
            fixes the dropped weights on one backend; backends differ.
        backend: "auto", the fastest by estimate of those that can run, or the one to use. "dense":
            torch's SDPA on all T x S pairs, with the graph as its mask. "tiles": blocks of targets,
            each with its sources: on the CPU one kernel, else a few batched dense products. "edges": fused kernels over the
            edges (CUDA: Triton). "message_passing": plain torch operations edge by edge, the
            definition; runs every call, slowly.
        return_weights: Also return :class:`EdgeWeights`: alpha (..., E, H), before dropout, from
            which the output is computed, so that it has gradients; ``"tiles"`` returns none.
        return_lse: Also return the log of the sum of exponentials, (..., T, H); -inf for targets
            without an edge.
        edge_key: Features of edges (..., E, H, D) that are added to the key that a target reads
            along the edge; H may be H_kv, or 1 for all heads. Where examples have as many edges,
            also (..., B, E_b, H, D).
        edge_value: The same, added to the value, where D_v is D.
        score: A function ``score(query, key, edge_attr)`` of edges in place of the scaled product,
            from (..., E, H, D) twice and None to (..., E, H); :func:`graphattn.convert.from_score_mod`
            makes one of FlexAttention's. It excludes ``scale``, ``edge_key`` and ``edge_value``.

    Returns:
        The output (..., T, H, D_v) in the inputs' dtype (or autocast's), or an
        :class:`AttentionOutput` if weights or lse were requested; these are float32 or wider.

    Raises:
        ShapeError: If the tensors do not fit the graph or each other.
        GraphError: If the graph's edges are on another device.
        OptionError: If a number or name is out of range.
        BackendError: If the named backend cannot run the call; it lists the reasons.

    Example:
        >>> import torch, graphattn as ga
        >>> x = torch.arange(6.0).reshape(3, 1, 2)
        >>> ga.attention(x, x, x, ga.graphs.causal(3))[0, 0]  # the first token reads only itself
        tensor([0., 1.])
    """
    if isinstance(graph, list | tuple):
        graph = as_examples(graph)
    sized_graph = sized(graph, query, key)
    inputs = inputs_of(query, key, value, sized_graph, score_bias, scale, softcap, dropout_p)
    if score is not None:
        if edge_key is not None or edge_value is not None:
            raise OptionError("a score excludes edge_key and edge_value, terms of the product")
        inputs = with_score(inputs, sized_graph, score, scale)
    elif edge_key is not None or edge_value is not None:
        inputs = with_edge_terms(inputs, sized_graph, edge_key, edge_value)
    outputs = run(sized_graph, inputs, backend, return_weights, return_lse)
    if not (return_weights or return_lse):
        return outputs.output
    weights = None
    if return_weights and outputs.alpha is not None:
        weights = EdgeWeights.of(sized_graph, outputs)
    lse = None
    if return_lse:
        lse = outputs.lse
    return AttentionOutput(outputs.output, weights, lse)


def explain(
    graph: AttentionGraph | PerHead | PerExample | Sequence[Any],
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
    """The backend that would run on this graph, its estimate, and reasons against the others.

    Args:
        graph: The graph, or graphs of heads; of graphs of examples, the one graph of all of them
            side by side.
        heads: H, heads of the query; ``kv_heads`` of key and value, the same by default.
        head_dim: D, width of a head; ``value_dim`` of the values, the same by default.
        batch: Product of the leading dimensions; for graphs of examples, of those before them.
        dtype: Dtype of query, key and value.
        device: Their device; it must be available, as its kernels are tried.
        options: Other arguments of the call, by the same names: ``score_bias``, ``softcap``,
            ``dropout_p``, ``return_weights``, ``return_lse``; of a layer ``edge_attr``, ``score``,
            ``normalize``, ``cap_bias``. ``True`` stands for any tensor, number or function;
            ``score`` and ``normalize`` may be the layer's, or their names.

    Returns:
        An :class:`Explanation`, or one for each group of heads, to be printed.
    """
    examples = 1
    if isinstance(graph, list | tuple):
        graph = as_examples(graph)
    if isinstance(graph, PerExample):
        if graph.is_open:
            raise GraphError(
                f"graph must have a size, got {graph!r}; give it one, graphs.at(num_nodes)"
            )
        graph, examples = graph._as_run()
    need_fixed(graph, "graph must be an AttentionGraph")
    _check_options(options)
    if kv_heads is None:
        kv_heads = heads
    if value_dim is None:
        value_dim = head_dim
    sizes = _request_of_sizes(heads, kv_heads, head_dim, value_dim, batch, dtype, device)
    request = _with_options(sizes._replace(batch=sizes.batch * examples), options, graph)
    if isinstance(graph, PerHead):
        return HeadsExplanation.of(graph, request)
    assert isinstance(graph, AttentionGraph)
    return explain_choice(graph, request)


def _check_options(options: dict[str, Any]) -> None:
    """Refuse options that no call has, and names that no score or normalisation has."""
    for option, value in options.items():
        if option not in _FLAGS:
            raise OptionError(f"explain takes the options {', '.join(_FLAGS)}; got {option!r}")
        if not isinstance(value, str):
            continue
        names = NAMES.get(option, [])
        if value in names:
            continue
        expected = "True, or an argument of the call"
        if names:
            expected += f"; one of {', '.join(names)}"
        raise OptionError(f"{option} must be {expected}; got {value!r}")


def _request_of_sizes(
    heads: int,
    kv_heads: int,
    head_dim: int,
    value_dim: int,
    batch: int,
    dtype: torch.dtype,
    device: torch.device | str,
) -> Request:
    """The request of a call without options.

    Raises:
        OptionError: If a size is not a whole number, ``kv_heads`` does not divide ``heads``, or
            the device is not here.
    """
    if checked_dtype(dtype, floating=True) not in FLOATS:
        raise OptionError(f"dtype must be float16, bfloat16, float32 or float64, got {dtype}")
    request = Request(
        head_dim=whole(head_dim, "head_dim", 0),
        value_dim=whole(value_dim, "value_dim", 0),
        batch=whole(batch, "batch", 0),
        heads=whole(heads, "heads"),
        kv_heads=whole(kv_heads, "kv_heads"),
        dtype=dtype,
        device=available(device),
    )
    if not _divides(request.kv_heads, request.heads):
        raise OptionError(
            f"heads must be a multiple of kv_heads >= 1, got heads={heads} and kv_heads={kv_heads}"
        )
    return request


def _divides(kv_heads: int, heads: int) -> bool:
    """True if queries share keys evenly; no heads at all are an empty call."""
    if min(heads, kv_heads) < 0:
        return False
    if kv_heads == 0:
        return heads == 0
    return heads % kv_heads == 0


def _with_options(request: Request, options: dict[str, Any], graph: Any) -> Request:
    """The request of a call on a graph with these options of :func:`explain`."""
    flags: dict[str, Any] = {_FLAGS[name]: _is_set(value) for name, value in options.items()}
    if is_product(options.get("score")):
        flags["score"] = False
    normalize = options.get("normalize")
    if is_softmax(normalize):
        flags["normalize"] = False
    if isinstance(normalize, str):
        flags["of_rows"] = normalize in ROWS
        flags["sigmoid"] = normalize == "sigmoid"
    else:
        flags["of_rows"] = of_rows(normalize) is not None
        flags["sigmoid"] = sigmoid_of(normalize) is not None
    flags["by_place"] = has_places(options.get("score_bias"), graph)
    request = request._replace(**flags)
    if not request.dropout:
        request = request._replace(trains=torch.is_grad_enabled())
    if request.softcap and request.score_bias:
        return request
    return request._replace(cap_bias=False)  # without both there is nothing to bound


def _is_set(value: Any) -> bool:
    """True for any tensor, and for what is true."""
    if isinstance(value, Tensor | np.ndarray):
        return True
    return bool(value)
