"""ViT of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ..images.vit import ViT
from .weights import activation, fill, refuse_mask_token, renamed, set_dropouts, sizes

NAMES = {
    "^vit.": "",
    "embeddings.cls_token": "tokens",
    "embeddings.position_embeddings": "positions.weight",
    "embeddings.patch_embeddings.": "patches.",
    "^layers.": "encoder.layers.",
    ".attention.o_proj.": ".attention.out_proj.",
    ".mlp.fc1.": ".feed_forward.up.",
    ".mlp.fc2.": ".feed_forward.down.",
    ".layernorm_before.": ".attention_norm.",
    ".layernorm_after.": ".feed_forward_norm.",
    "^layernorm.": "encoder.norm.",
    "^classifier.": "head.",
    "^pooler.dense.": "pooler.0.",
}


def read(model: Any) -> ViT:
    """A ``ViTModel``, returning its last hidden state (pooler: ``pooled``), or a classifier."""
    base = getattr(model, "vit", model)
    config = base.config
    embeddings = base.embeddings
    refuse_mask_token(embeddings)
    with torch.device("meta"):
        if base is model:
            num_classes = None
        else:
            num_classes = config.num_labels
        new_model = ViT(
            embeddings.patch_embeddings.image_size,
            embeddings.patch_embeddings.patch_size,
            *sizes(config),
            channels=config.num_channels,
            num_classes=num_classes,
            head_dim=base.layers[0].attention.head_dim,
            activation=activation(config.hidden_act),
            eps=config.layer_norm_eps,
        )
        if getattr(base, "pooler", None) is not None:
            pooler = nn.Linear(config.hidden_size, base.pooler.dense.out_features)
            new_model.pooler = nn.Sequential(pooler, deepcopy(base.pooler.activation))
    fill(new_model, renamed(model, NAMES))
    new_model.dropout.p = config.hidden_dropout_prob
    set_dropouts(
        new_model.encoder.layers, config.attention_probs_dropout_prob, config.hidden_dropout_prob
    )
    return new_model.train(model.training)
