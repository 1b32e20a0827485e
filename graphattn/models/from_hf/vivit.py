"""ViViT of ``transformers``."""

from typing import Any

from ..vivit import ViViT
from .layers import activation, pair
from .vit import copy_patched


def read(model: Any) -> ViViT:
    """A ``VivitForVideoClassification``, or a ``VivitModel``, whose pooler becomes the head.

    Videos are (B, channels, time, height, width) here; theirs have time before the channels.
    """
    base = getattr(model, "vivit", model)
    config = base.config
    made = ViViT(
        (config.num_frames, *pair(config.image_size)),
        tuple(config.tubelet_size),
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
        channels=config.num_channels,
        activation=activation(config),
        head_dim=base.layers[0].attention.head_dim,
    )
    return copy_patched(made, model, base)
