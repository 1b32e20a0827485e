"""Models of papers whose attention no patch reaches, with the weights of ``transformers``."""

from typing import Any

import torch
from torch import Tensor, nn

from graphattn import models
from graphattn.errors import OptionError
from graphattn.graphs import sliding_window
from graphattn.models.from_transformers import bert, t5
from graphattn.models.from_transformers.as_built import refuse_changes
from graphattn.models.from_transformers.weights import activation, fill, refuse, renamed, sizes

from .longformer import Longformer
from .longt5 import LongT5
from .perceiver import Perceiver
from .timesformer import TimeSformer


def from_transformers(model: Any) -> Any:
    """The model of this folder, or of :mod:`graphattn.models`, with the weights of another.

    As :func:`graphattn.models.from_transformers`, for the classes of :data:`READERS`, too.
    """
    name = type(model).__name__
    if name not in READERS:
        return models.from_transformers(model)
    refuse_changes(model)
    new_model = READERS[name](model)
    if any(p.requires_grad for p in model.parameters()):
        return new_model
    return new_model.requires_grad_(False)


LONGFORMER = {
    "^longformer.": "",
    "encoder.layer.(\\d+).attention.self.(\\w)\\w+_global.": "of_global.\\1.\\2_proj.",
    "lm_head.dense.": "head.dense.",
    "lm_head.layer_norm.": "head.norm.",
    "lm_head.decoder.": "head.out.",
    **bert.NAMES,
}


def read_longformer(model: Any) -> Longformer:
    """A ``LongformerModel``, or one ``ForMaskedLM``, which has a head and no pooler."""
    config = model.config
    base = getattr(model, model.base_model_prefix, model)
    words = base.embeddings.word_embeddings
    options = bert.options_of(model) | {"padding_idx": words.padding_idx}
    state = renamed(model, LONGFORMER)
    state.pop("lm_head.bias", None)  # the same tensor as the decoder's
    with torch.device("meta"):
        new_model = Longformer([w + 1 for w in config.attention_window], (), **options)
    fill(
        new_model,
        {name if name.startswith("of_global.") else f"text.{name}": x for name, x in state.items()},
    )
    bert.finish(new_model.text, model)
    if new_model.text.head is not None:
        new_model.text.head.activation = "gelu"  # for any hidden_act
    for attention in new_model.of_global:
        attention.dropout = config.attention_probs_dropout_prob
    return new_model.train(model.training)


LONGT5 = {
    "encoder.block.(\\d+).layer.0.TransientGlobalSelfAttention.global_input_layer_norm.": "encoder.summary_norms.\\1.",
    ".(Local|TransientGlobal)SelfAttention.": ".SelfAttention.",
    "encoder.block.0.layer.0.SelfAttention.global_relative_attention_bias.": "encoder.summary_bias.table.",
    **t5.NAMES,
}


def read_longt5(model: Any) -> LongT5:
    """A ``LongT5ForConditionalGeneration``."""
    config = model.config
    summary_block = None
    if config.encoder_attention_type != "local":
        summary_block = config.global_block_size
    window = sliding_window(..., 2 * config.local_radius + 1, causal=False)
    with torch.device("meta"):
        new_model = LongT5(**t5.options_of(model), source_graph=window, summary_block=summary_block)
    return t5.finish(new_model, model, renamed(model, LONGT5))


PERCEIVER = {
    "^decoder.decoder.": "decoder.",
    "^embeddings.latents": "latents",
    "^encoder.cross_attention.": "read.",
    "^encoder.self_attends.": "encoder.layers.",
    "^decoder.decoding_cross_attention.": "write.",
    "^decoder.final_layer.": "head.0.",
    ".attention.self.([qkv])\\w+.": ".attention.\\1_proj.",
    ".attention.output.dense.": ".attention.out_proj.",
    "(read|write).attention.self.layernorm1.": "\\1.norm.",
    ".attention.self.layernorm1.": ".attention_norm.",
    ".attention.self.layernorm2.": ".source_norm.",
    ".layernorm.": ".feed_forward_norm.",
    ".mlp.dense1.": ".feed_forward.up.",
    ".mlp.dense2.": ".feed_forward.down.",
}


