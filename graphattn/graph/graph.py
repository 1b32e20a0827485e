"""The AttentionGraph: which target may read which source; its memo keeps what calls derive of it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ..arguments import check_range, check_shape, integers, pair, several, short_name, table, whole
from ..arguments import device as checked_device
from ..errors import GraphError, singular
from . import algebra
from . import runs as _runs
from .advice import no_graph, of_other_size
from .causality import warn_of_later_sources
from .deferred.expression import JOINS, Expression, Operand, builder, written
from .dense_values import dense_values, edge_values
from .edges import COUNTED_AT_ONCE, Edges
from .forms import band
from .images import Images, joined_images
from .like import GraphLike
from .limits import MAX_BYTES, every_node, refuse_over
from .listed import Listed, listed
from .modes import Memo, constant_result, keep, not_compiled, without_modes
from .near import cuthill_mckee

_FEW_PAIRS = 1 << 16  # of which each is tested sooner than rows are made
EMPTY = 0
PARTIAL = 1
FULL = 2


@not_compiled
@dataclass(frozen=True, eq=False, repr=False)
class AttentionGraph(GraphLike, Operand):
    """A directed graph of attention: target ``t`` may read source ``s`` if ``s -> t`` is an edge.

    Immutable. Made by the builders in :mod:`graphattn.graphs`, by the ``from_*`` functions, and by
    algebra on graphs. A *rule* has its edges in closed form; only a *listed* graph stores them.

    Args:
        edges: The edges, with the sizes of the graph.
        name: The name that ``repr`` shows.
        device: The device of a rule's index tensors. Listed edges keep their own.
        expression: The calls that made the graph, if known: ``sliding_window(64, 9, causal=True) | causal(64)``.
    """

    edges: Edges
    name: str = "graph"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    expression: Expression | None = None
    _memo: Memo = field(default_factory=Memo, init=False)

    # --- sizes

    @property
    def num_targets(self) -> int:
        """T, the nodes that read."""
        return self.edges.num_targets

    @property
    def num_sources(self) -> int:
        """S, the nodes that are read."""
        return self.edges.num_sources

    @property
    def is_square(self) -> bool:
        """True if T = S, so that sources and targets can be the same nodes."""
        return self.num_targets == self.num_sources

    @property
    def num_nodes(self) -> int:
        """N of a square graph."""
        need_square(self, "num_nodes")
        return self.num_targets

    @property
    def num_edges(self) -> int:
        """E, an exact Python integer; copies of a repeated edge count."""
        return _count(self)

    @property
    def density(self) -> float:
        """Edges per pair, E / (T * S); 0.0 without pairs."""
        pairs = self.num_targets * self.num_sources
        if pairs:
            return self.num_edges / pairs
        return 0.0

    @property
    def is_rule(self) -> bool:
        """True if the edges are a closed form rather than a list."""
        return not self.edges.is_listed

    @property
    def has_repeated_edges(self) -> bool:
        """True if some pair is listed more than once: copies, or images in a cell that repeats."""
        return self.edges.has_repeats

    @property
    def images(self) -> Images | None:  # type: ignore[override]
        """The image of its source that each edge reads, in a cell that repeats; else ``None``."""
        return self.edges.images

    @property
    def offsets(self) -> Tensor | None:
        """int64 (E, d): lattice vectors that move the source of each edge; a copy.

        The edge reads the source at ``pos[source] + offsets @ cell``: ASE's ``S`` of the neighbour
        list ``ijS``, where i is the target. ``None`` for a graph without a cell.
        """
        if self.edges.images is None:
            return None
        return self.edges.images.offsets.clone()

    @property
    def is_full(self) -> bool:
        """True if every target reads every source, once."""
        pairs = self.num_targets * self.num_sources
        return self.num_edges == pairs and not self.has_repeated_edges

    @property
    def _lists_all_pairs(self) -> bool:
        """True if the edges are all pairs in their order, so that their matrix is a view."""
        return self.is_rule and self.is_full

    @property
    def _is_lower_triangle(self) -> bool:
        """True if the edges are exactly the pairs with ``s <= t``: SDPA's ``is_causal``."""
        T = self.num_targets
        S = self.num_sources
        square = min(T, S)
        if self.num_edges != square * (square + 1) // 2 + max(0, T - S) * S:
            return False
        if self.has_repeated_edges:
            return False
        return self.is_causal

    @property
    def is_causal(self) -> bool:
        """True if no target reads a later source."""
        return keep(self._memo, "is_causal", self._reads_no_later_source)

    def _reads_no_later_source(self) -> bool:
        if not self.is_rule:
            return bool((self.source <= self.target).all())
        for first, _, chunk in self.edges.chunks():
            row, _, hi = _runs.nonempty(chunk)
            if bool((hi > row + first + 1).any()):
                return False
        return True

    @property
    def is_symmetric(self) -> bool:
        """True if every edge of a square graph has its reverse, with as many copies."""
        if not torch.equal(self.in_degree, self.out_degree):
            return False
        if self.is_rule or self.images is not None:
            return self.equals(self.reverse())
        here = self._listed().sorted
        back = self._listed().flip().sorted
        return torch.equal(here.ptr, back.ptr) and torch.equal(here.column, back.column)

    # --- edges

    @property
    def edge_index(self) -> Tensor:
        """int64 (2, E): row 0 sources, row 1 targets; a copy.

        Listed edges are in the caller's order, those of a rule by target and then by source.

        Raises:
            GraphError: If a rule's edges would take more than 4 GiB; :meth:`materialise` has no
                such limit.
        """
        return self._listed().ends.to(torch.int64, copy=True)

    def _listed(self, limit: int | None = MAX_BYTES) -> Listed:
        return keep(
            self._memo, "listed", lambda: algebra.as_list(self.edges, limit).to(self.device)
        )

    @property
    def source(self) -> Tensor:
        """int64 (E,): the source of every edge; a copy."""
        return self._listed().ends[0].to(torch.int64, copy=True)

    @property
    def target(self) -> Tensor:
        """int64 (E,): the target of every edge; a copy."""
        return self._listed().ends[1].to(torch.int64, copy=True)

    def materialise(self, max_bytes: int | None = MAX_BYTES) -> "AttentionGraph":
        """A graph of these edges as a list; ``max_bytes=None`` lifts the limit."""
        return replace(self, edges=self._listed(max_bytes))

    @property
    def in_degree(self) -> Tensor:
        """int64 (T,): number of sources of every target; a copy.

        Raises:
            GraphError: If the graph is a rule of too many intervals of sources to walk over in
                minutes.
        """
        return keep(self._memo, "in_degree", lambda: self.edges.degrees().to(self.device)).clone()

    @property
    def out_degree(self) -> Tensor:
        """int64 (S,): number of targets of every source; a copy.

        Raises as :attr:`in_degree` does.
        """
        return keep(self._memo, "out_degree", lambda: self._out_degree().to(self.device)).clone()

    def _out_degree(self) -> Tensor:
        if self.edges.is_listed:
            return self.edges.flip().degrees()
        total = torch.zeros(self.num_sources, dtype=torch.int64)
        for _, _, chunk in self.edges.chunks():
            total += torch.bincount(chunk.lo, minlength=self.num_sources + 1)[:-1]
            total -= torch.bincount(chunk.hi, minlength=self.num_sources + 1)[:-1]
        return total.cumsum(0)

    def contains(self, target: Tensor | int, source: Tensor | int) -> Tensor:
        """True where ``source -> target`` is an edge: bool, in the common shape of the tensors.

        Raises:
            GraphIndexError: If a node is outside its range.
        """
        target = self._index(target, self.num_targets, "target")
        source = self._index(source, self.num_sources, "source")
        return self.edges.contains(target, source)

    @staticmethod
    def _index(index: Tensor | int, size: int, side: str) -> Tensor:
        index = integers(index, side, "of nodes", GraphError)
        check_range(index, side, size, ", the nodes")
        return index

    def mask(self) -> Tensor:
        """bool (T, S): ``mask[t, s]`` is True where ``s -> t`` is an edge.

        Raises:
            GraphError: If it would take more than 4 GiB.
        """
        T = self.num_targets
        S = self.num_sources
        if T * S <= _FEW_PAIRS and self.edges.is_tested:
            return self.edges.contains(torch.arange(T)[:, None], torch.arange(S)).to(self.device)
        refuse_over(
            T * S,
            f"mask() of {T:,} x {S:,}",
            "ask contains() for the pairs you need, or block_counts()",
        )
        if self.edges.is_listed:
            mask = torch.zeros(T, S, dtype=torch.bool, device=self.device)
            mask[self.target, self.source] = True
            return mask
        parts = [torch.zeros(0, S, dtype=torch.bool)]
        for first, last, chunk in self.edges.chunks():
            parts.append(_runs.to_dense(chunk, last - first, S))
        return torch.cat(parts).to(self.device)

    def edge_values(self, matrix: Tensor) -> Tensor:
        """The numbers of a matrix at the edges, in their order, such as a dense bias of scores.

        Args:
            matrix: (T, S), or (..., H, T, S) with a matrix for each head.
        Returns:
            (E,), or (..., E, H), as :func:`graphattn.attention` takes ``score_bias``; gradients
            flow. Of a full rule it is a view.
        Raises:
            ShapeError: If the matrix does not end with (T, S).
        Example:
            >>> from graphattn.graphs import causal
            >>> causal(2).edge_values(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
            tensor([1., 3., 4.])
        """
        return edge_values(self, matrix)

    def dense_values(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """The matrix of numbers of edges: the inverse of :meth:`edge_values`.

        Args:
            values: (E,), or (..., E, H) with a number for each head.
            fill: Number where there is no edge; -inf for a bias of scores.
        Returns:
            (T, S), or (..., H, T, S); copies of a repeated edge are summed, gradients flow.
        Raises:
            ShapeError: If the values are not those of E edges.
            GraphError: If the matrix would take more than 4 GiB.
        """
        return dense_values(self, values, fill)

    def block_counts(self, tile: tuple[int, int] = (128, 128)) -> Tensor:
        """Edges in every tile of (targets, sources): int64 on the CPU, a row per row of tiles.

        The table has the shape (ceil(T / tile[0]), ceil(S / tile[1])).

        Exact, from the runs of each row: T x S is never built. Copies of a repeated edge count
        once.

        Raises:
            GraphError: If a tile side is below 1, or the table itself would take more than 4 GiB.
        """
        height, width = pair(tile, "tile", "(targets, sources)", GraphError)
        tiles = -(-self.num_targets // height) * -(-self.num_sources // width)
        refuse_over(8 * tiles, f"a table of {tiles:,} tiles", "use larger tiles")
        return self.edges.block_counts(height, width)

    def _block_classes(self, tile: tuple[int, int] = (128, 128)) -> Tensor:
        """The class of each tile, int8: EMPTY (0), PARTIAL (1) or FULL (2).

        :meth:`block_counts` has the arguments.
        """
        height, width = pair(tile, "tile", "(targets, sources)", GraphError)
        counts = self.block_counts((height, width))
        areas = self.edges.block_areas(height, width)
        classes = torch.where(counts == areas, FULL, PARTIAL)
        return classes.where(counts != 0, EMPTY).to(torch.int8)

    def equals(self, other: "AttentionGraph") -> bool:
        """True for the same sizes and edges, in any storage and order; copies count.

        Of a periodic graph, offsets and cell count too.

        Raises:
            GraphError: If ``other`` is not a graph; the message says how to make one. If the graphs
                are rules of too many intervals of sources to walk over in minutes.
        """
        if (self.num_targets, self.num_sources) != (other.num_targets, other.num_sources):
            return False
        if self.edges is other.edges:
            return True
        if self.num_edges != other.num_edges:
            return False
        if self.num_edges == 0:
            return True
        if self.images is not None or other.images is not None:
            return self._same_images(other)
        if self.has_repeated_edges or other.has_repeated_edges:
            return torch.equal(self._listed().key.cpu(), other._listed().key.cpu())
        if None not in (self.edges.diagonals, other.edges.diagonals):
            return self.edges.diagonals == other.edges.diagonals
        left = self.edges.stored()
        right = other.edges.stored()
        if left is None or right is None:
            return (self - other).num_edges == 0
        return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))

    def _same_images(self, other: "AttentionGraph") -> bool:
        """True if both have the same cells, and the edges read the same images."""
        if self.images is None or other.images is None:
            return False
        if not torch.equal(self.images.cells.cpu(), other.images.cells.cpu()):
            return False
        here = self._listed()
        there = other._listed()
        pairs = [edges.source + edges.target * edges.num_sources for edges in (here, there)]
        return torch.equal(self.images.keys(pairs[0]), other.images.keys(pairs[1]))

    def _need_no_images(self, subject: str) -> None:
        """Refuse what is about pairs, of which a cell that repeats has several edges."""
        if self.images is None:
            return
        raise GraphError(
            f"{subject} is of pairs of nodes, and {self.name} has an edge for each image of a "
            'pair; for its pairs pass edge_index to from_edge_index with duplicates="merge"'
        )

    def _need_set(self, subject: str) -> None:
        """Refuse copies and images where each pair is an edge once."""
        self._need_no_images(subject)
        if self.has_repeated_edges:
            raise GraphError(
                f"{subject} is of a set of edges, and {self!r} repeats some; drop them with "
                "graph | graph"
            )

    def to(self, device: torch.device | str) -> "AttentionGraph":
        """The graph with its index tensors on another device; itself if they are there."""
        device = checked_device(device, numbers=not self.is_rule)
        if device == self.device:
            return self
        return replace(self, edges=self.edges.to(device), device=device)

    # --- algebra

    def _need_same_nodes(self, other: "AttentionGraph", sign: str) -> None:
        left = (self.num_targets, self.num_sources)
        right = (other.num_targets, other.num_sources)
        if sign != "@" and left != right:
            advice = of_other_size(self, right[0]) + of_other_size(other, left[0])
            raise GraphError(
                f"{sign} needs the same nodes on both sides, got (targets, sources) {left} "
                f"and {right}{advice}"
            )

    def _made_by(self, function: str, *args: Any, **options: Any) -> "AttentionGraph":
        """The graph with this call as its expression, if the call can be written down."""
        return replace(self, expression=written(self.edges, function, *args, **options))

    def _as_operand(self) -> Expression | Operand:
        """The expression; if it is None, the graph without cached derivations."""
        if self.expression is None:
            return replace(self)
        return self.expression

    def _derived(
        self,
        edges: Edges,
        name: str,
        function: str,
        *args: Any,
        **options: Any,
    ) -> "AttentionGraph":
        """A graph derived from this one, on the device of the parent that lists its edges."""
        parents = [self]
        if function in JOINS:
            parents.append(args[0])
        device = next((graph.device for graph in parents if not graph.is_rule), self.device)
        edges = edges.to(device)
        expression = written(edges, function, self, *args, **options)
        return AttentionGraph(edges, short_name(name), device, expression)

    def _join(
        self,
        other: object,
        sign: str,
        make: Callable[[Edges, Edges], Edges],
    ) -> "AttentionGraph":
        if not isinstance(other, AttentionGraph):
            if isinstance(other, Operand):  # a pattern joins later, a choice says how to join
                return NotImplemented
            raise no_graph(other, f"{sign} joins two AttentionGraphs")
        self._need_same_nodes(other, sign)
        if sign not in ("&", "-"):  # which choose among the edges of the first graph
            self._need_no_images(sign)
        other._need_no_images(f"{sign} (its second graph)")
        name = f"{wrapped(self, sign)} {sign} {wrapped(other, sign)}"
        edges = without_modes(lambda: make(self.edges, other.edges))
        return self._derived(edges, name, sign, other)

    def __or__(self, other: object) -> "AttentionGraph":
        """Edges in either graph; a repeated edge never appears.

        Warns if one was asked to be causal and the other reads later sources.
        """
        union = self._union(other)
        if isinstance(other, AttentionGraph):
            warn_of_later_sources(self, other)
            warn_of_later_sources(other, self)
        return union

    def _union(self, other: object) -> "AttentionGraph":
        """Edges in either graph, of parts that stay apart: no warning."""
        return self._join(other, "|", algebra.union)

    def __and__(self, other: object) -> "AttentionGraph":
        """Edges in both graphs."""
        return self._join(other, "&", algebra.intersection)

    def __sub__(self, other: object) -> "AttentionGraph":
        """Edges in this graph that the other lacks."""
        return self._join(other, "-", algebra.difference)

    def __invert__(self) -> "AttentionGraph":
        """The pairs that are not edges."""
        self._need_no_images("~")
        return self._derived(algebra.complement(self.edges), f"~{wrapped(self, '~')}", "~")

    def __matmul__(self, other: object) -> "AttentionGraph":
        """Reach in two layers: ``s -> t`` if ``other`` has ``s -> m`` and this graph ``m -> t``.

        The mask is the boolean matrix product of the masks, so ``last_layer @ first_layer``.
        """
        if isinstance(other, AttentionGraph) and self.num_sources != other.num_targets:
            raise GraphError(
                f"@ needs the sources of the left graph to be the targets of the right one, "
                f"got {self.num_sources} sources and {other.num_targets} targets"
            )
        return self._join(other, "@", algebra.compose)

    def reverse(self) -> "AttentionGraph":
        """Every edge reversed: sources become targets. Listed edges keep their order."""
        return self._derived(self.edges.flip(), f"reverse({self.name})", "reverse")

    def k_hop(self, k: int) -> "AttentionGraph":
        """``s -> t`` if ``t`` can be reached from ``s`` along at most ``k`` edges.

        Self-loops stay as they are: a walk to a neighbour and back adds none. A large ``k`` costs
        no more than the steps that reach new nodes.

        Raises:
            GraphError: If ``k < 1`` or the graph is not square.
        """
        need_square(self, "k_hop")
        self._need_no_images("k_hop")
        whole(k, "k", 1, GraphError)
        reach = self.edges
        if not self.is_rule:
            reach = without_modes(lambda: _listed_hops(self._listed().distinct(), k))
        elif k > 1:
            reach = self._hops(k)
        return self._derived(reach, f"{k}-hop({self.name})", "k_hop", k)

    def _hops(self, k: int) -> Edges:
        """The edges of :meth:`k_hop` of a rule, for ``k > 1``."""
        edges = self.edges
        loops = self._loops().edges
        reach = algebra.compose(edges, algebra.power(algebra.union(edges, loops), k - 1))
        if self._num_loops() == self.num_nodes:
            return reach
        others = algebra.difference(reach, loops)
        return algebra.union(others, algebra.intersection(edges, loops))

    def _loops(self) -> "AttentionGraph":
        loops = band(self.num_targets, self.num_sources, 0, 0)
        return AttentionGraph(loops, "self-loops", self.device)

    def _num_loops(self) -> int:
        node = every_node(self.num_nodes).to(self.device)
        return int(self.edges.contains(node, node).sum())

    def with_self_loops(self) -> "AttentionGraph":
        """The graph with its missing self-loops.

        Listed edges keep their order and copies; the new ones come last. Edges to other images of
        the node itself are no self-loops.
        """
        need_square(self, "with_self_loops")
        name = f"{wrapped(self, '|')} | self-loops"
        if self.is_rule:
            edges = algebra.union(self.edges, self._loops().edges)
            return self._derived(edges, name, "with_self_loops")
        node = torch.arange(self.num_nodes, device=self.device)
        present = self.target[self._is_self_loop()]
        missing = torch.ones_like(node, dtype=torch.bool)
        missing[present] = False
        node = node[missing]
        target = torch.cat((self.target, node))
        source = torch.cat((self.source, node))
        images = self.images and self.images.extended(len(node))
        edges = listed(target, source, self.num_targets, self.num_sources, images=images)
        return self._derived(edges, name, "with_self_loops")

    def without_self_loops(self) -> "AttentionGraph":
        """The self-loops dropped; listed edges keep their order and copies.

        Edges to other images of the node itself stay.
        """
        need_square(self, "without_self_loops")
        name = f"{wrapped(self, '-')} - self-loops"
        if self.is_rule:
            edges = algebra.difference(self.edges, self._loops().edges)
        else:
            edges = self._listed().keep(~self._is_self_loop())
        return self._derived(edges, name, "without_self_loops")

    def _is_self_loop(self) -> Tensor:
        """bool (E,): True for an edge from a node to itself, and not to another image of it."""
        loop = self.target == self.source
        if self.images is not None:
            loop &= (self.images.offsets == 0).all(1)
        return loop

    def with_global_tokens(self, number: int = 1) -> "AttentionGraph":
        """The graph preceded by ``number`` new nodes that read all nodes and are read by all.

        The new nodes come first, node ``i`` becomes ``i + number``; listed edges keep their order
        and copies, the new ones come last. :func:`~graphattn.graphs.global_tokens` makes existing
        tokens global. Warns if the graph was asked to be causal: the new nodes read all.
        """
        need_square(self, "with_global_tokens")
        k = whole(number, "number", 0, GraphError)
        n = self.num_targets
        name = f"{wrapped(self, '')}.with_global_tokens({number})"
        if self.is_rule:
            edges = algebra.behind_tokens(self.edges, k)
        else:
            hub = AttentionGraph(algebra.behind_tokens(band(n, n, 1, 0), k), device=self.device)
            source, target = torch.cat((self.edge_index + k, hub.edge_index), 1).unbind(0)
            images = self.images and self.images.extended(hub.num_edges)
            edges = listed(target, source, n + k, n + k, images=images)
        result = self._derived(edges, name, "with_global_tokens", k)
        warn_of_later_sources(self, result)
        return result

    def subgraph(
        self,
        nodes: Any = None,
        *,
        targets: Any = None,
        sources: Any = None,
    ) -> "AttentionGraph":
        """The edges between chosen nodes, renumbered in the order given.

        Args:
            nodes: For a square graph: distinct indices (n,) or a bool mask (N,), for both sides.
            targets: The same for the targets alone; all by default.
            sources: The same for the sources alone; all by default.
        """
        targets, sources = self._both_sides("subgraph", nodes, targets, sources)
        return self._pulled_back(targets, sources, "subgraph", targets=targets, sources=sources)

    def relabel(
        self,
        nodes: Any = None,
        *,
        targets: Any = None,
        sources: Any = None,
    ) -> "AttentionGraph":
        """Node ``i`` becomes node ``nodes[i]``, for permutations. Listed edges keep their order."""
        targets, sources = self._both_sides("relabel", nodes, targets, sources)
        for side, nodes_of_side, size in (
            ("targets", targets, self.num_targets),
            ("sources", sources, self.num_sources),
        ):
            if nodes_of_side.numel() != size:
                raise GraphError(
                    f"relabel needs a permutation of all {size} {side}, got "
                    f"{nodes_of_side.numel()} numbers"
                )
        old_targets = torch.argsort(targets)
        old_sources = torch.argsort(sources)
        return self._pulled_back(
            old_targets, old_sources, "relabel", targets=targets, sources=sources
        )

    def reordered(self) -> tuple["AttentionGraph", Tensor]:
        """The graph with its nodes reordered so that neighbours are near in memory, and the order.

        For meshes and point clouds whose nodes come in a bad order: rows then read sources that are
        still in the CPU's caches (``explain`` reports where that pays). The order is the reverse
        Cuthill-McKee order (1969).

        Returns:
            The graph, whose listed edges keep their order, and ``order``, int64 (N,): node
            ``order[i]`` is now node ``i``. Tensors of nodes go there as ``x[order]``, and results
            come back as ``result[order.argsort()]``.

        Raises:
            GraphError: If sources and targets are not the same nodes.

        Example:
            >>> import graphattn as ga, torch
            >>> ring = ga.from_edge_index([[0, 3, 1, 4, 2], [3, 1, 4, 2, 0]], num_nodes=5)
            >>> near, order = ring.reordered()
            >>> x = torch.randn(5, 1, 8)
            >>> y, z = ga.attention(x, x, x, ring), ga.attention(*[x[order]] * 3, near)
            >>> torch.equal(y, z[order.argsort()])
            True
        """
        need_square(self, "reordered")
        order = self._near_order().to(self.device)
        return self.relabel(order.argsort()), order

    def _near_order(self) -> Tensor:
        return keep(self._memo, "near order", lambda: cuthill_mckee(self._listed()))

    def _pulled_back(
        self,
        new_targets: Tensor,
        new_sources: Tensor,
        function: str,
        **options: Tensor,
    ) -> "AttentionGraph":
        """A graph whose node ``i`` is ``new_targets[i]`` or ``new_sources[i]`` of this graph."""
        name = f"{function}({self.name})"
        if self.is_rule:
            edges = algebra.pulled_back(self.edges, new_targets, new_sources)
            return self._derived(edges, name, function, **options)
        new = []
        for chosen, old, size in (
            (new_targets, self.target, self.num_targets),
            (new_sources, self.source, self.num_sources),
        ):
            number = torch.full((size,), -1, device=self.device)
            number[chosen.to(self.device)] = torch.arange(chosen.numel(), device=self.device)
            new.append(number[old])
        keep = (new[0] >= 0) & (new[1] >= 0)
        sizes = (new_targets.numel(), new_sources.numel())
        repeats = None  # to be counted again
        if not self.has_repeated_edges:
            repeats = False
        images = self.images and self.images.at(keep)
        edges = listed(new[0][keep], new[1][keep], *sizes, has_repeats=repeats, images=images)
        return self._derived(edges, name, function, **options)

    def _both_sides(
        self,
        subject: str,
        nodes: Any,
        targets: Any,
        sources: Any,
    ) -> tuple[Tensor, Tensor]:
        if nodes is not None:
            if targets is not None or sources is not None:
                raise GraphError(
                    f"{subject} takes nodes for both sides, or targets= and sources=, not both "
                    "forms"
                )
            need_square(self, f"{subject}(nodes)")
            targets = sources = nodes
        return (
            self._choice(targets, self.num_targets, f"{subject}: targets"),
            self._choice(sources, self.num_sources, f"{subject}: sources"),
        )

    def _choice(self, chosen: Any, size: int, argument: str) -> Tensor:
        if chosen is None:
            return every_node(size)
        chosen = table(chosen, argument, "node numbers (n,) or a bool mask (N,)", GraphError).cpu()
        if chosen.dtype == torch.bool:
            check_shape(chosen, f"{argument} as a bool mask", (size,), error=GraphError)
            return torch.nonzero(chosen).flatten()
        if chosen.numel() == 0:
            chosen = chosen.to(torch.int64)
        chosen = self._index(chosen, size, argument).flatten().clone()  # a rule keeps it
        if torch.unique(chosen).numel() != chosen.numel():
            raise GraphError(f"{argument} must be distinct, got a node twice")
        return chosen

    # --- looking at it

    def __repr__(self) -> str:
        if self.is_square:
            nodes = f"{self.num_targets} nodes"
        else:
            nodes = f"{self.num_sources} sources -> {self.num_targets} targets"
        costly = self.edges.count_cost > COUNTED_AT_ONCE and "num_edges" not in self._memo
        if costly:
            edges = "edges not counted"
        else:
            edges = f"{self.num_edges} edges, density {self.density:.3g}"
        facts = [nodes, edges]
        if self.is_rule:
            facts.append("rule")
        else:
            facts.append("listed")
        if self.edges.is_listed and not (self.is_square or costly):
            unread = self.num_sources - self.source.unique().numel()
            if unread:
                facts.append(f"unread sources: {unread:,}")
        if self.images is not None:
            facts.append("periodic")
        elif self.has_repeated_edges:
            facts.append("repeated edges")
        if self.device.type != "cpu":
            facts.append(str(self.device))
        return singular(f"AttentionGraph({self.name}: {', '.join(facts)})")

    def __str__(self) -> str:
        from .pictures.draw import draw  # a layer's call loads no pictures

        return f"{self!r}\n{draw(self.edges)}"

    def _repr_html_(self) -> str:
        """The view in a notebook: the line of ``repr`` and a picture of the mask."""
        from .pictures.html import mask_page  # a layer's call loads no pictures

        return mask_page(repr(self), self.edges)


