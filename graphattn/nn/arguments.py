"""Input validation for GraphAttention."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..arguments import check_flags, one_of, probability
from ..backends.choose import BACKENDS
from ..errors import GraphError, GraphIndexError, OptionError, ShapeError
from ..graph import AttentionGraph, Pattern, PerHead
from ..graph.advice import advice, of_other_size
from ..graph.chosen import Chosen
from ..graph.edge_index import from_edge_index
from ..graph.pattern import sized
from ..plans.edge_tensors import EdgeTensors

Pair = tuple[Tensor, Tensor]
T = TypeVar("T")
_GRAPHS = (AttentionGraph, PerHead, Chosen, EdgeTensors)


def made_with(make: Callable[..., T], **sizes: Any) -> T:
    """``make`` called with the sizes that it accepts."""
    takes = signature(make).parameters
    return make(**{name: size for name, size in sizes.items() if name in takes})


def check_names(given: Mapping[str, Any], *makers: Callable[..., Any]) -> None:
    """Refuse options that none of the constructors accepts; the error lists the valid ones."""
    taken = [
        p
        for make in makers
        for p in signature(make).parameters.values()
        if p.kind != Parameter.VAR_KEYWORD
    ]
    known = {p.name for p in taken} - {"self"}
    for name in given:
        if name not in known:
            near = "".join(
                f"; did you mean {close!r}" for close in get_close_matches(name, known, 1)
            )
            raise OptionError(
                f"there is no option {name!r}{near}; pass one of {', '.join(sorted(known))}"
            )


def check_options(dropout: Any, backend: Any, **flags: Any) -> None:
    """Refuse a dropout that is not a probability, an unknown backend, a flag that is neither True
    nor False.
    """
    check_flags(**flags)
    probability(dropout, "dropout")
    one_of(backend, "backend", ("auto", *BACKENDS))


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


def features_of(
    x: Any, context: Any, widths: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The inputs of query, key and value, of the layer's widths (qdim, kdim, vdim)."""
    names = ("x", "context")
    if isinstance(x, tuple | list):
        if context is not None:
            raise OptionError("pass x as a pair (sources, targets), or x and context; not both")
        context, x = _pair("x", x, "(sources, targets)")
        names = ("x[1], the targets,", "x[0], the sources,")
    elif context is None:
        _check("x", x, "T", widths[0])
        if x.shape[-1] not in widths[1:] or widths[1] != widths[2]:
            raise ShapeError(
                f"x without context must have width kdim = {widths[1]} and vdim = {widths[2]} "
                "(embed_dim), got "
                f"{x.shape[-1]}; build the layer with kdim={x.shape[-1]}, vdim={x.shape[-1]}, or "
                "pass context=, the "
                f"sources' features (..., S, {widths[1]})"
            )
        return x, x, x
    _check(names[0], x, "T", widths[0])
    return x, *sources_of(context, widths[1:], names[1])


def sources_of(context: Any, widths: tuple[int, int], name: str = "context") -> Pair:
    """The inputs of key and value, of widths (kdim, vdim): one tensor for both, or a pair."""
    if isinstance(context, tuple | list):
        pair = _pair("context", context, "(for keys, for values)")
    else:
        pair = (context,) * 2
    for given, width in zip(pair, widths, strict=True):
        _check(name, given, "S", width)
    return pair


def check_kind(layer: nn.Module, name: str, given: Tensor) -> None:
    """Refuse features on another device than the projection that reads them, or of a dtype that
    autocast cannot cast.

    Parameters on meta pass, since a hook may load them later (offloading).
    """
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor):
        weight = next(layer.parameters(), None)  # None if a quantised layer replaced it
    if weight is None or (given.dtype == weight.dtype and given.device == weight.device):
        return
    if given.device != weight.device and weight.device.type != "meta":
        raise ShapeError(
            f"{name} is on {given.device} and the layer's parameters on {weight.device}; move one "
            "of them"
        )
    if given.dtype == weight.dtype:
        return
    joined = all(
        dtype.is_floating_point and dtype != torch.float64 for dtype in (given.dtype, weight.dtype)
    )
    if joined and torch.is_autocast_enabled(given.device.type):
        return
    if given.is_floating_point():
        other = f", or convert the layer with layer.to({given.dtype})"
    else:
        other = ""
    raise ShapeError(
        f"{name} is {given.dtype}, and the layer's parameters are {weight.dtype}; pass "
        f"{name}.to({weight.dtype}){other}"
    )


