"""LongT5 of ``transformers``, whose encoder has windows, and T5 and Flan-T5, which have none."""

from typing import Any

import torch

from ...errors import OptionError
from ...graphs import sliding_window
from ..text.t5 import T5
from .weights import activation, fill, refuse, renamed

NAMES = {
    "encoder.block.(\\d+).layer.0.TransientGlobalSelfAttention.global_input_layer_norm.": "encoder.summary_norms.\\1.",
    ".(Local|TransientGlobal)SelfAttention.": ".SelfAttention.",
    "encoder.block.0.layer.0.SelfAttention.global_relative_attention_bias.": "encoder.summary_bias.table.",
    "(encoder|decoder).block.0.layer.0.SelfAttention.relative_attention_bias.": "\\1_bias.table.",
    "^shared.": "embedding.",
    "^lm_head.": "head.",
    ".final_layer_norm.": ".norm.",
    "decoder.block.(\\d+).layer.1.layer_norm.": "decoder.layers.\\1.cross_norm.",
    ".block.": ".layers.",
    ".layer.0.layer_norm.": ".attention_norm.",
    ".layer.[12].layer_norm.": ".feed_forward_norm.",
    ".layer.[012].": ".",
    ".EncDecAttention.": ".cross_attention.",
    ".SelfAttention.": ".attention.",
    ".([qkv]).": ".\\1_proj.",
    ".o.": ".out_proj.",
    ".DenseReluDense.wo.": ".feed_forward.down.",
    ".DenseReluDense.wi_0.": ".feed_forward.gate.",
    ".DenseReluDense.wi(_1)?.": ".feed_forward.up.",
}


def read(model: Any) -> T5:
    """A ``T5ForConditionalGeneration`` or ``LongT5ForConditionalGeneration``."""
    config = model.config
    refuse(config, is_encoder_decoder=True)
    if getattr(config, "is_causal", None) is not None:
        raise OptionError(
            f"is_causal = {config.is_causal} is not supported: it applies to encoder and decoder "
            "at once"
        )
    radius = getattr(config, "local_radius", None)
    kind = getattr(config, "encoder_attention_type", "local")
    words = model.shared.weight
    if any(part.embed_tokens.weight is not words for part in (model.encoder, model.decoder)):
        raise OptionError(
            "encoder and decoder must share one table of tokens, as with tie_word_embeddings=True"
        )
    tied = model.lm_head.weight is words
    act = activation(config.dense_act_fn)
    if config.is_gated_act:
        act = f"gated_{act}"
    source_graph = None
    if radius is not None:
        source_graph = sliding_window(..., 2 * radius + 1, causal=False)
    summary_block = None
    if kind != "local":
        summary_block = config.global_block_size
    with torch.device("meta"):
        new_model = T5(
            config.vocab_size,
            config.d_model,
            config.num_heads,
            config.num_layers,
            config.d_ff,
            num_decoder_layers=config.num_decoder_layers,
            head_dim=config.d_kv,
            activation=act,
            tied=tied,
            scaled=config.scale_decoder_outputs,
            num_buckets=config.relative_attention_num_buckets,
            max_distance=config.relative_attention_max_distance,
            source_graph=source_graph,
            summary_block=summary_block,
            eps=config.layer_norm_epsilon,
            dropout=config.dropout_rate,
        )
    state = renamed(model, NAMES)
    # they are the embedding
    fill(new_model, {name: state[name] for name in state if ".embed_tokens." not in name})
    if tied:
        new_model.tie()
    return new_model.train(model.training)
