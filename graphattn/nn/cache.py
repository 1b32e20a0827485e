"""Keys and values of the tokens so far, so that generating a token computes that token alone."""

import torch
from torch import Tensor

from ..errors import ShapeError


class KeyValueCache:
    """Projected keys and values of one layer, which grow by those of each call's tokens.

    With a cache, a layer's sources are all tokens so far and its targets the new ones: a bipartite graph that grows,
    the last rows of the graph of the whole sequence.

    Example:
        >>> import torch, graphattn as ga
        >>> layer, x = ga.nn.GraphAttention(8, 2), torch.randn(5, 8)
        >>> cache, graph = KeyValueCache(), ga.graphs.causal(5)
        >>> first = layer(x[:3], graph.subgraph(range(3)), cache=cache)
        >>> rest = layer(x[3:], graph.subgraph(targets=[3, 4]), cache=cache)
        >>> torch.allclose(torch.cat((first, rest)), layer(x, graph), atol=1e-6)
        True
    """

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    @property
    def length(self) -> int:
        """How many tokens it holds."""
        return 0 if self.key is None else self.key.shape[-3]

    def grown(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values (..., S, H_kv, D), after those of new tokens (..., T, H_kv, D) were added.

        Raises:
            ShapeError: If the new ones differ in batch, heads or width.
        """
        if self.key is not None and self.value is not None:
            for name, old, new in (("key", self.key, key), ("value", self.value, value)):
                if old.shape[:-3] != new.shape[:-3] or old.shape[-2:] != new.shape[-2:]:
                    raise ShapeError(
                        f"the cache holds a {name} of shape {tuple(old.shape)}, which {tuple(new.shape)} does not "
                        "continue; a cache is for one layer and one batch"
                    )
            key, value = torch.cat((self.key, key), -3), torch.cat((self.value, value), -3)
        self.key, self.value = key, value
        return key, value

    def reorder(self, batch: Tensor) -> None:
        """Keep the examples ``batch`` (int64 (B',)) of the first dimension, in that order: what beam search does."""
        if self.key is not None and self.value is not None:
            self.key, self.value = self.key.index_select(0, batch), self.value.index_select(0, batch)
