"""Keys and values of the tokens so far, so that each new token is computed once."""

from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn

from ..arguments import check_range, shown, whole
from ..errors import OptionError, PositionIndexError, ShapeError
from ..kernels.modes import can_read_values


class _Room(NamedTuple):
    """Storage for more tokens than there are, (..., capacity, H_kv, D) each."""

    key: Tensor
    value: Tensor
    end: int  # end of the tokens in it
    held: tuple[Tensor, Tensor]  # keys and values of these tokens, views

    def continues(self, key: Tensor, value: Tensor, more: int = 0) -> bool:
        """True if that many tokens may be written after these.

        False after a failed call, whose tokens are still in the storage.
        """
        if self.held[0] is not key or self.held[1] is not value:
            return False
        if self.end + more > self.key.shape[-3]:
            return False
        return torch.is_inference_mode_enabled() or not self.key.is_inference()


class KeyValueCache:
    """Projected keys and values of one layer, extended by each call.

    With a cache, a layer's sources are all tokens so far and its targets the new ones: a growing
    bipartite graph, the last rows of the graph of the whole sequence. It belongs to the first layer
    that it is passed to; a failed call leaves it as it was. Without gradients it grows in place, in
    storage that doubles.

    Example:
        >>> import torch, graphattn as ga
        >>> layer, x = ga.nn.GraphAttention(8, 2), torch.randn(5, 8)
        >>> cache, graph = ga.nn.KeyValueCache(), ga.graphs.sliding_window(5, 4, causal=True)
        >>> first = layer(x[:3], graph.subgraph(range(3)), cache=cache)
        >>> growing = graph.subgraph(targets=[3, 4])
        >>> print(growing)  # the new targets read three sources in the cache, and themselves
        AttentionGraph(subgraph(sliding_window(5, 4, causal=True)): 5 sources -> 2 targets, 8 edges, density 0.8, rule)
        █ █ █ █ ·
        · █ █ █ █
        >>> rest = layer(x[3:], growing, cache=cache)
        >>> torch.allclose(torch.cat((first, rest)), layer(x, graph), atol=1e-6)
        True
    """

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None
        self.dropped = 0
        self._room: _Room | None = None
        self._layer: ref[nn.Module] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Keys and values to be saved or copied; a copy belongs to the next layer that it is passed
        to.
        """
        return {**self.__dict__, "_room": None, "_layer": None}

    @property
    def length(self) -> int:
        """The number of tokens so far, including the first ``dropped``, which are no longer
        cached.
        """
        return self.dropped + (0 if self.key is None else self.key.shape[-3])

    def drop(self, before: int) -> None:
        """Drop the tokens before number ``before``, which no later token reads.

        Sources then count from it.

        Raises:
            OptionError: If there are fewer tokens.

        Example:
            >>> import torch, graphattn as ga
            >>> layer, x = ga.nn.GraphAttention(8, 2), torch.randn(5, 8)
            >>> cache, window = ga.nn.KeyValueCache(), ga.graphs.sliding_window(5, 3, causal=True)
            >>> first = layer(x[:4], window.subgraph(range(4)), cache=cache)
            >>> cache.drop(2)  # token 4 reads 2, 3 and itself
            >>> torch.allclose(layer(x[4:], ga.graphs.cross(1, 3), cache=cache), layer(x, window)[4:], atol=1e-6)
            True
        """
        whole(before, "before", 0, below=self.length + 1, of=", one more than the tokens so far")
        if before <= self.dropped:
            return
        if self.key is None or self.value is None:
            return
        first = before - self.dropped
        room = self._room
        if room is not None and not room.continues(self.key, self.value):
            room = None
        self.key = self.key[..., first:, :, :]
        self.value = self.value[..., first:, :, :]
        self.dropped = before
        if room is not None:
            self._room = room._replace(held=(self.key, self.value))

    def grown(self, key: Tensor, value: Tensor, layer: nn.Module) -> tuple[Tensor, Tensor]:
        """All keys and values (..., S, H_kv, D) with those of new tokens (..., T, H_kv, D);
        :meth:`keep` stores them.

        Raises:
            OptionError: If the cache belongs to another layer.
        """
        if self.key is None or self.value is None:
            return key, value
        self._check_owner(layer)
        # autograd and compilers need constant storage
        if torch.is_grad_enabled() or not can_read_values(key):
            return torch.cat((self.key, key), -3), torch.cat((self.value, value), -3)
        cached_tokens = self.key.shape[-3]
        more = key.shape[-3]
        room = self._room
        if room is None or not room.continues(self.key, self.value, more):
            keys, values = (
                x.new_empty(*x.shape[:-3], 2 * (cached_tokens + more), *x.shape[-2:])
                for x in (self.key, self.value)
            )
            keys.narrow(-3, 0, cached_tokens).copy_(self.key)
            values.narrow(-3, 0, cached_tokens).copy_(self.value)
            room = _Room(keys, values, cached_tokens, (self.key, self.value))
        room.key.narrow(-3, room.end, more).copy_(key)
        room.value.narrow(-3, room.end, more).copy_(value)
        first = room.end - cached_tokens
        end = room.end + more
        key = room.key.narrow(-3, first, cached_tokens + more)
        value = room.value.narrow(-3, first, cached_tokens + more)
        self._room = _Room(room.key, room.value, end, (key, value))
        return key, value

    def of(self, layer: nn.Module) -> tuple[Tensor, Tensor]:
        """The layer's keys and values of a context; see :meth:`GraphAttention.hold`.

        Raises:
            OptionError: If there are none, or another layer made them.
        """
        if self.key is None or self.value is None:
            raise OptionError("context is an empty KeyValueCache; pass layer.hold(context)")
        self._check_owner(layer)
        return self.key, self.value

    def _check_owner(self, layer: nn.Module) -> None:
        if self._layer is not None and self._layer() is not layer:
            raise OptionError(
                f"the cache holds {self.length} tokens of another layer; pass a separate "
                "KeyValueCache() to each layer"
            )

    def keep(self, key: Tensor, value: Tensor, layer: nn.Module) -> None:
        """Store the result of :meth:`grown` for this layer."""
        self.key = key
        self.value = value
        if self._layer is None:
            self._layer = ref(layer)

    def reorder(self, batch: Tensor) -> None:
        """Select the examples ``batch`` (int64 (B',)) in that order, as beam search needs.

        Raises:
            ShapeError: If ``batch`` is not such a tensor, or the cache has no batch.
            PositionIndexError: If an index is not in ``[0, B)``.
        """
        if self.key is None or self.value is None:
            return
        if self.key.dim() < 4:
            raise ShapeError(
                f"the cache holds a key of shape {tuple(self.key.shape)}, without a batch to "
                "reorder"
            )
        size = self.key.shape[0]
        if not torch.compiler.is_compiling():
            check_range(batch, "batch", size, ", the cached examples", PositionIndexError)
        self.key = self.key.index_select(0, batch)
        self.value = self.value.index_select(0, batch)
        self._room = None


def tokens_held(caches: Any, num_layers: int) -> int:
    """The number of tokens in the caches of a stack.

    Raises:
        OptionError: If they are not one cache for each layer.
        ShapeError: If one holds more tokens than another.
    """
    kinds: list[type] = []
    if isinstance(caches, list | tuple):
        kinds = [type(cache) for cache in caches]
    if kinds != [KeyValueCache] * num_layers:
        raise OptionError(
            f"caches must be a list of {num_layers} KeyValueCache, one for each layer; got "
            f"{shown(caches)}: "
            f"[KeyValueCache() for _ in range({num_layers})]"
        )
    lengths = [cache.length for cache in caches]
    if len(set(lengths)) > 1:
        raise ShapeError(
            f"the caches of a stack must hold the same tokens, got lengths {lengths}; start with "
            "new ones"
        )
    return lengths[0]


class AllOrNone:
    """A context for calls of several parts: if one fails, no cache changes."""

    def __init__(self, *caches: KeyValueCache | None) -> None:
        self.before = [
            (cache, cache.key, cache.value, cache._layer) for cache in caches if cache is not None
        ]

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: type[BaseException] | None, *of: Any) -> None:
        if error is not None:
            for cache, key, value, layer in self.before:
                cache.key = key
                cache.value = value
                cache._layer = layer
