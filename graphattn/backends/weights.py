"""Attention weights, edge by edge, with their graph."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..arguments import whole
from ..errors import BackendError, OptionError
from ..graph import AttentionGraph, PerExample, PerHead
from ..graph.limits import refuse_over
from ..kernels.modes import is_transformed
from ..kernels.plain.sums import scatter_sum
from ..operands import Outputs
from ..plans.edge_tensors import EdgeTensors
from .as_tensor import AsTensor


class Top(NamedTuple):
    """The strongest sources of every target: ``source`` int64, ``weight``; both (..., T, H, k)."""

    source: Tensor
    weight: Tensor


@dataclass(frozen=True, eq=False)
class EdgeWeights(AsTensor):
    """Attention weights before dropout, edge by edge: ``graph`` and ``alpha``.

    After softmax they are the coefficients of an average, not calibrated probabilities that a
    source is right.

    *Iteration* is PyG's pair, ``edge_index, alpha = weights``. *All else* is the tensor
    ``dense()``, (..., H, T, S): ``shape``, ``len``, indices (``weights[0, 2]`` is head 2 of example
    0), arithmetic, methods (``weights.mean(1)``), functions of torch (``torch.stack(all_weights)``)
    and ``numpy.asarray``. So ``weights[1]`` is the second example or head, never ``alpha``, and a
    loop over examples is one over ``weights.dense()``. ``detach``, ``to``, ``cpu``, ``clone`` and
    the casts keep edges. Nothing can be written to. A dense tensor is made at each use, of the
    examples and heads that an index starts with, and refused above 4 GiB; ``alpha``, ``top`` and
    ``graph`` hold edges alone.

    ``alpha`` is the tensor that the output was computed from, so that it has gradients:
    ``torch.autograd.grad(loss, weights)``, ``weights.retain_grad()`` with ``weights.grad``, and
    ``register_hook`` give those as weights of the same edges. An edge that a bias of -inf removes,
    and one that a head lacks, gets 0. Outputs of ``torch.compile`` are not made of each other:
    torch raises, or leaves ``grad`` at ``None``.

    Args:
        graph: The graph whose edges they belong to, in its edge order.
        alpha: (..., E, H), float32 or wider; sums to 1 over the edges into a target, or to 0 for an
            isolated one.
        heads: The graphs of the heads, if they differ; ``graph`` is then their union, and the
            weight of an edge is 0 in a head without it.
        examples: The graphs of the examples, if they differ; ``graph`` is then their union, all of
            them side by side, and the dense tensor is (..., B, H, T, S). :meth:`of_example` gives
            the weights of one.
    """

    graph: AttentionGraph | EdgeTensors
    alpha: Tensor
    heads: PerHead | None = None
    examples: PerExample | None = None

    @classmethod
    def of(cls, graph: Any, outputs: Outputs) -> "EdgeWeights":
        """The weights of a call; 0 on edges of the union that a head, an example or a choice lacks.

        Raises:
            BackendError: If autograd records them, and the output is not computed from them.
        """
        alpha = outputs.alpha
        assert alpha is not None
        is_detached = outputs.total is None and alpha.requires_grad
        if is_detached and not is_transformed():
            raise BackendError(
                "the backend returns weights without gradients:",
                ['try backend="message_passing", or torch.no_grad() for the weights alone'],
            )
        if isinstance(graph, PerExample):
            heads = None
            if not graph._runs_apart and isinstance(graph.side_by_side, PerHead):
                heads = graph.side_by_side
            return cls(graph.union(), alpha, heads, graph)
        if len(graph.of_heads) > 1:
            return cls(graph.union(), alpha, graph)
        return cls(graph.union(), alpha)

    def present(self) -> Tensor:
        """bool (E, H): True where a head has an edge; all True if heads share a graph."""
        graphs: tuple[Any, ...] = (self.heads or self.graph,)
        if self.examples is not None:
            graphs = self.examples._example_graphs
        parts = [_present(graph, self.alpha.shape[-1]) for graph in graphs]
        return torch.cat(parts).to(self.alpha.device)

    def __iter__(self) -> Iterator[Tensor]:
        yield self.graph.edge_index
        yield self.alpha

    @property
    def shape(self) -> torch.Size:
        """(..., H, T, S), or (..., B, H, T, S) of examples: the shape of :meth:`dense`."""
        *lead, _, heads = self.alpha.shape
        if self.examples is None:
            return torch.Size((*lead, heads, self.graph.num_targets, self.graph.num_sources))
        B = self.examples.num_examples
        sizes = (self.examples.num_targets, self.examples.num_sources)
        return torch.Size((*lead, B, heads, *sizes))

    @property
    def _leading(self) -> int:
        if self.examples is None:
            return super()._leading
        return self.alpha.dim() - 2

    def dense(self) -> Tensor:
        """(..., H, T, S): 0 where there is no edge; copies of a repeated edge are summed.

        Raises:
            GraphError: If it would take more than 4 GiB.
        """
        return self._pairs(self.alpha.transpose(-2, -1))

    def of_example(self, number: int) -> "EdgeWeights":
        """The weights (..., E_b, H) of an example, on its own graph; those of graphs of examples.

        Raises:
            OptionError: If the weights are of one graph, or there is no such example.
        """
        if self.examples is None:
            raise OptionError("the weights are of one graph for all examples; index their alpha")
        number = whole(number, "number", 0)
        if number >= self.examples.num_examples:
            raise OptionError(
                f"number must be that of one of {self.examples.num_examples} examples, got {number}"
            )
        graph: Any = self.examples.graphs[number]
        part = self.alpha.split(self.examples._edge_counts, -2)[number]
        if len(graph.of_heads) > 1:
            return EdgeWeights(graph.union(), part, graph)
        return EdgeWeights(graph, part)

    def _pairs(self, alpha: Tensor) -> Tensor:
        T = self.graph.num_targets
        S = self.graph.num_sources
        source = self.graph.source
        if self.examples is not None:
            S = self.examples.num_sources
            source = source % max(1, S)
        needed = math.prod(alpha.shape[:-1]) * T * S * alpha.element_size()
        refuse_over(
            needed,
            f"dense() of {T:,} x {S:,}",
            "use alpha, top(k) or graph, which hold edges alone",
        )
        place = (self.graph.target * S + source).to(alpha.device)
        pairs = scatter_sum(alpha, place, T * S, -1)
        if self.examples is None:
            return pairs.unflatten(-1, (T, S))
        sizes = (self.examples.num_examples, self.examples.num_targets, S)
        return pairs.unflatten(-1, sizes).movedim(-3, -4)

    def _with(self, alpha: Tensor) -> "EdgeWeights":
        return EdgeWeights(self.graph, alpha, self.heads, self.examples)

    def top(self, k: int) -> Top:
        """The ``k`` strongest sources of every target and head, strongest first.

        Equal weights are in edge order. Padding has source -1 and weight 0.

        Raises:
            OptionError: If ``k`` is not a whole number >= 1.
            GraphError: If it would take more than 4 GiB.
        """
        k = whole(k, "k", 1)
        rows = math.prod(self.alpha.shape[:-2]) * self.alpha.shape[-1] * self.graph.num_targets
        refuse_over(
            rows * k * (8 + self.alpha.element_size()),
            f"top({k:,})",
            "no target has more than its in-degree",
        )
        T = self.graph.num_targets
        target = self.graph.target.to(self.alpha.device)
        present = self.present().T
        alpha = torch.where(present, self.alpha.transpose(-2, -1), -torch.inf)  # (..., H, E)
        strongest = torch.argsort(alpha, dim=-1, descending=True, stable=True)
        # by target, then strength
        order = strongest.gather(-1, torch.argsort(target[strongest], dim=-1, stable=True))
        owner = target[order]
        degree = torch.bincount(target, minlength=T)
        first = degree.cumsum(0) - degree
        rank = torch.arange(target.numel(), device=target.device) - first[owner]
        is_kept = (rank < k) & present.expand_as(order).gather(-1, order)
        trash = T * k  # slot of edges beyond the k-th, cut off below
        place = torch.where(is_kept, owner * k + rank, trash)
        shape = (*alpha.shape[:-1], trash + 1)
        sources = self.graph.source.to(alpha.device)[order]
        source = torch.full(shape, -1, device=alpha.device).scatter(-1, place, sources)
        weight = alpha.new_zeros(shape).scatter(-1, place, alpha.gather(-1, order))
        source, weight = (
            x[..., :trash].unflatten(-1, (T, k)).transpose(-3, -2) for x in (source, weight)
        )
        if self.examples is None:
            return Top(source, weight)
        within = torch.where(source < 0, -1, source % max(1, self.examples.num_sources))
        sizes = (self.examples.num_examples, self.examples.num_targets)
        return Top(within.unflatten(-3, sizes), weight.unflatten(-3, sizes))

    def _repr_html_(self) -> str:
        """The view in a notebook: ``repr`` and a picture of the mean over batch and heads.

        A cell of a large picture has the largest of its weights; darkness grows with the square
        root, and black is 1 (or the largest weight, if it is above 1).
        """
        from ..graph.pictures.html import MOST_CELLS, page  # a layer's call loads no pictures

        T = self.graph.num_targets
        S = self.graph.num_sources
        if self.graph.num_edges == 0:
            return page(repr(self), None)
        side = -(-max(T, S) // MOST_CELLS)
        rows = -(-T // side)
        columns = -(-S // side)
        by_head = self.alpha.detach().cpu().double().transpose(-2, -1)
        mean = by_head.reshape(-1, self.graph.num_edges).mean(0)
        place = self.graph.target.cpu() // side * columns + self.graph.source.cpu() // side
        cells = torch.zeros(rows * columns, dtype=torch.float64).scatter_reduce(
            0, place, mean, "amax"
        )
        return page(repr(self), (cells / cells.max().clamp(min=1)).unflatten(0, (rows, columns)))

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.alpha.shape))
        dtype = str(self.alpha.dtype).removeprefix("torch.")
        return f"EdgeWeights({self.graph.name}: alpha {shape}, {dtype})"


def _present(graph: Any, num_heads: int) -> Tensor:
    """bool (E, H): True where a head has an edge of the union of a graph."""
    union = graph.union()
    present = torch.ones(union.num_edges, num_heads, dtype=torch.bool, device=union.device)
    if len(graph.of_heads) > 1:
        for _, head_graph, first, last in graph.groups(num_heads):
            has = head_graph.contains(union.target, union.source)
            present[:, first:last] = has.to(present.device).unsqueeze(-1)
    return present
