"""What a careful engineer writes where all targets have as many sources: keys gathered into a table, compiled."""

import torch
from torch import Tensor

from ..problem import Problem
from .base import Forward, Peer, too_large


def _attend(query: Tensor, key: Tensor, value: Tensor, source: Tensor) -> Tensor:
    """(B, T, H, D) of query (B, T, H, D), key and value (B, S, H, D), and the sources (T, k) of each target."""
    score = (query.unsqueeze(2) * key[:, source]).sum(-1) * query.shape[-1] ** -0.5  # (B, T, k, H)
    return (score.softmax(2).unsqueeze(-1) * value[:, source]).sum(2)


class ByHand(Peer):
    """``k[idx]``, multiply, sum, softmax, multiply, sum; torch.compile fuses what follows the gathers."""

    name = "gather by hand"
    about = "torch.compile of k[idx], multiply, sum, softmax, v[idx], multiply, sum; as many sources for every target"

    def __init__(self) -> None:
        self._compiled: object = None

    def reasons_against(self, problem: Problem) -> list[str]:
        degree = problem.graph.in_degree
        if degree.numel() == 0 or int(degree.min()) == 0 or int(degree.min()) != int(degree.max()):
            return ["only where all targets have as many sources"]
        needed = 2 * problem.edges * problem.heads * problem.head_dim * problem.dtype.itemsize
        return too_large("keys and values of every edge", needed, problem.device)

    def lay_out(self, x: Tensor) -> Tensor:
        return x.clone().reshape(-1, *x.shape[-3:])

    def prepare(self, problem: Problem, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        graph = problem.graph
        order = torch.argsort(graph.target, stable=True)
        source = graph.source[order].view(graph.num_targets, -1).to(problem.device)
        if self._compiled is None:
            self._compiled = torch.compile(_attend, dynamic=False)
        call = self._compiled
        return lambda: call(query, key, value, source)  # type: ignore[operator]
