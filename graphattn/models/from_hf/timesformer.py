"""TimeSformer of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ...nn import GraphAttention
from ..timesformer import TimeSformer
from .layers import FEED_FORWARD, copy_parts, options, pair, widths
from .text import refuse

NAMES = {
    "time_norm": "temporal_layernorm",
    "time_dense": "temporal_dense",
    "space_norm": "layernorm_before",
    "feed_forward_norm": "layernorm_after",
    **FEED_FORWARD,
}


def read(model: Any) -> TimeSformer:
    """A ``TimesformerForVideoClassification`` or ``TimesformerModel`` of divided attention.

    Videos are (B, channels, time, height, width) here; theirs have time before the channels. Their dropout is 0, or the
    model is refused.
    """
    base: Any = getattr(model, "timesformer", model)
    config, embeddings = base.config, base.embeddings
    refuse(config, attention_type="divided_space_time", hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    size, patch = (config.num_frames, *pair(config.image_size)), pair(config.patch_size)
    made = TimeSformer(size, patch, *widths(config), drop_path=config.drop_path_rate, **options(config))
    made.to(base.layernorm.weight)
    with torch.no_grad():
        projection: Any = made.patches.projection
        projection.weight.copy_(embeddings.patch_embeddings.projection.weight.unsqueeze(2))
        projection.bias.copy_(embeddings.patch_embeddings.projection.bias)
        made.class_token.copy_(embeddings.cls_token[0, 0])
        made.space_positions.copy_(embeddings.position_embeddings[0])
        made.time_positions.copy_(embeddings.time_embeddings[0])
    block: Any
    for block, layer in zip(made.layers, base.encoder.layer, strict=True):
        _fill_attention(block.time_attention, layer.temporal_attention)
        _fill_attention(block.space_attention, layer.attention)
        copy_parts(block, layer, NAMES)
    made.norm = deepcopy(base.layernorm)
    if base is not model:
        made.head = deepcopy(model.classifier)
    return made.train(model.training)


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
