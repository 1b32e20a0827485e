"""A call in sizes and flags only, from which a backend decides beforehand if it can run."""

import math
from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.limits import MAX_BYTES
from ..operands import HALF, Inputs
from .place_bias import PlaceBias
from .rows import of_rows, sigmoid_of


class Request(NamedTuple):
    """The shapes and options of one call of attention; no tensors."""

    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 64
    value_dim: int = 64
    batch: int = 1
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")
    dropout: bool = False
    weights: bool = False
    lse: bool = False
    trains: bool | None = None
    """True if a backward pass may come, False if none can, None where both have one choice."""
    score_bias: bool = False
    by_place: bool = False
    """True if the bias is a :class:`PlaceBias`."""
    softcap: bool = False
    edge_features: bool = False
    score: bool = False
    normalize: bool = False
    of_rows: bool = False
    """True if the normalisation works row by row on a score matrix."""
    sigmoid: bool = False
    """True if it is a sigmoid."""
    cap_bias: bool = False
    """True if softcap bounds scores with their bias."""

    @classmethod
    def of(cls, inputs: Inputs, weights: bool = False, lse: bool = False) -> "Request":
        """The sizes and flags of a call.

        Compiled code assumes a batch of one, so that one program serves every batch size; heads and
        widths are fixed.
        """
        x = inputs.query
        *lead, _, heads, head_dim = x.shape
        kv_heads, value_dim = inputs.value.shape[-2:]
        batch = 1
        if not torch.compiler.is_compiling():
            batch = math.prod(lead)
        sizes = map(index, (heads, kv_heads, head_dim, value_dim, batch))
        dropout = False
        trains: bool | None = torch.is_grad_enabled()
        if inputs.dropout_p > 0.0:  # torch.compile fixes a branch
            dropout = True
            # reentrant checkpoints run forward in both modes, and must drop the same weights
            trains = None
        parts: Any = (*sizes, x.dtype, x.device, dropout, weights, lse, trains)
        plain = cls(*parts)
        if _is_plain(inputs):
            return plain
        return plain._replace(
            score_bias=inputs.score_bias is not None,
            by_place=isinstance(inputs.score_bias, PlaceBias),
            softcap=inputs.softcap is not None,
            edge_features=inputs.edge_attr is not None,
            score=inputs.score is not None,
            normalize=inputs.normalize is not None,
            of_rows=of_rows(inputs.normalize) is not None,
            sigmoid=sigmoid_of(inputs.normalize) is not None,
            cap_bias=inputs.cap_bias
            and inputs.score_bias is not None
            and inputs.softcap is not None,
        )

    @property
    def is_custom(self) -> bool:
        """True for a score or a normalisation other than product and softmax."""
        return self.score or self.normalize

    @property
    def has_edge_tensors(self) -> bool:
        """True for a bias or features of edges."""
        return self.score_bias or self.edge_features

    @property
    def floats_per_pair(self) -> int:
        """Numbers of key and value per pair or edge, for all heads and examples."""
        return self.batch * self.heads * (self.head_dim + self.value_dim)

    @property
    def statistics(self) -> torch.dtype:
        """The dtype of scores, weights and lse: float32 or wider."""
        return torch.promote_types(self.dtype, torch.float32)


def _is_plain(call: Inputs) -> bool:
    """True for softmax of products alone: every option is None."""
    if call.score_bias is not None or call.edge_attr is not None:
        return False
    return call.score is call.normalize is call.softcap is None


#: The reason against calls that have nothing to multiply; such a call runs by message passing.
EMPTY = "an axis has size 0"


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
    return reasons + [EMPTY] * (0 in (request.heads, request.head_dim, request.value_dim))


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


def with_lead(x: Tensor, lead: torch.Size) -> Tensor:
    """(B, ...) with the leading dimensions of the call in place of B."""
    if len(lead) == 1:
        return x
    return x.reshape(*lead, *x.shape[1:])


def flat_batch_of_edges(
    x: Tensor | None, lead: torch.Size, dtype: torch.dtype, *, halves: bool = False
) -> Tensor | None:
    """(..., E, F) as (1 or B, E, F): the leading dimensions as one, of size 1 if shared.

    In ``dtype``, but for ``halves`` if they may stay.
    """
    if x is None:
        return None
    if not (halves and x.dtype in HALF):
        x = x.to(dtype)
    if math.prod(x.shape[:-2]) == 1:
        return x.reshape(1, *x.shape[-2:])
    return x.expand(*lead, *x.shape[-2:]).reshape(math.prod(lead), *x.shape[-2:])
