"""SDPA with its log-sum-exp, which torch's kernel on the CPU computes and SDPA discards."""

from typing import Any

import torch
from torch import Tensor

from ..graph.modes import without_autocast
from ..kernels.modes import is_transformed
from ..kernels.plain.second_derivatives import gradients_of_definition
from ..operands import HALF
from .sdpa import Mask, above_zero, bias_dwarfs_lse, sdpa_drops_nonfinite_rows, unfused_attention

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def fused_lse(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, scale: float
) -> tuple[Tensor, Tensor]:
    """Output (B, H, T, D_v) and lse (B, H, T, 1) of attention, heads first.

    Differentiable any number of times. Every row of the mask must allow a source.
    """
    query, scale = above_zero(query, scale)
    bias = mask.bias
    if _is_unfused(query, bias) or sdpa_drops_nonfinite_rows(query, key.shape[-2], mask):
        return _definition(query, key, value, mask, scale)
    if bias is None and mask.allowed is not None:
        zeros = query.new_zeros(()).expand(mask.allowed.shape)
        bias = zeros.masked_fill(~mask.allowed, -torch.inf)
    return _Fused.apply(query, key, value, bias, mask.causal, scale)


def _is_unfused(query: Tensor, bias: Tensor | None) -> bool:
    """True if plain operations serve: the kernel lacks a device, dtype, derivative or precision."""
    if is_transformed() or query.device.type != "cpu":
        return True
    if query.dtype in HALF:  # whose lse must be float32
        return True
    if bias is None:
        return False
    return bias.requires_grad or bias_dwarfs_lse(bias)


def _definition(*arguments: Any) -> tuple[Tensor, Tensor]:
    output, _, lse = unfused_attention(*arguments)
    return output, lse


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.causal = causal
        ctx.scale = scale
        # the kernel takes one width; zeros add nothing
        width = max(query.shape[-1], value.shape[-1])
        operands = [_wider(x, width) for x in (query, key, value)]
        output, lse = _forward(*operands, 0.0, causal, attn_mask=bias, scale=scale)
        output = output[..., : value.shape[-1]]
        ctx.save_for_backward(query, key, value, bias, output, lse)
        return output, lse[..., None]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        with without_autocast("cpu"):
            return _Fused._backward(ctx, *grads)

    @staticmethod
    def _backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias, output, lse = ctx.saved_tensors
        if torch.is_grad_enabled():
            operands = (query, key, value)
            constants = (Mask(None, bias, ctx.causal), ctx.scale)
            gradients = gradients_of_definition(_definition, operands, constants, grads)
            return *gradients, None, None, None
        # The kernel subtracts <d_output, output> from each d_score; one more column adds the
        # gradient of lse to it: 1 in d_output, -d_lse in output, 0 in query, key and value.
        width = max(query.shape[-1], value.shape[-1])
        d_output, d_lse = grads
        ones = torch.ones_like(d_lse)
        results = _backward(
            torch.cat((_wider(d_output, width), ones), -1),
            *(_wider(x, width + 1) for x in (query, key, value)),
            torch.cat((_wider(output, width), -d_lse), -1),
            *(lse, 0.0, ctx.causal),
            attn_mask=bias,
            scale=ctx.scale,
        )
        sizes = (x.shape[-1] for x in (query, key, value))
        trimmed = [grad[..., :size] for grad, size in zip(results, sizes, strict=True)]
        return *trimmed, None, None, None


def _wider(x: Tensor, width: int) -> Tensor:
    if x.shape[-1] == width:
        return x
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))
