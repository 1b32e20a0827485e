"""Conditions under which sparse transformers approximate every function of sequences."""

from dataclasses import asdict, dataclass
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import torch

from ..arguments import whole
from ..errors import GraphError
from ..graph import AttentionGraph, need_square
from ..graph.kinds.layers import Layers
from ..graph.limits import refuse_over
from ..plans.whole import csr_by_target
from ..printed import Printed
from .bottlenecks.connectivity import connectivity
from .forms import is_listable
from .paths.receptive_field import graphs_of
from .paths.walks import BUDGET

_TRIED = 1 << 16  # steps of a search for a Hamiltonian path
_LOOKS = 32  # at each interval of sources: both degrees, parts, self-loops, a path
_SMALL = 1 << 12  # nodes up to which one is searched for


@dataclass(frozen=True, repr=False)
class Universality(Printed):
    """The result of :func:`universality`; ``None`` for what costs too much, see ``left_out``.

    Args:
        self_loops: Whether every layer has all self-loops.
        star: A node that reads all and is read by all, in the union of the layers; ``None`` without
            one.
        hamiltonian_path: Whether the union of the layers has a path through all nodes, in some
            order.
        reads_everything: Whether every node depends on every node if the layers are repeated.
        left_out: For each question without an answer, why.
    """

    self_loops: bool
    star: int | None
    hamiltonian_path: bool | None
    reads_everything: bool | None
    left_out: dict[str, str]

    @property
    def sparse_transformer(self) -> bool | None:
        """True if the conditions of Yun et al. 2020 hold: self-loops, Hamiltonian path, reach."""
        answers = (self.self_loops, self.hamiltonian_path, self.reads_everything)
        if False in answers:
            return False
        if None in answers:
            return None
        return True

    @property
    def star_graph(self) -> bool:
        """True if the condition of Zaheer et al. 2020 holds: a star, with self-loops."""
        return self.self_loops and self.star is not None

    @property
    def universal(self) -> bool | None:
        """True if one of the two theorems applies; ``None`` if open. ``False`` proves nothing."""
        if self.star_graph:
            return True
        return self.sparse_transformer

    def to_dict(self) -> dict[str, Any]:
        """The answers as plain Python values."""
        also = ("sparse_transformer", "star_graph", "universal")
        return {**asdict(self), **{name: getattr(self, name) for name in also}}

    def in_full(self) -> str:
        words = {True: "yes", False: "no", None: "not known"}
        lines = [f"self-loops in every layer: {words[self.self_loops]}"]
        star = "no"
        if self.star is not None:
            star = f"node {self.star}"
        lines += [
            f"star: {star}",
            f"Hamiltonian path: {words[self.hamiltonian_path]}",
            f"every node depends on all in the end: {words[self.reads_everything]}",
            f"a universality theorem applies: {words[self.universal]}",
        ]
        lines += [f"{name.replace('_', ' ')}: {why}" for name, why in self.left_out.items()]
        return "\n".join(lines)


def universality(layers: Layers, *, budget: int = BUDGET) -> Universality:
    """Sufficient conditions for universal approximation that a sparse transformer's graphs meet.

    The theorems are about layers repeated as often as it takes, wide enough, with positions; they
    are sufficient, so where none applies nothing is proved.

    Args:
        layers: A graph, or the graphs of the layers that are repeated.
        budget: Intervals of sources, in the rows of all graphs, that may be looked at.
    Raises:
        GraphError: If a graph is not square, or it costs more than ``budget``.
    Source:
        Yun et al. 2020, "O(n) Connections are Expressive Enough", assumption 1: every pattern holds
        the self-loops, the union of the patterns a Hamiltonian path, and every token depends on all
        tokens after finitely many layers. Zaheer et al. 2020 (BigBird), theorem 1: the graph
        contains the star. *What differs:* the star may have any centre, and self-loops are required
        in both.
    Example:
        >>> from graphattn.graphs import sliding_window, global_tokens
        >>> longformer = sliding_window(4096, window=65, causal=False) | global_tokens(4096, (0,))
        >>> found = universality(longformer)
        >>> found.star, found.hamiltonian_path, found.universal
        (0, True, True)
    """
    graphs = graphs_of(layers)
    budget = whole(budget, "budget", 1, GraphError)
    for graph in graphs:
        need_square(graph, "universality")
    distinct = tuple(dict.fromkeys(graphs))
    cost = _LOOKS * sum(graph.num_targets * graph.edges.runs_per_row for graph in distinct)
    instead = f"ask a smaller size of the same patterns, or try budget={cost}"
    refuse_over(cost, "universality", instead, budget, "looks at intervals of sources")
    union = reduce(or_, distinct)
    loops = all(graph._num_loops() == graph.num_targets for graph in distinct)
    left_out: dict[str, str] = {}
    path = None
    everything = None
    try:
        strong = connectivity(union).strong_components
        path = _path(union, strong)
        # With self-loops, what one layer brings on the next ones keep, so the union says what is
        # reached in the end.
        if loops or (len(distinct) == 1 and strong > 1):
            everything = strong <= 1
        else:
            everything = _at_last(graphs)
    except GraphError as error:
        left_out["reads_everything"] = str(error)
    if path is None:
        left_out["hamiltonian_path"] = (
            "not along the sequence, and a search for another order did not end"
        )
    return Universality(loops, _star(union), path, everything, left_out)


