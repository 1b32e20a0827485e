"""The plan ``queries``: queries go to the owners of their sources, outputs come back."""

from dataclasses import replace

import torch
from torch import Tensor

from ..graph.sort import offsets, rows_of
from ..operands import Inputs, Outputs
from ..plans.edge_tensors import EdgeTensors
from ..plans.grouped import EdgeLayout
from .exchange import Processes, RequestedRows, along
from .halo import Halo
from .heads import Run, refuse
from .own import OwnEdges


class Queries:
    """Attention on own sources of all processes' queries, merged by log-sum-exp at the owner.

    Outputs are those of one process to rounding. Biases and edge features go with the queries.

    Args:
        halo: Own edges, and the exchange for their ends.
        own: The edges into own targets.
        owner: The owner of each source; ``place``, its place among theirs.
        sources: Number of own sources.
    """

    def __init__(
        self,
        halo: Halo,
        processes: Processes,
        own_edges: OwnEdges,
        owner: Tensor,
        place: Tensor,
        sources: int,
    ) -> None:
        self.local = halo.local
        self.ends = halo.ends
        device = halo.local.device
        targets = own_edges.ptr.numel() - 1
        to = owner[own_edges.source].long()
        target, num_queries, query = _queries_by_process(own_edges, to, processes.number)
        edges = torch.bincount(to, minlength=processes.number).tolist()
        order = torch.argsort(to, stable=True)
        requests = torch.stack((query, place[own_edges.source], own_edges.numbered().edge), 1)[
            order
        ]
        requested, counts = processes.ids(requests.flatten(), [3 * count for count in edges])
        counts = [count // 3 for count in counts]
        _, received = processes.ids(target, num_queries)
        self.ask = RequestedRows(processes, target, num_queries, received, targets)
        bias = torch.searchsorted(halo.edges, own_edges.edge)[order]
        self.ask_edges = RequestedRows(processes, bias, edges, counts, own_edges.edge.numel())
        query, column, name = requested.view(-1, 3).unbind(1)
        query = query + torch.repeat_interleave(
            offsets(torch.tensor(received))[:-1], torch.tensor(counts)
        )
        ptr = offsets(torch.bincount(query, minlength=sum(received)))
        layout = EdgeLayout(ptr, column, torch.arange(column.numel()), torch.arange(sum(received)))
        self.there = EdgeTensors.of(layout, sources, device)
        self.there._named = lambda: name
        self.there.seed_of_all = processes.first
        self.parts = parts_of(target, targets, device)

    def attend(self, run: Run, inputs: Inputs, weights: bool, lse: bool) -> Outputs:
        """Attention on own targets.

        Raises:
            BackendError: If outputs of parts of the sources cannot be merged.
        """
        reasons = ["weights need all sources at once"] * weights
        refuse('plan="queries"', 'plan="halo"', inputs, reasons, "is not merged")
        bias, attr = (
            x if x is None else along(-2, self.ask_edges, x)
            for x in (inputs.score_bias, inputs.edge_attr)
        )
        query = along(-3, self.ask, inputs.query)
        outputs = run(
            self.there, replace(inputs, query=query, score_bias=bias, edge_attr=attr), False, True
        )
        assert outputs.lse is not None
        parts = along(-3, self.ask.back, outputs.output), along(-2, self.ask.back, outputs.lse)
        output, sums = merged(run, self.parts, *parts)
        output = output.to(inputs.value.dtype)
        if lse:
            return Outputs(output, None, sums)
        return Outputs(output)


def _queries_by_process(
    own_edges: OwnEdges, to: Tensor, processes: int
) -> tuple[Tensor, list[int], Tensor]:
    """Targets whose queries go to each process, their numbers, and each edge's index in them."""
    targets = max(1, own_edges.ptr.numel() - 1)
    pair, query = torch.unique(to * targets + rows_of(own_edges.ptr), return_inverse=True)
    num_queries = torch.bincount(pair // targets, minlength=processes)
    return pair % targets, num_queries.tolist(), query - offsets(num_queries)[to]


def counts_of_queries(processes: Processes, own_edges: OwnEdges, to: Tensor) -> list[Tensor]:
    """For :class:`Counts`: queries sent, queries answered and edges computed by each process.

    ``to`` (E_p,) owns the sources of the edges into own targets.
    """
    edges = torch.bincount(to, minlength=processes.number).tolist()
    counts = _queries_by_process(own_edges, to, processes.number)[1]
    gathered = torch.tensor(processes.gathered((counts, edges)))  # (P, 2, P)
    queries = gathered[:, 0].fill_diagonal_(0)
    return [queries.sum(1), queries.sum(0), gathered[:, 1].sum(0)]


def parts_of(target: Tensor, targets: int, device: torch.device) -> EdgeTensors:
    """Edges from parts of sources (n,) to the ``target`` of each."""
    order = torch.argsort(target, stable=True)
    ptr = offsets(torch.bincount(target, minlength=targets))
    return EdgeTensors.of(
        EdgeLayout(ptr, order, order, torch.arange(targets)), target.numel(), device
    )


def merged(run: Run, parts: EdgeTensors, output: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs of parts of sources merged by their log-sum-exp.

    Outputs (..., n, H, D) and log-sum-exp (..., n, H) become those of targets: attention on parts,
    whose scores are their log-sum-exp.
    """
    query = lse.new_zeros(*lse.shape[:-2], parts.num_targets, lse.shape[-1], 1)
    inputs = Inputs(query, lse.new_zeros(*lse.shape, 1), output.to(lse.dtype), 1.0, score_bias=lse)
    outputs = run(parts, inputs, False, True)
    assert outputs.lse is not None
    return outputs.output, outputs.lse
