"""T5 of ``transformers``, and T5 1.1, Flan-T5, mT5, which are settings of it, and LongT5, whose encoder has windows."""

import re
from typing import Any

import torch

from ...errors import OptionError
from ...graphs import sliding_window
from ..t5 import T5
from .text import activation, fill, one_table, refuse, renamed

NAMES = {
    ".LocalSelfAttention.": ".SelfAttention.",
    ".TransientGlobalSelfAttention.": ".SelfAttention.",
    "encoder.block.0.layer.0.SelfAttention.global_relative_attention_bias.": "encoder.summary_bias.table.",
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.": "encoder_bias.table.",
    "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.": "decoder_bias.table.",
    "shared.": "embedding.",
    "lm_head.": "head.",
    ".final_layer_norm.": ".norm.",
    ".block.": ".layers.",
    ".layer.0.layer_norm.": ".attention_norm.",
    ".layer.1.layer_norm.": ".second_norm.",
    ".layer.2.layer_norm.": ".feed_forward_norm.",
    ".EncDecAttention.": ".cross_attention.",
    ".SelfAttention.": ".attention.",
    ".q.": ".q_proj.",
    ".k.": ".k_proj.",
    ".v.": ".v_proj.",
    ".o.": ".out_proj.",
    ".DenseReluDense.wo.": ".feed_forward.down.",
    ".DenseReluDense.wi_0.": ".feed_forward.gate.",
    ".DenseReluDense.wi_1.": ".feed_forward.up.",
    ".DenseReluDense.wi.": ".feed_forward.up.",
    ".layer.0.": ".",
    ".layer.1.": ".",
    ".layer.2.": ".",
}
SUMMARY = re.compile(r"encoder\.layers\.(\d+)\.attention\.global_input_layer_norm\.")
SECOND = {"encoder": "feed_forward_norm", "decoder": "cross_norm"}


def read(model: Any) -> T5:
    """A ``T5ForConditionalGeneration``, ``MT5ForConditionalGeneration`` or ``LongT5ForConditionalGeneration``."""
    config = model.config
    refuse(config, is_encoder_decoder=True)
    if getattr(config, "is_causal", None) is not None:
        raise OptionError(
            f"is_causal = {config.is_causal} cannot be read: it is of the encoder and the decoder at once"
        )
    radius, kind = getattr(config, "local_radius", None), getattr(config, "encoder_attention_type", "local")
    words = one_table(model.shared, model.encoder.embed_tokens, model.decoder.embed_tokens)
    tied = model.lm_head.weight is words.weight
    plain = activation(config.dense_act_fn)
    with torch.device("meta"):
        made = T5(
            config.vocab_size,
            config.d_model,
            config.num_heads,
            config.num_layers,
            config.d_ff,
            num_decoder_layers=config.num_decoder_layers,
            head_dim=config.d_kv,
            activation=f"gated_{plain}" if config.is_gated_act else plain,
            tied=tied,
            scaled=config.model_type != "mt5" and config.scale_decoder_outputs,  # mT5 has no such option
            num_buckets=config.relative_attention_num_buckets,
            max_distance=config.relative_attention_max_distance,
            source_graph=None if radius is None else sliding_window(..., 2 * radius + 1, causal=False),
            summary_block=None if kind == "local" else config.global_block_size,
            eps=config.layer_norm_epsilon,
            dropout=config.dropout_rate,
        )
    state = renamed(model, NAMES)
    fill(made, {_place(name): state[name] for name in state if ".embed_tokens." not in name})  # those are the embedding
    if tied:
        made.tie()
    return made.train(model.training)


def _place(name: str) -> str:
    """The second norm is another one in the decoder; the norm of the summaries is beside the blocks."""
    name = name.replace("second_norm", SECOND.get(name.partition(".")[0], ""))
    return SUMMARY.sub(r"encoder.summary_norms.\1.", name)
