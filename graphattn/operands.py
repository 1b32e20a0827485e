"""Tensors and numbers of one call of attention, and its outputs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .arguments import check_shape, shown
from .errors import ShapeError

HALF = (torch.float16, torch.bfloat16)
#: Normalisations, and classes of them, that read which edges share a target, and no node's number.
numberless: list[Any] = []


def are_tracked(*tensors: Tensor | None) -> bool:
    """True if autograd records operations on one of these tensors."""
    if not torch.is_grad_enabled():
        return False
    return any(x.requires_grad for x in tensors if x is not None)


class Block(NamedTuple):
    """Edges whose nodes have other numbers in their own graph, by offsets of all or of each (E,).

    They are those of one of several graphs side by side, or a process's share of a graph.
    """

    num_edges: int
    num_targets: int
    target_offset: int | Tensor
    source_offset: int | Tensor


@dataclass(frozen=True)
class Inputs:
    """The checked tensors and numbers of one call.

    Tensors are node-first; the heads of the query are a multiple of those of key and value.
    """

    query: Tensor  # (..., T, H, D)
    key: Tensor  # (..., S, H_kv, D)
    value: Tensor  # (..., S, H_kv, D_v)
    scale: float
    softcap: float | None = None
    score_bias: Tensor | None = None  # (..., E, H or 1)
    dropout_p: float = 0.0
    # (..., E, F), projected by edge_weight and added to key and value
    edge_attr: Tensor | None = None
    # (H_kv, D, F); without it, F = H * D, and edge_attr itself is added
    edge_weight: Tensor | None = None
    # (query, key, edge_attr) of edges -> (..., E, H); the product if None
    score: Callable[..., Tensor] | None = None
    # (score, target, T) -> (..., E, H); softmax if None
    normalize: Callable[..., Tensor] | None = None
    edge_to: str = "both"  # operand to which edge features are added: "key", "value" or "both"
    cap_bias: bool = False  # True if softcap bounds the score with its bias
    # keyword arguments of normalize: "source" (E,), "edge_attr" (..., E, F)
    asks: tuple[str, ...] = ()
    # edges of graphs, one after another, whose own numbers of nodes normalize reads
    blocks: tuple[Block, ...] = ()

    @property
    def statistics(self) -> torch.dtype:
        """The dtype of scores, weights and lse: float32 or wider."""
        return torch.promote_types(self.query.dtype, torch.float32)

    @property
    def reads_numbers(self) -> bool:
        """True if ``normalize`` is a caller's function, which may read the numbers of nodes."""
        if self.normalize is None:
            return False
        return not any(x is self.normalize or x is type(self.normalize) for x in numberless)

    @property
    def tracks_weights(self) -> bool:
        """True if autograd records the weights; never in compiled code.

        There no output is computed from another one.
        """
        if torch.compiler.is_compiling():
            return False
        return are_tracked(self.query, self.key, self.score_bias, self.edge_attr, self.edge_weight)

    def with_tensors(self, graph: Any) -> "Inputs":
        """These inputs with the bias as a tensor of the edges of a graph."""
        bias: Any = self.score_bias
        if bias is None or isinstance(bias, Tensor):
            return self
        return replace(self, score_bias=bias.on(graph))

    def present(self, alpha: Tensor) -> Tensor:
        """Weights (..., E, H), 0 with gradient 0 on edges that a bias of -inf removes."""
        if self.score_bias is None:
            return alpha
        return alpha.masked_fill(self.score_bias == -torch.inf, 0.0)

    def bounded(self, score: Tensor, bias: Tensor | None, removed: Tensor | None) -> Tensor:
        """Scores (..., E, H) with softcap and bias, -inf where an edge is removed."""
        if self.cap_bias and bias is not None:
            assert removed is not None
            score = score + bias.masked_fill(removed, 0.0)
            bias = None
        if self.softcap is not None:
            score = self.softcap * torch.tanh(score / self.softcap)
        if bias is not None:
            score = score + bias
        if removed is None:
            return score
        return score.masked_fill(removed, -torch.inf)

    def normalized(
        self, score: Tensor, target: Tensor, source: Tensor, attr: Tensor | None, targets: int
    ) -> Tensor:
        """The weights that ``normalize`` returns.

        A caller's function may write to its indices, which are copies. Of blocks it is called one
        by one, with the numbers of nodes that each has in its own graph.
        """
        if not self.blocks:
            return self._weights(score, target.clone(), source, attr, targets)
        parts = []
        first = 0
        for block in self.blocks:
            edges = slice(first, first + block.num_edges)
            own_target = target[edges] - block.target_offset
            own_source = source[edges] - block.source_offset
            of_edges = attr
            if attr is not None:
                of_edges = attr[..., edges, :]
            of_block = score[..., edges, :]
            parts.append(
                self._weights(of_block, own_target, own_source, of_edges, block.num_targets)
            )
            first += block.num_edges
        return torch.cat(parts, -2)

    def _weights(
        self, score: Tensor, target: Tensor, source: Tensor, attr: Tensor | None, targets: int
    ) -> Tensor:
        of_edges = {"source": source, "edge_attr": attr}
        requested = {name: of_edges[name] for name in self.asks}
        assert self.normalize is not None
        return of_every_edge(
            "normalize", self.normalize(score, target, targets, **requested), score
        )


@dataclass(frozen=True)
class Outputs:
    """The outputs of a backend; ``alpha`` and ``lse`` only if requested."""

    output: Tensor  # (..., T, H, D_v)
    # (..., E, H), before dropout; output is made of it if autograd records it
    alpha: Tensor | None = None
    lse: Tensor | None = None  # (..., T, H)
    total: Callable[[Tensor], Tensor] | None = None  # the output of other weights (..., E, H)


def with_weights(outputs: Outputs, alpha: Tensor, used: Tensor | None = None) -> Outputs:
    """Outputs computed from other weights, which therefore have gradients.

    Args:
        outputs: The outputs of a backend.
        alpha: The weights to return.
        used: The weights of the backend's edges (..., E, H), made of ``alpha``; ``alpha`` itself by
            default.
    """
    assert outputs.total is not None
    if used is None:
        used = alpha
    return replace(outputs, output=outputs.total(used), alpha=alpha)


def of_every_edge(name: str, values: Any, like: Tensor) -> Tensor:
    """The result of a caller's function in the dtype of ``like`` (..., E, H).

    Raises:
        ShapeError: If it has another shape or device, or is complex.
    """
    check_shape(values, f"what {name} returns", like.shape, "a number of each edge and head")
    if values.is_complex() or values.device != like.device:
        raise ShapeError(
            f"{name} must return a real tensor on {like.device}, got {shown(values)} on "
            f"{values.device}"
        )
    return values.to(like.dtype)
