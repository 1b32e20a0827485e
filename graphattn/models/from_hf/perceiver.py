"""Perceiver IO of ``transformers``."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from ...errors import OptionError
from ...nn import GraphAttention
from ..perceiver import Perceiver
from .text import activation


def read(model: Any) -> Perceiver:
    """A ``PerceiverModel``, without a decoder or with one whose queries are learned.

    Inputs are what its ``input_preprocessor`` makes, where it has one; pre- and postprocessor are not part of ours.
    """
    config, encoder = model.config, model.encoder
    decoder = getattr(model.decoder, "decoder", model.decoder)
    queries = None if decoder is None else _queries(decoder)
    latent = encoder.self_attends[0].attention.self
    made = Perceiver(
        config.num_latents,
        config.d_latents,
        encoder.cross_attention.attention.self.key.in_features,
        len(encoder.self_attends),
        config.num_self_attention_heads,
        num_blocks=config.num_blocks,
        read=_reading(encoder.cross_attention, config),
        outputs=None if queries is None else tuple(queries.shape),  # type: ignore[arg-type]
        write=None if decoder is None else _reading(decoder.decoding_cross_attention, config),
        hidden=encoder.self_attends[0].mlp.dense1.out_features,
        head_dim=latent.qk_channels_per_head,
        value_dim=latent.v_channels_per_head,
        activation=activation(config.hidden_act),
    )
    made.to(model.embeddings.latents)
    with torch.no_grad():
        made.latents.copy_(model.embeddings.latents)
        if queries is not None and made.queries is not None:
            made.queries.copy_(queries)
    _fill_reading(made.read, encoder.cross_attention)
    for block, layer in zip(made.encoder.layers, encoder.self_attends, strict=True):
        _fill_block(block, layer)
    if made.write is not None:
        _fill_reading(made.write, decoder.decoding_cross_attention)
        made.head = nn.Sequential(deepcopy(decoder.final_layer))
        if decoder is not model.decoder:  # one query, for classes
            made.head.append(nn.Flatten(-2))
    return made.train(model.training)


def _queries(decoder: Any) -> torch.Tensor:
    if getattr(decoder, "position_encoding_type", None) != "trainable" or decoder.concat_preprocessed_input:
        raise OptionError(
            f"expected a decoder whose queries are trainable and read no input, got a {type(decoder).__name__}; "
            "read the model without it, model.decoder = None"
        )
    return decoder.positions_projection(decoder.output_position_encodings.position_embeddings).detach()


def _reading(layer: Any, config: Any) -> dict[str, Any]:
    return {
        "num_heads": layer.attention.self.num_heads,
        "inner": layer.attention.self.qk_channels,
        "value_inner": layer.attention.self.v_channels,
        "hidden": layer.mlp.dense1.out_features,
        "residual": layer.attention.use_query_residual,
        "activation": activation(config.hidden_act),
    }


def _fill_attention(ours: GraphAttention, theirs: Any) -> None:
    for to, name in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value")):
        setattr(ours, to, deepcopy(getattr(theirs.self, name)))
    ours.out_proj, ours.dropout = deepcopy(theirs.output.dense), theirs.self.dropout.p


def _fill_feed_forward(ours: Any, theirs: Any) -> None:
    ours.feed_forward_norm = deepcopy(theirs.layernorm)
    ours.feed_forward.up, ours.feed_forward.down = deepcopy(theirs.mlp.dense1), deepcopy(theirs.mlp.dense2)


def _fill_reading(ours: Any, theirs: Any) -> None:
    _fill_attention(ours.attention, theirs.attention)
    ours.norm = deepcopy(theirs.attention.self.layernorm1)
    ours.source_norm = deepcopy(theirs.attention.self.layernorm2)
    _fill_feed_forward(ours, theirs)


def _fill_block(ours: Any, theirs: Any) -> None:
    _fill_attention(ours.attention, theirs.attention)
    ours.attention_norm = deepcopy(theirs.attention.self.layernorm1)
    _fill_feed_forward(ours, theirs)
