"""Swin of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch

from ...nn import LearnedPosition
from ..swin import Swin
from ..swin_stage import SwinStage
from .layers import activation, fill, pair, refuse_mask_token


def read(model: Any) -> Swin:
    """A ``SwinForImageClassification``, or a ``SwinModel``, which has no head (its pooler is the mean of the features).

    Theirs drops paths in the attentions alone, ours as in the paper's code on both branches.
    """
    base = getattr(model, "swin", model)
    config, embeddings = base.config, base.embeddings
    made = Swin(
        config.embed_dim,
        tuple(config.depths),
        tuple(config.num_heads),
        config.window_size,
        pair(config.patch_size),
        hidden_ratio=config.mlp_ratio,
        channels=config.num_channels,
        drop_path=config.drop_path_rate,
        activation=activation(config),
    )
    refuse_mask_token(embeddings)
    made.to(base.layernorm.weight)
    made.patches.projection = deepcopy(embeddings.patch_embeddings.projection)
    made.patch_norm, made.dropout = deepcopy(embeddings.norm), deepcopy(embeddings.dropout)
    if embeddings.position_embeddings is not None:
        made.positions = LearnedPosition(*embeddings.position_embeddings.shape[1:]).to(base.layernorm.weight)
        with torch.no_grad():
            made.positions.weight.copy_(embeddings.position_embeddings[0])
    for stage, theirs in zip(made.stages, base.encoder.layers, strict=True):
        _fill_stage(stage, theirs, config)  # type: ignore[arg-type]
    made.norm = deepcopy(base.layernorm)
    if base is not model:
        made.head = deepcopy(model.classifier)
    return made.train(model.training)


def _fill_stage(stage: SwinStage, theirs: Any, config: Any) -> None:
    bias: Any
    for block, bias, layer in zip(stage.layers, stage.biases, theirs.blocks, strict=True):
        fill(block, layer, config)  # type: ignore[arg-type]
        bias.table.weight = deepcopy(layer.attention.relative_position_bias.relative_position_bias_table)
    if stage.merge is not None:
        stage.merge.norm = deepcopy(theirs.downsample.norm)
        stage.merge.reduction = deepcopy(theirs.downsample.reduction)
