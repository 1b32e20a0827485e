"""A process's share of a graph: its targets, their edges, and the exchange of rows."""

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor

from ..errors import BackendError, OptionError, ShapeError, singular
from ..graph import AttentionGraph, Pattern, PerHead
from ..graph.advice import no_graph
from ..graph.kinds.per_head import heads_read
from ..graph.like import GraphLike, Pair
from ..graph.like import Run as EdgesRun
from ..graph.listed import listed
from ..graph.modes import Memo, keep
from ..graph.runs import hashed
from ..graph.sort import rows_of
from ..graphs import Hierarchy, HierarchyRecipe
from ..kernels.cuda.row_work import Degrees
from ..operands import Inputs, Outputs
from ..plans.edge_tensors import EdgeTensors
from .exchange import Every, Processes, along
from .files import EdgeFiles, refuse_listed
from .fingerprint import agree
from .halo import Halo
from .heads import Heads, Run, refuse
from .levels import shared
from .own import OwnEdges, edges_into, remote
from .partition import partition_of
from .plans import Counts, LayerWidths, Report, choose
from .queries import Queries, counts_of_queries


@overload
def shard(
    graph: AttentionGraph | Pattern | PerHead | EdgeFiles,
    group: Any = ...,
    partition: Any = ...,
    **options: Any,
) -> "Shard": ...
@overload
def shard(
    graph: Hierarchy | HierarchyRecipe, group: Any = ..., partition: Any = ..., **options: Any
) -> Hierarchy: ...
def shard(  # type: ignore[misc]  # options have names
    graph: AttentionGraph | Pattern | PerHead | Hierarchy | HierarchyRecipe | EdgeFiles,
    group: Any = None,
    partition: Any = "contiguous",
    *,
    pos: Any = None,
    source_partition: Any = None,
    plan: str = "auto",
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
    overlap: bool = False,
) -> Any:
    """This process's share of a graph that all processes pass; a collective call.

    Each target belongs to one process, which computes its whole softmax: outputs are bit for bit
    those of one process on backend ``edges``, given queries, keys and values, and one kind of CPU.

    Args:
        graph: The graph, the same in every process: its edges and partition are compared. A
            :class:`graphattn.PerHead` is shared graph by graph. Of :class:`EdgeFiles` each process
            reads consecutive parts, which it owns. Of a :class:`graphattn.graphs.Hierarchy` a
            process owns some of the finest points, and a coarser point with the finer one that it
            keeps, or with most of those that it reads. A recipe of either is called with ``pos``.
        group: A device mesh of one axis, ``mesh["graph"]``, or a process group; all processes by
            default.
        partition: "contiguous", slices of consecutive nodes; "rcb", recursive coordinate bisection
            of ``pos``; or the process of each target, integers (T,).
        pos: Coordinates (T, d) for "rcb"; by default those of its cells, on a grid, or of a
            hierarchy's points.
        source_partition: The same for the sources (S,) of a graph whose sources are other nodes;
            "contiguous" by default. Sources and targets of a square graph are the same nodes unless
            it is given.
        plan: What moves. "halo": the rows of the sources that a process's targets read, once each.
            "heads": every process computes all targets of some heads. "queries": each query, to the
            owners of sources that it reads, and their outputs, which are merged, for softmax alone,
            to rounding. "auto": the one of least bytes.
        heads: H of the layers, for the plan and its bytes; ``kv_heads`` H_kv, the same by default.
        head_dim: D of the layers.
        dtype: Dtype of the rows that move.
        overlap: True to compute, by the plan "halo", the targets that read nothing remote while
            rows are on their way: calls of plain softmax on keys and values, without dropout or
            weights. Where rows of x are sent, queries are computed meanwhile. Gradients go back
            likewise; they have no second derivatives.

    Returns:
        A :class:`Shard`, which ``attention`` and layers take as their graph; ``print(shard)`` shows
        its report. Of a hierarchy one of own points, which models of points take: its graphs are
        shards, those between levels by "halo". ``shape.levels[0].graph`` scatters features and
        gathers outputs, ``shape.clouds`` those of clouds.

    Raises:
        ProcessError: If processes hold different graphs, partitions, options or versions, or one
            does not answer.
        OptionError: If the partition does not fit the graph, or the plan cannot run.
        GraphError: If ``graph`` is something else.

    Example:
        >>> import torch, graphattn as ga
        >>> pos = torch.rand(50, 3)
        >>> shard = ga.distributed.shard(ga.graphs.knn(pos, 4), partition="rcb", pos=pos)  # one process owns all
        >>> layer, x = ga.nn.GraphAttention(8, 2, backend="edges"), torch.randn(50, 8)
        >>> torch.equal(shard.gather(layer(shard.scatter(x), shard)), layer(x, ga.graphs.knn(pos, 4)))
        True
    """
    processes = Processes(group)
    rows = LayerWidths(heads, kv_heads, head_dim, dtype)
    P = processes.number
    against = None
    sized: Any = {"head_dim": head_dim, "dtype": dtype, "overlap": overlap}
    if isinstance(graph, Pattern | HierarchyRecipe) and pos is not None:
        graph = graph(pos)
    if isinstance(graph, Hierarchy):
        if source_partition is not None:
            raise OptionError(
                "source_partition must be left out for a hierarchy: partition is that of all its "
                "points"
            )
        sized |= {"heads": heads, "kv_heads": kv_heads}

        def share(part_graph: AttentionGraph, to: Tensor, of: Tensor, plan: str = "halo") -> Shard:
            if of is to:
                return shard(part_graph, group, to, plan=plan, **sized)
            return shard(part_graph, group, to, source_partition=of, plan=plan, **sized)

        return shared(graph, processes, partition, pos, plan, share)
    if isinstance(graph, PerHead):
        partition = partition_of(
            partition, graph.num_targets, P, pos, grid=graph.graphs[0].edges.grid
        )
        shards = []
        for _, part, first, last in graph.groups(heads or len(graph.graphs)):
            if heads:
                sized |= {
                    "heads": last - first,
                    "kv_heads": len(heads_read(first, last, heads, rows.of_kv)),
                }
            shards.append(
                shard(part, group, partition, source_partition=source_partition, plan=plan, **sized)
            )
        return HeadShards(graph, shards)
    if isinstance(graph, EdgeFiles):
        refuse_listed(graph, partition, pos, source_partition)
        parts = [graph.partition(P)] * 2
        partition = "files"
        own_edges = graph.into(processes.rank, P)
        against = {"heads": "every process would list all edges of the files"}
    elif isinstance(graph, AttentionGraph):
        parts = [partition_of(partition, graph.num_targets, P, pos, grid=graph.edges.grid)] * 2
        if source_partition is not None or not graph.is_square:
            if source_partition is None:
                layout = "contiguous"
            else:
                layout = source_partition
            parts[1] = partition_of(layout, graph.num_sources, P, name="source_partition")
        own_edges = edges_into(graph, torch.nonzero(parts[0] == processes.rank).flatten())
    else:
        raise no_graph(graph, "graph must be an AttentionGraph")
    facts = {
        "partition": [hashed(part) for part in parts],
        "plan and width": (plan, heads, kv_heads, head_dim, str(dtype)),
    }
    agree(processes, graph, parts[0], own_edges, facts)
    away = remote(own_edges.source, parts[1], processes.rank)
    is_away = parts[1][own_edges.source] != processes.rank
    targets, sources = (torch.bincount(part.long(), minlength=P) for part in parts)
    own_counts = (
        own_edges.source.numel(),
        away.numel(),
        torch.unique(rows_of(own_edges.ptr)[is_away]).numel(),
    )
    *fields, rows_of_all, widest, few = torch.tensor(
        processes.gathered((*own_counts, *Degrees.of(own_edges.ptr.diff())))
    ).unbind(1)
    own_edges = own_edges._replace(
        degrees=Degrees(int(rows_of_all.sum()), int(widest.max()), int(few.sum()))
    )
    if plan == "queries" or graph.num_targets < graph.num_sources:
        fields += counts_of_queries(processes, own_edges, parts[1][own_edges.source].long())
    counts = Counts(targets, sources, *fields)
    chosen, refused = choose(plan, counts, rows, against)
    if isinstance(partition, str):
        name = partition
    else:
        name = "ids"
    return Shard(
        graph,
        processes,
        parts,
        own_edges,
        away,
        Report(chosen, name, counts, rows, refused),
        overlap,
    )


