"""PyTorch Geometric's TransformerConv without its projections: what its users run today."""

import torch
from torch import Tensor, nn

from ..problem import Problem
from .base import Forward, Peer, too_large


class Held(nn.Module):
    """In the place of a projection: hands out a tensor that is projected already, at no cost."""

    held: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.held


class TransformerConv(Peer):
    """The layer's ``propagate`` alone: no projections, no root weight; a batch is a disjoint union."""

    name = "PyG"
    about = "torch_geometric.nn.TransformerConv, eager, projections replaced by ready tensors, root_weight=False"

    def reasons_against(self, problem: Problem) -> list[str]:
        per_edge = 8 * problem.heads * problem.head_dim * problem.dtype.itemsize + 16
        return too_large("its (E, H, D) tensors of both passes", problem.edges * per_edge, problem.device)

    def lay_out(self, x: Tensor) -> Tensor:
        return x.clone().reshape(-1, x.shape[-2] * x.shape[-1])  # (B * N, H * D)

    def module(self, problem: Problem) -> tuple[nn.Module, nn.Module]:
        """The layer, and what is called."""
        from torch_geometric.nn import TransformerConv as Conv

        width = problem.heads * problem.head_dim
        conv = Conv(width, problem.head_dim, problem.heads, root_weight=False, bias=False)
        for name in ("query", "key", "value"):
            setattr(conv, f"lin_{name}", Held())
        return conv, conv

    def prepare(self, problem: Problem, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        conv, call = self.module(problem)
        for name, held in (("query", query), ("key", key), ("value", value)):
            getattr(conv, f"lin_{name}").held = held
        graph = problem.graph
        steps = torch.tensor([[graph.num_sources], [graph.num_targets]], device=problem.device)
        copies = [graph.edge_index.to(problem.device) + i * steps for i in range(problem.batch)]
        edge_index = torch.cat(copies, 1)
        return lambda: call((key, query), edge_index)


class CompiledTransformerConv(TransformerConv):
    """The same under torch.compile."""

    name = "PyG compiled"
    about = "the same, torch.compile(dynamic=False)"

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], tuple[nn.Module, nn.Module]] = {}

    def module(self, problem: Problem) -> tuple[nn.Module, nn.Module]:
        sizes = (problem.heads, problem.head_dim)
        if sizes not in self._made:
            conv, _ = super().module(problem)
            self._made[sizes] = conv, torch.compile(conv, dynamic=False)  # type: ignore[assignment]
        return self._made[sizes]
