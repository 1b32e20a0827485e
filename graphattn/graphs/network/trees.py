"""Trees and forests, given by the parent of each node."""

from typing import Literal

import torch
from torch import Tensor

from ...arguments import check_range
from ...errors import GraphError
from ...graph import AttentionGraph
from ...graph import runs as _runs
from ...graph.algebra import difference
from ...graph.deferred.expression import builder
from ...graph.edges import Edges
from ...graph.forms import band, partition
from ...graph.listed import listed
from ...graph.runs import Runs
from ..arguments import call, integers, one_of, whole


@builder
def tree(
    parent: Tensor,
    *,
    read: Literal["both", "parent", "children"] = "both",
    self_loops: bool = False,
) -> AttentionGraph:
    r"""A node of a tree reads its parent, its children, or both.

    .. math:: \mathcal{N}(t) = \{ p(t) \} \cup \{ s : p(s) = t \}

    Args:
        parent: (N,) integers, the parent of each node; -1 is a root, of which there may be several.
        read: ``"parent"`` lets information flow away from the root, ``"children"`` towards it.
        self_loops: True lets a node read itself too.
    Returns:
        Listed edges on the device of ``parent``, by target and then by source.
    Raises:
        GraphIndexError: If a parent is neither -1 nor a node.
        GraphError: If ``parent`` has a cycle, or ``read`` is another word.
    Source:
        Tai et al. 2015 (Tree-LSTM) reads the children.
    Example:
        >>> print(tree(torch.tensor([-1, 0, 0, 1])))
        AttentionGraph(tree([-1, 0, 0, 1]): 4 nodes, 6 edges, density 0.375, listed)
        · █ █ ·
        █ · · █
        █ · · ·
        · █ · ·
    """
    up, _, device = _forest(parent)
    one_of(read, "read", ("both", "parent", "children"))
    N = up.numel()
    node = torch.arange(N)
    below = node[up >= 0]
    above = up[up >= 0]
    keys = [below * N + above] * (read != "children") + [above * N + below] * (read != "parent")
    key = torch.sort(torch.cat([*keys, *([node * N + node] * self_loops)])).values.to(device)
    name = call("tree", up, read=read, self_loops=self_loops)
    return AttentionGraph(listed(key // max(1, N), key % max(1, N), N, N), name, device)


@builder
def ancestors(
    parent: Tensor,
    *,
    window: int | None = None,
    self_loops: bool = True,
) -> AttentionGraph:
    r"""A node of a tree reads its ancestors and itself: paths from a root are causal sequences.

    .. math:: \mathcal{N}(t) = \{ p^i(t) : 0 \le i < w \} = \{ t, p(t), p(p(t)), \ldots \}

    Args:
        parent: (N,) integers, the parent of each node, in any order; -1 is a root, of which there
            may be several.
        window: Most sources of a target, counting itself: paths are sliding windows. ``None`` has
            no limit.
        self_loops: True lets a node read itself.
    Returns:
        A rule on the device of ``parent``, for any depth; ``reverse()`` reads the descendants. The
        parents ``-1, 0, 1, 2, ...`` give :func:`causal`, with a window :func:`sliding_window`.
    Raises:
        GraphIndexError: If a parent is neither -1 nor a node.
        GraphError: If ``parent`` has a cycle, or ``window < 1``.
    Source:
        Miao et al. 2023 (SpecInfer), "tree attention" over a token tree. Medusa's tree attention is
        the same mask.
    Example:
        >>> print(ancestors(torch.tensor([-1, 0, 1, 1, 0])))
        AttentionGraph(ancestors([-1, 0, 1, 1, ...]): 5 nodes, 11 edges, density 0.44, rule)
        █ · · · ·
        █ █ · · ·
        █ █ █ · ·
        █ █ · █ ·
        █ · · · █
    """
    up, depth, device = _forest(parent)
    if window is not None:
        window = whole(window, "window", 1)
    name = call("ancestors", up, window=window, self_loops=self_loops)
    N = up.numel()
    node = torch.arange(N)
    levels = N  # levels that a target reads, its own included
    if window is not None:
        levels = min(window, N)
    chained = (up == node - 1) & (up >= 0)  # chains of consecutive numbers
    if N:
        top = torch.cummax(torch.where(chained, -1, node), 0).values
    else:
        top = node

    def rows(target: Tensor) -> Runs:
        row = torch.arange(target.numel())
        node = target
        highest = depth[target] - levels + 1
        parts = [_runs.empty()]
        while node.numel():
            within = depth[node] - highest[row]
            parts.append(Runs(row, torch.maximum(top[node], node - within), node + 1))
            node = up[top[node]]
            reached = node >= 0
            reached &= depth[node] >= highest[row]
            row = row[reached]
            node = node[reached]
        row, lo, hi = map(torch.cat, zip(*parts, strict=True))
        order = torch.argsort(row * max(1, N) + lo)
        return Runs(row[order], lo[order], hi[order])

    chains = torch.bincount(top, minlength=1).count_nonzero()
    if N:
        per_row = min(int(chains), int(depth.max()) + 1, levels)
    else:
        per_row = 1
    edges = _with_loops(Edges(N, N, rows, runs_per_row=per_row), self_loops)
    return AttentionGraph(edges, name, device)


@builder
def siblings(parent: Tensor, *, self_loops: bool = True) -> AttentionGraph:
    r"""A node of a tree reads the nodes that have its parent.

    .. math:: \mathcal{N}(t) = \{ t \} \cup \{ s : p(s) = p(t) \ne -1 \}

    Args:
        parent: (N,) integers, the parent of each node; -1 is a root, and roots are no siblings.
        self_loops: True lets a node read itself.
    Returns:
        A rule on the device of ``parent``: disjoint cliques.
    Raises:
        GraphIndexError: If a parent is neither -1 nor a node.
        GraphError: If ``parent`` has a cycle.
    Source:
        Zuegner et al. 2021 (Code Transformer) counts steps between siblings among its distances in
        syntax trees.
    Example:
        >>> print(siblings(torch.tensor([-1, 0, 0, 1])))
        AttentionGraph(siblings([-1, 0, 0, 1]): 4 nodes, 6 edges, density 0.375, rule)
        █ · · ·
        · █ █ ·
        · █ █ ·
        · · · █
    """
    up, _, device = _forest(parent)
    label = torch.where(up >= 0, up, up.numel() + torch.arange(up.numel()))
    name = call("siblings", up, self_loops=self_loops)
    return AttentionGraph(_with_loops(partition(label), self_loops), name, device)


def _with_loops(edges: Edges, self_loops: bool) -> Edges:
    N = edges.num_targets
    if self_loops:
        return edges
    return difference(edges, band(N, N, 0, 0))


def _forest(parent: object) -> tuple[Tensor, Tensor, torch.device]:
    """Parents and depths, int64 (N,) on the CPU, and the device of ``parent``."""
    parents = integers(parent, "parent")
    up = parents.cpu()
    N = parents.numel()
    check_range(up, "parent", N, ", the nodes and -1 of a root", first=-1)
    # node N is the parent of all roots
    above = torch.cat((torch.where(up < 0, N, up), torch.tensor([N])))
    steps = (above < N).long()
    for _ in range(N.bit_length()):  # all paths at once, each time twice as far
        steps = steps + steps[above]
        above = above[above]
    lost = torch.nonzero(above < N).flatten()
    if lost.numel():
        raise GraphError(
            f"parent must be a forest, got a cycle above node {int(lost[0])}; every path must end "
            "at a root, whose parent is -1"
        )
    return up, steps[:N], parents.device


def tree_depth(parent: Tensor) -> Tensor:
    """Steps from each place along ``parent`` until it stays, int64 (n,), by pointer doubling."""
    steps = (parent != torch.arange(parent.numel())).long()
    while True:
        more = steps[parent]
        if not bool(more.any()):
            return steps
        steps = steps + more
        parent = parent[parent]
