"""The sources of a call of a layer: nodes of ``x``, a context, or keys and values that a cache
holds.
"""

import sys
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import OptionError, ShapeError
from ..graph.like import GraphLike
from .arguments import Pair, check_features
from .biases.sequence import SequenceBias
from .cache import KeyValueCache
from .casts import cast_once
from .positions import pair_of_positions
from .root_weight import RootWeight


class Sources:
    """Features of sources, of which keys (..., S, kdim) and values (..., S, vdim) are made.

    Args:
        key: Those of keys.
        value: Those of values.
        name: The argument that gives them.
    """

    #: Sources before these; ``cached`` of them have their keys in a cache.
    past = 0
    cached = 0
    #: True if these are added to a cache.
    grows = False

    def __init__(self, key: Tensor, value: Tensor, name: str = "context") -> None:
        self.key = key
        self.value = value
        self.name = name

    def cast_with(self, x: Tensor, layer: Any) -> Tensor:
        """``x`` and, if they are its nodes, the sources, cast once for all projections."""
        if self.key is not x or self.value is not x or layer.k_proj is layer.v_proj:
            return x
        x, self.key, self.value = cast_once(x, layer.q_proj, layer.k_proj, layer.v_proj)
        return x

    def positions(self, graph: Any, positions: Tensor | Pair | None, num_targets: int) -> Pair:
        """Positions of targets and of sources for rotations; None where they count from 0.

        Raises:
            OptionError: If one tensor is given for targets and other sources.
        """
        if positions is None:
            positions = graph.positions
        elif self.name != "x" and isinstance(positions, Tensor):
            raise OptionError("positions with a context must be a pair (of targets, of sources)")
        return pair_of_positions(positions)

    def projected(self, layer: Any, positions: Tensor | None, key: Tensor, value: Tensor) -> Pair:
        """Keys and values of all sources, from features that have arrived."""
        return layer.keys_of(key, value, positions)

    def bias_of(self, score_bias: Any, num_targets: int) -> Any:
        """A bias as the layer reads it."""
        return score_bias

    def numbers(self, layer: Any) -> int:
        """The numbers of a key and value, which a shard sends if features are wider; 0 for never."""
        if layer.rotary is not None:
            return 0  # positions are those of own nodes
        if layer.is_observed():
            return sys.maxsize  # PyG's hooks see rows of all sources
        return layer.num_kv_heads * (layer.head_dim + layer.value_dim)

    def keep(self, layer: Any, key: Tensor, value: Tensor) -> None:
        """Store keys and values for the next call, if a cache holds them."""


class Cached(Sources):
    """The nodes of ``x`` after those in a cache."""

    grows = True

    def __init__(self, x: Tensor, cache: KeyValueCache) -> None:
        super().__init__(x, x, "x")
        self.cache = cache
        self.past = cache.length
        self.cached = cache.length - cache.dropped

    def positions(self, graph: Any, positions: Tensor | Pair | None, num_targets: int) -> Pair:
        """Positions of new nodes, which come last."""
        if positions is None and graph.positions is not None:
            if self.cached < self.past:
                raise OptionError(
                    "positions must be passed to a shard whose cache has dropped tokens"
                )
            positions = graph.positions[1][self.past :]
        elif positions is None and self.past:
            device = self.key.device
            positions = torch.arange(self.past, self.past + num_targets, device=device)
        return pair_of_positions(positions)

    def bias_of(self, score_bias: Any, num_targets: int) -> Any:
        """A bias of offsets as a function of the graph: new nodes come after cached ones."""
        if not (self.past and isinstance(score_bias, SequenceBias)):
            return score_bias
        nodes = torch.arange(self.past - self.cached, self.past + num_targets)
        return partial(score_bias, positions=(nodes[self.cached :], nodes))

    def projected(self, layer: Any, positions: Tensor | None, key: Tensor, value: Tensor) -> Pair:
        """Keys and values of cached and new nodes."""
        return self.cache.grown(*super().projected(layer, positions, key, value), layer)

    def numbers(self, layer: Any) -> int:
        """0, as a cache holds keys of own nodes."""
        return 0

    def keep(self, layer: Any, key: Tensor, value: Tensor) -> None:
        """Store those of all nodes."""
        self.cache.keep(key, value, layer)


