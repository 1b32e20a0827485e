"""Dense attention, heads first: torch's SDPA, differentiable any number of times, or written out."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import BackendError
from ..graph.modes import plain_operations_only, without_autocast
from ..kernels.modes import can_read_values
from ..kernels.plain.second_derivatives import twice_differentiable
from ..operands import HALF
from .request import Request
from .rows import Weigh

_REGISTER = 64  # bytes of the widest, AVX-512
_FAR = 64  # from 0, in a bias
_LEAST = torch.finfo(torch.float32).tiny
_sdpa = torch.nn.functional.scaled_dot_product_attention


class Mask(NamedTuple):
    """The pairs that count.

    ``bias`` is added to the scores; without it ``allowed`` or ``causal`` selects, else all.
    """

    allowed: Tensor | None = None  # bool (T, S)
    bias: Tensor | None = None  # (..., H or 1, T, S)
    causal: bool = False  # s <= t


def is_unfused(request: Request) -> bool:
    """True if scores are written out: SDPA lacks an option of the call, or a fused kernel."""
    if request.softcap or request.weights or request.normalize:
        return True
    if request.score_bias or request.dropout:
        return True
    return request.head_dim != request.value_dim and not request.lse


class ProductResult(NamedTuple):
    """Output (..., H, T, D_v), weights (..., H, T, S) and lse (..., H, T, 1), all float32 or wider.

    Without softmax there is no lse: it is 0.
    """

    output: Tensor
    alpha: Tensor
    lse: Tensor


def unfused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask,
    scale: float,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    weigh: Weigh | None = None,
) -> ProductResult:
    """The product in plain operations: options that SDPA lacks, and every derivative.

    A row of -inf gives 0. ``weigh`` computes the weights; softmax by default.
    """
    with without_autocast(query.device.type):
        alpha, lse = unfused_weights(query, key, mask, scale, softcap, weigh)
        output = torch.nn.functional.dropout(alpha, dropout_p) @ value.to(alpha.dtype)
        return ProductResult(output, alpha, lse)


def unfused_weights(
    query: Tensor,
    key: Tensor,
    mask: Mask,
    scale: float,
    softcap: float | None = None,
    weigh: Weigh | None = None,
) -> tuple[Tensor, Tensor]:
    """The weights and lse of :func:`unfused_attention`."""
    if query.dtype in HALF:
        dtype = torch.float32
    else:
        dtype = query.dtype
    score = (query.to(dtype) @ key.to(dtype).transpose(-2, -1)) * scale
    if softcap is not None:
        score = softcap * torch.tanh(score / softcap)
    if weigh is not None:
        return weigh(*_edges(score, mask)), score.new_zeros(*score.shape[:-1], 1)
    if mask.bias is not None:
        return softmax_lse(score + mask.bias, -1)
    allowed = _allowed(score, mask)
    if allowed is not None:
        score = score.masked_fill(~allowed, -torch.inf)
    return softmax_lse(score, -1)


def softmax_lse(score: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Softmax along ``dim`` and its log-sum-exp, whose ``dim`` has size 1.

    Scores of -inf alone give 0 and -inf.
    """
    peak = score.detach().amax(dim, keepdim=True)
    peak = peak.masked_fill(peak == -torch.inf, 0.0)
    power = torch.exp(score - peak)
    total = power.sum(dim, keepdim=True)
    has_edges = total != 0
    total = torch.where(has_edges, total, 1.0)
    return power / total, torch.where(has_edges, peak + torch.log(total), -torch.inf)


def bias_dwarfs_lse(bias: Tensor | None) -> bool:
    """True if the largest entry of some row of a bias is far from 0.

    SDPA's backward recomputes the weights from a stored lse; beside -1e9 the log of their number is
    rounded away. Compiled code cannot test this, and assumes True.
    """
    if bias is None or bias.numel() == 0:
        return False
    if not can_read_values(bias):
        return True
    bias = bias.detach()
    # one pass in the order of the memory, where that of rows can take 100 times as long
    if bool((bias.amin() > -_FAR) & (bias.amax() < _FAR)):
        return False
    return bool((bias.amax(-1).abs() > _FAR).any())


def near_zero(bias: Tensor) -> Tensor:
    """A bias with the same weights, in which the largest entry of no row is far from 0.

    A row moves by a number, which changes no softmax. Unlike :func:`bias_dwarfs_lse` this reads no
    value on the host, which on CUDA would wait for the device.
    """
    peak = bias.detach().amax(-1, keepdim=True)
    moves = (peak.abs() > _FAR) & (peak > -torch.inf)
    return bias - torch.where(moves, peak, 0.0)


def _allowed(score: Tensor, mask: Mask) -> Tensor | None:
    """The edges of a mask without a bias; ``None`` if every pair is one."""
    if not mask.causal:
        return mask.allowed
    return torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).tril()


