"""Perceiver IO of ``transformers``."""

from typing import Any

import torch
from torch import Tensor, nn

from ...errors import OptionError
from ..images.perceiver import Perceiver
from .weights import activation, fill, renamed

NAMES = {
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


def read(model: Any) -> Perceiver:
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
    state = renamed(model, NAMES) | extra
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