class Shard(EdgeTensors):
    """A process's own targets and sources, and the edges into these targets, made by :func:`shard`.

    Its tensors are the rows of own nodes: query (..., T_p, H, D), key and value (..., S_p, H_kv,
    D), features (..., T_p, C). Biases and edge features are those of its edges,
    ``bias[shard.edges]``. Dropout of weights drops the edges that it drops in one process of the
    first process's seed, except by the plan ``heads`` and beside biases, edge features, or weights
    that are returned. A layer's own ``normalize`` is called, by the plan ``halo``,
    with own edges and the whole graph's numbers of nodes.

    Attributes:
        report: The plan, what each process owns and receives, and the reasons against the other
            plans.
        owned: Own targets, int64 (T_p,), ascending; ``owned_sources`` (S_p,), the same on a square
            graph.
        processes: The processes that share the graph.
    """

    _remedy = (
        "pass the whole graph, and take the process's own rows of the result: "
        "x[..., shard.edges, :] of edges, shard.scatter(x) of nodes"
    )
    name = "Shard"

    def __init__(
        self,
        graph: AttentionGraph | EdgeFiles,
        processes: Processes,
        parts: list[Tensor],
        own_edges: OwnEdges,
        away: Tensor,
        report: Report,
        overlap: bool = False,
    ) -> None:
        self.processes = processes
        self.report = report
        self._memo = Memo()
        self.owned, self.owned_sources = (
            torch.nonzero(part == processes.rank).flatten() for part in parts
        )
        same = parts[1] is parts[0]
        every = Every(processes, parts[0])
        self._every = [every, every if same else Every(processes, parts[1])]
        if report.plan == "heads" and isinstance(graph, AttentionGraph):
            self._plan: Halo | Heads | Queries = Heads(EdgeTensors(graph), processes, *self._every)
            self._edges = torch.arange(graph.num_edges)
            self._number = None
        else:
            if isinstance(graph, AttentionGraph):
                device = graph.device
            else:
                device = torch.device("cpu")
            halo = Halo(
                processes,
                parts[1],
                own_edges,
                away,
                self._every[1],
                device,
                overlap and report.plan == "halo",
            )
            self._edges = halo.edges
            self._number = own_edges.number
            self._plan = halo
            num_targets = self._every[0].by_owner.numel()
            halo.local.numbers = (self.owned, halo.sources, num_targets)
            if report.plan == "queries":
                place = self._every[1].place_in_part(parts[1])
                self._plan = Queries(halo, processes, own_edges, parts[1], place, self.num_sources)
        self._by_target = self._plan.local._by_target
        self._by_source = self._plan.local._by_source
        if isinstance(graph, AttentionGraph):
            self._grid = graph.edges.grid
            if graph.images is not None:
                self.images = graph.images.at(self.edges.to(graph.device))
        else:
            self._grid = ()

    @property
    def num_targets(self) -> int:
        """T_p, own targets."""
        return self.owned.numel()

    @property
    def num_sources(self) -> int:
        """S_p, own sources."""
        return self.owned_sources.numel()

    @property
    def edges(self) -> Tensor:
        """Indices of its edges in the whole graph, int64 (E_p,), ascending; all by plan ``heads``.

        A rule is asked for the degrees of all targets.
        """
        if self._number is None:
            return self._edges
        return self._number(self._edges)

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """The numbers of own targets and of own sources in the whole graph."""
        return self.owned.to(self.device), self.owned_sources.to(self.device)

    @property
    def _whole_graph(self) -> AttentionGraph:
        """Its edges, in order, between the nodes of the whole graph, for biases of node indices."""
        return keep(self._memo, "of_whole", self._with_numbers_of_whole)

    def _with_numbers_of_whole(self) -> AttentionGraph:
        local = self._plan.local
        sizes = (every.by_owner.numel() for every in self._every)
        target = local.target
        source = local.source
        if local.numbers is not None:
            targets, sources, _ = local.numbers
            target = targets.to(self.device)[target]
            source = sources.to(self.device)[source]
        edges = listed(target, source, *sizes)
        edges.grid = self._grid
        return AttentionGraph(edges, "Shard", self.device)

    def union(self) -> EdgeTensors:
        """The edges, between the rows that they read and write here."""
        return self._plan.local

    def scatter(self, x: Tensor, dim: int = 0) -> Tensor:
        """The rows of own targets of a tensor with a row per target along ``dim``; local."""
        self._check("x", x, dim, self._every[0].by_owner.numel(), "the whole graph's targets")
        return x.index_select(dim, self.owned.to(x.device))

    def gather(self, x: Tensor, dim: int = 0) -> Tensor:
        """The rows of all targets, in every process, from own targets' rows along ``dim``.

        Differentiable: gradients of all processes are summed by the owner.
        """
        self._check("x", x, dim, self.num_targets, "the shard's own targets")
        return along(dim, self._every[0].ordered, x)

    def attend(
        self, run: EdgesRun, inputs: Inputs, backend: str, weights: bool, lse: bool
    ) -> Outputs:
        """The outputs of own targets; ``run`` computes attention on edges that are all here."""
        return self._plan.attend(_on(run, backend), inputs, weights, lse)

    def projected(
        self,
        query: Callable[[], Tensor],
        keys: Callable[[Tensor, Tensor], Pair],
        key: Tensor,
        value: Tensor,
        numbers: Callable[[], int],
    ) -> tuple[EdgeTensors, Tensor, Pair]:
        """Attention on projected rows; narrow rows (..., C) of all sources are sent while queries are computed.

        Only where they are narrower than the keys and values.
        """
        distinct = {id(x): x for x in (key, value)}
        narrow = sum(x.shape[-1] for x in distinct.values()) < numbers()
        if not narrow or not isinstance(self._plan, Halo):
            return super().projected(query, keys, key, value, numbers)
        coming = {number: self._plan.coming(x) for number, x in distinct.items()}
        queries = query()
        here = {number: wait() for number, wait in coming.items()}
        return self._plan.local, queries, keys(here[id(key)], here[id(value)])

    def ends(self, of_sources: Tensor, of_targets: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (..., S_p, d) and (..., T_p, d) of own nodes as the ends of edges index them."""
        return self._plan.ends(of_sources, of_targets)

    def _own_targets(self, x: Tensor, dim: int = -2) -> Tensor:
        """The rows of own targets among those that edges index."""
        if isinstance(self._plan, Heads):
            return x.index_select(dim, self.owned.to(x.device))
        return x

    def _check(self, name: str, x: Tensor, dim: int, size: int, of: str) -> None:
        if x.dim() == 0 or not -x.dim() <= dim < x.dim() or x.shape[dim] != size:
            raise ShapeError(
                f"{name} must have {size} rows along dim {dim}, {of}, got {tuple(x.shape)}"
            )

    def __str__(self) -> str:
        return f"{self!r}\n{self.report}"

    def __repr__(self) -> str:
        return singular(
            f"Shard({self.processes.rank} of {self.processes.number}: {self.num_sources} sources "
            f"-> {self.num_targets} targets, {self.num_edges} edges, plan {self.report.plan})"
        )


class HeadShards(Shard):
    """A process's share of a :class:`graphattn.PerHead`: a shard of each graph, by heads.

    Attributes:
        shards: The shard of each graph; heads side by side that have one graph share it.
    """

    _remedy = "pass the graph of a head, and take the rows of its own shard, shard.shards[0]"

    def __init__(self, graph: PerHead, shards: list[Shard]) -> None:
        vars(self).update(vars(shards[0]))  # nodes, processes and device are those of all
        self.graph = graph
        self.shards = shards
        self._memo = Memo()

    @property
    def num_edges(self) -> int:
        """Number of edges of all shards."""
        return sum(head_shard.num_edges for head_shard in self.shards)

    def attend(
        self, run: EdgesRun, inputs: Inputs, backend: str, weights: bool, lse: bool
    ) -> Outputs:
        """The outputs of own targets.

        Raises:
            BackendError: If the call has tensors of edges, or a score or normalisation of all
                heads.
        """
        of_edges = weights or inputs.score_bias is not None or inputs.edge_attr is not None
        reasons = ["biases, edge features and weights are of one graph's edges"] * of_edges
        refuse(
            "a shard of PerHead",
            "a call of each graph's heads",
            inputs,
            reasons,
            "may read several heads",
        )
        parts = zip(self.shards, self.graph.split(inputs), strict=True)
        outputs = [
            head_shard.attend(run, part, backend, False, lse) for head_shard, (_, part) in parts
        ]
        return self.graph.join(outputs, inputs.query.shape[-2])

    projected = GraphLike.projected  # of rows of own nodes, as they are

    @property
    def edges(self) -> Tensor:
        """Refused, as :meth:`ends`."""
        raise self._refused()

    @property
    def _whole_graph(self) -> AttentionGraph:
        """Refused, as :meth:`ends`."""
        raise self._refused()

    def ends(self, of_sources: Tensor, of_targets: Tensor) -> tuple[Tensor, Tensor]:
        """Refused: each graph has its own edges."""
        raise self._refused()

    def _refused(self) -> BackendError:
        return BackendError(
            "edges of a PerHead are of each graph; take those of one:", ["shard.shards[0]"]
        )

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.shards))

    def __str__(self) -> str:
        return "\n".join(map(str, self.shards))


def _on(run: EdgesRun, backend: str) -> Run:
    """``run`` on one backend."""

    def on_backend(edges: EdgeTensors, inputs: Inputs, weights: bool, lse: bool) -> Outputs:
        return run(edges, inputs, backend, weights, lse)

    return on_backend
