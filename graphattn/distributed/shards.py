"""A process's share of a graph: its targets, the edges into them, and the exchange of the rows that they read."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..backends.request import Inputs, Outputs
from ..errors import ShapeError
from ..graph import AttentionGraph
from ..graph.advice import no_graph
from ..plans.edge_tensors import EdgeTensors
from .exchange import Asked, Every, Processes, along
from .files import EdgeFiles, refuse_listed
from .fingerprint import agree, hashed
from .heads import Heads, Run
from .own import OwnEdges, edges_into, local_edges, remote
from .partition import partition_of
from .plans import Counts, Report, Rows, choose
from .stream import Stream


def shard(
    graph: AttentionGraph | EdgeFiles,
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
) -> "Shard":
    """This process's share of a graph that every process of the group passes; all call it at the same time.

    Each target belongs to one process, which computes its whole softmax: outputs are bit for bit those of one process
    on backend ``edges``, given queries, keys and values.

    Args:
        graph: The graph, the same in every process: its edges and partition are compared. Of :class:`EdgeFiles` each
            process reads consecutive parts, which it owns.
        group: A device mesh of one axis, ``mesh["graph"]``, or a process group; all processes by default.
        partition: "contiguous", slices of consecutive nodes; "rcb", recursive coordinate bisection of ``pos``; or the
            process of each target, integers (T,).
        pos: Coordinates (T, d) for "rcb"; those of its cells by default, on a grid.
        source_partition: The same for the sources (S,) of a graph whose sources are other nodes; "contiguous" by
            default. Sources and targets of a square graph are the same nodes unless it is given.
        plan: What moves. "halo": the rows of the sources that a process's targets read, once each. "heads": every
            process computes all targets of some heads. "gather": all rows; "stream": those of one process after
            another, for softmax alone, to rounding. "auto": the one of least bytes; stream where all rows do not fit.
        heads: H of the layers, for the plan and its bytes; ``kv_heads`` H_kv, the same by default.
        head_dim: D of the layers.
        dtype: Dtype of the rows that move.

    Returns:
        A :class:`Shard`, which ``attention`` and layers take as their graph; ``print(shard)`` shows its report.

    Raises:
        ProcessError: If processes hold different graphs, partitions, options or versions, or one does not answer.
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
    processes, rows = Processes(group), Rows(heads, kv_heads, head_dim, dtype)
    P, against = processes.number, None
    if isinstance(graph, EdgeFiles):
        refuse_listed(graph, partition, pos, source_partition)
        parts, partition = [graph.partition(P)] * 2, "files"
        own, against = graph.into(processes.rank, P), {"heads": "every process would list all edges of the files"}
    elif isinstance(graph, AttentionGraph):
        parts = [partition_of(partition, graph.num_targets, P, pos, grid=graph.edges.grid)] * 2
        if source_partition is not None or not graph.is_square:
            given = "contiguous" if source_partition is None else source_partition
            parts[1] = partition_of(given, graph.num_sources, P, name="source_partition")
        own = edges_into(graph, torch.nonzero(parts[0] == processes.rank).flatten())
    else:
        raise no_graph(graph, "graph must be an AttentionGraph")
    facts = {
        "partition": [hashed(part) for part in parts],
        "plan and width": (plan, heads, kv_heads, head_dim, str(dtype)),
    }
    agree(processes, graph, parts[0], own, facts)
    away = remote(own.source, parts[1], processes.rank)
    is_away = parts[1][own.source] != processes.rank
    targets, sources = (torch.bincount(part.long(), minlength=P) for part in parts)
    row = torch.repeat_interleave(own.ptr.diff())
    mine = own.source.numel(), away.numel(), torch.unique(row[is_away]).numel()
    counts = Counts(targets, sources, *torch.tensor(processes.told(mine)).unbind(1))
    chosen, refused = choose(plan, counts, rows, against)
    name = partition if isinstance(partition, str) else "ids"
    return Shard(graph, processes, parts, own, away, Report(chosen, name, counts, rows, refused))


