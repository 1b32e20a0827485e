"""TimeSformer of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ...errors import OptionError
from ...nn import GraphAttention
from ..timesformer import DividedBlock, TimeSformer
from ..vivit import ViViT
from .layers import activation, pair


def read(model: Any) -> TimeSformer | ViViT:
    """A ``TimesformerForVideoClassification`` or ``TimesformerModel``.

    With joint space-time attention it is a :class:`ViViT` of tubelets one frame long; its positions are those of space
    plus those of time. Videos are (B, channels, time, height, width) here; theirs have time before the channels. Their
    dropout is 0, or the model is refused.
    """
    base = getattr(model, "timesformer", model)
    config, embeddings = base.config, base.embeddings
    kinds = {"divided_space_time": _divided, "joint_space_time": _joint}
    if config.attention_type not in kinds:
        raise OptionError(f"attention_type must be one of {', '.join(kinds)}; got {config.attention_type!r}")
    if config.hidden_dropout_prob or config.attention_probs_dropout_prob:
        raise OptionError("hidden_dropout_prob and attention_probs_dropout_prob must be 0")
    made = kinds[config.attention_type](base, config)
    with torch.no_grad():
        made.class_token.copy_(embeddings.cls_token.flatten())
        of_frames = embeddings.patch_embeddings.projection
        made.patches.projection.weight.copy_(of_frames.weight.unsqueeze(2))
        made.patches.projection.bias.copy_(of_frames.bias)
    if base is not model:
        made.head = deepcopy(model.classifier)
    return made.train(model.training)


def _sizes(config: Any) -> tuple[Any, ...]:
    layers = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.intermediate_size)
    return (config.num_frames, *pair(config.image_size)), pair(config.patch_size), layers


def _divided(base: Any, config: Any) -> Any:
    size, patch, layers = _sizes(config)
    options = {"channels": config.num_channels, "activation": activation(config), "drop_path": config.drop_path_rate}
    made = TimeSformer(size, patch, *layers, **options).to(base.layernorm.weight)
    with torch.no_grad():
        made.space_positions.copy_(base.embeddings.position_embeddings[0])
        made.time_positions.copy_(base.embeddings.time_embeddings[0])
    for block, layer in zip(made.layers, base.encoder.layer, strict=True):
        _fill(block, layer)  # type: ignore[arg-type]
    made.norm = deepcopy(base.layernorm)
    return made


def _joint(base: Any, config: Any) -> Any:
    if config.drop_path_rate:
        raise OptionError("drop_path_rate must be 0 with joint_space_time")
    size, patch, layers = _sizes(config)
    options = {"channels": config.num_channels, "activation": activation(config)}
    made: Any = ViViT(size, (1, *patch), *layers, **options).to(base.layernorm.weight)
    space, time = base.embeddings.position_embeddings[0], base.embeddings.time_embeddings[0]
    with torch.no_grad():
        made.positions.weight.copy_(torch.cat((space[:1], (space[1:] + time.unsqueeze(1)).flatten(0, 1))))
    for block, layer in zip(made.encoder.layers, base.encoder.layer, strict=True):
        _fill_attention(block.attention, layer.attention)
        block.attention_norm, block.feed_forward_norm = (
            deepcopy(layer.layernorm_before),
            deepcopy(layer.layernorm_after),
        )
        _fill_feed_forward(block, layer)
    made.encoder.norm = deepcopy(base.layernorm)
    return made


def _fill(block: DividedBlock, layer: Any) -> None:
    _fill_attention(block.time_attention, layer.temporal_attention)
    _fill_attention(block.space_attention, layer.attention)
    block.time_dense, block.time_norm = deepcopy(layer.temporal_dense), deepcopy(layer.temporal_layernorm)
    block.space_norm, block.feed_forward_norm = deepcopy(layer.layernorm_before), deepcopy(layer.layernorm_after)
    _fill_feed_forward(block, layer)


def _fill_feed_forward(block: Any, layer: Any) -> None:
    block.feed_forward.up = deepcopy(layer.intermediate.dense)
    block.feed_forward.down = deepcopy(layer.output.dense)


def _fill_attention(mine: GraphAttention, theirs: Any) -> None:
    joint = theirs.attention.qkv
    for number, name in enumerate(("q_proj", "k_proj", "v_proj")):
        linear = nn.Linear(mine.embed_dim, mine.embed_dim, joint.bias is not None).to(joint.weight)
        with torch.no_grad():
            linear.weight.copy_(joint.weight.chunk(3)[number])
            if joint.bias is not None:
                linear.bias.copy_(joint.bias.chunk(3)[number])
        setattr(mine, name, linear)
    mine.out_proj = deepcopy(theirs.output.dense)
