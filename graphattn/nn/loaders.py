"""Weights of the layers that people already have."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ..errors import OptionError


def _copy(to: nn.Linear | None, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    assert to is not None
    with torch.no_grad():
        to.weight.copy_(weight)
        if bias is not None:
            to.bias.copy_(bias)


def refuse_other(given: Any, *kinds: type[nn.Module]) -> None:
    """Refuse what is none of torch's modules; a subclass, too, for it may compute something else."""
    if type(given) not in kinds or "forward" in vars(given):
        wanted = " or ".join(f"nn.{kind.__name__}" for kind in kinds)
        own = ", whose forward is its own" * isinstance(given, kinds)
        got = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise OptionError(f"expected an {wanted}, got {got}{own}")


def from_torch(make: Callable[..., Any], mha: nn.MultiheadAttention) -> Any:
    """What ``make``, a :class:`GraphAttention`, gives, with the weights of an ``nn.MultiheadAttention``.

    Raises:
        OptionError: If the module adds a bias or a zero to the keys: these are sources of their own, which belong in
            the graph.
    """
    refuse_other(mha, nn.MultiheadAttention)
    if mha.bias_k is not None or mha.add_zero_attn:
        raise OptionError(
            "add_bias_kv and add_zero_attn add a source that no graph lists; add a node to the graph instead"
        )
    layer = make(
        mha.embed_dim,
        mha.num_heads,
        kdim=mha.kdim,
        vdim=mha.vdim,
        bias=mha.in_proj_bias is not None,
        dropout=mha.dropout,
    )
    layer.to(mha.out_proj.weight)
    weights: Any = (mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight)
    biases: Any = (None,) * 3 if mha.in_proj_bias is None else mha.in_proj_bias.chunk(3)
    learned = weights
    if mha.in_proj_weight is not None:
        weights, learned = mha.in_proj_weight.chunk(3), (mha.in_proj_weight,) * 3
    for to, *given, like in zip((layer.q_proj, layer.k_proj, layer.v_proj), weights, biases, learned, strict=True):
        _copy(to, *given)
        _learn(to, like, mha.in_proj_bias)
    _copy(layer.out_proj, mha.out_proj.weight, mha.out_proj.bias)
    _learn(layer.out_proj, mha.out_proj.weight, mha.out_proj.bias)
    return layer.train(mha.training)


def _learn(to: nn.Linear | None, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """What was frozen stays so."""
    assert to is not None
    to.weight.requires_grad_(weight.requires_grad)
    if bias is not None:
        to.bias.requires_grad_(bias.requires_grad)


def block_from_torch(make: Callable[..., Any], layer: Any) -> Any:
    """What ``make``, a :class:`TransformerBlock`, gives, with the weights of a torch layer of an encoder or a decoder.

    Its norms, linear layers and activation are copied as they are, whatever was put in their places.

    Raises:
        OptionError: If it is something else, or a part was replaced by what the block has no place for.
    """
    refuse_other(layer, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    drops = [part for name, part in layer.named_children() if name.startswith("dropout")]
    if any(type(part) is not nn.Dropout or part.p != layer.dropout1.p for part in drops if part is not layer.dropout):
        raise OptionError("every branch of a block has the same nn.Dropout; the layer's dropout1, dropout2, ... differ")
    cross = isinstance(layer, nn.TransformerDecoderLayer)
    block = make(
        layer.self_attn.embed_dim,
        layer.self_attn.num_heads,
        1,  # its feed-forward is replaced
        cross=cross,
        norm_first=layer.norm_first,
        activation=deepcopy(layer.activation),
        dropout=layer.dropout1.p,
    )
    block.attention = block.attention.from_torch(layer.self_attn)
    block.attention_norm, block.feed_forward_norm = deepcopy(layer.norm1), deepcopy(layer.norm2)
    if cross:
        block.cross_attention = block.cross_attention.from_torch(layer.multihead_attn)
        block.cross_norm, block.feed_forward_norm = deepcopy(layer.norm2), deepcopy(layer.norm3)
    mlp: Any = block.feed_forward
    mlp.up, mlp.down, mlp.dropout = deepcopy(layer.linear1), deepcopy(layer.linear2), deepcopy(layer.dropout)
    return block.train(layer.training)
