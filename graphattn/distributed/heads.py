"""The plan ``heads``: every process computes all targets of some heads."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..errors import BackendError
from ..operands import Inputs, Outputs
from ..plans.edge_tensors import EdgeTensors
from .exchange import Every, Processes, along

Run = Callable[[EdgeTensors, Inputs, bool, bool], Outputs]


def refuse(subject: str, instead: str, inputs: Inputs, reasons: list[str], custom: str) -> None:
    """Refuse a call for some reasons, or because it has a score or normalisation of its own.

    Raises:
        BackendError: If there is a reason.
    """
    if inputs.score is not None or inputs.normalize is not None:
        reasons = [*reasons, f"a custom score or normalisation {custom}"]
    if reasons:
        raise BackendError(f"{subject} cannot run this call; try {instead}:", reasons)


class Heads:
    """Rows of own nodes exchanged for own heads of all nodes, and outputs returned.

    Args:
        local: The whole graph's edges.
        processes: The processes, whose number divides that of the heads of key and value.
        targets: Rows of all targets; ``sources``: of all sources.
    """

    def __init__(
        self, local: EdgeTensors, processes: Processes, targets: Every, sources: Every
    ) -> None:
        self.local = local
        self.processes = processes
        self.targets = targets
        self.sources = sources

    def attend(self, run: Run, inputs: Inputs, weights: bool, lse: bool) -> Outputs:
        """Attention on own targets.

        Raises:
            BackendError: If heads are not computed apart, or the processes do not divide them.
        """
        P = self.processes.number
        heads = inputs.query.shape[-2]
        kv_heads = inputs.key.shape[-2]
        reasons = [f"{P} processes do not divide {kv_heads} heads of key and value"] * (
            kv_heads % P != 0
        )
        reasons += ["weights are of a process's heads"] * weights
        refuse('plan="heads"', 'plan="halo"', inputs, reasons, "may read several heads")
        key, value = self._of_heads(torch.cat((inputs.key, inputs.value), -1), self.sources).split(
            (inputs.key.shape[-1], inputs.value.shape[-1]), -1
        )
        bias = inputs.score_bias
        attr = inputs.edge_attr
        weight = inputs.edge_weight
        if bias is not None and bias.shape[-1] == heads:
            bias = self._own_heads(bias, -1)
        if attr is not None and weight is None:
            attr = self._own_heads(attr.unflatten(-1, (heads, -1)), -2).flatten(-2)
        if weight is not None:
            weight = self._own_heads(weight, 0)
        local = replace(
            inputs,
            query=self._of_heads(inputs.query, self.targets),
            key=key,
            value=value,
            score_bias=bias,
            edge_attr=attr,
            edge_weight=weight,
        )
        outputs = run(self.local, local, False, lse)
        if outputs.lse is None:
            sums = outputs.lse
        else:
            sums = self._of_targets(outputs.lse.unsqueeze(-1)).squeeze(-1)
        return Outputs(self._of_targets(outputs.output), None, sums)

    def ends(self, of_sources: Tensor, of_targets: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of all nodes, which edges index."""
        return along(-2, self.sources.ordered, of_sources), along(
            -2, self.targets.ordered, of_targets
        )

    def _own_heads(self, x: Tensor, dim: int) -> Tensor:
        """The part of own heads, along ``dim``."""
        return x.chunk(self.processes.number, dim)[self.processes.rank]

    def _of_heads(self, x: Tensor, every: Every) -> Tensor:
        """(..., own nodes, H, D) -> (..., all nodes, H / P, D)."""
        P = self.processes.number
        n = x.shape[-3]
        rows = x.unflatten(-2, (P, -1)).movedim((-3, -4), (0, 1))  # (P, n, ..., H / P, D)
        shape = rows.shape[2:]
        rows = self.processes.rows(rows.reshape(P * n, shape.numel()), every.sizes, [n] * P)
        return (
            rows.index_select(0, every.place_by_owner.to(x.device))
            .unflatten(1, shape)
            .movedim(0, -3)
        )

    def _of_targets(self, x: Tensor) -> Tensor:
        """(..., all targets, H / P, D) -> (..., own targets, H, D)."""
        P = self.processes.number
        every = self.targets
        # (T, ..., H / P, D)
        n = every.sizes[self.processes.rank]
        rows = x.movedim(-3, 0)
        shape = rows.shape[1:]
        rows = rows.index_select(0, every.by_owner.to(x.device)).reshape(-1, shape.numel())
        rows = self.processes.rows(rows, [n] * P, every.sizes).reshape(P, n, *shape)
        return rows.movedim((0, 1), (-3, -4)).flatten(-3, -2)
