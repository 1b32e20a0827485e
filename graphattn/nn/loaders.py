"""Weights of the layers that people already have."""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import OptionError
from .graph_attention import GraphAttention
from .root_weight import RootWeight

if TYPE_CHECKING:
    from .blocks import TransformerBlock


def _copy(to: nn.Linear | None, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    assert to is not None
    with torch.no_grad():
        to.weight.copy_(weight)
        if bias is not None:
            to.bias.copy_(bias)


def from_torch(mha: nn.MultiheadAttention) -> GraphAttention:
    """A :class:`GraphAttention` with the weights of an ``nn.MultiheadAttention``.

    Raises:
        OptionError: If the module adds a bias or a zero to the keys: these are sources of their own, which belong in
            the graph.
    """
    if not isinstance(mha, nn.MultiheadAttention):
        raise OptionError(f"expected an nn.MultiheadAttention, got {type(mha).__name__}")
    if mha.bias_k is not None or mha.add_zero_attn:
        raise OptionError(
            "add_bias_kv and add_zero_attn add a source that no graph lists; add a node to the graph instead"
        )
    layer = GraphAttention(
        mha.embed_dim,
        mha.num_heads,
        kdim=mha.kdim,
        vdim=mha.vdim,
        bias=mha.in_proj_bias is not None,
        dropout=mha.dropout,
    )
    weights: Any = (mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight)
    if mha.in_proj_weight is not None:
        weights = mha.in_proj_weight.chunk(3)
    biases: Any = (None,) * 3 if mha.in_proj_bias is None else mha.in_proj_bias.chunk(3)
    layer.to(mha.out_proj.weight)
    for to, weight, bias in zip((layer.q_proj, layer.k_proj, layer.v_proj), weights, biases, strict=True):
        _copy(to, weight, bias)
    _copy(layer.out_proj, mha.out_proj.weight, mha.out_proj.bias)
    return layer.train(mha.training)


def block_from_torch(made: type["TransformerBlock"], layer: Any) -> "TransformerBlock":
    """A block with the weights of an ``nn.TransformerEncoderLayer`` or ``nn.TransformerDecoderLayer``.

    Raises:
        OptionError: If it is something else.
    """
    if not isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        kind = type(layer).__name__
        raise OptionError(f"expected an nn.TransformerEncoderLayer or nn.TransformerDecoderLayer, got {kind}")
    cross = isinstance(layer, nn.TransformerDecoderLayer)
    block = made(
        layer.self_attn.embed_dim,
        layer.self_attn.num_heads,
        layer.linear1.out_features,
        cross=cross,
        norm_first=layer.norm_first,
        eps=layer.norm1.eps,
        activation=layer.activation,
        bias=layer.linear1.bias is not None,
        dropout=layer.dropout1.p,
    )
    block.to(layer.linear1.weight)
    block.attention = from_torch(layer.self_attn)
    pairs: list[tuple[Any, Any]] = [
        (block.attention_norm, layer.norm1),
        (block.feed_forward_norm, layer.norm3 if cross else layer.norm2),
    ]
    if cross:
        block.cross_attention = from_torch(layer.multihead_attn)  # type: ignore[arg-type]
        pairs.append((block.cross_norm, layer.norm2))
    mlp: Any = block.feed_forward
    for mine, theirs in (*pairs, (mlp.up, layer.linear1), (mlp.down, layer.linear2)):
        mine.load_state_dict(theirs.state_dict())
    return block.train(layer.training)


def from_pyg(conv: Any) -> GraphAttention:
    """A :class:`GraphAttention` with the weights of a PyG ``TransformerConv``.

    With ``concat=False`` the mean over heads becomes a fixed output projection.

    Raises:
        OptionError: If its sizes are not known yet, or it sends or sums messages in another way.
    """
    from torch_geometric.nn import TransformerConv

    if not isinstance(conv, TransformerConv):
        raise OptionError(f"expected a TransformerConv, got {type(conv).__name__}")
    if conv.flow != "source_to_target" or conv.aggr not in ("add", "sum"):
        raise OptionError(
            f'expected flow="source_to_target" and aggr="add", got {conv.flow!r} and {conv.aggr!r}; for the other '
            "direction use graph.reverse()"
        )
    if conv.lin_key.in_channels < 0 or conv.lin_query.in_channels < 0:
        raise OptionError("the TransformerConv does not know its input width yet (-1); run it once first")
    heads, width = conv.heads, conv.out_channels
    source = conv.lin_key.in_channels
    layer = GraphAttention(
        heads * width if conv.concat else width,
        heads,
        qdim=conv.lin_query.in_channels,
        kdim=source,
        vdim=source,
        head_dim=width,
        edge_dim=conv.edge_dim,
        bias=conv.lin_query.bias is not None,
        out_proj=not conv.concat,
        dropout=conv.dropout,
    )
    if conv.root_weight:
        layer.skip = RootWeight(layer.qdim, layer.embed_dim, conv.lin_skip.bias is not None, bool(conv.beta))
    if layer.out_proj is not None:
        layer.out_proj = nn.Linear(heads * width, width, bias=False).requires_grad_(False)
    layer.to(conv.lin_query.weight)
    for to, old in (
        (layer.q_proj, conv.lin_query),
        (layer.k_proj, conv.lin_key),
        (layer.v_proj, conv.lin_value),
        (layer.edge_proj, conv.lin_edge),
    ):
        if to is not None:
            _copy(to, old.weight, old.bias)
    if layer.out_proj is not None:
        _copy(layer.out_proj, torch.eye(width, dtype=torch.float64).repeat(1, heads) / heads, None)
    if layer.skip is not None:
        _copy(layer.skip.root, conv.lin_skip.weight, conv.lin_skip.bias)
        if layer.skip.gate is not None:
            _copy(layer.skip.gate, conv.lin_beta.weight, None)
    return layer.train(conv.training)
