"""A call in sizes and flags only, from which a backend decides beforehand if it can run."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import index
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.limits import MAX_BYTES
from .rows import of_rows

HALF = (torch.float16, torch.bfloat16)


class Request(NamedTuple):
    """The shapes and options of one call of attention; no tensors."""

    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 64
    value_dim: int = 64
    batch: int = 1
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")
    score_bias: bool = False
    softcap: bool = False
    dropout: bool = False
    weights: bool = False
    lse: bool = False
    edge_features: bool = False
    score: bool = False
    normalize: bool = False
    of_rows: bool = False
    """True if the normalisation works row by row on a score matrix."""
    cap_bias: bool = False
    """True if softcap bounds scores with their bias."""

    @property
    def floats_per_pair(self) -> int:
        """Numbers of key and value per pair or edge, for all heads and examples."""
        return self.batch * self.heads * (self.head_dim + self.value_dim)

    @property
    def statistics(self) -> torch.dtype:
        """The dtype of scores, weights and lse: float32 or wider."""
        if self.dtype in HALF:
            return torch.float32
        return self.dtype


@dataclass(frozen=True)
class Inputs:
    """The tensors and numbers of one call, checked: node-first, heads of the query a multiple of
    the others'.
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

    def request(self, weights: bool = False, lse: bool = False) -> Request:
        """The sizes and flags of these inputs.

        Compiled code assumes a batch of one, so that one program serves every batch size; heads and
        widths are fixed.
        """
        *lead, _, heads, head_dim = self.query.shape
        return Request(
            index(heads),
            index(self.key.shape[-2]),
            index(head_dim),
            index(self.value.shape[-1]),
            1 if torch.compiler.is_compiling() else math.prod(lead),
            self.query.dtype,
            self.query.device,
            score_bias=self.score_bias is not None,
            softcap=self.softcap is not None,
            dropout=False if self.dropout_p <= 0.0 else True,  # noqa: SIM211 (torch.compile fixes a branch)
            weights=weights,
            lse=lse,
            edge_features=self.edge_attr is not None,
            score=self.score is not None,
            normalize=self.normalize is not None,
            of_rows=of_rows(self.normalize) is not None,
            cap_bias=self.cap_bias and self.score_bias is not None and self.softcap is not None,
        )

    @property
    def tracks_weights(self) -> bool:
        """True if autograd records the weights. Not in compiled code, whose outputs are not made of
        each other.
        """
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return False
        operands = (self.query, self.key, self.score_bias, self.edge_attr, self.edge_weight)
        return any(x is not None and x.requires_grad for x in operands)

    def present(self, alpha: Tensor) -> Tensor:
        """Weights (..., E, H), 0 on edges that a bias of -inf removes: they get gradients of 0,
        too.
        """
        if self.score_bias is None:
            return alpha
        return alpha.masked_fill(self.score_bias == -torch.inf, 0.0)

    def bounded(self, score: Tensor, bias: Tensor | None, removed: Tensor | None) -> Tensor:
        """Scores (..., E, H) with softcap and bias, -inf where an edge is removed."""
        if bias is not None and removed is not None and self.cap_bias:
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
        """The weights that ``normalize`` returns; a caller's function may write to its indices,
        which are copies.
        """
        known = {"source": source, "edge_attr": attr}
        assert self.normalize is not None
        return self.normalize(
            score, target.clone(), targets, **{name: known[name] for name in self.asks}
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
    """Outputs with other weights, through which the output is computed, so that they have
    gradients.

    Args:
        outputs: The outputs of a backend.
        alpha: The weights to return.
        used: The weights of the backend's edges (..., E, H), made of ``alpha``; ``alpha`` itself by
            default.
    """
    assert outputs.total is not None
    output = outputs.total(alpha if used is None else used)
    return replace(outputs, output=output, alpha=alpha)


def reasons_against_products(request: Request) -> list[str]:
    """The reasons why no product of all queries and keys, whole or in tiles, runs a call."""
    reasons = ["a custom score is a function of each edge"] * request.score
    reasons += ["cap_bias=True bounds scores edge by edge"] * request.cap_bias
    if request.normalize and not request.of_rows:
        reasons.append("a custom normalisation is a function of all edges of a target")
    if request.edge_features:
        reasons.append(
            "edge features change a key from edge to edge, and a dense product has one key for "
            "all targets"
        )
    return reasons + ["an axis has size 0"] * (
        0 in (request.heads, request.head_dim, request.value_dim)
    )


def edges_too_many(graph: AttentionGraph) -> list[str]:
    """The reason against listing a rule's edges, if there is one."""
    if graph.is_rule:
        needed = 16 * graph.num_edges
    else:
        needed = 0
    reason = f"listing its {graph.num_edges:,} edges takes {needed:,} bytes (limit {MAX_BYTES:,})"
    return [reason] * (needed > MAX_BYTES)


def flat_batch(x: Tensor) -> Tensor:
    """(..., N, H, D) as (B, N, H, D): the leading dimensions as one."""
    if x.dim() == 3:
        return x.unsqueeze(0)
    if x.dim() == 4:
        return x
    return x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:])


def flat_batch_of_edges(x: Tensor | None, lead: torch.Size, wide: torch.dtype) -> Tensor | None:
    """(..., E, F) as (1 or B, E, F): the leading dimensions as one, which is 1 for features shared
    by the batch.
    """
    if x is None:
        return None
    shared = math.prod(x.shape[:-2]) == 1
    if shared:
        x = x.to(wide)
    else:
        x = x.to(wide).expand(*lead, *x.shape[-2:])
    return x.reshape(1 if shared else math.prod(lead), *x.shape[-2:])
