"""Keys and values of the tokens so far, so that generating a token computes that token alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from ..arguments import floats
from ..errors import OptionError, PositionIndexError, ShapeError


class KeyValueCache:
    """Projected keys and values of one layer, which grow by those of each call's tokens.

    With a cache, a layer's sources are all tokens so far and its targets the new ones: a bipartite graph that grows,
    the last rows of the graph of the whole sequence. It belongs to the first layer that it is passed to; a call that
    fails leaves it as it was.

    Example:
        >>> import torch, graphattn as ga
        >>> layer, x = ga.nn.GraphAttention(8, 2), torch.randn(5, 8)
        >>> cache, graph = ga.nn.KeyValueCache(), ga.graphs.sliding_window(5, 4)
        >>> first = layer(x[:3], graph.subgraph(range(3)), cache=cache)
        >>> growing = graph.subgraph(targets=[3, 4])
        >>> print(growing)  # the new targets read three sources in the cache, and themselves
        AttentionGraph(subgraph(sliding_window(5, 4)): 5 sources -> 2 targets, 8 edges, density 0.8, rule)
        █ █ █ █ ·
        · █ █ █ █
        >>> rest = layer(x[3:], growing, cache=cache)
        >>> torch.allclose(torch.cat((first, rest)), layer(x, graph), atol=1e-6)
        True
    """

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None
        self._layer: ref[nn.Module] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What is saved and copied: keys and values, which then belong to the next layer that they are passed to."""
        return {**self.__dict__, "_layer": None}

    @property
    def length(self) -> int:
        """How many tokens it holds."""
        return 0 if self.key is None else self.key.shape[-3]

    def grown(self, key: Tensor, value: Tensor, layer: nn.Module) -> tuple[Tensor, Tensor]:
        """All keys and values (..., S, H_kv, D) with those of new tokens (..., T, H_kv, D); :meth:`keep` keeps them.

        Raises:
            OptionError: If the cache belongs to another layer.
            ShapeError: If the new ones differ in batch, heads, width, dtype or device.
        """
        for name, new in (("key", key), ("value", value)):
            floats(new, name, "(..., T, H_kv, D)", 3)
        if self.key is None or self.value is None:
            return key, value
        self._check_owner(layer)
        for name, old, new in (("key", self.key, key), ("value", self.value, value)):
            if old.shape[:-3] != new.shape[:-3] or old.shape[-2:] != new.shape[-2:]:
                raise ShapeError(
                    f"the cache holds a {name} of shape {tuple(old.shape)}, which {tuple(new.shape)} does not "
                    "continue; a cache is for one layer and one batch"
                )
            if (old.dtype, old.device) != (new.dtype, new.device):
                raise ShapeError(
                    f"the cache holds a {name} of {old.dtype} on {old.device}, which {new.dtype} on {new.device} does "
                    "not continue; start a new cache after a layer was converted or moved, or autocast turned on or off"
                )
        return torch.cat((self.key, key), -3), torch.cat((self.value, value), -3)

    def of(self, layer: nn.Module) -> tuple[Tensor, Tensor]:
        """The keys and values that the layer made of a context; see :meth:`GraphAttention.hold`.

        Raises:
            OptionError: If there are none, or another layer made them.
        """
        if self.key is None or self.value is None:
            raise OptionError("context is an empty KeyValueCache; layer.hold(context) makes one that holds a context")
        self._check_owner(layer)
        return self.key, self.value

    def _check_owner(self, layer: nn.Module) -> None:
        if self._layer is not None and self._layer() is not layer:
            raise OptionError(
                f"the cache holds {self.length} tokens of another layer; a cache is for one layer, so pass each a "
                "KeyValueCache() of its own"
            )

    def keep(self, key: Tensor, value: Tensor, layer: nn.Module) -> None:
        """Hold what :meth:`grown` gave, for this layer."""
        self.key, self.value = key, value
        if self._layer is None:
            self._layer = ref(layer)

    def reorder(self, batch: Tensor) -> None:
        """Keep the examples ``batch`` (int64 (B',)) of the first dimension, in that order: what beam search does.

        Raises:
            ShapeError: If ``batch`` is no such tensor, or what is held has no batch.
            PositionIndexError: If an index is not in ``[0, B)``.
        """
        if not isinstance(batch, Tensor) or batch.dim() != 1 or batch.dtype not in (torch.int64, torch.int32):
            got = f"{tuple(batch.shape)} {batch.dtype}" if isinstance(batch, Tensor) else type(batch).__name__
            raise ShapeError(f"batch must be int64 (B',), the examples to keep; got {got}")
        if self.key is None or self.value is None:
            return
        if self.key.dim() < 4:
            raise ShapeError(f"the cache holds a key of shape {tuple(self.key.shape)}, without a batch to reorder")
        if batch.device != self.key.device:
            raise ShapeError(f"batch is on {batch.device} and the cache on {self.key.device}; move one of them")
        size = self.key.shape[0]
        if not torch.compiler.is_compiling() and bool(((batch < 0) | (batch >= size)).any()):
            raise PositionIndexError(
                f"batch must be in [0, {size}), the examples held; got {int(batch.min())} to {int(batch.max())}"
            )
        self.key, self.value = self.key.index_select(0, batch), self.value.index_select(0, batch)


def check_cache(cache: Any) -> None:
    """Refuse what is no cache."""
    if cache is not None and not isinstance(cache, KeyValueCache):
        got = f"the class {cache.__name__}" if isinstance(cache, type) else f"a {type(cache).__name__}"
        raise OptionError(f"cache must be a KeyValueCache(), made once for each layer and sequence; got {got}")


def tokens_held(caches: Any, num_layers: int) -> int:
    """How many tokens the caches of a stack hold.

    Raises:
        OptionError: If they are not one cache for each layer.
        ShapeError: If one holds more tokens than another.
    """
    many = caches if isinstance(caches, list | tuple) else [caches]
    for cache in many:
        check_cache(cache)
    if len(many) != num_layers or any(cache is None for cache in many) or many is not caches:
        got = len(many) if many is caches else f"a {type(caches).__name__}"
        raise OptionError(
            f"caches must be a list of {num_layers} KeyValueCache, one for each layer; got {got}: "
            f"[KeyValueCache() for _ in range({num_layers})]"
        )
    lengths = [cache.length for cache in many]
    if len(set(lengths)) > 1:
        raise ShapeError(
            f"the caches of a stack hold the same tokens, but theirs are {lengths} long; start with new ones"
        )
    return lengths[0]


@contextmanager
def all_or_none(*caches: KeyValueCache | None) -> Iterator[None]:
    """Calls of several parts, after which caches have grown if all went well, and are as they were if one failed."""
    for cache in caches:
        check_cache(cache)
    before = [(cache, cache.key, cache.value, cache._layer) for cache in caches if cache is not None]
    try:
        yield
    except BaseException:
        for cache, key, value, layer in before:
            cache.key, cache.value, cache._layer = key, value, layer
        raise
