"""ViT and DeiT of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ..patches import PatchTransformer
from ..vit import ViT
from .layers import fill, options, pair, refuse_mask_token, widths


def read(model: Any) -> ViT:
    """A ``ViTModel``, whose last hidden state ours gives, and its pooler by ``pooled``; or one with a classifier.

    DeiT's distillation token is the second node.
    """
    base = getattr(model, model.base_model_prefix, model)
    embeddings, config = base.embeddings, base.config
    refuse_mask_token(embeddings)
    made = ViT(
        pair(embeddings.patch_embeddings.image_size),
        pair(embeddings.patch_embeddings.patch_size),
        *widths(config),
        num_tokens=len(_tokens(embeddings)),
        head_dim=base.layers[0].attention.head_dim,
        **options(config),
    )
    return copy_patched(made, model, base)


def _tokens(embeddings: Any) -> list[torch.Tensor]:
    names = ("cls_token", "distillation_token")
    return [getattr(embeddings, name)[0, 0] for name in names if getattr(embeddings, name, None) is not None]


def copy_patched(made: Any, model: Any, base: Any) -> Any:
    """Copy what ViT and ViViT share into a model of their sizes."""
    embeddings = base.embeddings
    target: PatchTransformer = made.to(embeddings.cls_token)
    target.patches.projection = deepcopy(embeddings.patch_embeddings.projection)
    with torch.no_grad():
        target.tokens.copy_(torch.stack(_tokens(embeddings)))
        target.positions.weight.copy_(embeddings.position_embeddings[0])
    target.dropout = deepcopy(embeddings.dropout)
    for block, layer in zip(target.encoder.layers, base.layers, strict=True):
        fill(block, layer, base.config)  # type: ignore[arg-type]
    target.encoder.norm = deepcopy(base.layernorm)
    if base is not model:
        target.head = deepcopy(model.classifier)
    elif base.pooler is not None:
        target.pooler = nn.Sequential(deepcopy(base.pooler.dense), deepcopy(base.pooler.activation))
    return made.train(model.training)
