"""The plan ``stream``: rows of one process after another, so that none holds all."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..graph.sort import offsets, rows_of
from ..operands import Inputs, Outputs
from ..plans.edge_tensors import EdgeTensors
from ..plans.grouped import EdgeLayout
from .exchange import Every, Processes, along
from .heads import Run, refuse
from .own import OwnEdges, Some


class Stream:
    """Attention on own targets and the sources of one process at a time, merged by log-sum-exp.

    Outputs are those of one process to rounding. Rows are sent again for the backward, so that a
    process holds its own rows and those of one other.

    Args:
        local: The edges; columns are own sources, then those of the others by owner.
        every: All rows.
        own: The edges into own targets; ``edges`` their numbers, ascending.
        part: The owner of each source.
    """

    def __init__(
        self,
        local: EdgeTensors,
        processes: Processes,
        every: Every,
        own_edges: OwnEdges,
        edges: Tensor,
        part: Tensor,
    ) -> None:
        self.local = local
        self.processes = processes
        self.every = every
        place = every.place_in_part(part)
        targets = own_edges.ptr.numel() - 1
        row = rows_of(own_edges.ptr)
        owner = part[own_edges.source]
        self.steps: list[Some] = []
        for step in range(processes.number):
            there = (processes.rank + step) % processes.number
            chosen = owner == there
            ptr = offsets(torch.bincount(row[chosen], minlength=targets))
            part_edges = own_edges._replace(
                ptr=ptr, source=own_edges.source[chosen], edge=own_edges.edge[chosen]
            )
            self.steps.append(Some.of(part_edges, place, every.sizes[there], local, edges))
        self.two = parts_of(torch.arange(targets).repeat(2), targets, local.device)

    def attend(self, run: Run, inputs: Inputs, weights: bool, lse: bool) -> Outputs:
        """Attention on own targets.

        Raises:
            BackendError: If outputs of parts of the sources cannot be merged.
        """
        refuse_unmerged("stream", "gather", inputs, weights)
        shape = (*inputs.query.shape[:-1], inputs.value.shape[-1])
        dtype = inputs.statistics
        output = inputs.value.new_zeros(shape, dtype=dtype)
        sums = output.new_full(shape[:-1], -torch.inf)
        for step in range(len(self.steps)):
            output, sums = checkpoint(
                self._step, run, inputs, step, output, sums, use_reentrant=False
            )
        output = output.to(inputs.value.dtype)
        if lse:
            return Outputs(output, None, sums)
        return Outputs(output)

    def _step(
        self, run: Run, inputs: Inputs, step: int, output: Tensor, sums: Tensor
    ) -> tuple[Tensor, Tensor]:
        edges = self.steps[step]
        widths = [x.shape[-2] * x.shape[-1] for x in (inputs.key, inputs.value)]
        key_value = torch.cat((inputs.key.flatten(-2), inputs.value.flatten(-2)), -1)
        key, value = along(-2, lambda rows: self._rows(rows, step), key_value).split(widths, -1)
        rows = (
            x.unflatten(-1, like.shape[-2:])
            for x, like in ((key, inputs.key), (value, inputs.value))
        )
        outputs = run(edges.local, edges.inputs_of(inputs, *rows), False, True)
        assert outputs.lse is not None
        parts = (
            torch.cat((output, outputs.output.to(output.dtype)), -3),
            torch.cat((sums, outputs.lse), -2),
        )
        return merged(run, self.two, *parts)

    def _rows(self, rows: Tensor, step: int) -> Tensor:
        """The rows (n, W) of the process ``step`` ranks further."""
        P = self.processes.number
        rank = self.processes.rank
        if step == 0:
            return rows
        received = [0] * P
        sent = [0] * P
        there = (rank + step) % P
        to = (rank - step) % P
        received[there] = self.every.sizes[there]
        sent[to] = rows.shape[0]
        return self.processes.rows(rows, received, sent)

    def ends(self, of_sources: Tensor, of_targets: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`Shard.ends`."""
        return along(-2, lambda rows: torch.cat((rows, self.every(rows))), of_sources), of_targets


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


def refuse_unmerged(plan: str, other: str, inputs: Inputs, weights: bool) -> None:
    """Refuse a call whose outputs of parts of the sources cannot be merged."""
    reasons = ["weights need all sources at once"] * weights
    refuse(f'plan="{plan}"', f'plan="{other}"', inputs, reasons, "is not merged")
