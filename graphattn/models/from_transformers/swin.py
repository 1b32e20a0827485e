"""Swin V2 of ``transformers``."""

from typing import Any

import torch

from ...errors import OptionError
from ..images.patches import sides
from ..images.swin import Swin
from ..images.swin_stage import cell_sides
from .weights import activation, fill, refuse_mask_token, renamed

NAMES = {
    "^swinv2.": "",
    "embeddings.patch_embeddings.": "patches.",
    "embeddings.norm.": "patch_norm.",
    "encoder.layers.": "stages.",
    "blocks.(\\d+).attention.self.continuous_position_bias_mlp.": "biases.\\1.mlp.",
    ".blocks.": ".layers.",
    ".attention.self.logit_scale": ".attention.score.log_scale",
    ".attention.self.([qkv])\\w+.": ".attention.\\1_proj.",
    ".attention.output.dense.": ".attention.out_proj.",
    ".layernorm_before.": ".end_norm.attention.1.",
    ".layernorm_after.": ".end_norm.feed_forward.1.",
    ".intermediate.dense.": ".feed_forward.up.",
    ".output.dense.": ".feed_forward.down.",
    ".downsample.": ".merge.",
    "^layernorm.": "norm.",
    "^classifier.": "head.",
}


def read(model: Any) -> Swin:
    """A ``Swinv2Model``, which returns its last hidden state, or one with a classifier of the mean.

    Ours is equal for images of the configuration's size; theirs keeps the windows of that size for
    all others.
    """
    base = getattr(model, "swinv2", model)
    config = base.config
    stages = base.encoder.layers
    refuse_mask_token(base.embeddings)
    if base.embeddings.position_embeddings is not None:
        raise OptionError(
            "use_absolute_embeddings = True is not supported, since Swin V2's own model cannot "
            "run it"
        )
    # of four stages by default, however many there are; a cell is less than the window where the
    # image is small
    trained = config.pretrained_window_sizes or (0,) * len(stages)
    with torch.device("meta"):
        if base is model:
            num_classes = None
        else:
            num_classes = config.num_labels
        new_model = Swin(
            config.embed_dim,
            tuple(config.depths),
            tuple(config.num_heads),
            config.window_size,
            sides("patch", config.patch_size, ("height", "width")),
            hidden_ratio=config.mlp_ratio,
            channels=config.num_channels,
            num_classes=num_classes,
            drop_path=config.drop_path_rate,
            activation=activation(config.hidden_act),
            eps=config.layer_norm_eps,
            version=2,
            pretrained_window=tuple(
                side or stage.blocks[0].window_size
                for side, stage in zip(trained, stages, strict=False)
            ),
        )
    fill(new_model, renamed(model, NAMES))
    new_model.norm.eps = config.layer_norm_eps
    new_model.dropout.p = config.hidden_dropout_prob
    size: Any = sides("image_size", config.image_size, ("height", "width"))
    for stage, grid, hf_stage in zip(new_model.stages, new_model.grids(size), stages, strict=True):
        _finish(stage, grid, hf_stage.blocks, config)
    return new_model.train(model.training)


def _finish(stage: Any, grid: Any, hf_blocks: Any, config: Any) -> None:
    """Set dropouts, and refuse cells that follow from the height alone or a grid rounded down."""
    (side, _), moved = cell_sides(grid, stage.window), min(grid) > stage.window
    for number, (block, layer) in enumerate(zip(stage.layers, hf_blocks, strict=True)):
        block.attention.dropout = config.attention_probs_dropout_prob
        block.end_norm["attention"][0].p = config.attention_probs_dropout_prob
        block.end_norm["feed_forward"][0].p = config.hidden_dropout_prob
        shift = 0
        if moved and number % 2:
            shift = side // 2
        if (layer.window_size, layer.shift_size) != (side, shift):
            raise OptionError(
                f"image_size = {config.image_size} gives a stage of {grid} nodes, which "
                f"window_size = {stage.window} reads in cells of {layer.window_size} there and of "
                f"{side} here; choose one that the window divides"
            )