@constant_result  # Python that torch.compile does not trace
def _count(graph: AttentionGraph) -> int:
    return keep(graph._memo, "num_edges", graph.edges.count)


def wrapped(graph: Any, sign: str) -> str:
    """The name of an operand of ``sign``, in parentheses where precedence needs them."""
    loose = set(JOINS)
    if sign != "-":  # the only one that is not associative
        loose.discard(sign)
    if any(f" {join} " in graph.name for join in loose):
        return f"({graph.name})"
    return graph.name


def need_graph(graph: Any, subject: str) -> None:
    """Raise a GraphError with advice unless ``graph`` is one AttentionGraph."""
    if not isinstance(graph, AttentionGraph):
        raise no_graph(graph, f"{subject} needs an AttentionGraph")


def need_square(graph: Any, subject: str) -> None:
    """Refuse what is no AttentionGraph, or has other targets than sources."""
    need_graph(graph, subject)
    if not graph.is_square:
        raise GraphError(
            f"{subject} needs a square graph, whose sources and targets are the same nodes; this "
            f"one has {graph.num_targets} targets and {graph.num_sources} sources"
        )


def need_nodes(graph: GraphLike, argument: str, num_targets: int, num_sources: int) -> None:
    """Raise a GraphError unless a graph has these numbers of nodes."""
    if (graph.num_targets, graph.num_sources) != (num_targets, num_sources):
        raise GraphError(
            f"{argument} must have {num_targets} targets and {num_sources} sources, got {graph!r}"
        )


