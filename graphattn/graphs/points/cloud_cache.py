"""Graphs of recurring clouds: built once for each cloud, and joined for each batch."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...errors import GraphError
from ...graph import AttentionGraph, Pattern, disjoint_union
from ...graph.deferred.expression import copied
from ...graph.deferred.places import counts
from ...graph.modes import without_modes
from ...graph.runs import mixed
from ..arguments import whole
from .hierarchy import Hierarchy, HierarchyRecipe

_FACTORS = (0x2545F4914F6CDD1D, -0x61C8864680B583EB)  # of two hashes of 64 bits
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


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
        self.recipe = recipe
        self.max_bytes = whole(max_bytes, "max_bytes")
        self.hits = 0
        self.misses = 0
        self.num_bytes = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __call__(
        self,
        pos: Tensor,
        batch: Tensor | None = None,
        names: Sequence[Hashable] | None = None,
        *,
        cell: Any = None,
        pbc: Any = None,
    ) -> Any:
        """The graph of positions (N, d) in the clouds ``batch`` int64 (N,).

        Clouds are distinguished by a hash of 128 bits, computed on their device, with one
        synchronisation for a batch. ``names`` takes its place: a name of each cloud that is never
        given to other positions, such as a number in a data set. ``cell`` (B, d, d) and ``pbc``
        (B, d) are those of the clouds, or shared, as of :func:`~graphattn.graphs.radius`.
        """
        if batch is None:
            sizes = {0: len(pos)}
        else:
            sizes = counts(batch, len(pos))
        if isinstance(self.recipe, HierarchyRecipe) and list(sizes) != list(range(len(sizes))):
            raise GraphError(
                "batch must number the clouds of hierarchies 0, 1, ... without gaps, got "
                f"{list(sizes)[:8]}"
            )
        parts = list(sizes.values())
        if names is None:
            names = _hashes(pos.detach(), parts)
        cells = [_of_cloud(cell, number, 3) for number in sizes]
        flags = [_of_cloud(pbc, number, 2) for number in sizes]
        clouds = zip(names, pos.split(parts), cells, flags, strict=True)
        graphs = [self._of(*cloud) for cloud in clouds]
        if isinstance(self.recipe, HierarchyRecipe):
            return Hierarchy.join(graphs)
        if len(graphs) == 1:
            return graphs[0]
        return disjoint_union(graphs)

    def _of(self, name: Hashable, cloud: Tensor, cell: Any, pbc: Any) -> Any:
        lattice = {}
        if cell is not None or pbc is not None:
            lattice = {"cell": cell, "pbc": pbc}
        numbers = repr([_numbers(one) for one in lattice.values()])
        key = (name, cloud.shape, cloud.dtype, cloud.device, numbers)
        entry = self._entries.pop(key, None)
        if entry is None:
            self.misses += 1
            # the caller may write to its tensor
            graph: Any = without_modes(partial(self.recipe, copied(cloud), **lattice))
            entry = graph, _bytes(graph)
            self.num_bytes += entry[1]
        else:
            self.hits += 1
        self._entries[key] = entry
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= self._entries.popitem(last=False)[1][1]
        return entry[0]

    def __repr__(self) -> str:
        return f"CloudCache({self.recipe!r}, {len(self._entries)} clouds, {self.num_bytes:,} bytes)"


def _hashes(pos: Tensor, sizes: list[int]) -> list[Hashable]:
    """A hash of the numbers of each cloud in their order, 128 bits."""
    words = pos.contiguous().view(_WORDS[pos.element_size()]).long()
    number = torch.tensor(sizes, dtype=torch.int64)
    first = torch.repeat_interleave(number.cumsum(0) - number, number)
    owner = torch.repeat_interleave(number).to(pos.device)
    row = (torch.arange(len(pos)) - first).to(pos.device)
    place = row[:, None] * pos.shape[1] + torch.arange(pos.shape[1], device=pos.device)
    total = words.new_zeros(len(sizes), 2)
    for column, factor in enumerate(_FACTORS):
        mixed_rows = mixed(mixed(words * factor) + mixed(place + factor)).sum(1)
        total[:, column].index_add_(0, owner, mixed_rows)
    return [tuple(row) for row in total.tolist()]


def _of_cloud(value: Any, number: int, dims: int) -> Any:
    """A cloud's own row of cells or of flags, or what all clouds share."""
    if isinstance(value, Tensor) and value.dim() == dims:
        return value[min(number, len(value) - 1)]
    return value


def _numbers(value: Any) -> Any:
    """Numbers of a tensor or array as lists, of any type."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def _bytes(result: "AttentionGraph | Hierarchy") -> int:
    if isinstance(result, AttentionGraph):
        graphs = [result]
    else:
        graphs = list(result.graphs())
    num_bytes = 0
    if isinstance(result, Hierarchy):
        for level in result.levels:
            tensors = [x for x in vars(level).values() if isinstance(x, Tensor)]
            graphs += [near.graph for near in level.near]
            tensors += [x for near in level.near for x in (near.offset, near.source, near.target)]
            num_bytes += sum(x.numel() * x.element_size() for x in tensors)
    return num_bytes + sum(16 * graph.num_edges + 16 * graph.num_targets for graph in graphs)
