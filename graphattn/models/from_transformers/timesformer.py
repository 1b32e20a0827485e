"""TimeSformer of ``transformers``."""

from typing import Any

import torch
from torch import nn

from ..images.timesformer import TimeSformer
from .weights import activation, fill, refuse, renamed, sizes

NAMES = {
    "^timesformer.": "",
    "embeddings.cls_token": "class_token",
    "embeddings.position_embeddings": "space_positions",
    "embeddings.time_embeddings": "time_positions",
    "embeddings.patch_embeddings.": "patches.",
    "encoder.layer.": "layers.",
    ".temporal_attention.": ".time_attention.",
    ".attention.attention.qkv.": ".space_attention.qkv.",
    ".attention.output.dense.": ".space_attention.out_proj.",
    ".time_attention.attention.qkv.": ".time_attention.qkv.",
    ".time_attention.output.dense.": ".time_attention.out_proj.",
    ".temporal_layernorm.": ".time_norm.",
    ".temporal_dense.": ".time_dense.",
    ".intermediate.dense.": ".feed_forward.up.",
    ".output.dense.": ".feed_forward.down.",
    ".layernorm_before.": ".space_norm.",
    ".layernorm_after.": ".feed_forward_norm.",
    "^layernorm.": "norm.",
    "^classifier.": "head.",
}


def read(model: Any) -> TimeSformer:
    """A ``TimesformerForVideoClassification`` or ``TimesformerModel`` of divided attention.

    Videos are (B, channels, time, height, width) here; theirs have time before the channels. A
    model with dropout is refused.
    """
    base: Any = getattr(model, "timesformer", model)
    config = base.config
    refuse(
        config,
        attention_type="divided_space_time",
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    with torch.device("meta"):
        if base is model:
            num_classes = None
        else:
            num_classes = config.num_labels
        new_model = TimeSformer(
            (config.num_frames, config.image_size, config.image_size),
            config.patch_size,
            *sizes(config),
            channels=config.num_channels,
            num_classes=num_classes,
            activation=activation(config.hidden_act),
            drop_path=config.drop_path_rate,
        )
    fill(new_model, renamed(model, NAMES))
    for module in new_model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = config.layer_norm_eps
    return new_model.train(model.training)