def read_perceiver(model: Any) -> Perceiver:
    """A ``PerceiverModel``, without a decoder or with one whose queries are learned.

    Inputs are the outputs of its ``input_preprocessor``, if any; pre- and postprocessor are not
    part of our model.
    """
    config = model.config
    encoder = model.encoder
    decoder = getattr(model.decoder, "decoder", model.decoder)
    queries = None
    outputs: Any = None
    write = None
    if decoder is not None:
        queries = _queries(decoder)
        outputs = tuple(queries.shape)
    latent = encoder.self_attends[0].attention.self
    with torch.device("meta"):
        if decoder is not None:
            write = _reading(decoder.decoding_cross_attention, config)
        new_model = Perceiver(
            config.num_latents,
            config.d_latents,
            encoder.cross_attention.attention.self.key.in_features,
            len(encoder.self_attends),
            config.num_self_attention_heads,
            num_blocks=config.num_blocks,
            read=_reading(encoder.cross_attention, config),
            outputs=outputs,
            write=write,
            hidden=encoder.self_attends[0].mlp.dense1.out_features,
            head_dim=latent.qk_channels_per_head,
            value_dim=latent.v_channels_per_head,
            activation=activation(config.hidden_act),
        )
        if decoder is not None:
            new_model.head = nn.Sequential(
                nn.Linear(decoder.final_layer.in_features, decoder.final_layer.out_features)
            )
            if decoder is not model.decoder:  # one query, for classes
                new_model.head.append(nn.Flatten(-2))
    extra = {}
    if queries is not None:
        extra = {"queries": queries}
    state = renamed(model, PERCEIVER) | extra
    others = ("decoder.", "input_preprocessor.", "output_postprocessor.")
    fill(new_model, {name: x for name, x in state.items() if not name.startswith(others)})
    for block in (new_model.read, new_model.write, *new_model.encoder.layers):
        if block is not None:
            block.attention.dropout = config.attention_probs_dropout_prob
    return new_model.train(model.training)


def _queries(decoder: Any) -> Tensor:
    if (
        getattr(decoder, "position_encoding_type", None) != "trainable"
        or decoder.concat_preprocessed_input
    ):
        raise OptionError(
            "expected a decoder with trainable queries that read no input, got a "
            f"{type(decoder).__name__}; convert the model without it, model.decoder = None"
        )
    return decoder.positions_projection(
        decoder.output_position_encodings.position_embeddings
    ).detach()


def _reading(layer: Any, config: Any) -> dict[str, Any]:
    return {
        "num_heads": layer.attention.self.num_heads,
        "inner": layer.attention.self.qk_channels,
        "value_inner": layer.attention.self.v_channels,
        "hidden": layer.mlp.dense1.out_features,
        "residual": layer.attention.use_query_residual,
        "activation": activation(config.hidden_act),
    }


TIMESFORMER = {
    "^timesformer.": "",
    "embeddings.cls_token": "class_token",
    "embeddings.position_embeddings": "space_positions",
    "embeddings.time_embeddings": "time_positions",
    "embeddings.patch_embeddings.": "patches.",
    "encoder.layer.": "layers.",
    ".temporal_attention.": ".time_attention.",
    ".attention.attention.qkv.": ".space_attention.qkv.",
    ".attention.output.dense.": ".space_attention.out_proj.",
    ".time_attention.attention.qkv.": ".time_attention.qkv.",
    ".time_attention.output.dense.": ".time_attention.out_proj.",
    ".temporal_layernorm.": ".time_norm.",
    ".temporal_dense.": ".time_dense.",
    ".intermediate.dense.": ".feed_forward.up.",
    ".output.dense.": ".feed_forward.down.",
    ".layernorm_before.": ".space_norm.",
    ".layernorm_after.": ".feed_forward_norm.",
    "^layernorm.": "norm.",
    "^classifier.": "head.",
}


def read_timesformer(model: Any) -> TimeSformer:
    """A ``TimesformerForVideoClassification`` or ``TimesformerModel`` of divided attention.

    Videos are (B, channels, time, height, width) here; theirs have time before the channels. A
    model with dropout is refused.
    """
    base: Any = getattr(model, "timesformer", model)
    config = base.config
    refuse(
        config,
        attention_type="divided_space_time",
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    with torch.device("meta"):
        if base is model:
            num_classes = None
        else:
            num_classes = config.num_labels
        new_model = TimeSformer(
            (config.num_frames, config.image_size, config.image_size),
            config.patch_size,
            *sizes(config),
            channels=config.num_channels,
            num_classes=num_classes,
            activation=activation(config.hidden_act),
            drop_path=config.drop_path_rate,
        )
    fill(new_model, renamed(model, TIMESFORMER))
    for module in new_model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = config.layer_norm_eps
    return new_model.train(model.training)


READERS = {
    "LongformerForMaskedLM": read_longformer,
    "LongformerModel": read_longformer,
    "LongT5ForConditionalGeneration": read_longt5,
    "PerceiverModel": read_perceiver,
    "TimesformerForVideoClassification": read_timesformer,
    "TimesformerModel": read_timesformer,
}
"""Class in ``transformers`` -> the function here that converts it."""
