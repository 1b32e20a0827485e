"""T5 and Flan-T5 of ``transformers``."""

from typing import Any

import torch

from ...errors import OptionError
from ..text.t5 import T5
from .weights import State, activation, fill, refuse, renamed

NAMES = {
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
    """A ``T5ForConditionalGeneration``."""
    with torch.device("meta"):
        new_model = T5(**options_of(model))
    return finish(new_model, model, renamed(model, NAMES))


def options_of(model: Any) -> dict[str, Any]:
    """Arguments of :class:`T5` from a model's configuration."""
    config = model.config
    refuse(config, is_encoder_decoder=True)
    if getattr(config, "is_causal", None) is not None:
        raise OptionError(
            f"is_causal = {config.is_causal} is not supported: it applies to encoder and decoder "
            "at once"
        )
    words = model.shared.weight
    if any(part.embed_tokens.weight is not words for part in (model.encoder, model.decoder)):
        raise OptionError(
            "encoder and decoder must share one table of tokens, as with tie_word_embeddings=True"
        )
    act = activation(config.dense_act_fn)
    if config.is_gated_act:
        act = f"gated_{act}"
    return {
        "vocab_size": config.vocab_size,
        "embed_dim": config.d_model,
        "num_heads": config.num_heads,
        "num_layers": config.num_layers,
        "hidden": config.d_ff,
        "num_decoder_layers": config.num_decoder_layers,
        "head_dim": config.d_kv,
        "activation": act,
        "tied": model.lm_head.weight is words,
        "scaled": config.scale_decoder_outputs,
        "num_buckets": config.relative_attention_num_buckets,
        "max_distance": config.relative_attention_max_distance,
        "eps": config.layer_norm_epsilon,
        "dropout": config.dropout_rate,
    }


def finish(new_model: T5, model: Any, state: State) -> T5:
    """The new model with renamed parameters, tied and in the mode of the given one."""
    # they are the embedding
    fill(new_model, {name: state[name] for name in state if ".embed_tokens." not in name})
    if model.lm_head.weight is model.shared.weight:
        new_model.tie()
    return new_model.train(model.training)
