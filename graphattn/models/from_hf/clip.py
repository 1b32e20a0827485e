"""CLIP of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ...errors import OptionError
from ..clip import CLIP, CLIPText
from ..vit import ViT
from .layers import activation, copy_parts, pair, widths

NAMES = {
    "attention.q_proj": "self_attn.q_proj",
    "attention.k_proj": "self_attn.k_proj",
    "attention.v_proj": "self_attn.v_proj",
    "attention.out_proj": "self_attn.out_proj",
    "attention_norm": "layer_norm1",
    "feed_forward_norm": "layer_norm2",
    "feed_forward.up": "mlp.fc1",
    "feed_forward.down": "mlp.fc2",
}


def read(model: Any) -> CLIP | CLIPText | ViT:
    """A ``CLIPModel``; or one of its towers, which gives its last hidden state, or with a projection its vectors.

    Their last hidden state of an image is before their last norm, which is of the class token alone: ``pooled``.
    """
    kind = type(model).__name__
    if kind == "CLIPModel":
        made = CLIP(
            _vision(model.vision_model, model.visual_projection), _text(model.text_model, model.text_projection)
        )
        made.to(model.logit_scale)
        with torch.no_grad():
            made.log_scale.copy_(model.logit_scale)
        return made.train(model.training)
    if kind.startswith("CLIPVision"):
        tower: Any = _vision(getattr(model, "vision_model", model), getattr(model, "visual_projection", None))
    else:
        tower = _text(getattr(model, "text_model", model), getattr(model, "text_projection", None))
    return tower.train(model.training)


def _vision(base: Any, head: Any) -> ViT:
    config, embeddings = base.config, base.embeddings
    made = ViT(
        pair(config.image_size),
        pair(config.patch_size),
        *widths(config),
        channels=config.num_channels,
        activation=activation(config),
        final_norm=False,
    )
    made.to(embeddings.class_embedding)
    copy_parts(made, base, {"first_norm": "pre_layrnorm", "pooler": "post_layernorm"})
    made.patches.projection = deepcopy(embeddings.patch_embedding)
    with torch.no_grad():
        made.tokens.copy_(embeddings.class_embedding.unsqueeze(0))
        made.positions.weight.copy_(embeddings.position_embedding.weight)
    made.head = deepcopy(head)
    _fill(made.encoder.layers, base)
    return made


def _text(base: Any, head: Any) -> CLIPText:
    config = base.config
    if not isinstance(config.eos_token_id, int):
        raise OptionError(f"eos_token_id = {config.eos_token_id!r} cannot be read; only one number can")
    made = CLIPText(
        config.vocab_size,
        config.hidden_size,
        config.num_attention_heads,
        config.num_hidden_layers,
        config.intermediate_size,
        max_len=config.max_position_embeddings,
        eos=None if base.eos_token_id == 2 else base.eos_token_id,  # 2 stands for the largest, as they explain
        activation=activation(config),
    )
    made.to(base.final_layer_norm.weight)
    copy_parts(made, base, {"embedding": "embeddings.token_embedding", "stack.norm": "final_layer_norm"})
    with torch.no_grad():
        made.position.weight.copy_(base.embeddings.position_embedding.weight)
    made.head = deepcopy(head)
    _fill(made.stack.layers, base)
    return made


def _fill(blocks: nn.ModuleList, base: Any) -> None:
    block: Any
    for block, layer in zip(blocks, base.encoder.layers, strict=True):
        copy_parts(block, layer, NAMES)
        block.attention.dropout = base.config.attention_dropout
