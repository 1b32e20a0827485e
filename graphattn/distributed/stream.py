"""The plan ``stream``: the rows of one process after another, so that no process holds all of them."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..backends.request import Inputs, Outputs
from ..errors import BackendError
from ..graph.sort import offsets
from ..plans.edge_tensors import EdgeTensors
from .exchange import Every, Processes, along
from .heads import Run
from .own import OwnEdges, local_edges

State = tuple[Tensor, Tensor, Tensor]  # a sum of values, the sum of their weights, and the weights' largest logarithm


class Stream:
    """Attention on own targets and the sources of one process at a time, merged by log-sum-exp.

    Outputs are those of one process to rounding. Rows are sent again for the backward, so that a process holds its own
    rows and those of one other.

    Args:
        local: The edges; columns are own sources, then those of the others by owner.
        every: All rows.
        own: The edges into own targets; ``edges`` their numbers, ascending.
        part: The owner of each source.
    """

    def __init__(
        self, local: EdgeTensors, processes: Processes, every: Every, own: OwnEdges, edges: Tensor, part: Tensor
    ) -> None:
        self.local, self.processes, self.every = local, processes, every
        in_part = every.place_by_owner - offsets(torch.tensor(every.sizes))[part.long()]
        row, owner = torch.repeat_interleave(own.ptr.diff()), part[own.source]
        self.steps: list[tuple[EdgeTensors, Tensor]] = []
        for step in range(processes.number):
            there = (processes.rank + step) % processes.number
            chosen = owner == there
            ptr = offsets(torch.bincount(row[chosen], minlength=own.ptr.numel() - 1))
            some = OwnEdges(ptr, own.source[chosen], own.edge[chosen])
            numbers, step_edges = local_edges(some, in_part[some.source], every.sizes[there], local.device)
            step_edges.agreed = processes.first
            self.steps.append((step_edges, torch.searchsorted(edges, numbers).to(local.device)))

    def attend(self, run: Run, inputs: Inputs, weights: bool, lse: bool) -> Outputs:
        """Attention on own targets.

        Raises:
            BackendError: If outputs of parts of the sources cannot be merged.
        """
        reasons = ["a custom score or normalisation is not merged"] * (
            inputs.score is not None or inputs.normalize is not None
        )
        reasons += ["weights need all sources at once"] * weights
        if reasons:
            raise BackendError('plan="stream" cannot run this call; try plan="gather":', reasons)
        wide = torch.promote_types(inputs.value.dtype, torch.float32)
        shape = (*inputs.query.shape[:-1], inputs.value.shape[-1])
        total = inputs.value.new_zeros(shape, dtype=wide)
        least = torch.full_like(total[..., :1], torch.finfo(wide).min / 4)
        state: State = (total, torch.zeros_like(least), least)
        for step in range(len(self.steps)):
            state = checkpoint(self._step, run, inputs, step, *state, use_reentrant=False)
        total, mass, most = state
        output = (total / mass.where(mass > 0, 1)).to(inputs.value.dtype)
        sums = (mass.log() + most).squeeze(-1) if lse else None
        return Outputs(output, None, sums)

    def _step(self, run: Run, inputs: Inputs, step: int, total: Tensor, mass: Tensor, most: Tensor) -> State:
        edges, place = self.steps[step]
        widths = [x.shape[-2] * x.shape[-1] for x in (inputs.key, inputs.value)]
        both = torch.cat((inputs.key.flatten(-2), inputs.value.flatten(-2)), -1)
        key, value = along(-2, lambda rows: self._rows(rows, step), both).split(widths, -1)
        bias, attr = inputs.score_bias, inputs.edge_attr
        given = replace(
            inputs,
            key=key.unflatten(-1, inputs.key.shape[-2:]),
            value=value.unflatten(-1, inputs.value.shape[-2:]),
            score_bias=bias if bias is None else bias.index_select(-2, place),
            edge_attr=attr if attr is None else attr.index_select(-2, place),
        )
        found = run(edges, given, False, True)
        assert found.lse is not None
        log = found.lse.unsqueeze(-1).to(total.dtype)
        largest = torch.maximum(most, log.detach())
        before, now = (most - largest).exp(), (log - largest).exp()
        return total * before + found.output.to(total.dtype) * now, mass * before + now, largest

    def _rows(self, rows: Tensor, step: int) -> Tensor:
        """The rows (n, W) of the process ``step`` ranks further."""
        P, rank = self.processes.number, self.processes.rank
        if step == 0:
            return rows
        received, sent = [0] * P, [0] * P
        there, to = (rank + step) % P, (rank - step) % P
        received[there], sent[to] = self.every.sizes[there], rows.shape[0]
        return self.processes.rows(rows, received, sent)

    def ends(self, of_sources: Tensor, of_targets: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`Shard.ends`."""
        return along(-2, lambda rows: torch.cat((rows, self.every(rows))), of_sources), of_targets
