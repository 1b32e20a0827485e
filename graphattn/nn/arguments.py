"""Input validation for GraphAttention."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from inspect import signature
from numbers import Real
from typing import Any, Never, TypeVar

import torch
from torch import Tensor, nn

from ..arguments import check_shape, positive, shown
from ..errors import BackendError, GraphError, OptionError, ShapeError
from ..graph import AttentionGraph, need_nodes
from ..graph.advice import advice, of_other_size
from ..graph.edge_index import from_edge_index
from ..graph.kinds.per_example import as_examples
from ..graph.like import GraphLike
from ..plans.edge_tensors import EdgeTensors

BIASED = ("q", "k", "v", "out")  # projections that may have a bias
_EPSILON = 1e-6  # of an RMS norm that is called by its word
Pair = tuple[Tensor, Tensor]
T = TypeVar("T")


def made_with(make: Callable[..., T], **sizes: Any) -> T:
    """``make`` called with the sizes that it accepts."""
    takes = signature(make).parameters
    return make(**{name: size for name, size in sizes.items() if name in takes})


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


def graph_of(graph: Any, x: Tensor, sources: Any, backend: str) -> Any:
    """The graph from :class:`Sources` to the targets ``x``; a pattern or an ``edge_index`` is sized
    to them.
    """
    cached = sources.cached
    key = sources.key
    if isinstance(graph, list | tuple):
        graph = as_examples(graph)
    if not isinstance(graph, GraphLike):
        graph = _listed(graph, x.shape[-2], key.shape[-2] + cached, backend)
    if graph.is_open:
        dropped = sources.past - cached
        graph = graph._sized_for(x.unsqueeze(-2), key.unsqueeze(-2), cached, dropped)
    T = graph.num_targets
    S = graph.num_sources - cached
    if x.shape[-2] != T or key.shape[-2] != S or sources.value.shape[-2] != S:
        _refuse_sizes(graph, x, sources, cached)
    return graph


def of_size(graph: Any, size: tuple[int, int], backend: str) -> Any:
    """The graph of an ``edge_index`` between (sources, targets), PyG's ``size``."""
    num_sources, num_targets = size
    if not isinstance(graph, GraphLike):
        return _listed(graph, num_targets, num_sources, backend)
    need_nodes(graph, f"a graph beside size={tuple(size)}", num_targets, num_sources)
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
    raise ShapeError(
        f"x has {x.shape[-2]} nodes and the sources {key.shape[-2]}, but the graph has {T} targets "
        f"and {S} sources; features are (..., nodes, width), and x as a pair is (sources, targets)"
        f"{of_other_size(graph, x.shape[-2])}"
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


def _listed(
    edge_index: Any,
    num_targets: int,
    num_sources: int,
    backend: str,
) -> AttentionGraph | EdgeTensors:
    """The graph of an ``edge_index``; its tensors in a compiled program that can run on them."""
    is_sparse = isinstance(edge_index, Tensor) and edge_index.layout != torch.strided
    is_traced = torch.jit.is_tracing()
    if type(edge_index) is Tensor and (is_traced or torch.compiler.is_compiling()):
        if not is_sparse and backend in ("auto", *EdgeTensors._only_backends):
            return EdgeTensors.of_index(edge_index, num_sources, num_targets)
        if is_traced:
            raise BackendError(
                f"torch.jit.trace would record the edges of one call in a plan for {backend!r}; "
                'pass an edge_index (2, E) to backend "auto", or a graph'
            )
    if is_sparse:
        return _of_sparse(edge_index, num_targets, num_sources)
    way = advice(edge_index)
    if way is None and not (
        isinstance(edge_index, list | tuple) or hasattr(edge_index, "__array__")
    ):
        way = "a builder makes one, such as graphattn.graphs.full(num_nodes)"
    if way is not None:
        raise GraphError(
            "graph must be an AttentionGraph or an edge_index (2, E), got a "
            f"{type(edge_index).__name__}; {way}"
        )
    return from_edge_index(edge_index, num_sources=num_sources, num_targets=num_targets)


def _of_sparse(adj_t: Tensor, num_targets: int, num_sources: int) -> AttentionGraph:
    """The graph of PyG's transposed adjacency: a sparse tensor with a row for each target."""
    sizes = (num_targets, num_sources)
    check_shape(adj_t, "graph as a sparse tensor", sizes, "as PyG's adj_t", GraphError)
    entries = adj_t.to_sparse_coo().coalesce()
    if bool((entries.values() != 1).any()):
        raise GraphError(
            "graph is a sparse tensor with values other than 1: pass "
            "adj_t.to_sparse_coo().coalesce().indices().flip(0) as edge_index, and the values as "
            "edge_attr to a layer with edge_dim=1"
        )
    return from_edge_index(entries.indices().flip(0), num_sources, num_targets)


def check_features(name: str, features: Tensor, nodes: str | None, width: int) -> None:
    """Refuse anything but (..., nodes, width), or (..., width) for no ``nodes``."""
    is_tensor = isinstance(features, Tensor)
    if is_tensor and features.dim() > (nodes is not None) and features.shape[-1] == width:
        return
    shape = f"(..., {nodes}, {width})"
    if nodes is None:
        shape = f"(..., {width})"
    got = tuple(features.shape) if is_tensor else shown(features)
    raise ShapeError(f"{name} must have shape {shape}, got {got}")
