"""A call on graphs of examples as a call of each graph with its examples."""

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ...operands import Inputs, Outputs, with_weights
from ..graph import AttentionGraph
from ..immutable import Immutable
from ..like import Run
from ..modes import Memo, constant_result, keep
from .per_head import PerHead

Graph = AttentionGraph | PerHead


def without_examples(x: Tensor | None) -> Tensor | None:
    """A tensor of edges (..., 1, E, F), or (E, F), without the dimension that examples share."""
    if x is None or x.dim() < 3:
        return x
    return x.squeeze(-3)


@dataclass(frozen=True, eq=False)
class GraphByGraph(Immutable):
    """The calls of the graphs of examples, graph after graph.

    Args:
        graphs: The graph of each call.
        examples: The examples of each call.
        of_examples: The graph of each example.
        order: The place of each example among those of call after call.
        num_targets: T of all examples; outputs are padded to it.
    """

    graphs: tuple[Graph, ...]
    examples: tuple[tuple[int, ...], ...]
    _example_graphs: tuple[Graph, ...]
    order: tuple[int, ...]
    num_targets: int
    _memo: Memo = field(default_factory=Memo, init=False)

    @classmethod
    def of(cls, graphs: tuple[Graph, ...], num_targets: int) -> "GraphByGraph":
        """The calls of a graph for each example; those that are one object share a call."""
        places: dict[Graph, list[int]] = {}
        for example, graph in enumerate(graphs):
            places.setdefault(graph, []).append(example)
        calls = tuple(map(tuple, places.values()))
        in_calls = [example for examples in calls for example in examples]
        order = sorted(range(len(graphs)), key=in_calls.__getitem__)
        return cls(tuple(places), calls, graphs, tuple(order), num_targets)

    @property
    def are_one(self) -> bool:
        """True if all examples have the same graph."""
        return len(self.graphs) == 1

    def attend(
        self,
        run: Run,
        inputs: Inputs,
        backend: str,
        weights: bool,
        lse: bool,
    ) -> Outputs:
        """The outputs (..., B, T, H, D_v) of a call of each graph."""
        results = []
        for number, graph in enumerate(self.graphs):
            part = self._part(inputs, graph, number)
            results.append(graph.attend(run, part, backend, weights, lse))
        outputs = self._joined(results)
        if weights and inputs.tracks_weights and outputs.alpha is not None:
            return with_weights(outputs, outputs.alpha)
        return outputs

    def _part(self, inputs: Inputs, graph: Graph, number: int) -> Inputs:
        """The call of a graph's examples, on as many nodes as it has."""
        T = graph.num_targets
        S = graph.num_sources
        return replace(
            inputs,
            query=self._rows(inputs.query, number)[..., :T, :, :],
            key=self._rows(inputs.key, number)[..., :S, :, :],
            value=self._rows(inputs.value, number)[..., :S, :, :],
            score_bias=self._edges(without_examples(inputs.score_bias), graph, number),
            edge_attr=self._edges(without_examples(inputs.edge_attr), graph, number),
        )

    def _rows(self, x: Tensor, number: int) -> Tensor:
        """A graph's examples of (..., B, N, H, D)."""
        if self.are_one:
            return x
        return x.index_select(-4, torch.tensor(self.examples[number], device=x.device))

    def _edges(self, x: Tensor | None, graph: Graph, number: int) -> Tensor | None:
        """The rows (..., b, E_b, F) of a graph's examples in a tensor (..., E, F)."""
        if x is None:
            return None
        if not self.are_one:
            x = x.index_select(-2, _of_graph(self, number)[0].to(x.device))
        return x.unflatten(-2, (len(self.examples[number]), graph.num_edges))

    def _joined(self, results: list[Outputs]) -> Outputs:
        """The outputs of all examples."""
        output = self._examples([result.output for result in results], -3, 0.0)
        lse = None
        sums = [result.lse for result in results if result.lse is not None]
        if len(sums) == len(results):  # some backends return it unasked
            lse = self._examples(sums, -2, -torch.inf)
        alpha = None
        weights = [result.alpha.flatten(-3, -2) for result in results if result.alpha is not None]
        if weights:
            alpha = torch.cat(weights, -2)
        if alpha is not None and not self.are_one:
            alpha = alpha.index_select(-2, _in_order(self)[0].to(alpha.device))
        if any(result.total is None for result in results):
            return Outputs(output, alpha, lse)
        return Outputs(output, alpha, lse, partial(self._total, results))

    def _total(self, results: list[Outputs], weights: Tensor) -> Tensor:
        """The output of other weights (..., E, H)."""
        parts = []
        for number, (graph, result) in enumerate(zip(self.graphs, results, strict=True)):
            of_graph = self._edges(weights, graph, number)
            assert of_graph is not None
            assert result.total is not None
            parts.append(result.total(of_graph))
        return self._examples(parts, -3, 0.0)

    def _examples(self, parts: list[Tensor], dim: int, nothing: float) -> Tensor:
        """Rows of nodes of graph after graph as those of all examples, padded by ``nothing``."""
        if self.are_one:
            return parts[0]
        padded = []
        for part in parts:
            shape = list(part.shape)
            shape[dim] = self.num_targets - shape[dim]
            padded.append(torch.cat((part, part.new_full(shape, nothing)), dim))
        index = torch.tensor(self.order, device=parts[0].device)
        return torch.cat(padded, dim - 1).index_select(dim - 1, index)


def _ranges(calls: GraphByGraph) -> list[Tensor]:
    """int64: the indices of the edges of each graph among those of example after example."""
    return keep(calls._memo, "ranges", partial(_make_ranges, calls))


def _make_ranges(calls: GraphByGraph) -> list[Tensor]:
    starts = [0, *accumulate(graph.num_edges for graph in calls._example_graphs)]
    of_example = [torch.arange(first, last) for first, last in pairwise(starts)]
    return [torch.cat([of_example[example] for example in examples]) for examples in calls.examples]


@constant_result  # in a tuple: torch.compile accepts a bare tensor from one call only
def _of_graph(calls: GraphByGraph, number: int) -> tuple[Tensor]:
    return (_ranges(calls)[number],)


@constant_result
def _in_order(calls: GraphByGraph) -> tuple[Tensor]:
    """int64 (E,): the place of each edge among the edges of graph after graph."""
    return (keep(calls._memo, "order", lambda: torch.cat(_ranges(calls)).argsort()),)