def _listed_hops(edges: Listed, k: int) -> Listed:
    """Listed edges joined along up to ``k`` of them; self-loops stay as they are."""
    reach = edges
    for _ in range(k - 1):
        wider = algebra.union(reach, algebra.compose(reach, edges))
        assert isinstance(wider, Listed)
        if wider.count() == reach.count():
            break
        reach = wider
    return reach.keep((reach.target != reach.source) | edges.contains(reach.target, reach.source))


@builder
def disjoint_union(
    graphs: Sequence[AttentionGraph],
    source_starts: Sequence[int] | None = None,
) -> AttentionGraph:
    """Several graphs side by side as one, without edges between them: a batch of graphs.

    Nodes and listed edges keep their order, graph after graph. A rule only if every part is one.

    Args:
        graphs: The graphs.
        source_starts: The first source of each graph, and last the number of all sources, where
            keys are padded: ``range(0, 33, 8)`` for four rows of at most 8 keys. By default the
            sources follow each other.

    Raises:
        GraphError: If the graphs are on different devices, an item of the list is not a graph, or
            sources do not fit.
    """
    graphs = several(graphs, "graphs", "must be a list of AttentionGraphs", GraphError)
    for graph in graphs:
        need_graph(graph, "disjoint_union")
    target_starts = [0, *accumulate(graph.num_targets for graph in graphs)]
    if source_starts is None:
        source_starts = [0, *accumulate(graph.num_sources for graph in graphs)]
    *starts, num_sources = source_starts
    stops = [start + graph.num_sources for start, graph in zip(starts, graphs, strict=False)]
    if (
        len(starts) != len(graphs)
        or min(starts, default=0) < 0
        or max(stops, default=0) > num_sources
    ):
        raise GraphError(
            f"source_starts must be the first sources of {len(graphs)} graphs and the number of "
            f"all sources, at least {max(stops, default=0)}, got {list(source_starts)}"
        )
    return side_by_side(graphs, target_starts, starts, (target_starts[-1], num_sources))