def _edges(score: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """The scores with their bias, and the mask of edges."""
    if mask.bias is not None:
        present = mask.bias != -torch.inf
        return score + mask.bias.masked_fill(~present, 0.0), present
    allowed = _allowed(score, mask)
    if allowed is None:
        allowed = score.new_ones(score.shape[-2:], dtype=torch.bool)
    return score, allowed


def above_zero(query: Tensor, scale: float) -> tuple[Tensor, float]:
    """A query and a scale > 0 with the same product.

    SDPA's kernels may scale after masking, and -inf times a scale of 0 or below is no longer -inf.
    They store the scale in float32 for half precision, too.
    """
    if scale >= _LEAST:
        return query, scale
    if -scale >= _LEAST:
        return (-query, -scale)
    return (query * scale, 1.0)


class _Product(NamedTuple):
    """SDPA of a mask without its bias, and what defines it."""

    allowed: Tensor | None
    causal: bool
    scale: float
    dropout_p: float

    def run(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
    ) -> tuple[Tensor]:
        """SDPA, (..., H, T, D_v)."""
        mask = bias
        if bias is None:
            mask = self.allowed
        return (_in_four_dimensions(query, key, value, mask, self),)

    def definition(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
    ) -> tuple[Tensor]:
        """SDPA in plain operations, for second derivatives."""
        if self.dropout_p > 0.0:
            raise BackendError('second derivatives through dropout need backend="message_passing"')
        mask = Mask(self.allowed, bias, self.causal)
        result = unfused_attention(query, key, value, mask, self.scale)
        return (result.output.to(query.dtype),)


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask,
    scale: float,
    dropout_p: float = 0.0,
) -> Tensor:
    """SDPA, (..., H, T, D_v); differentiable any number of times."""
    query, scale = above_zero(query, scale)
    if plain_operations_only() or _is_beyond_sdpa(query, key, mask):
        result = unfused_attention(query, key, value, mask, scale, None, dropout_p)
        return result.output.to(query.dtype)
    if mask.bias is not None and query.is_cuda:
        mask = mask._replace(bias=near_zero(mask.bias))
    product = _Product(mask.allowed, mask.causal, scale, dropout_p)
    (output,) = twice_differentiable(
        product.run, product.definition, query, key, value, mask.bias, random=dropout_p > 0.0
    )
    if torch.compiler.is_compiling():
        # it cannot ask whether a row is finite
        return output.masked_fill(query.isnan().any(-1, keepdim=True), torch.nan)
    return output


def _is_beyond_sdpa(query: Tensor, key: Tensor, mask: Mask) -> bool:
    """True if SDPA gives wrong numbers or gradients."""
    if 0 in query.shape:  # for an empty batch it gives its mask no gradient, not even zeros
        return True
    if mask.bias is None:
        return sdpa_drops_nonfinite_rows(query, key.shape[-2], mask)
    if query.is_cuda:
        return misread(query, mask.bias) or not can_read_values(mask.bias)
    return bias_dwarfs_lse(mask.bias)


def misread(query: Tensor, bias: Tensor) -> bool:
    """True if SDPA's kernels on CUDA read a bias as one in the query's dtype.

    The memory-efficient kernel refuses a float32 bias beside half precision; cuDNN's silently reads
    its bytes as half precision (pytorch#191612).
    """
    return query.is_cuda and bias.dtype != query.dtype


def sdpa_drops_nonfinite_rows(query: Tensor, num_sources: int, mask: Mask) -> bool:
    """True if SDPA's short kernels on the CPU return 0 for a row whose query is NaN or inf.

    They run without a mask, for fewer sources than a vector register holds numbers; in half
    precision also for some larger ones.
    """
    if mask.bias is not None or mask.allowed is not None:
        return False
    if query.is_cuda or not can_read_values(query):
        return False
    if num_sources * query.element_size() >= _REGISTER and query.dtype not in HALF:
        return False
    dtype = torch.promote_types(query.dtype, torch.float32)
    # an overflow of the sum costs time only
    return not math.isfinite(float(query.detach().sum(dtype=dtype)))


def _in_four_dimensions(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    product: _Product,
) -> Tensor:
    """SDPA on (B, H, T, D).

    For other numbers of dimensions torch avoids its fused kernels, and is 5 times slower.
    """
    lead = query.shape[:-3]
    if mask is not None and mask.dim() > 2:
        mask = _four(mask, lead)
    output = _sdpa(
        _four(query, lead),
        _four(key, lead),
        _four(value, lead),
        mask,
        product.dropout_p,
        product.causal,
        scale=product.scale,
    )
    if len(lead) != 1:
        return output.reshape(lead + output.shape[-3:])
    return output


def _four(x: Tensor, lead: torch.Size) -> Tensor:
    if x.dim() == 3:
        return x.unsqueeze(0)
    if len(lead) == 1 and x.shape[:-3] == lead:
        return x
    return x.expand(*lead, -1, -1, -1).reshape(math.prod(lead), *x.shape[-3:])
