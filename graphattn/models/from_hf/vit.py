"""ViT and DeiT of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ..vit import ViT
from .layers import NAMES, copy_parts, options, pair, refuse_mask_token, widths
from .text import set_dropouts


def read(model: Any) -> ViT:
    """A ``ViTModel``, whose last hidden state ours gives, and its pooler by ``pooled``; or one with a classifier.

    DeiT's distillation token is the second node.
    """
    base = getattr(model, model.base_model_prefix, model)
    embeddings = base.embeddings
    refuse_mask_token(embeddings)
    names = [name for name in ("cls_token", "distillation_token") if getattr(embeddings, name, None) is not None]
    tokens = [getattr(embeddings, name)[0, 0] for name in names]
    made = ViT(
        pair(embeddings.patch_embeddings.image_size),
        pair(embeddings.patch_embeddings.patch_size),
        *widths(base.config),
        num_tokens=len(tokens),
        head_dim=base.layers[0].attention.head_dim,
        **options(base.config),
    )
    made.to(embeddings.cls_token)
    made.patches.projection = deepcopy(embeddings.patch_embeddings.projection)
    with torch.no_grad():
        made.tokens.copy_(torch.stack(tokens))
        made.positions.weight.copy_(embeddings.position_embeddings[0])
    made.dropout = deepcopy(embeddings.dropout)
    for block, layer in zip(made.encoder.layers, base.layers, strict=True):
        copy_parts(block, layer, NAMES)
    set_dropouts(made.encoder.layers, base.config.attention_probs_dropout_prob, base.config.hidden_dropout_prob)
    made.encoder.norm = deepcopy(base.layernorm)
    if base is not model:
        made.head = deepcopy(model.classifier)
    elif base.pooler is not None:
        made.pooler = nn.Sequential(deepcopy(base.pooler.dense), deepcopy(base.pooler.activation))
    return made.train(model.training)
