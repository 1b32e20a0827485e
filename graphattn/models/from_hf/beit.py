"""BEiT of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch

from ...errors import OptionError
from ..beit import BEiT
from .layers import fill, options, pair, refuse_mask_token, widths


def read(model: Any) -> BEiT:
    """A ``BeitModel``, whose last hidden state ours gives, and its pooler by ``pooled``; or one with a classifier."""
    base = getattr(model, "beit", model)
    config, embeddings = base.config, base.embeddings
    refuse_mask_token(embeddings)
    each, shared = config.use_relative_position_bias, config.use_shared_relative_position_bias
    height, width = pair(config.image_size)
    if each and shared:
        raise OptionError("use_relative_position_bias and use_shared_relative_position_bias cannot be read together")
    if (each or shared) and height != width:
        raise OptionError(f"image_size = {config.image_size} has positions that theirs takes for others; only a square")
    made = BEiT(
        (height, width),
        pair(config.patch_size),
        *widths(config),
        relative="each" if each else "shared" if shared else "none",
        absolute=config.use_absolute_position_embeddings,
        layer_scale=max(config.layer_scale_init_value, 0),
        mean=config.use_mean_pooling,
        drop_path=config.drop_path_rate,
        head_dim=base.layers[0].attention.head_dim,
        **options(config),
    )
    parts: Any = made.to(embeddings.cls_token)
    parts.patches.projection = deepcopy(embeddings.patch_embeddings.projection)
    with torch.no_grad():
        parts.tokens.copy_(embeddings.cls_token[0])
        if embeddings.position_embeddings is not None:
            parts.positions.weight.copy_(embeddings.position_embeddings[0])
    parts.dropout = deepcopy(embeddings.dropout)
    theirs = [base.shared_position_bias] if shared else [layer.relative_position_bias for layer in base.layers]
    for bias, table in zip(parts.biases, theirs, strict=bool(each or shared)):
        bias.table.weight = deepcopy(table.relative_position_bias_table)
    for block, layer in zip(parts.encoder.layers, base.layers, strict=True):
        fill(block, layer, config)
        if block.end_norm is not None:
            block.end_norm["attention"].weight = deepcopy(layer.lambda_1)
            block.end_norm["feed_forward"].weight = deepcopy(layer.lambda_2)
    _fill_norms(parts, model, base, config.use_mean_pooling)
    return made.train(model.training)


def _fill_norms(made: Any, model: Any, base: Any, mean: bool) -> None:
    if not mean:
        made.encoder.norm = deepcopy(base.layernorm)
    elif base.pooler is not None:
        made.pooler = deepcopy(base.pooler.layernorm)
    if base is not model:
        made.head = deepcopy(model.classifier)