def _star(graph: AttentionGraph) -> int | None:
    """The first node that reads all others and is read by all others."""
    n = graph.num_targets
    if graph.has_repeated_edges:
        graph = graph | graph
    node = torch.arange(n, device=graph.device)
    loop = graph.contains(node, node).long()
    centre = (graph.in_degree - loop == n - 1) & (graph.out_degree - loop == n - 1)
    if bool(centre.any()):
        return int(centre.long().argmax())
    return None


def _at_last(graphs: tuple[AttentionGraph, ...]) -> bool:
    """True if some number of repetitions of layers without self-loops fills the mask.

    Then their matrix is primitive.
    """
    n = graphs[0].num_targets
    if n > 1024:
        raise GraphError(
            f"layers without all self-loops are multiplied out, up to 1,024 nodes; these have {n:,}"
        )
    once = torch.eye(n, dtype=torch.float32)
    for graph in graphs:
        once = ((graph.mask().cpu().float() @ once) > 0).float()
    power = once
    steps = 1
    # Wielandt: a primitive mask is full after (n - 1)^2 + 1 steps, and stays full
    while steps < n * n:
        power = ((power @ power) > 0).float()
        steps = 2 * steps
    return bool((power > 0).all())


def _path(graph: AttentionGraph, strong: int) -> bool | None:
    """True if there is a Hamiltonian path, found along the indices or by a search."""
    n = graph.num_targets
    node = torch.arange(max(0, n - 1), device=graph.device)
    if bool(graph.contains(node + 1, node).all()) or bool(graph.contains(node, node + 1).all()):
        return True
    if not is_listable(graph):
        return None
    if not _components_meet(graph):
        return False
    if strong == n:
        return True  # the only order of an acyclic graph is a path
    if n <= _SMALL:
        return _searched(graph)
    return None


def _components_meet(graph: AttentionGraph) -> bool | None:
    """True if an edge leads from each strong component to the next, in topological order."""
    from scipy.sparse.csgraph import connected_components

    matrix = csr_by_target(graph)
    count, label = connected_components(matrix, directed=True, connection="strong")
    step = (
        label[np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))] - label[matrix.indices]
    )
    if bool((step > 0).any()) and bool((step < 0).any()):
        return None  # not numbered along the edges, as scipy does
    source = label[matrix.indices[np.abs(step) == 1]]
    return len(np.unique(source)) == count - 1


def _searched(graph: AttentionGraph) -> bool | None:
    """Depth first, the node with the fewest ways on first (Warnsdorff), up to a number of steps."""
    source, target = graph.edge_index.cpu().tolist()
    ahead: list[set[int]] = [set() for _ in range(graph.num_targets)]
    for s, t in zip(source, target, strict=True):
        if s != t:
            ahead[s].add(t)
    back = [0] * len(ahead)
    for near in ahead:
        for t in near:
            back[t] += 1
    steps = 0
    for start in sorted(range(len(ahead)), key=lambda v: back[v]):
        visited = {start}
        stack = [iter(_next(ahead, {start}, start))]
        trail = [start]
        while stack:
            steps += 1
            if steps > _TRIED:
                return None
            if len(visited) == len(ahead):
                return True
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                visited.discard(trail.pop())
                continue
            visited.add(node)
            trail.append(node)
            stack.append(iter(_next(ahead, visited, node)))
        if back[start] == 0:
            return False  # a path can only start here
    return False


def _next(ahead: list[set[int]], visited: set[int], node: int) -> list[int]:
    free = ahead[node] - visited
    return sorted(free, key=lambda v: len(ahead[v] - visited))
