"""The plan ``halo``: own targets read own rows and received ones."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..graph.sort import rows_of
from ..operands import Inputs, Outputs
from .exchange import Every, Processes, RequestedRows, along
from .heads import Run
from .own import OwnEdges, Some, local_edges


class Halo:
    """Own targets read own rows, and rows of others that came in one exchange.

    Args:
        processes: The processes; ``part`` is the owner of each source.
        own: The edges into own targets.
        away: Sources of others to receive, by owner; ``every``, the rows of all nodes.
        device: Device of the edges.
        overlap: True to compute the targets that read nothing remote while rows are on their way.

    Attributes:
        local: The edges; columns are own sources, then received ones.
        sources: The number in the whole graph of the source of each column.
        edges: Their numbers in the whole graph, ascending.
    """

    def __init__(
        self,
        processes: Processes,
        part: Tensor,
        own_edges: OwnEdges,
        away: Tensor,
        every: Every,
        device: torch.device,
        overlap: bool = False,
    ) -> None:
        self.processes = processes
        num_own = every.sizes[processes.rank]
        place = every.place_in_part(part)
        received = torch.bincount(part[away].long(), minlength=processes.number).tolist()
        requested, sent = processes.ids(away, received)
        self.exchange = RequestedRows(processes, place[requested], sent, received, num_own)
        place[away] = num_own + torch.arange(away.numel())
        self.sources = torch.cat((torch.nonzero(part == processes.rank).flatten(), away))
        columns = num_own + away.numel()
        self.edges, self.local = local_edges(own_edges, place[own_edges.source], columns, device)
        self.local.seed_of_all = processes.first
        self.parts: list[tuple[Tensor, Some]] = []
        if overlap and processes.number > 1:
            far = torch.zeros(own_edges.ptr.numel() - 1, dtype=torch.bool)
            far[rows_of(own_edges.ptr)[place[own_edges.source] >= num_own]] = True
            targets = [torch.nonzero(part).flatten() for part in (~far, far)]
            self.back = torch.argsort(torch.cat(targets)).to(device)
            for rows, size in zip(targets, (num_own, columns), strict=True):
                edges = Some.of(own_edges.rows(rows), place, size, self.local, self.edges)
                self.parts.append((rows.to(device), edges))

    def attend(self, run: Run, inputs: Inputs, weights: bool, lse: bool) -> Outputs:
        """Attention on own targets."""
        key = inputs.key
        value = inputs.value
        # one message
        if value is key:
            rows = key.flatten(-2)
        else:
            rows = torch.cat((key.flatten(-2), value.flatten(-2)), -1)

        def pair(rows: Tensor) -> tuple[Tensor, Tensor]:
            if value is key:
                keys = rows.unflatten(-1, key.shape[-2:])
                return keys, keys
            widths = [x.shape[-2] * x.shape[-1] for x in (key, value)]
            keys, values = rows.split(widths, -1)
            return keys.unflatten(-1, key.shape[-2:]), values.unflatten(-1, value.shape[-2:])

        softmax_of_products = inputs.score is None and inputs.normalize is None
        by_parts = softmax_of_products and not weights and inputs.dropout_p == 0
        if not by_parts or not self.parts:
            keys, values = pair(self.of_sources(rows))
            local_inputs = self.local._call_on_union(replace(inputs, key=keys, value=values))
            return run(self.local, local_inputs, weights, lse)
        every = self.coming(rows)
        outputs = []
        for targets, edges in self.parts:
            local_inputs = edges.inputs_of(
                replace(inputs, query=inputs.query.index_select(-3, targets)), *pair(rows)
            )
            outputs.append(run(edges.local, local_inputs, False, lse))
            if len(outputs) == 1:
                rows = every()
        output = torch.cat([part.output for part in outputs], -3).index_select(-3, self.back)
        sums = [part.lse for part in outputs if part.lse is not None]
        if sums:
            return Outputs(output, None, torch.cat(sums, -2).index_select(-2, self.back))
        return Outputs(output)

    def coming(self, x: Tensor) -> Callable[[], Tensor]:
        """:meth:`of_sources`, as a function that receives rows; with overlap they are sent now."""
        if not self.parts:
            return lambda: self.of_sources(x)
        rows = x.movedim(-2, 0)
        shape = rows.shape[1:]
        arrive = self.exchange.start(rows.reshape(rows.shape[0], shape.numel()))
        return lambda: torch.cat((x, arrive().unflatten(1, shape).movedim(0, -2)), -2)

    def of_sources(self, x: Tensor, dim: int = -2) -> Tensor:
        """Rows of own sources along ``dim``, and then those received."""
        return along(dim, lambda rows: torch.cat((rows, self.exchange(rows))), x)

    def ends(self, of_sources: Tensor, of_targets: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`Shard.ends`."""
        return self.of_sources(of_sources), of_targets
