"""What is measured: a graph, the sizes of the tensors on it, and the traffic that no way to run it can avoid."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..backends.request import Request
from ..graph import AttentionGraph

FORWARD, BOTH = "forward", "forward + backward"
MODES = (FORWARD, BOTH)


@dataclass(frozen=True)
class Problem:
    """One call of attention: query (B, T, H, D), key and value (B, S, H, D), without the B where B is 1."""

    graph: AttentionGraph
    heads: int = 4
    head_dim: int = 32
    batch: int = 1
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    seed: int = 0

    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, key, value and the gradient of the output: normal, drawn on the CPU, so the same everywhere."""
        draw = torch.Generator().manual_seed(self.seed)
        T, S = self.graph.num_targets, self.graph.num_sources
        lead = () if self.batch == 1 else (self.batch,)
        shapes = [(*lead, nodes, self.heads, self.head_dim) for nodes in (T, S, S, T)]
        query, key, value, grad = (torch.randn(shape, generator=draw).to(self.device, self.dtype) for shape in shapes)
        return query, key, value, grad

    def request(self) -> Request:
        """The same in sizes only, as backends take it."""
        widths = (self.heads, self.heads, self.head_dim, self.head_dim)
        return Request(*widths, self.batch, self.dtype, torch.device(self.device))

    @property
    def edges(self) -> int:
        """Edges in the whole batch."""
        return self.graph.num_edges * self.batch

    def floor_bytes(self, mode: str) -> int:
        """Bytes that every way must move: forward reads q, k, v and writes the output; backward reads these four and
        the output's gradient, and writes three gradients. 4 N W b and 8 N W b where sources are targets."""
        T, S = self.graph.num_targets, self.graph.num_sources
        row = self.batch * self.heads * self.head_dim * self.dtype.itemsize
        forward = (2 * T + 2 * S) * row
        return forward if mode == FORWARD else forward + (4 * T + 4 * S) * row
