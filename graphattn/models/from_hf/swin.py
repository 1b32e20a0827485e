"""Swin and Swin V2 of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ...errors import OptionError
from ...nn import LearnedPosition
from ..swin import Swin
from ..swin_stage import SwinStage, cell_sides
from .layers import FEED_FORWARD, NAMES, copy_parts, pair, refuse_mask_token
from .text import activation, set_dropouts

V2_NAMES = {
    "attention.q_proj": "attention.self.query",
    "attention.k_proj": "attention.self.key",
    "attention.v_proj": "attention.self.value",
    "attention.out_proj": "attention.output.dense",
    "end_norm.attention.1": "layernorm_before",
    "end_norm.feed_forward.1": "layernorm_after",
    **FEED_FORWARD,
}


def read(model: Any) -> Swin:
    """A ``SwinModel`` or ``Swinv2Model``, which gives its last hidden state, or one with a classifier of their mean.

    Theirs of version 1 drops paths in the attentions alone, ours as in the paper's code on both branches. Of version 2
    ours is the same for images of the configuration's size: theirs keeps the cells of that for all others.
    """
    base = getattr(model, model.base_model_prefix, model)
    config, embeddings = base.config, base.embeddings
    is_v2 = base.base_model_prefix == "swinv2"
    made = Swin(
        config.embed_dim,
        tuple(config.depths),
        tuple(config.num_heads),
        config.window_size,
        pair(config.patch_size),
        hidden_ratio=config.mlp_ratio,
        channels=config.num_channels,
        drop_path=config.drop_path_rate,
        activation=activation(config.hidden_act),
        version=2 if is_v2 else 1,
        pretrained_window=_trained(base, config) if is_v2 else None,
    )
    refuse_mask_token(embeddings)
    made.to(base.layernorm.weight)
    made.patches.projection = deepcopy(embeddings.patch_embeddings.projection)
    made.patch_norm, made.dropout = deepcopy(embeddings.norm), deepcopy(embeddings.dropout)
    if embeddings.position_embeddings is not None:
        if is_v2:
            raise OptionError("use_absolute_embeddings = True cannot be read of Swin V2, whose own model cannot run it")
        made.positions = LearnedPosition(*embeddings.position_embeddings.shape[1:]).to(base.layernorm.weight)
        with torch.no_grad():
            made.positions.weight.copy_(embeddings.position_embeddings[0])
    for stage, theirs in zip(made.stages, base.encoder.layers, strict=True):
        (_fill_v2 if is_v2 else _fill)(stage, theirs, config)  # type: ignore[arg-type]
        if stage.merge is not None:
            copy_parts(stage.merge, theirs.downsample, {"norm": "norm", "reduction": "reduction"})  # type: ignore
    if is_v2:
        _check_cells(made, base)
    made.norm = deepcopy(base.layernorm)
    if base is not model:
        made.head = deepcopy(model.classifier)
    return made.train(model.training)


def _fill(stage: SwinStage, theirs: Any, config: Any) -> None:
    bias: Any
    for block, bias, layer in zip(stage.layers, stage.biases, theirs.blocks, strict=True):
        copy_parts(block, layer, NAMES)
        bias.table.weight = deepcopy(layer.attention.relative_position_bias.relative_position_bias_table)
    set_dropouts(stage.layers, config.attention_probs_dropout_prob, config.hidden_dropout_prob)


def _fill_v2(stage: SwinStage, theirs: Any, config: Any) -> None:
    block: Any
    for block, bias, layer in zip(stage.layers, stage.biases, theirs.blocks, strict=True):
        copy_parts(block, layer, V2_NAMES)
        bias.mlp = deepcopy(layer.attention.self.continuous_position_bias_mlp)
        with torch.no_grad():
            block.attention.score.log_scale.copy_(layer.attention.self.logit_scale.flatten(1))
        block.attention.dropout = config.attention_probs_dropout_prob
        block.end_norm["attention"][0] = nn.Dropout(config.attention_probs_dropout_prob)
        block.end_norm["feed_forward"][0] = nn.Dropout(config.hidden_dropout_prob)


def _trained(base: Any, config: Any) -> tuple[int, ...]:
    """Theirs, or the cell's side, which is less than the window where the configured image is small."""
    stages = base.encoder.layers
    sides = config.pretrained_window_sizes or (0,) * len(stages)  # of four stages by default, however many there are
    return tuple(side or stage.blocks[0].window_size for side, stage in zip(sides, stages, strict=False))


def _check_cells(made: Swin, base: Any) -> None:
    """Their cells follow from the height alone, and from a grid rounded down; refused where ours are others."""
    size = pair(base.config.image_size)
    stage: Any
    for stage, grid, theirs in zip(made.stages, made.grids(size), base.encoder.layers, strict=True):
        (side, _), moved = cell_sides(grid, stage.window), min(grid) > stage.window
        for number, layer in enumerate(theirs.blocks):
            if (layer.window_size, layer.shift_size) != (side, side // 2 if moved and number % 2 else 0):
                raise OptionError(
                    f"image_size = {size} gives a stage of {grid} nodes, which window_size = {stage.window} reads in "
                    f"cells of {layer.window_size} there and of {side} here; choose one that the window divides"
                )
