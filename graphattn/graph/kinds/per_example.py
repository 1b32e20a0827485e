"""Graphs of examples: one call of attention whose examples read along different edges."""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field, replace
from functools import partial
from math import lcm
from operator import index
from typing import Any

import torch
from torch import Tensor

from ...arguments import check_shape, several
from ...errors import GraphError, ShapeError, singular
from ...operands import Block, Inputs, Outputs
from ..advice import no_graph
from ..deferred.pattern import Pattern, Shelf
from ..dense_values import check_values
from ..graph import AttentionGraph
from ..images import Images
from ..immutable import Immutable
from ..like import GraphLike, Run
from ..listed import listed
from ..modes import Memo, constant_result, not_compiled, not_followed
from .graph_by_graph import GraphByGraph, without_examples
from .joined import Joined, in_blocks, joined
from .per_head import PerHead

Example = AttentionGraph | PerHead | Pattern
_SHOWN = 3  # graphs in the name


@not_compiled
@dataclass(frozen=True, eq=False, repr=False)
class PerExample(GraphLike, Immutable):
    """A graph for each example of a batch, in order; a plain list of graphs is taken alike.

    Tensors of nodes are (..., B, T, H, D): the last leading dimension is that of the examples, and
    others share the graphs. T and S are the largest of all graphs; an example of fewer nodes is
    padded at its end by nodes without edges, whose outputs of attention are 0.

    Tensors of edges (score biases, edge features, weights) hold the edges of example after example,
    each in the edge order of its graph: (..., E, H) with E = E_0 + ... + E_{B-1}, the order of
    :meth:`union`. Where all examples have as many edges, (..., B, E_b, H) is taken, too.

    Args:
        graphs: A graph for each example: an :class:`AttentionGraph`, a :class:`PerHead`, or a
            :class:`~graphattn.graphs.Pattern`, which is sized to T and S.

    Raises:
        GraphError: If there are no graphs, they are on several devices, or one chooses its edges by
            content.

    Example:
        >>> import torch, graphattn as ga
        >>> graphs = PerExample((ga.graphs.causal(3), ga.graphs.full(2)))
        >>> graphs
        PerExample(causal(3), full(2): 2 examples of 3 nodes)
        >>> x = torch.arange(6.0).reshape(2, 3, 1, 1)  # two examples of three nodes, the last of them padded
        >>> ga.attention(x, x, x, graphs, scale=0.0).flatten(1)
        tensor([[0.0000, 0.5000, 1.0000],
                [3.5000, 3.5000, 0.0000]])
    """

    _remedy = "pass one of its .graphs, or .union(), all examples side by side in one row of nodes"

    graphs: tuple[Example, ...]
    shelf: Shelf = field(default_factory=Shelf, init=False)
    _memo: Memo = field(default_factory=Memo, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.graphs, Set):
            raise GraphError("graphs must be a list in the order of the examples, got a set")
        expected = "must be a list of graphs, one for each example"
        graphs = tuple(several(self.graphs, "graphs", expected, GraphError))
        if not graphs:
            raise GraphError("PerExample needs a graph for each example, got none")
        for graph in graphs:
            if not isinstance(graph, Example):
                raise no_graph(graph, "PerExample holds AttentionGraphs, PerHeads or Patterns")
            if isinstance(graph, Pattern) and graph.on_content:
                raise GraphError(
                    f"{graph!r} chooses its edges by queries and keys, for each example already; "
                    "pass it alone, or PerExample of the unions of its edges"
                )
        object.__setattr__(self, "graphs", graphs)
        object.__setattr__(self, "is_open", any(graph.is_open for graph in graphs))
        object.__setattr__(self, "_is_fixed", not self.is_open)

    def _made_by(self, *args: Any, **options: Any) -> "PerExample":
        """Itself: its graphs, not the batch, keep the calls that made them."""
        return self

    def __len__(self) -> int:
        """B, the number of examples."""
        return len(self.graphs)

    def __iter__(self) -> Iterator[Example]:
        """The graphs of the examples, in order."""
        return iter(self.graphs)

    def __getitem__(self, number: int) -> Example:
        """The graph of an example."""
        return self.graphs[number]

    def equals(self, other: Any) -> bool:
        """True if each example has the same edges, in any order, heads and sizes included.

        Raises:
            GraphError: If one is open.
        """
        if len(self) != len(other):
            return False
        return all(_same_edges(*pair) for pair in zip(self, other, strict=True))

    # --- sizes

    @property
    def _sized(self) -> tuple[AttentionGraph | PerHead, ...]:
        """The graphs without patterns."""
        return tuple(graph for graph in self.graphs if not isinstance(graph, Pattern))

    @property
    def _example_graphs(self) -> tuple[Example, ...]:
        """The graphs of the examples, in order."""
        return self.graphs

    @property
    def num_examples(self) -> int:
        """B, the number of examples."""
        return len(self.graphs)

    @property
    def num_targets(self) -> int:
        """T, the largest number of targets of an example."""
        return max(graph.num_targets for graph in self.graphs)

    @property
    def num_sources(self) -> int:
        """S, the largest number of sources of an example."""
        return max(graph.num_sources for graph in self.graphs)

    @property
    def num_edges(self) -> int:
        """E, the number of edges of all examples together."""
        return _num_edges(self)

    @property
    def target(self) -> Tensor:
        """int64 (E,): the target of each edge in its own example, example after example."""
        return self._whole_graph.target

    @property
    def source(self) -> Tensor:
        """int64 (E,): the source of each edge in its own example."""
        return self._whole_graph.source

    @property
    def _edge_counts(self) -> list[int]:
        """E_b, the number of edges of each example."""
        return [graph.num_edges for graph in self._sized]

    @property
    def _edges_per_example(self) -> int | None:
        """E_b, if all examples have as many edges."""
        counts = set(self._edge_counts)
        if len(counts) != 1:
            return None
        return counts.pop()

    @property
    def name(self) -> str:
        """The name that errors show."""
        return repr(self)

    @property
    def is_rule(self) -> bool:
        """True if every graph is a closed form."""
        return all(graph.is_rule for graph in self._sized)

    @property
    def device(self) -> torch.device:
        """The device of the listed graphs."""
        sized = self._sized
        if not sized:
            return torch.device("cpu")
        return next((graph.device for graph in sized if not graph.is_rule), sized[0].device)

    def at(self, size: int | tuple[int, ...], num_sources: int | None = None) -> "PerExample":
        """Graphs with their patterns at that size."""
        if not self.is_open:
            return self
        for graph in self.graphs:
            graph.at(size, num_sources)
        sized: PerExample = self._made("at", size, num_sources)
        return sized

    def _sized_for(
        self, query: Tensor, key: Tensor, past: int = 0, dropped: int = 0
    ) -> "PerExample":
        """Graphs with their patterns at the sizes of rows (..., nodes, heads, width)."""
        if not self.is_open:
            return self
        for graph in self.graphs:
            graph._sized_for(query, key, past, dropped)  # refuses other tensors
        T = index(query.shape[-3])
        sized: PerExample = self._made(
            "_sized_for_step", T, index(key.shape[-3]) + past, past, dropped
        )
        return sized

    def _made(self, what: str, *args: Any) -> Any:
        """Result of one of :data:`_MAKERS`, kept."""
        _make(self, what, *args)
        return getattr(self.shelf, _key(what, *args))

    def _map_graphs(self, make: Callable[[Any], Any]) -> "PerExample":
        """Graphs made of each of these; equal ones are made once."""
        results = {graph: graph._map_graphs(make) for graph in dict.fromkeys(self.graphs)}
        return PerExample(tuple(results[graph] for graph in self.graphs))

    def to(self, device: torch.device | str) -> "PerExample":
        """Graphs with their index tensors on another device."""
        moved: dict[Example, Example] = {}
        for graph in dict.fromkeys(self._sized):
            moved[graph] = graph.to(device)
        return PerExample(tuple(moved.get(graph, graph) for graph in self.graphs))

    @property
    def images(self) -> Images | None:  # type: ignore[override]
        """The images that the edges of :meth:`union` read, in cells that repeat."""
        if all(graph.images is None for graph in self._sized):
            return None
        return self.union().images

    # --- one graph of all examples

    @property
    def side_by_side(self) -> Joined:
        """The examples as one graph of B T targets and B S sources, without edges between them.

        A :class:`PerHead` if one of them is.
        """
        row: Joined = self._made("joined")
        return row

    def union(self) -> AttentionGraph:
        """The edges of all examples, between B T targets and B S sources.

        Node ``b T + t`` is target ``t`` of example ``b``, and the sources are numbered alike.
        """
        if self._runs_apart:
            union: AttentionGraph = self._made("union")
            return union
        return self.side_by_side.union()

    @property
    def _whole_graph(self) -> AttentionGraph:
        """The edges of :meth:`union`, in their order, between the T and S nodes of any example."""
        edges: AttentionGraph = self._made("of_whole")
        return edges

    @property
    def _num_target_rows(self) -> int:
        """B T, the number of rows that targets of edges index."""
        return self.num_examples * self.num_targets

    def ends(self, of_sources: Tensor, of_targets: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of all examples, one after another, from (..., B, S, C) and (..., B, T, C).

        Rows (S, C) and (T, C) are shared by the examples.
        """
        return self._rows(of_sources), self._rows(of_targets)

    def _own_targets(self, x: Tensor, dim: int = -2) -> Tensor:
        """The rows of targets, example by example."""
        return x.unflatten(dim, (self.num_examples, self.num_targets))

    def _rows_on_union(self, x: Tensor) -> Tensor:
        """Rows (..., B, T, C) of targets as those of :meth:`union`."""
        return self._rows(x)

    def _rows(self, x: Tensor) -> Tensor:
        B = self.num_examples
        if x.dim() == 2:
            x = x.expand(B, *x.shape)
        if x.shape[-3] == 1:
            x = x.expand(*x.shape[:-3], B, *x.shape[-2:])
        check_shape(
            x, "rows of nodes", (..., B, "nodes", "width"), "or (nodes, width) for all examples"
        )
        return x.flatten(-3, -2)

    def of_edges(self, x: Any) -> Any:
        """A tensor of edges as (E, F) or (..., 1, E, F), from that or from (..., B, E_b, F)."""
        if not isinstance(x, Tensor) or x.dim() < 3:
            return x
        examples_first = tuple(x.shape[-3:-1]) == (self.num_examples, *set(self._edge_counts))
        if examples_first:
            x = x.flatten(-3, -2)
        if x.dim() < 3 or x.shape[-2] != self.num_edges:
            return x
        return x.unsqueeze(-3)

    def edge_values(self, matrix: Tensor) -> Tensor:
        """The numbers of a matrix for each example at its edges, those of example after example.

        Args:
            matrix: (..., B, H, T, S), of which what lies beyond the nodes of an example is padding.
        Returns:
            (..., E, H), as :func:`graphattn.attention` takes ``score_bias``; gradients flow.
        Raises:
            ShapeError: If there is not a matrix for each example, or one is too small.
        """
        check_shape(matrix, "matrix", (..., "B", "H", "T", "S"))
        parts = [
            graph.edge_values(part[..., : graph.num_targets, : graph.num_sources])
            for graph, part in zip(self.graphs, matrix.unbind(-4), strict=True)
        ]
        return torch.cat(parts, -2)

    def dense_values(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """A matrix of numbers of edges for each example: the inverse of :meth:`edge_values`.

        Args:
            values: (E,) or (..., E, H), those of example after example.
            fill: Number where there is no edge, and at nodes that an example lacks.
        Returns:
            (..., B, H, T, S).
        """
        check_values(values, self.num_edges)
        if values.dim() == 1:
            values = values.unsqueeze(-1)
        T = max((graph.num_targets for graph in self.graphs), default=0)
        S = max((graph.num_sources for graph in self.graphs), default=0)
        parts = []
        for graph, part in zip(self.graphs, values.split(self._edge_counts, -2), strict=True):
            matrix = graph.dense_values(part, fill)
            missing = (0, S - graph.num_sources, 0, T - graph.num_targets)
            parts.append(torch.nn.functional.pad(matrix, missing, value=fill))
        return torch.stack(parts, -4)

    def _as_run(self) -> tuple[AttentionGraph | PerHead, int]:
        """The graph that a call runs, and the number of examples that share it."""
        if self._calls.are_one:
            return self._calls.graphs[0], self.num_examples
        return self.side_by_side, 1

    @property
    def different(self) -> tuple[AttentionGraph | PerHead, ...]:
        """The graphs of the examples, each once."""
        return self._calls.graphs

    def _spread_to_edges(self, x: Tensor) -> Tensor:
        """Numbers (..., B) of examples at their edges, (..., E)."""
        counts = torch.tensor(self._edge_counts, device=x.device)
        return x.repeat_interleave(counts, -1, output_size=self.num_edges)

    # --- a call

    def attend(
        self,
        run: Run,
        inputs: Inputs,
        backend: str,
        weights: bool,
        lse: bool,
    ) -> Outputs:
        """The outputs of one call on all examples side by side.

        A graph that all examples share takes the batch as it is. Two run graph by graph:
        ``backend="dense"``, since a product of all pairs would join the examples, and repeated
        edges beside graphs of heads, which are sets.
        """
        lead = inputs.query.shape[:-3]
        if not lead or lead[-1] != self.num_examples:
            raise ShapeError(
                f"the graph has {self.num_examples} examples, and the tensors have leading "
                f"dimensions {tuple(lead)}, of which the last must be {self.num_examples}: "
                "(..., examples, nodes, heads, width)"
            )
        if self._calls.are_one or backend == "dense" or self._runs_apart:
            return self._calls.attend(run, inputs, backend, weights, lse)
        row = self._in_a_row(inputs)
        return self._outputs_from_union(self.side_by_side.attend(run, row, backend, weights, lse))

    def _call_on_union(self, inputs: Inputs) -> Inputs:
        """A call on :meth:`union`, whose nodes are those of all examples."""
        return self.side_by_side._call_on_union(self._in_a_row(inputs))

    def _outputs_from_union(self, outputs: Outputs) -> Outputs:
        """The outputs of a call on :meth:`union`, example by example."""
        total = outputs.total
        if total is not None:
            total = partial(_then, total, self._examples_first)
        lse = outputs.lse
        if lse is not None:
            lse = lse.unflatten(-2, (self.num_examples, self.num_targets))
        return replace(outputs, output=self._examples_first(outputs.output), lse=lse, total=total)

    def _examples_first(self, output: Tensor) -> Tensor:
        return output.unflatten(-3, (self.num_examples, self.num_targets))

    def _in_a_row(self, inputs: Inputs) -> Inputs:
        """The call whose nodes are those of all examples, one after another."""
        blocks = inputs.blocks
        if inputs.reads_numbers:
            blocks = _blocks(self)
        return replace(
            inputs,
            query=inputs.query.flatten(-4, -3),
            key=inputs.key.flatten(-4, -3),
            value=inputs.value.flatten(-4, -3),
            score_bias=without_examples(inputs.score_bias),
            edge_attr=without_examples(inputs.edge_attr),
            blocks=blocks,
        )

    @property
    def _runs_apart(self) -> bool:
        """True if a graph repeats edges and another is of heads: no one graph holds both."""
        heads = [len(graph.of_heads) for graph in self._calls.graphs]
        if max(heads) == 1 or len(heads) == 1:
            return False
        return any(
            head.has_repeated_edges for graph in self._calls.graphs for head in graph.of_heads
        )

    @property
    def _calls(self) -> GraphByGraph:
        calls: GraphByGraph = self._made("calls")
        return calls

    def __repr__(self) -> str:
        names = [graph.name for graph in self.graphs[:_SHOWN]]
        if self.num_examples > _SHOWN:
            names.append(f"{self.num_examples - _SHOWN} more")
        if self.is_open:
            nodes = "open size"
        elif self.num_targets == self.num_sources:
            nodes = f"{self.num_targets} nodes"
        else:
            nodes = f"{self.num_sources} sources -> {self.num_targets} targets"
        about = f"{self.num_examples} examples of {nodes}"
        return singular(f"PerExample({', '.join(names)}: {about})")

    def __str__(self) -> str:
        from ..pictures.abreast import abreast  # a layer's call loads no pictures

        return f"{self!r}\n{abreast('example', self.graphs)}"


def _same_edges(graph: Any, other: Any) -> bool:
    """True if the heads of two graphs have the same edges."""
    number = lcm(len(graph.of_heads), len(other.of_heads))
    for head in range(number):
        one = graph.of_heads[head * len(graph.of_heads) // number]
        if not one.equals(other.of_heads[head * len(other.of_heads) // number]):
            return False
    return True


def _then(
    first: Callable[[Tensor], Tensor],
    second: Callable[[Tensor], Tensor],
    x: Tensor,
) -> Any:
    return second(first(x))


# --- what is made once; Python that torch.compile does not trace


@constant_result
def _num_edges(graphs: PerExample) -> int:
    return sum(graphs._edge_counts)


@constant_result
def _blocks(graphs: PerExample) -> tuple[Block, ...]:
    T = graphs.num_targets
    S = graphs.num_sources
    sizes = enumerate(graphs._sized)
    return tuple(Block(x.num_edges, x.num_targets, b * T, b * S) for b, x in sizes)


def _key(what: str, *args: Any) -> str:
    return "_".join((what, *map(str, args)))


@constant_result
def _make(graphs: PerExample, what: str, *args: Any) -> None:
    graphs.shelf.cached(_key(what, *args), partial(_MAKERS[what], graphs, *args))


def _calls(graphs: PerExample) -> GraphByGraph:
    first: dict[Any, Any] = {}
    alike = [first.setdefault(_call_of(graph), graph) for graph in graphs._sized]
    return GraphByGraph.of(tuple(alike), graphs.num_targets)


def _call_of(graph: AttentionGraph | PerHead) -> Any:
    """A key that is equal for graphs of the same edges, if a call without tensors made them."""
    call = getattr(graph, "expression", None)
    if call is None or call.has_functions:
        return graph
    values: list[Any] = []
    text = call.text(values)
    if values:
        return graph
    return text, graph.device, graph.num_targets, graph.num_sources


def _whole_graph(graphs: PerExample) -> AttentionGraph:
    T = graphs.num_targets
    S = graphs.num_sources
    union = graphs.union()
    source, target = union.edge_index
    edges = listed(target % max(1, T), source % max(1, S), T, S)
    return AttentionGraph(edges, union.name, union.device)


_MAKERS: dict[str, Callable[..., Any]] = {
    "at": lambda graphs, *size: PerExample(tuple(x.at(*size) for x in graphs.graphs)),
    "_sized_for_step": lambda graphs, *step: PerExample(
        tuple(x._sized_for_step(*step) for x in graphs.graphs)
    ),
    "calls": _calls,
    "joined": lambda graphs: joined(graphs._calls._example_graphs, padded=True),
    "union": lambda graphs: in_blocks([graph.union() for graph in graphs._sized], True),
    "of_whole": _whole_graph,
}


@partial(
    not_followed,
    reason="a list of graphs is read outside of a compiled program: pass graphattn.PerExample(graphs)",
)
def as_examples(graph: Any) -> Any:
    """A list of graphs as graphs of examples; any other value as it is.

    The last list that begins with a graph is kept with that graph, so that a list that is passed
    again, such as to each layer of a model, is planned once.
    """
    if not isinstance(graph, list | tuple) or not any(
        isinstance(value, GraphLike) for value in graph
    ):
        return graph
    memo = getattr(graph[0], "_memo", {})
    last = memo.get("examples")
    if last is None or list(map(id, last.graphs)) != list(map(id, graph)):
        last = PerExample(tuple(graph))
        memo["examples"] = last
    return last