def side_by_side(
    graphs: Sequence[AttentionGraph],
    target_starts: Iterable[int],
    source_starts: Iterable[int],
    sizes: tuple[int, int],
) -> AttentionGraph:
    """Graphs on one device as blocks of one of ``sizes``, T and S, each from its first nodes on.

    Listed edges keep their order, graph after graph.
    """
    names = [graph.name for graph in graphs[:3]]
    if len(graphs) > 3:
        names.append(f"{len(graphs) - 3} more")
    name = " + ".join(names)
    device = next((graph.device for graph in graphs if not graph.is_rule), None)
    if device is None and graphs:
        device = graphs[0].device
    elif device is None:
        device = torch.device("cpu")
    placed = list(zip(graphs, target_starts, source_starts, strict=False))
    if graphs and all(graph.is_rule for graph in graphs):
        cells = [(graph.edges, t, s) for graph, t, s in placed]
        return AttentionGraph(algebra.union_of_blocks(cells, *sizes), name, device)
    moved = [torch.empty(2, 0, dtype=torch.int64, device=device)]
    for graph, t, s in placed:
        moved.append(graph.edge_index.to(device) + torch.tensor([[s], [t]], device=device))
    source, target = torch.cat(moved, 1).unbind(0)
    has_repeats = any(graph.has_repeated_edges for graph in graphs)
    images = None
    if any(graph.images is not None for graph in graphs):
        images = joined_images([(graph.images, graph.num_edges) for graph in graphs], target.device)
    edges = listed(target, source, *sizes, has_repeats=has_repeats, images=images)
    if not name:
        name = "empty"
    return AttentionGraph(edges, name, device)
