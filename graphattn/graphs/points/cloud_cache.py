"""Graphs of recurring clouds: built once for each cloud, and joined for each batch."""

from collections import OrderedDict
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph, Pattern, disjoint_union
from ...graph.places import counts
from ..arguments import stored, whole
from .hierarchy import Hierarchy, HierarchyRecipe


class CloudCache:
    """A recipe that caches the graph of every cloud by its positions, for training on fixed clouds.

    A batch's graph is the :func:`graphattn.disjoint_union` of those of its clouds, as edges in the
    same order. Builders that depend on the whole batch (``curve_patches`` cuts patches as small as
    the smallest cloud, ``octree_windows`` continues ranks from cloud to cloud) see each cloud
    separately here.

    Args:
        recipe: A pattern, ``knn(..., k=16)``, or the recipe of a hierarchy.
        max_bytes: Limit of the cached edges and positions; the least recently used cloud is evicted
            first.

    Attributes:
        hits, misses: Numbers of clouds found in the cache, and not found.

    Example:
        >>> from graphattn.graphs import knn
        >>> cache = CloudCache(knn(..., k=2))
        >>> pos, batch = torch.arange(12.0)[:, None].sin(), torch.arange(12) // 6
        >>> cache(pos, batch).equals(knn(pos, 2, batch=batch))
        True
        >>> cache(pos[6:]), cache.hits
        (AttentionGraph(knn(k=2): 6 nodes, 12 edges, density 0.333, listed), 1)
    """

    def __init__(self, recipe: "Pattern | HierarchyRecipe", max_bytes: int = 1 << 30) -> None:
        if not isinstance(recipe, Pattern | HierarchyRecipe):
            raise GraphError(
                "recipe must be a Pattern, such as knn(..., k=16), or a hierarchy(...), got "
                f"{recipe!r}"
            )
        self.recipe = recipe
        self.max_bytes = whole(max_bytes, "max_bytes")
        self.hits = 0
        self.misses = 0
        self.num_bytes = 0
        self._kept: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()

    def __call__(self, pos: Tensor, batch: Tensor | None = None) -> Any:
        """The graph of positions (N, d) in the clouds ``batch`` int64 (N,)."""
        if stored(pos, "pos").dim() != 2:
            raise GraphError(f"pos must have shape (N, d), got {tuple(pos.shape)}")
        if batch is None:
            sizes = {0: len(pos)}
        else:
            sizes = counts(batch, len(pos))
        if isinstance(self.recipe, HierarchyRecipe) and list(sizes) != list(range(len(sizes))):
            raise GraphError(
                "batch must number the clouds of hierarchies 0, 1, ... without gaps, got "
                f"{list(sizes)[:8]}"
            )
        clouds = pos.split(list(sizes.values()))
        graphs = [self._of(cloud) for cloud in clouds]
        if isinstance(self.recipe, HierarchyRecipe):
            return Hierarchy.join(graphs)
        if len(graphs) == 1:
            return graphs[0]
        return disjoint_union(graphs)

    def _of(self, cloud: Tensor) -> Any:
        numbers = cloud.detach().cpu().contiguous()
        key = blake2b(f"{cloud.dtype} {cloud.device} {tuple(cloud.shape)}".encode(), digest_size=16)
        key.update(numbers.view(torch.uint8).numpy().data)
        name = key.digest()
        kept = self._kept.pop(name, None)
        if kept is None:
            self.misses += 1
            made = self.recipe(cloud.detach().clone())  # the caller may write to its tensor
            kept = made, _bytes(made)
            self.num_bytes += kept[1]
        else:
            self.hits += 1
        self._kept[name] = kept
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= self._kept.popitem(last=False)[1][1]
        return kept[0]

    def __repr__(self) -> str:
        return f"CloudCache({self.recipe!r}, {len(self._kept)} clouds, {self.num_bytes:,} bytes)"


def _bytes(made: "AttentionGraph | Hierarchy") -> int:
    if isinstance(made, AttentionGraph):
        graphs = [made]
    else:
        graphs = list(made.graphs())
    held = 0
    if isinstance(made, Hierarchy):
        for level in made.levels:
            tensors = [x for x in vars(level).values() if isinstance(x, Tensor)]
            graphs += [near.graph for near in level.near]
            tensors += [x for near in level.near for x in (near.offset, near.source, near.target)]
            held += sum(x.numel() * x.element_size() for x in tensors)
    return held + sum(16 * graph.num_edges + 16 * graph.num_targets for graph in graphs)
