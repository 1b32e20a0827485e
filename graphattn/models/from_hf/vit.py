"""ViT of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ..patches import PatchTransformer
from ..vit import ViT
from .layers import activation, fill, pair, refuse_mask_token


def read(model: Any) -> ViT:
    """A ``ViTForImageClassification``, or a ``ViTModel``, whose pooler becomes the head."""
    base = getattr(model, "vit", model)
    config, patches = base.config, base.embeddings.patch_embeddings
    made = ViT(
        pair(patches.image_size),
        pair(patches.patch_size),
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
        channels=config.num_channels,
        activation=activation(config),
        head_dim=base.layers[0].attention.head_dim,
    )
    refuse_mask_token(base.embeddings)
    return copy_patched(made, model, base)


def copy_patched(made: Any, model: Any, base: Any) -> Any:
    """Copy what ViT and ViViT share into a model of their sizes."""
    embeddings = base.embeddings
    target: PatchTransformer = made.to(embeddings.cls_token)
    target.patches.projection = deepcopy(embeddings.patch_embeddings.projection)
    with torch.no_grad():
        target.class_token.copy_(embeddings.cls_token.flatten())
        target.positions.weight.copy_(embeddings.position_embeddings[0])
    target.dropout = deepcopy(embeddings.dropout)
    for block, layer in zip(target.encoder.layers, base.layers, strict=True):
        fill(block, layer, base.config)  # type: ignore[arg-type]
    target.encoder.norm = deepcopy(base.layernorm)
    if base is not model:
        target.head = deepcopy(model.classifier)
    elif base.pooler is not None:
        target.head = nn.Sequential(deepcopy(base.pooler.dense), deepcopy(base.pooler.activation))
    return made.train(model.training)
