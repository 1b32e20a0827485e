"""Input validation for GraphAttention."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from inspect import Parameter, signature
from numbers import Real
from typing import Any, Never, TypeVar

import torch
from torch import Tensor, nn

from ..arguments import check_flags, one_of, positive, probability, shown
from ..backends.choose import BACKENDS
from ..errors import GraphError, GraphIndexError, OptionError, ShapeError
from ..graph import AttentionGraph
from ..graph.advice import advice, of_other_size
from ..graph.edge_index import from_edge_index
from ..graph.kinds.per_example import as_examples
from ..graph.like import GraphLike

BIASED = ("q", "k", "v", "out")  # projections that may have a bias
_EPSILON = 1e-6  # of an RMS norm that is called by its word
Pair = tuple[Tensor, Tensor]
T = TypeVar("T")


def made_with(make: Callable[..., T], **sizes: Any) -> T:
    """``make`` called with the sizes that it accepts."""
    takes = signature(make).parameters
    return make(**{name: size for name, size in sizes.items() if name in takes})


def check_names(options: Mapping[str, Any], *makers: Callable[..., Any]) -> None:
    """Refuse options that none of the constructors accepts; the error lists the valid ones."""
    parameters = [
        p
        for make in makers
        for p in signature(make).parameters.values()
        if p.kind != Parameter.VAR_KEYWORD
    ]
    names = {p.name for p in parameters} - {"self"}
    for name in options:
        if name not in names:
            near = "".join(
                f"; did you mean {close!r}" for close in get_close_matches(name, names, 1)
            )
            raise OptionError(
                f"there is no option {name!r}{near}; pass one of {', '.join(sorted(names))}"
            )


def check_options(dropout: Any, backend: Any, **flags: Any) -> None:
    """Refuse a dropout that is not a probability, an unknown backend, a flag that is neither True
    nor False.
    """
    check_flags(**flags)
    probability(dropout, "dropout")
    one_of(backend, "backend", ("auto", *BACKENDS))


def names_of_biased(bias: Any) -> Sequence[str]:
    """The projections that have a bias, of :data:`BIASED`, from True, False or their names."""
    if isinstance(bias, bool):
        return BIASED if bias else ()
    is_list = isinstance(bias, Sequence) and not isinstance(bias, str)
    if not is_list or not all(name in BIASED for name in bias):
        raise OptionError(f"bias must be True, False or some of {BIASED}, got {shown(bias)}")
    return bias


def norm_of_heads(norm: Any, width: int) -> nn.Module | None:
    """A norm of vectors (..., width): by its word, its epsilon, or a copy of a module."""
    if norm is None:
        return None
    if isinstance(norm, nn.Module):
        return deepcopy(norm)
    if norm == "layer":
        return nn.LayerNorm(width)
    if norm == "rms":
        norm = _EPSILON
    if isinstance(norm, str | bool) or not isinstance(norm, Real):
        raise OptionError(
            f'qk_norm must be "rms", "layer", an epsilon > 0 or a module, got {shown(norm)}'
        )
    return nn.RMSNorm(width, positive(norm, "qk_norm"))


def refuse_unnamed(unnamed: tuple[Any, ...]) -> None:
    """Refuse positional arguments after the graph: PyG's third is ``edge_attr``, others expect
    ``context``.
    """
    if unnamed:
        if isinstance(unnamed[0], Tensor):
            got = f"a tensor {tuple(unnamed[0].shape)}"
        else:
            got = repr(unnamed[0])
        raise OptionError(
            "after x and graph every argument is passed by name: layer(x, graph, edge_attr=...) "
            "for features of edges "
            "(the third argument of PyG's layers), layer(x, graph, context=...) for other "
            f"sources; got {got} without "
            "a name"
        )


def check_kind(layer: nn.Module, name: str, features: Tensor) -> None:
    """Refuse features on another device than the projection that reads them, or of a dtype that
    autocast cannot cast.

    Parameters on meta pass, since a hook may load them later (offloading).
    """
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor):
        weight = next(layer.parameters(), None)  # None if a quantised layer replaced it
    if weight is None or (features.dtype == weight.dtype and features.device == weight.device):
        return
    if features.device != weight.device and weight.device.type != "meta":
        raise ShapeError(
            f"{name} is on {features.device} and the layer's parameters on {weight.device}; move "
            "one of them"
        )
    if features.dtype == weight.dtype:
        return
    joined = all(
        dtype.is_floating_point and dtype != torch.float64
        for dtype in (features.dtype, weight.dtype)
    )
    if joined and torch.is_autocast_enabled(features.device.type):
        return
    if features.is_floating_point():
        other = f", or convert the layer with layer.to({features.dtype})"
    else:
        other = ""
    raise ShapeError(
        f"{name} is {features.dtype}, and the layer's parameters are {weight.dtype}; pass "
        f"{name}.to({weight.dtype}){other}"
    )


def check_input(
    name: str, features: Any, width: int, reader: nn.Module, nodes: str | None = "N"
) -> None:
    """Refuse anything but features (..., nodes, width) of the dtype and device of the first
    parameters that read them.

    ``nodes=None`` is for modules that read each node separately, (..., width). A norm in float32
    also reads halves.
    """
    check_features(name, features, nodes, width)
    if not (
        isinstance(reader, nn.LayerNorm | nn.RMSNorm)
        and features.dtype in (torch.float16, torch.bfloat16)
    ):
        check_kind(reader, name, features)


def graph_of(graph: Any, x: Tensor, sources: Any) -> Any:
    """The graph from :class:`Sources` to the targets ``x``; a pattern or an ``edge_index`` is sized
    to them.
    """
    cached = sources.cached
    key = sources.key
    if not isinstance(graph, GraphLike):
        graph = _graph_of(graph, x.shape[-2], key.shape[-2] + cached)
    if graph.is_open:
        dropped = sources.past - cached
        graph = graph._at_rows(x.unsqueeze(-2), key.unsqueeze(-2), cached, dropped)
    T = graph.num_targets
    S = graph.num_sources - cached
    if x.shape[-2] != T or key.shape[-2] != S or sources.value.shape[-2] != S:
        _refuse_sizes(graph, x, sources, cached)
    return graph


def _refuse_sizes(graph: Any, x: Tensor, sources: Any, cached: int) -> Never:
    key = sources.key
    T = graph.num_targets
    S = graph.num_sources - cached
    if sources.grows:
        _refuse_step(graph, sources)
    if key is x and x.shape[-2] == T:
        raise ShapeError(
            f"the graph has {S} sources and {T} targets, but x has features of the targets only; "
            f"pass context=, the sources' features (..., {S}, {key.shape[-1]}), or x as a pair "
            "(sources, targets)"
        )
    wrong = ("x", x, T, "targets")
    if x.shape[-2] == T:
        wrong = ("context", key, S, "sources")
        if key.shape[-2] == S:
            wrong = ("context", sources.value, S, "sources")
    name, features, size, side = wrong
    raise ShapeError(
        f"{name} has {features.shape[-2]} nodes (shape {tuple(features.shape)}), but the graph has "
        f"{size} {side}; features are (..., nodes, width), and x as a pair is (sources, targets)"
        f"{of_other_size(graph, features.shape[-2])}"
    )


def _refuse_step(graph: Any, sources: Any) -> Never:
    """Refuse a graph that is not that of new tokens, which read those in a cache and each other."""
    new = sources.key.shape[-2]
    end = sources.past + new
    remedy = f"pass a graph of {sources.cached + new} sources and {new} targets"
    if hasattr(graph, "subgraph") and min(graph.num_targets, graph.num_sources) >= end:
        first = sources.past - sources.cached
        remedy = (
            "for the next rows of a whole sequence's graph pass "
            f"graph.subgraph(targets=range({sources.past}, {end}), sources=range({first}, {end}))"
        )
    raise ShapeError(
        f"the graph has {graph.num_sources} sources and {graph.num_targets} targets, but the cache "
        f"holds {sources.cached} and x has {new} more; {remedy}"
    )


def _graph_of(value: Any, num_targets: int, num_sources: int) -> GraphLike:
    """The graph of a list of graphs, or of an ``edge_index``."""
    examples = as_examples(value)
    if isinstance(examples, GraphLike):
        return examples
    return _listed(value, num_targets, num_sources)


def _listed(edge_index: Any, num_targets: int, num_sources: int) -> AttentionGraph:
    if edge_index is None:
        raise GraphError(
            "graph is missing: pass layer(x, graph), an AttentionGraph or an edge_index (2, E); "
            "for a PyG Data "
            "layer(data.x, data.edge_index)"
        )
    way = advice(edge_index)
    if way is None and not (
        isinstance(edge_index, list | tuple) or hasattr(edge_index, "__array__")
    ):
        way = "a builder makes one, such as graphattn.graphs.full(num_nodes)"
    if way is not None:
        got = f"a {type(edge_index).__name__}"
        raise GraphError(
            f"graph must be an AttentionGraph or an edge_index (2, E), got {got}; {way}"
        )
    sizes = f"{num_sources} sources and {num_targets} targets"
    if hasattr(edge_index, "sparse_size"):
        sparse_size = edge_index.sparse_size()
    else:
        sparse_size = (None, None)
    if any(
        stated not in (None, actual)
        for stated, actual in zip(sparse_size, (num_sources, num_targets), strict=True)
    ):
        raise GraphError(
            f"graph is an EdgeIndex of sparse_size {sparse_size}, but the features have {sizes}"
        )
    try:
        return from_edge_index(edge_index, num_sources=num_sources, num_targets=num_targets)
    except GraphIndexError as error:
        raise GraphIndexError(f"{error} The features given to the layer have {sizes}.") from None


def check_features(name: str, features: Any, nodes: str | None, width: int) -> None:
    """Refuse anything but a dense tensor (..., nodes, width), or (..., width) for no ``nodes``."""
    dense = (
        isinstance(features, Tensor) and features.layout == torch.strided and not features.is_nested
    )
    if dense and features.dim() > (nodes is not None) and features.shape[-1] == width:
        return
    _refuse_features(name, features, nodes, width, dense)


def _refuse_features(name: str, features: Any, nodes: str | None, width: int, dense: bool) -> Never:
    """The ShapeError for what is no dense tensor (..., nodes, width)."""
    shape = f"(..., {nodes}, {width})"
    if nodes is None:
        shape = f"(..., {width})"
    if isinstance(features, Tensor) and not dense:
        layout = str(features.layout)
        way = f"pass {name}.to_dense()"
        if features.is_nested:
            layout = "a nested one"
            way = "for graphs of several sizes use disjoint_union, and concatenate their nodes"
        raise ShapeError(f"{name} must be a strided tensor {shape}, got {layout}; {way}")
    got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
    if hasattr(features, "edge_index"):
        hint = "; pass data.x, and data.edge_index as the graph"
    elif (name, nodes) == ("x", "T") and dense and features.shape[-1:] in ((2,), (3,)):
        hint = f"; coordinates go in as positions=, with edge_dim={features.shape[-1]}"
    else:
        hint = ""
    raise ShapeError(f"{name} must have shape {shape}, got {got}{hint}")


def pair_of(name: str, pair: tuple[Tensor, ...] | list[Tensor], of: str) -> Pair:
    """The two tensors of a pair."""
    if len(pair) != 2:
        raise ShapeError(
            f"{name} must be a tensor or a pair {of}, got a {type(pair).__name__} of {len(pair)}"
        )
    return pair[0], pair[1]