class Shard(EdgeTensors):
    """A process's own targets and sources, and the edges into these targets, made by :func:`shard`.

    Its tensors are the rows of own nodes: query (..., T_p, H, D), key and value (..., S_p, H_kv, D), features
    (..., T_p, C). Biases and edge features are those of its edges, ``bias[shard.edges]``. Dropout of weights drops the
    edges that it drops in one process of the first process's seed, except by the plan ``heads`` and beside biases, edge
    features, or weights that are returned.

    Attributes:
        report: The plan, what each process owns and receives, and the reasons against the other plans.
        owned: Own targets, int64 (T_p,), ascending; ``owned_sources`` (S_p,), the same on a square graph.
        edges: The numbers of its edges in the whole graph's order, int64 (E_p,), ascending; all of them by the plan
            ``heads``.
        processes: The processes that share the graph.
    """

    name = "Shard"

    def __init__(
        self,
        graph: AttentionGraph | EdgeFiles,
        processes: Processes,
        parts: list[Tensor],
        own: OwnEdges,
        away: Tensor,
        report: Report,
    ) -> None:
        self.processes, self.report, self._memo = processes, report, {}
        self.owned, self.owned_sources = (torch.nonzero(part == processes.rank).flatten() for part in parts)
        self._every = [Every(processes, part) for part in parts]
        if report.plan == "heads" and isinstance(graph, AttentionGraph):
            self._plan: Halo | Heads | Stream = Heads(EdgeTensors(graph), processes, *self._every)
            self.edges = torch.arange(graph.num_edges)
        else:
            self.edges, halo = _halo(graph, processes, parts[1], own, away, self._every[1], report.plan)
            self._plan = halo
            if report.plan == "stream":
                self._plan = Stream(halo.local, processes, self._every[1], own, self.edges, parts[1])
        self._by_target, self._by_source = self._plan.local._by_target, self._plan.local._by_source

    @property
    def num_targets(self) -> int:
        """T_p, own targets."""
        return self.owned.numel()

    @property
    def num_sources(self) -> int:
        """S_p, own sources."""
        return self.owned_sources.numel()

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """The numbers of own targets and of own sources in the whole graph."""
        return self.owned.to(self.device), self.owned_sources.to(self.device)

    def _listed(self) -> EdgeTensors:
        return self._plan.local

    def scatter(self, x: Tensor, dim: int = 0) -> Tensor:
        """The rows of own targets of a tensor that has a row for every target along ``dim``; nothing is sent."""
        self._check("x", x, dim, self._every[0].by_owner.numel(), "the whole graph's targets")
        return x.index_select(dim, self.owned.to(x.device))

    def gather(self, x: Tensor, dim: int = 0) -> Tensor:
        """The rows of all targets, in every process, of a tensor that has rows of own targets along ``dim``.

        Differentiable: gradients of all processes are summed by the owner.
        """
        self._check("x", x, dim, self.num_targets, "the shard's own targets")
        return along(dim, self._every[0].ordered, x)

    def attend(self, run: Run, inputs: Inputs, weights: bool, lse: bool) -> Outputs:
        """The outputs of own targets; ``run`` computes attention on edges that are all here."""
        return self._plan.attend(run, inputs, weights, lse)

    def gathered(self, *rows: Tensor, numbers: int) -> tuple[EdgeTensors, tuple[Tensor, ...]]:
        """Edges and rows (..., C) to make keys and values of: those of all sources read, if these are narrower.

        ``numbers``: of a row of keys and values.
        """
        distinct = {id(x): x for x in rows}
        if not isinstance(self._plan, Halo) or sum(x.shape[-1] for x in distinct.values()) >= numbers:
            return self, rows
        read = {key: self._plan.of_sources(x) for key, x in distinct.items()}
        return self._plan.local, tuple(read[id(x)] for x in rows)

    def ends(self, of_sources: Tensor, of_targets: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (..., S_p, d) and (..., T_p, d) of own nodes as the ends of edges index them."""
        return self._plan.ends(of_sources, of_targets)

    def _check(self, name: str, x: Tensor, dim: int, size: int, of: str) -> None:
        if x.dim() == 0 or not -x.dim() <= dim < x.dim() or x.shape[dim] != size:
            raise ShapeError(f"{name} must have {size} rows along dim {dim}, {of}, got {tuple(x.shape)}")

    def __str__(self) -> str:
        return f"{self!r}\n{self.report}"

    def __repr__(self) -> str:
        return (
            f"Shard({self.processes.rank} of {self.processes.number}: {self.num_sources} sources -> {self.num_targets} "
            f"targets, {self.num_edges} edges, plan {self.report.plan})"
        )


class Halo:
    """The plans ``halo`` and ``gather``: attention on own targets, whose sources are own rows and received ones.

    Args:
        local: The edges; columns are own sources, then received ones.
        exchange: Own rows (S_p, W) -> received rows.
    """

    def __init__(self, local: EdgeTensors, exchange: Asked | Every) -> None:
        self.local, self.exchange = local, exchange

    def attend(self, run: Run, inputs: Inputs, weights: bool, lse: bool) -> Outputs:
        """Attention on own targets."""
        key, value = inputs.key, inputs.value
        if value is key:
            key = value = self.of_sources(key, -3)
        else:
            both = torch.cat((key.flatten(-2), value.flatten(-2)), -1)  # one message
            widths = [x.shape[-2] * x.shape[-1] for x in (key, value)]
            key, value = (
                part.unflatten(-1, x.shape[-2:])
                for part, x in zip(self.of_sources(both).split(widths, -1), (key, value), strict=True)
            )
        return run(self.local, replace(inputs, key=key, value=value), weights, lse)

    def of_sources(self, x: Tensor, dim: int = -2) -> Tensor:
        """Rows of own sources along ``dim``, and then those received."""
        return along(dim, lambda rows: torch.cat((rows, self.exchange(rows))), x)

    def ends(self, of_sources: Tensor, of_targets: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`Shard.ends`."""
        return self.of_sources(of_sources), of_targets


def _halo(
    graph: AttentionGraph | EdgeFiles,
    processes: Processes,
    part: Tensor,
    own: OwnEdges,
    away: Tensor,
    every: Every,
    plan: str,
) -> tuple[Tensor, Halo]:
    """The numbers of own edges, ascending, and the plan: columns are own sources, then those of others by owner."""
    owned = torch.nonzero(part == processes.rank).flatten()
    place = torch.empty(part.numel(), dtype=torch.int64)
    place[owned] = torch.arange(owned.numel())
    exchange: Asked | Every = every
    if plan in ("gather", "stream"):
        away = every.others
    else:
        received = torch.bincount(part[away].long(), minlength=processes.number).tolist()
        wanted, sent = processes.ids(away, received)
        exchange = Asked(processes, place[wanted], sent, received, owned.numel())
    place[away] = owned.numel() + torch.arange(away.numel())
    device = graph.device if isinstance(graph, AttentionGraph) else torch.device("cpu")
    edges, local = local_edges(own, place[own.source], owned.numel() + away.numel(), device)
    local.agreed = processes.first
    return edges, Halo(local, exchange)
