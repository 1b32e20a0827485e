"""The plan ``queries``: queries go to the owners of their sources, outputs come back."""

from dataclasses import replace

import torch
from torch import Tensor

from ..graph.sort import offsets, rows_of
from ..operands import Inputs, Outputs
from ..plans.edge_tensors import EdgeTensors
from ..plans.grouped import EdgeLayout
from .exchange import Asked, Processes, along
from .halo import Halo
from .heads import Run
from .own import OwnEdges
from .stream import merged, parts_of, refuse_unmerged


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
        own: OwnEdges,
        owner: Tensor,
        place: Tensor,
        sources: int,
    ) -> None:
        self.local = halo.local
        self.ends = halo.ends
        device = halo.local.device
        targets = own.ptr.numel() - 1
        to = owner[own.source].long()
        target, many, query = _asked(own, to, processes.number)
        edges = torch.bincount(to, minlength=processes.number).tolist()
        order = torch.argsort(to, stable=True)
        asked = torch.stack((query, place[own.source], own.numbered().edge), 1)[order]
        told, counts = processes.ids(asked.flatten(), [3 * count for count in edges])
        counts = [count // 3 for count in counts]
        _, received = processes.ids(target, many)
        self.ask = Asked(processes, target, many, received, targets)
        bias = torch.searchsorted(halo.edges, own.edge)[order]
        self.ask_edges = Asked(processes, bias, edges, counts, own.edge.numel())
        query, column, name = told.view(-1, 3).unbind(1)
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
        refuse_unmerged("queries", "halo", inputs, weights)
        bias, attr = (
            x if x is None else along(-2, self.ask_edges, x)
            for x in (inputs.score_bias, inputs.edge_attr)
        )
        query = along(-3, self.ask, inputs.query)
        found = run(
            self.there, replace(inputs, query=query, score_bias=bias, edge_attr=attr), False, True
        )
        assert found.lse is not None
        parts = along(-3, self.ask.back, found.output), along(-2, self.ask.back, found.lse)
        output, sums = merged(run, self.parts, *parts)
        output = output.to(inputs.value.dtype)
        if lse:
            return Outputs(output, None, sums)
        return Outputs(output)


def _asked(own: OwnEdges, to: Tensor, processes: int) -> tuple[Tensor, list[int], Tensor]:
    """Targets whose queries go to each process, their numbers, and each edge's index in them."""
    targets = max(1, own.ptr.numel() - 1)
    pair, query = torch.unique(to * targets + rows_of(own.ptr), return_inverse=True)
    many = torch.bincount(pair // targets, minlength=processes)
    return pair % targets, many.tolist(), query - offsets(many)[to]


def asked_of(processes: Processes, own: OwnEdges, to: Tensor) -> list[Tensor]:
    """For :class:`Counts`: queries sent, queries answered and edges computed by each process.

    ``to`` (E_p,) owns the sources of the edges into own targets.
    """
    edges = torch.bincount(to, minlength=processes.number).tolist()
    told = torch.tensor(processes.told((_asked(own, to, processes.number)[1], edges)))  # (P, 2, P)
    queries = told[:, 0].fill_diagonal_(0)
    return [queries.sum(1), queries.sum(0), told[:, 1].sum(0)]
