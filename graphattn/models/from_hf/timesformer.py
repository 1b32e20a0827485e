"""TimeSformer of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ...arguments import one_of
from ...errors import OptionError
from ...nn import GraphAttention
from ..timesformer import TimeSformer
from ..vivit import ViViT
from .layers import FEED_FORWARD, copy_parts, options, pair, widths

JOINT = {"attention_norm": "layernorm_before", "feed_forward_norm": "layernorm_after", **FEED_FORWARD}
DIVIDED = {
    "time_norm": "temporal_layernorm",
    "time_dense": "temporal_dense",
    "space_norm": "layernorm_before",
    "feed_forward_norm": "layernorm_after",
    **FEED_FORWARD,
}


def read(model: Any) -> TimeSformer | ViViT:
    """A ``TimesformerForVideoClassification`` or ``TimesformerModel``.

    With joint space-time attention it is a :class:`ViViT` of tubelets one frame long; its positions are those of space
    plus those of time. Videos are (B, channels, time, height, width) here; theirs have time before the channels. Their
    dropout is 0, or the model is refused.
    """
    base = getattr(model, "timesformer", model)
    config, embeddings = base.config, base.embeddings
    kinds = {"divided_space_time": _divided, "joint_space_time": _joint}
    one_of(config.attention_type, "attention_type", kinds)
    if config.hidden_dropout_prob or config.attention_probs_dropout_prob:
        raise OptionError("hidden_dropout_prob and attention_probs_dropout_prob must be 0")
    made = kinds[config.attention_type](base, config)
    with torch.no_grad():
        of_frames = embeddings.patch_embeddings.projection
        made.patches.projection.weight.copy_(of_frames.weight.unsqueeze(2))
        made.patches.projection.bias.copy_(of_frames.bias)
    if base is not model:
        made.head = deepcopy(model.classifier)
    return made.train(model.training)


def _divided(base: Any, config: Any) -> Any:
    made = TimeSformer(*_sizes(config), *widths(config), drop_path=config.drop_path_rate, **options(config))
    made.to(base.layernorm.weight)
    with torch.no_grad():
        made.class_token.copy_(base.embeddings.cls_token[0, 0])
        made.space_positions.copy_(base.embeddings.position_embeddings[0])
        made.time_positions.copy_(base.embeddings.time_embeddings[0])
    block: Any
    for block, layer in zip(made.layers, base.encoder.layer, strict=True):
        _fill_attention(block.time_attention, layer.temporal_attention)
        _fill_attention(block.space_attention, layer.attention)
        copy_parts(block, layer, DIVIDED)
    made.norm = deepcopy(base.layernorm)
    return made


def _joint(base: Any, config: Any) -> Any:
    size, (height, wide) = _sizes(config)
    drop_path = config.drop_path_rate
    made: Any = ViViT(size, (1, height, wide), *widths(config), drop_path=drop_path, **options(config))
    made.to(base.layernorm.weight)
    space, time = base.embeddings.position_embeddings[0], base.embeddings.time_embeddings[0]
    with torch.no_grad():
        made.tokens.copy_(base.embeddings.cls_token[0])
        made.positions.weight.copy_(torch.cat((space[:1], (space[1:] + time.unsqueeze(1)).flatten(0, 1))))
    for block, layer in zip(made.encoder.layers, base.encoder.layer, strict=True):
        _fill_attention(block.attention, layer.attention)
        copy_parts(block, layer, JOINT)
    made.encoder.norm = deepcopy(base.layernorm)
    return made


def _sizes(config: Any) -> tuple[tuple[int, int, int], tuple[int, int]]:
    return (config.num_frames, *pair(config.image_size)), pair(config.patch_size)


def _fill_attention(ours: GraphAttention, theirs: Any) -> None:
    joint = theirs.attention.qkv
    for number, name in enumerate(("q_proj", "k_proj", "v_proj")):
        linear = nn.Linear(ours.embed_dim, ours.embed_dim, joint.bias is not None).to(joint.weight)
        with torch.no_grad():
            linear.weight.copy_(joint.weight.chunk(3)[number])
            if joint.bias is not None:
                linear.bias.copy_(joint.bias.chunk(3)[number])
        setattr(ours, name, linear)
    ours.out_proj = deepcopy(theirs.output.dense)
