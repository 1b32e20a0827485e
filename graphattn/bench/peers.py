"""One call of attention, and the ways to run it: this library's backends, torch's SDPA and PyG."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ..backends import BACKENDS
from ..backends.choose import candidates
from ..backends.request import Request
from ..functional import attention
from ..graph import AttentionGraph
from .machine import too_large

FORWARD, BOTH = MODES = ("forward", "forward + backward")


@dataclass(frozen=True)
class AttentionCall:
    """One call of attention: query (B, T, H, D), key and value (B, S, H, D); no B where it is 1."""

    graph: AttentionGraph
    heads: int = 4
    head_dim: int = 32
    batch: int = 1
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    def inputs(self) -> list[Tensor]:
        """Query, key, value and the gradient of the output: normal, drawn on the CPU."""
        draw, (T, S) = (
            torch.Generator().manual_seed(0),
            (self.graph.num_targets, self.graph.num_sources),
        )
        lead = () if self.batch == 1 else (self.batch,)
        shapes = [(*lead, nodes, self.heads, self.head_dim) for nodes in (T, S, S, T)]
        return [torch.randn(shape, generator=draw).to(self.device, self.dtype) for shape in shapes]

    def request(self) -> Request:
        """The sizes of the call, as backends take them."""
        widths = (self.heads, self.heads, self.head_dim, self.head_dim)
        return Request(*widths, self.batch, self.dtype, torch.device(self.device))

    @property
    def edge_bytes(self) -> int:
        """Bytes of one (E, H, D) tensor of the whole batch."""
        return self.graph.num_edges * self.batch * self.heads * self.head_dim * self.dtype.itemsize


class Peer:
    """A way to run a problem. Tensors come in its own layout, so that no transposing is timed."""

    name: str
    ours = False

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        """The reasons why it cannot run this, or would not be used for it; empty if it can."""
        return []

    def modes(self, problem: AttentionCall) -> tuple[str, ...]:
        """The :data:`MODES` that it supports."""
        return MODES

    def lay_out(self, x: Tensor) -> Tensor:
        """Its own layout from (..., N, H, D)."""
        return x.clone()

    def put_back(self, x: Tensor, like: Tensor) -> Tensor:
        """(..., N, H, D), the shape of ``like``, from its own layout."""
        return x.reshape(like.shape)

    def prepare(
        self, problem: AttentionCall, query: Tensor, key: Tensor, value: Tensor
    ) -> Callable[[], Tensor]:
        """Prepare what depends on the graph alone (masks, layouts), and return the call to measure."""
        raise NotImplementedError


class OwnBackend(Peer):
    """``graphattn.attention`` with a named backend, or with "auto"."""

    ours = True

    def __init__(self, backend: str) -> None:
        self.name = backend

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        request = problem.request()
        if self.name == "auto":
            rows = candidates(problem.graph, request)
            if any(c.runs for c in rows):
                return []
            return [f"{c.name}: {r}" for c in rows for r in c.reasons]
        backend = BACKENDS[self.name]
        reasons = backend.reasons_against(problem.graph, request)
        # and the backward pass
        if reasons:
            needed = 0
        else:
            needed = 2 * backend.bytes_needed(problem.graph, request)
        return reasons or too_large("both passes", needed, problem.device)

    def prepare(
        self, problem: AttentionCall, query: Tensor, key: Tensor, value: Tensor
    ) -> Callable[[], Tensor]:
        return lambda: attention(query, key, value, problem.graph, backend=self.name)  # type: ignore[return-value]


class SDPA(Peer):
    """torch's SDPA on (B, H, N, D) with a bool mask (T, S), ``is_causal``, or neither if full."""

    name = "SDPA"

    def lay_out(self, x: Tensor) -> Tensor:
        return x.reshape(-1, *x.shape[-3:]).transpose(1, 2).contiguous()

    def put_back(self, x: Tensor, like: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(like.shape)

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        graph = problem.graph
        if graph.has_repeated_edges:
            return ["a bool mask cannot count repeated edges"]
        if graph.is_full or graph._is_lower_triangle:
            return []
        # a mask in numbers; on CUDA scores
        if problem.device == "cpu":
            bytes_per_pair = 4
        else:
            bytes_per_pair = 2 * problem.batch * problem.heads
        needed = graph.num_targets * graph.num_sources * (1 + bytes_per_pair)
        return too_large(
            f"a mask of {graph.num_targets:,} x {graph.num_sources:,}", needed, problem.device
        )

    def prepare(
        self, problem: AttentionCall, query: Tensor, key: Tensor, value: Tensor
    ) -> Callable[[], Tensor]:
        graph = problem.graph
        if graph.is_full:
            return lambda: scaled_dot_product_attention(query, key, value)
        if graph._is_lower_triangle:
            return lambda: scaled_dot_product_attention(query, key, value, is_causal=True)
        mask = graph.mask().to(problem.device)
        isolated = ~mask.any(1, keepdim=True)
        if not bool(isolated.any()):
            return lambda: scaled_dot_product_attention(query, key, value, mask)
        readable = mask | isolated  # an empty row would be NaN
        return lambda: scaled_dot_product_attention(query, key, value, readable).masked_fill(
            isolated, 0.0
        )


class AlreadyProjected(nn.Module):
    """A projection that returns a tensor which is projected already, at no cost."""

    tensor: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.tensor


class PyG(Peer):
    """``TransformerConv``, eager, without projections; a batch is a disjoint union."""

    name = "PyG"

    def reasons_against(self, problem: AttentionCall) -> list[str]:
        needed = 8 * problem.edge_bytes + 16 * problem.graph.num_edges * problem.batch
        return too_large("its (E, H, D) tensors of both passes", needed, problem.device)

    def lay_out(self, x: Tensor) -> Tensor:
        return x.clone().reshape(-1, x.shape[-2] * x.shape[-1])  # (B * N, H * D)

    def module(self, problem: AttentionCall) -> tuple[nn.Module, Callable[..., Tensor]]:
        """The layer, and the function to call."""
        from ..pyg import TransformerConv

        width = problem.heads * problem.head_dim
        conv = TransformerConv(
            width, problem.head_dim, problem.heads, root_weight=False, bias=False
        )
        for name in ("query", "key", "value"):
            setattr(conv, f"lin_{name}", AlreadyProjected())
        return conv, conv

    def prepare(
        self, problem: AttentionCall, query: Tensor, key: Tensor, value: Tensor
    ) -> Callable[[], Tensor]:
        graph, (conv, call) = problem.graph, self.module(problem)
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            getattr(conv, f"lin_{name}").tensor = tensor
        steps = torch.tensor([[graph.num_sources], [graph.num_targets]], device=problem.device)
        edge_index = torch.cat(
            [graph.edge_index.to(problem.device) + i * steps for i in range(problem.batch)], 1
        )
        return lambda: call((key, query), edge_index)


def all_peers() -> dict[str, Peer]:
    """Every peer by name, "auto" first: the others are compared with it."""
    peers: list[Peer] = [*map(OwnBackend, ("auto", *BACKENDS)), SDPA(), PyG()]
    return {peer.name: peer for peer in peers}