def check_input(
    name: str, given: Any, width: int, reader: nn.Module, nodes: str | None = "N"
) -> None:
    """Refuse anything but features (..., nodes, width) of the dtype and device of the first
    parameters that read them.

    ``nodes=None`` is for modules that read each node separately, (..., width). A norm in float32
    also reads halves.
    """
    _check(name, given, nodes, width)
    if not (
        isinstance(reader, nn.LayerNorm | nn.RMSNorm)
        and given.dtype in (torch.float16, torch.bfloat16)
    ):
        check_kind(reader, name, given)


def graph_of(
    graph: Any, x: Tensor, key: Tensor, value: Tensor, past: int = 0
) -> AttentionGraph | PerHead | Chosen | EdgeTensors:
    """The graph; a pattern or an ``edge_index`` is sized to the number of features.

    ``past`` sources have no features here: a cache holds their keys.
    """
    if isinstance(graph, Pattern):
        graph = sized(graph, x.unsqueeze(-2), key.unsqueeze(-2), past)
    elif not isinstance(graph, _GRAPHS):
        graph = _listed(graph, x.shape[-2], key.shape[-2] + past)
    T = graph.num_targets
    S = graph.num_sources - past
    if x.shape[-2] == T and key.shape[-2] == S and (value is key or value.shape[-2] == S):
        return graph
    if past and key.shape[-2] != S:
        raise ShapeError(
            f"the graph has {graph.num_sources} sources, but the cache holds {past} and x has "
            f"{key.shape[-2]} more"
        )
    if key is x and x.shape[-2] == T != S:
        raise ShapeError(
            f"the graph has {S} sources and {T} targets, but x has features of the targets only; "
            "pass context=, the "
            f"sources' features (..., {S}, {key.shape[-1]}), or x as a pair (sources, targets)"
        )
    for name, given, size, side in (
        ("x", x, T, "targets"),
        ("context", key, S, "sources"),
        ("context", value, S, "sources"),
    ):
        if given.shape[-2] != size:
            if given is x:
                name = "x"
            raise ShapeError(
                f"{name} has {given.shape[-2]} nodes (shape {tuple(given.shape)}), but the graph "
                f"has {size} {side}; "
                f"features are (..., nodes, width), and x as a pair is (sources, targets)"
                f"{of_other_size(graph, given.shape[-2])}"
            )
    return graph


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
        own = edge_index.sparse_size()
    else:
        own = (None, None)
    if any(
        mine not in (None, given)
        for mine, given in zip(own, (num_sources, num_targets), strict=True)
    ):
        raise GraphError(
            f"graph is an EdgeIndex of sparse_size {own}, but the features have {sizes}"
        )
    try:
        return from_edge_index(edge_index, num_sources=num_sources, num_targets=num_targets)
    except GraphIndexError as error:
        raise GraphIndexError(f"{error} The features given to the layer have {sizes}.") from None


def _check(name: str, given: Any, nodes: str | None, width: int) -> None:
    if nodes is None:
        axes = 1
    else:
        axes = 2
    dense = isinstance(given, Tensor) and given.layout == torch.strided and not given.is_nested
    if dense and given.dim() >= axes and given.shape[-1] == width:
        return
    if nodes is None:
        shape = f"(..., {width})"
    else:
        shape = f"(..., {nodes}, {width})"
    if isinstance(given, Tensor) and not dense:
        what = str(given.layout)
        way = f"pass {name}.to_dense()"
        if given.is_nested:
            what = "a nested one"
            way = "for graphs of several sizes use disjoint_union, and concatenate their nodes"
        raise ShapeError(f"{name} must be a strided tensor {shape}, got {what}; {way}")
    got = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
    if hasattr(given, "edge_index"):
        hint = "; pass data.x, and data.edge_index as the graph"
    else:
        hint = ""
    raise ShapeError(f"{name} must have shape {shape}, got {got}{hint}")


def _pair(name: str, given: tuple[Tensor, ...] | list[Tensor], of: str) -> Pair:
    if len(given) != 2:
        raise ShapeError(
            f"{name} must be a tensor or a pair {of}, got a {type(given).__name__} of {len(given)}"
        )
    return given[0], given[1]
