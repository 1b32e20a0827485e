"""Weights of layers of torch and PyG; those of PyG become layers with a score and a use of edge
features.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import shown
from ..errors import OptionError
from .normalizers.softmax import SinkSoftmax, SourceSoftmax
from .root_weight import OutputBias, RootWeight
from .scores import Additive, GATScore, Subtraction

_LOOPS = (
    "a {} with add_self_loops=True adds edges, which belong in the graph: set conv.add_self_loops "
    "= False, "
    "and pass graph.with_self_loops()"
)


def linear(weight: Tensor, bias: Tensor | None, like: Tensor | None = None) -> nn.Linear:
    """A layer with copies of these parameters, frozen if they are; the weight may be a part of
    ``like``.
    """
    new = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    new.weight = _parameter(weight, weight if like is None else like)
    if bias is not None:
        new.bias = _parameter(bias, bias)
    return new


def _parameter(value: Tensor, like: Tensor) -> nn.Parameter:
    return nn.Parameter(value.detach().clone(), requires_grad=like.requires_grad)


def refuse_other(module: Any, *kinds: type[nn.Module]) -> None:
    """Refuse anything but these modules; subclasses, too, since they may compute something
    else.
    """
    if type(module) not in kinds or "forward" in vars(module):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise OptionError(
            f"expected {names}, and none that computes something else, got {shown(module)}"
        )


def from_torch(make: Callable[..., Any], mha: nn.MultiheadAttention) -> Any:
    """A ``make``, :class:`GraphAttention`, with the weights of an ``nn.MultiheadAttention``.

    The sources that ``add_bias_kv`` and ``add_zero_attn`` add are read beside those of any graph.
    """
    refuse_other(mha, nn.MultiheadAttention)
    layer = make(
        mha.embed_dim,
        mha.num_heads,
        kdim=mha.kdim,
        vdim=mha.vdim,
        bias=mha.in_proj_bias is not None,
        dropout=mha.dropout,
    )
    if mha.bias_k is not None and mha.bias_v is not None:
        layer.normalize = SourceSoftmax(mha.num_heads, mha.head_dim, mha.add_zero_attn)
        size = (mha.num_heads, mha.head_dim)
        layer.normalize.key = _parameter(mha.bias_k.view(size), mha.bias_k)
        layer.normalize.value = _parameter(mha.bias_v.view(size), mha.bias_v)
    elif mha.add_zero_attn:  # a source of score 0 and value 0
        layer.normalize = SinkSoftmax(mha.num_heads).requires_grad_(False).to(mha.out_proj.weight)
    packed = mha.in_proj_weight
    bias = mha.in_proj_bias
    weights: Any = (mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight)
    if packed is not None:
        weights = packed.chunk(3)
    biases: Any = (None,) * 3
    if bias is not None:
        biases = bias.chunk(3)
    for name, weight, proj_bias in zip(
        ("q_proj", "k_proj", "v_proj"), weights, biases, strict=True
    ):
        setattr(layer, name, linear(weight, proj_bias, packed))
        if proj_bias is not None:
            getattr(layer, name).bias.requires_grad_(bias.requires_grad)
    layer.out_proj = linear(mha.out_proj.weight, mha.out_proj.bias)
    return layer.train(mha.training)


def block_from_torch(make: Callable[..., Any], layer: Any) -> Any:
    """A ``make``, :class:`TransformerBlock`, with the weights of a torch layer of an encoder or a
    decoder.

    Its norms, linear layers and activation are copied as they are, replacements included.

    Raises:
        OptionError: If it is of another class, or a part was replaced by one that the block does
            not support.
    """
    refuse_other(layer, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    drops = [part for name, part in layer.named_children() if name.startswith("dropout")]
    if any(
        type(part) is not nn.Dropout or part.p != layer.dropout1.p
        for part in drops
        if part is not layer.dropout
    ):
        raise OptionError(
            "every branch of a block has the same nn.Dropout; the layer's dropout1, dropout2, ... "
            "differ"
        )
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
    block.attention_norm = deepcopy(layer.norm1)
    block.feed_forward_norm = deepcopy(layer.norm2)
    if cross:
        block.cross_attention = block.cross_attention.from_torch(layer.multihead_attn)
        block.cross_norm = deepcopy(layer.norm2)
        block.feed_forward_norm = deepcopy(layer.norm3)
    mlp: Any = block.feed_forward
    mlp.up = deepcopy(layer.linear1)
    mlp.down = deepcopy(layer.linear2)
    mlp.dropout = deepcopy(layer.dropout)
    return block.train(layer.training)


def from_pyg(make: Callable[..., Any], conv: Any) -> Any:
    """A ``make``, :class:`GraphAttention`, with the weights of one of PyG's attention convolutions.

    ``TransformerConv``: edge features are added to key and value. ``GATConv`` and ``GATv2Conv``: to
    the score only, and projections shared in PyG stay shared. ``PointTransformerConv``: the offsets
    of targets from their sources are the edge features, ``layer(x, graph, positions=pos)``. With
    ``concat=False`` the mean over heads becomes a fixed output projection.

    Raises:
        OptionError: If its sizes are not known yet, its flow or aggregation differs, or it adds
            self-loops, which are edges, ``graph.with_self_loops()``.
    """
    from ..pyg import GATConv, GATv2Conv, PointTransformerConv, TransformerConv

    loaders = {
        TransformerConv: _transformer,
        GATConv: _gat,
        GATv2Conv: _gatv2,
        PointTransformerConv: _points,
    }
    refuse_other(conv, *loaders)
    if conv.flow != "source_to_target" or conv.aggr not in ("add", "sum"):
        raise OptionError(
            f'expected flow="source_to_target" and aggr="add", got {conv.flow!r} and '
            f"{conv.aggr!r}; for the other "
            "direction use graph.reverse()"
        )
    if any(getattr(part, "in_channels", 0) < 0 for part in conv.children()):
        raise OptionError(
            f"the {type(conv).__name__} must have an input width, got -1; run it once first"
        )
    if getattr(conv, "add_self_loops", False):
        raise OptionError(_LOOPS.format(type(conv).__name__))
    layer = loaders[type(conv)](make, conv)
    return layer.train(conv.training)


def _transformer(make: Callable[..., Any], conv: Any) -> Any:
    layer = _layer(make, conv, conv.lin_query, conv.lin_key, edge_dim=conv.edge_dim)
    for name, old in (
        ("q_proj", conv.lin_query),
        ("k_proj", conv.lin_key),
        ("v_proj", conv.lin_value),
    ):
        setattr(layer, name, linear(old.weight, old.bias))
    if layer.edge_proj is not None:
        layer.edge_proj = linear(conv.lin_edge.weight, conv.lin_edge.bias)
    if conv.root_weight:
        layer.skip = RootWeight(
            layer.qdim, layer.embed_dim, conv.lin_skip.bias is not None, bool(conv.beta)
        )
        layer.skip.root = linear(conv.lin_skip.weight, conv.lin_skip.bias)
        if layer.skip.gate is not None:
            layer.skip.gate = linear(conv.lin_beta.weight, conv.lin_beta.bias)
    return layer


def _gat(make: Callable[..., Any], conv: Any) -> Any:
    """One projection for sources, targets and values, or one for targets in a bipartite layer."""
    if conv.lin is not None:
        of_source = conv.lin
        of_target = conv.lin
    else:
        of_source = conv.lin_src
        of_target = conv.lin_dst
    score = GATScore(conv.heads, conv.out_channels, float(conv.negative_slope), conv.edge_dim)
    score.of_source, score.of_target = (
        _parameter(x.squeeze(0), x) for x in (conv.att_src, conv.att_dst)
    )
    if conv.edge_dim is not None:
        score.of_edge = _parameter(conv.att_edge.squeeze(0), conv.att_edge)
    return _graph_attention_network(make, conv, score, of_target, of_source)


def _gatv2(make: Callable[..., Any], conv: Any) -> Any:
    activation = partial(nn.functional.leaky_relu, negative_slope=float(conv.negative_slope))
    score = Additive(conv.heads, conv.out_channels, activation, conv.edge_dim)
    score.weight = _parameter(conv.att.squeeze(0), conv.att)
    return _graph_attention_network(make, conv, score, conv.lin_r, conv.lin_l)


def _graph_attention_network(
    make: Callable[..., Any], conv: Any, score: Any, of_target: Any, of_source: Any
) -> Any:
    if conv.edge_dim is None:
        options = {}
    else:
        options = {"edge_dim": conv.edge_dim, "edge_to": "key"}
    layer = _layer(make, conv, of_target, of_source, score=score, **options)
    if conv.edge_dim is not None:
        layer.score.edge = linear(conv.lin_edge.weight, conv.lin_edge.bias)
    layer.k_proj = layer.v_proj = linear(of_source.weight, of_source.bias)
    if of_target is of_source:
        layer.q_proj = layer.k_proj
    else:
        layer.q_proj = linear(of_target.weight, of_target.bias)
    if conv.res is not None:
        layer.skip = RootWeight(layer.qdim, layer.embed_dim, conv.bias is not None)
        layer.skip.root.weight = _parameter(conv.res.weight, conv.res.weight)
        if conv.bias is not None:
            layer.skip.root.bias = _parameter(conv.bias, conv.bias)
    elif conv.bias is not None:
        layer.skip = OutputBias(layer.embed_dim)
        layer.skip.bias = _parameter(conv.bias, conv.bias)
    return layer


def _points(make: Callable[..., Any], conv: Any) -> Any:
    """Vector attention: every channel is a head."""
    channels = conv.out_channels
    pos = conv.pos_nn
    sizes = [
        getattr(part, "in_channels", getattr(part, "in_features", None)) for part in pos.modules()
    ]
    axes = next((size for size in sizes if isinstance(size, int)), 3)
    score = Subtraction(channels, 1, edge_dim=axes)
    source = conv.lin_src.in_channels
    target = conv.lin_dst.in_channels
    layer = make(
        channels,
        channels,
        qdim=target,
        kdim=source,
        vdim=source,
        head_dim=1,
        edge_dim=axes,
        bias=False,
        out_proj=False,
        score=score,
    )
    layer.score.delta = deepcopy(pos)
    if conv.attn_nn is None:
        layer.score.gamma = nn.Identity()
    else:
        layer.score.gamma = deepcopy(conv.attn_nn)
    for name, old in (("q_proj", conv.lin_dst), ("k_proj", conv.lin_src), ("v_proj", conv.lin)):
        setattr(layer, name, linear(old.weight, old.bias))
    return layer


def _layer(
    make: Callable[..., Any], conv: Any, of_target: Any, of_source: Any, **options: Any
) -> Any:
    """A layer of the sizes of a convolution with heads."""
    heads = conv.heads
    width = conv.out_channels
    layer = make(
        heads * width if conv.concat else width,
        heads,
        qdim=of_target.in_channels,
        kdim=of_source.in_channels,
        vdim=of_source.in_channels,
        head_dim=width,
        bias=of_target.bias is not None,
        out_proj=not conv.concat,
        dropout=conv.dropout,
        **options,
    )
    if layer.out_proj is not None:
        layer.out_proj = (
            nn.Linear(heads * width, width, bias=False).to(of_target.weight).requires_grad_(False)
        )
        with torch.no_grad():
            layer.out_proj.weight.copy_(
                torch.eye(width, dtype=torch.float64).repeat(1, heads) / heads
            )
    return layer
