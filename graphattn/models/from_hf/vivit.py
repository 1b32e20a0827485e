"""ViViT and VideoMAE of ``transformers``, whose videos have time before the channels; ours are (B, C, T, H, W)."""

from copy import deepcopy
from typing import Any

import torch

from ...errors import OptionError
from ..vivit import ViViT
from .layers import OLDER_NAMES, fill, options, pair, widths
from .vit import copy_patched


def read(model: Any) -> ViViT:
    """A ``VivitModel`` or ``VideoMAEModel``, whose last hidden state ours gives; or one with a classifier."""
    base = getattr(model, model.base_model_prefix, model)
    config = base.config
    size, tubelet = (config.num_frames, *pair(config.image_size)), config.tubelet_size
    if base.base_model_prefix == "videomae":
        made = ViViT(
            size,
            (tubelet, *pair(config.patch_size)),
            *widths(config),
            num_tokens=0,
            final_norm=base.layernorm is not None,
            **options(config),
        )
        return _copy_masked(made, model, base)
    head_dim = base.layers[0].attention.head_dim
    made = ViViT(size, tuple(tubelet), *widths(config), head_dim=head_dim, **options(config))
    return copy_patched(made, model, base)


def _copy_masked(made: ViViT, model: Any, base: Any) -> ViViT:
    """VideoMAE has no class token, fixed positions, and either a last norm or one of the mean."""
    made.to(base.embeddings.patch_embeddings.projection.weight)
    made.patches.projection = deepcopy(base.embeddings.patch_embeddings.projection)
    with torch.no_grad():
        made.positions.weight.copy_(base.embeddings.position_embeddings[0])
    made.positions.requires_grad_(False)
    for block, layer in zip(made.encoder.layers, base.encoder.layer, strict=True):
        fill(block, layer, base.config, OLDER_NAMES)  # type: ignore[arg-type]
    made.encoder.norm = deepcopy(base.layernorm)
    if base is not model:
        if model.fc_norm is None:
            raise OptionError("use_mean_pooling = False cannot be read with a classifier, which reads the first patch")
        made.pooler, made.head = deepcopy(model.fc_norm), deepcopy(model.classifier)
    return made.train(model.training)
