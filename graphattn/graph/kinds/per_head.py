"""Graphs per head: one layer whose heads read along different edges."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import torch
from torch import Tensor

from ...arguments import several
from ...errors import GraphError, singular
from ...operands import Inputs, Outputs, with_weights
from ..graph import AttentionGraph, need_graph, need_nodes
from ..immutable import Immutable
from ..like import GraphLike, Group, Run
from ..modes import Memo, constant_result, keep, not_compiled


@not_compiled
@dataclass(frozen=True, eq=False, repr=False)
class PerHead(GraphLike, Immutable):
    """A graph for each head, or for each of n equal groups of heads, in order.

    Head ``h`` of H reads along ``graphs[h // (H / n)]``, as grouped-query heads share a key.
    Tensors of edges (score biases, edge features, weights) are in the edge order of :meth:`union`;
    where a head lacks an edge its weight is 0, and the bias is not read.

    Args:
        graphs: Graphs of the same targets and sources, without repeated edges.

    Raises:
        GraphError: If there are no graphs, one repeats an edge, or their nodes or devices differ.

    Source: Child et al. 2019 (Sparse Transformer), section 5.1, the third way; Dong et al. 2021
    (CSWin).

    Example:
        >>> from graphattn.graphs import window_partition
        >>> rows, columns = window_partition((4, 6), (1, 6)), window_partition((4, 6), (4, 1))
        >>> PerHead((rows, columns))  # half of the heads read rows, the others columns
        PerHead(window_partition((4, 6), (1, 6)), window_partition((4, 6), (4, 1)): 24 nodes)
    """

    _remedy = "pass one of its .graphs, or .union(), the edges of any head"

    graphs: tuple[AttentionGraph, ...]
    _memo: Memo = field(default_factory=Memo, init=False)

    def __post_init__(self) -> None:
        graphs = tuple(
            several(self.graphs, "graphs", "must be a tuple of AttentionGraphs", GraphError)
        )
        object.__setattr__(self, "graphs", graphs)
        if not graphs:
            raise GraphError("PerHead needs at least one graph, got none")
        for graph in graphs:
            need_graph(graph, "PerHead")
            need_nodes(graph, "each head", graphs[0].num_targets, graphs[0].num_sources)
            graph._need_set("PerHead")

    @property
    def num_targets(self) -> int:
        """T, the nodes that read."""
        return self.graphs[0].num_targets

    @property
    def num_sources(self) -> int:
        """S, the nodes that are read."""
        return self.graphs[0].num_sources

    @property
    def num_edges(self) -> int:
        """E, the number of edges of the union."""
        return _count(self)

    @property
    def target(self) -> Tensor:
        """int64 (E,): the target of each edge of the union, the order of tensors of edges."""
        return self.union().target

    @property
    def source(self) -> Tensor:
        """int64 (E,): the source of each edge of the union."""
        return self.union().source

    def equals(self, other: object) -> bool:
        """True if each head has the same edges, in any order, sizes included."""
        if not isinstance(other, PerHead) or len(self.graphs) != len(other.graphs):
            return False
        pairs = dict.fromkeys(zip(self.graphs, other.graphs, strict=True))
        return all(one.equals(another) for one, another in pairs)

    @property
    def name(self) -> str:
        """The name that errors show."""
        return repr(self)

    @property
    def is_rule(self) -> bool:
        """True if every graph is a closed form."""
        return all(graph.is_rule for graph in self.graphs)

    @property
    def device(self) -> torch.device:
        """The device of the listed graphs."""
        return next(
            (graph.device for graph in self.graphs if not graph.is_rule), self.graphs[0].device
        )

    def union(self) -> AttentionGraph:
        """The edges of any head."""
        return keep(
            self._memo, "union", lambda: reduce(AttentionGraph._union, dict.fromkeys(self.graphs))
        )

    def _with_union(self, union: AttentionGraph) -> "PerHead":
        """Itself, whose tensors of edges are in the order of a union that is given."""
        self._memo["union"] = union
        return self

    @property
    def of_heads(self) -> tuple[AttentionGraph, ...]:
        """The graphs of equal groups of heads, in order."""
        return self.graphs

    def groups(self, num_heads: int) -> list[Group]:
        """The graphs with their heads; adjacent heads of the same graph form one group.

        Raises:
            GraphError: If ``num_heads`` is not a multiple of the number of graphs.
        """
        n = len(self.graphs)
        if num_heads % n:
            raise GraphError(
                f"PerHead of {n} graphs needs a multiple of {n} heads, got {num_heads}"
            )
        groups = []
        first = 0
        for i, graph in enumerate(self.graphs):
            if i + 1 == n or self.graphs[i + 1] is not graph:
                last = (i + 1) * (num_heads // n)
                groups.append(Group(i, graph, first, last))
                first = last
        return groups

    def _map_graphs(self, make: Callable[[AttentionGraph], AttentionGraph]) -> "PerHead":
        """Graphs made of each of these; equal ones are made once."""
        results = {graph: make(graph) for graph in dict.fromkeys(self.graphs)}
        return PerHead(tuple(results[graph] for graph in self.graphs))

    def _in_union(self, number: int) -> Tensor:
        """int64 (E_i,): the index in the union of each edge of ``graphs[number]``."""
        return keep(self._memo, number, lambda: self._found_in_union(number))

    def _found_in_union(self, number: int) -> Tensor:
        union = self.union()._listed()
        graph = self.graphs[number]
        pair_key = graph.target * self.num_sources + graph.source
        place = torch.searchsorted(union.key, pair_key.to(union.key.device))
        return union.order[place]

    def attend(
        self,
        run: Run,
        inputs: Inputs,
        backend: str,
        weights: bool,
        lse: bool,
    ) -> Outputs:
        """The outputs of a call of each graph with its heads, side by side."""
        # functions that read all heads at once
        if inputs.score is not None or inputs.normalize is not None:
            return run(self.union(), self._call_on_union(inputs), backend, weights, lse)
        results = [run(*call, backend, weights, lse) for call in self.split(inputs)]
        outputs = self.join(results, inputs.query.shape[-2])
        if weights and inputs.tracks_weights and outputs.alpha is not None:
            return with_weights(outputs, outputs.alpha)
        return outputs

    def _call_on_union(self, inputs: Inputs) -> Inputs:
        """A call on :meth:`union`, with a bias of -inf on the edges that a head lacks."""
        heads = inputs.query.shape[-2]
        bias = inputs.score_bias
        dtype = inputs.statistics
        if bias is not None:
            dtype = bias.dtype
        shape = (self.num_edges, heads)
        absent = torch.ones(shape, dtype=torch.bool, device=inputs.query.device)
        for number, _, first, last in self.groups(heads):
            absent[_in_union(self, number)[0].to(absent.device), first:last] = False
        if bias is None:
            bias = torch.zeros(shape, dtype=dtype, device=absent.device)
        return replace(inputs, score_bias=torch.where(absent, -torch.inf, bias))

    def split(self, inputs: Inputs) -> Iterator[tuple[AttentionGraph, Inputs]]:
        """Each graph with its heads of the query, and their heads of key and value."""
        heads = inputs.query.shape[-2]
        kv_heads = inputs.key.shape[-2]
        for number, graph, first, last in self.groups(heads):
            read = heads_read(first, last, heads, kv_heads)
            attr = self._of_edges(number, inputs.edge_attr, slice(None))
            weight = inputs.edge_weight
            if weight is not None:
                weight = weight[read]
            elif attr is not None:  # added to the value as it is: H * D numbers, head after head
                attr = attr.unflatten(-1, (heads, -1))[..., first:last, :].flatten(-2)
            call = replace(
                inputs,
                query=inputs.query[..., first:last, :],
                key=inputs.key[..., read, :],
                value=inputs.value[..., read, :],
                score_bias=self._of_edges(number, inputs.score_bias, slice(first, last)),
                edge_attr=attr,
                edge_weight=weight,
            )
            yield graph, call

    def join(self, results: list[Outputs], heads: int) -> Outputs:
        """The outputs of the calls of :meth:`split` as one, with weights of :meth:`union`."""
        groups = self.groups(heads)
        output = torch.cat([result.output for result in results], -2)
        sums = [result.lse for result in results if result.lse is not None]
        lse = None
        if len(sums) == len(results):  # some backends return it unasked
            lse = torch.cat(sums, -1)
        alpha = None
        if all(result.alpha is not None for result in results):
            parts = [
                self._in_all_edges(group.number, result.alpha)
                for group, result in zip(groups, results, strict=True)
            ]
            alpha = torch.cat(parts, -1)

        def total(weights: Tensor) -> Tensor:
            parts = []
            for (number, _, first, last), result in zip(groups, results, strict=True):
                of_part = self._of_edges(number, weights, slice(first, last))
                assert of_part is not None
                assert result.total is not None
                parts.append(result.total(of_part))
            return torch.cat(parts, -2)

        if any(result.total is None for result in results):
            return Outputs(output, alpha, lse)
        return Outputs(output, alpha, lse, total)

    def _of_edges(self, number: int, x: Tensor | None, heads: slice) -> Tensor | None:
        """The rows of a graph's edges, and columns of its heads, of a tensor of the union's."""
        if x is None:
            return None
        rows = x.index_select(-2, _in_union(self, number)[0].to(x.device))
        if x.shape[-1] == 1:
            return rows
        return rows[..., heads]

    def _in_all_edges(self, number: int, alpha: Tensor | None) -> Tensor:
        """Weights (..., E_part, h) as (..., E, h), 0 on the edges of other heads."""
        assert alpha is not None
        empty = alpha.new_zeros(*alpha.shape[:-2], self.num_edges, alpha.shape[-1])
        return empty.index_copy(-2, _in_union(self, number)[0].to(alpha.device), alpha)

    def edge_values(self, matrix: Tensor) -> Tensor:
        """The numbers of a matrix (..., H, T, S) at the edges of any head, (..., E, H).

        As :meth:`AttentionGraph.edge_values`, of :meth:`union`.
        """
        return self.union().edge_values(matrix)

    def dense_values(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """The matrix of numbers of the edges of any head: the inverse of :meth:`edge_values`."""
        return self.union().dense_values(values, fill)

    def to(self, device: torch.device | str) -> "PerHead":
        """Graphs with their index tensors on another device."""
        return self._map_graphs(lambda graph: graph.to(device))

    def __repr__(self) -> str:
        if self.num_targets == self.num_sources:
            nodes = f"{self.num_targets} nodes"
        else:
            nodes = f"{self.num_sources} sources -> {self.num_targets} targets"
        return singular(f"PerHead({', '.join(graph.name for graph in self.graphs)}: {nodes})")

    def __str__(self) -> str:
        from ..pictures.abreast import abreast  # a layer's call loads no pictures

        return f"{self!r}\n{abreast('graph', self.graphs)}"


@constant_result  # Python that torch.compile does not trace
def _count(graph: PerHead) -> int:
    return graph.union().num_edges


@constant_result  # in a tuple: torch.compile accepts a bare tensor from one call only
def _in_union(graph: PerHead, number: int) -> tuple[Tensor]:
    return (graph._in_union(number),)


def one_or_heads(graphs: Sequence[AttentionGraph]) -> AttentionGraph | PerHead:
    """One graph if all heads share it, else graphs of heads."""
    if len(set(graphs)) == 1:
        return graphs[0]
    return PerHead(tuple(graphs))


def heads_read(first: int, last: int, heads: int, kv_heads: int) -> list[int]:
    """The heads of key and value for the query's heads ``[first, last)``.

    One for each head, or fewer where groups of equal size share one.
    """
    share = max(1, heads // max(1, kv_heads))
    read = range(first // share, -(-last // share))
    if len(read) == 1 or first % share == last % share == 0:
        return list(read)
    return [head // share for head in range(first, last)]
