"""What the readers of vision models share: their layers have the same parts under the same names."""

from copy import deepcopy
from typing import Any

from torch import nn

from ...errors import OptionError
from .text import activation


def pair(size: Any) -> tuple[int, int]:
    """(height, width) of what a configuration may give as one number."""
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def widths(config: Any) -> tuple[int, int, int, int]:
    """Layers, C, H and the width of the feed-forwards."""
    return config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.intermediate_size


def options(config: Any) -> dict[str, Any]:
    """The options that all models of patches share."""
    return {"channels": config.num_channels, "activation": activation(config.hidden_act)}


def refuse_mask_token(embeddings: Any) -> None:
    """Refuse a token in place of masked patches, which our models do not have."""
    if getattr(embeddings, "mask_token", None) is not None:
        raise OptionError("the model was built with use_mask_token=True, for which there is no place")


NAMES = {
    "attention.q_proj": "attention.q_proj",
    "attention.k_proj": "attention.k_proj",
    "attention.v_proj": "attention.v_proj",
    "attention.out_proj": "attention.o_proj",
    "feed_forward.up": "mlp.fc1",
    "feed_forward.down": "mlp.fc2",
    "attention_norm": "layernorm_before",
    "feed_forward_norm": "layernorm_after",
}
"""Parts of our blocks -> those of the layers of ViT, DeiT and Swin."""
FEED_FORWARD = {"feed_forward.up": "intermediate.dense", "feed_forward.down": "output.dense"}


def copy_parts(ours: nn.Module, theirs: nn.Module, names: dict[str, str]) -> None:
    """Put copies of the parts of one module into another, under other names."""
    for to, name in names.items():
        owner, _, leaf = to.rpartition(".")
        setattr(ours.get_submodule(owner), leaf, deepcopy(theirs.get_submodule(name)))