class Held(Sources):
    """A context whose keys and values :meth:`GraphAttention.hold` has computed."""

    def __init__(self, cache: KeyValueCache, layer: Any) -> None:
        self.held = cache.of(layer)
        super().__init__(self.held[0].flatten(-2), self.held[1].flatten(-2))

    def positions(self, graph: Any, positions: Tensor | Pair | None, num_targets: int) -> Pair:
        """Positions of targets; held keys are rotated."""
        if isinstance(positions, tuple | list):
            raise OptionError(
                "held keys already have rotary embeddings: pass positions of the targets alone"
            )
        if positions is None:
            positions = graph.positions
        return pair_of_positions(positions)

    def projected(self, layer: Any, positions: Tensor | None, key: Tensor, value: Tensor) -> Pair:
        """Keys and values that the cache holds."""
        return self.held

    def numbers(self, layer: Any) -> int:
        """0, as keys of own nodes are held."""
        return 0


def read(
    layer: Any,
    x: Any,
    context: Any,
    cache: Any,
    graph: Any,
) -> tuple[Tensor, Sources]:
    """The features of targets, and the sources of a call.

    Raises:
        ShapeError: If features do not have the widths of the layer.
        OptionError: If arguments exclude each other.
    """
    if isinstance(x, tuple | list):
        return _of_pair(layer, x, context, cache, graph)
    check_features("x", x, "T", layer.qdim)
    if context is not None:
        return x, _others(layer, x, context, cache, "context")
    if layer.kdim != x.shape[-1] or layer.vdim != x.shape[-1]:
        raise ShapeError(
            f"x without context must have width kdim = {layer.kdim} and vdim = {layer.vdim}, got "
            f"{x.shape[-1]}; set kdim and vdim to it, or pass context=, the sources' features"
        )
    if cache is None:
        return x, Sources(x, x, "x")
    return x, Cached(x, cache)


def _of_pair(
    layer: Any,
    pair: Any,
    context: Any,
    cache: Any,
    graph: Any,
) -> tuple[Tensor, Sources]:
    if context is not None:
        raise OptionError("pass x as a pair (sources, targets), or x and context; not both")
    context, x = pair
    if x is None:
        x = _without_features(layer, context, graph)
    else:
        check_features("x[1], the targets,", x, "T", layer.qdim)
    return x, _others(layer, x, context, cache, "x[0], the sources,")


def _without_features(layer: Any, context: Tensor, graph: Any) -> Tensor:
    """Features (T, 0) of targets that have none, as many as the graph has."""
    if layer.gate_proj is not None or isinstance(layer.skip, RootWeight):
        raise OptionError("x[1] is None, but gate and root_weight read the targets' features")
    if not isinstance(graph, GraphLike) or graph.is_open:
        raise OptionError("x[1] is None, and the number of targets unknown: pass size=(S, T)")
    return context.new_empty(graph.num_targets, 0)


def _others(layer: Any, x: Tensor, context: Any, cache: Any, name: str) -> Sources:
    if cache is not None:
        raise OptionError(
            "a cache holds the keys of earlier nodes of x, and excludes context and x as a pair"
        )
    if isinstance(context, KeyValueCache):
        return Held(context, layer)
    sources = of_context(layer, context, name)
    if sources.key is x:
        sources.name = "x"
    return sources


def of_context(layer: Any, context: Any, name: str = "context") -> Sources:
    """The sources of a context: one tensor for keys and values, or a pair."""
    key = value = context
    if isinstance(context, tuple | list):
        key, value = context
    check_features(name, key, "S", layer.kdim)
    check_features(name, value, "S", layer.vdim)
    return Sources(key, value)
