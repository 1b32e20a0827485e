"""BERT of ``transformers``."""

from typing import Any

import torch

from ..text.bert import BERT
from .weights import activation, fill, refuse, renamed, set_dropouts

NAMES = {
    "^bert.": "",
    "embeddings.word_embeddings.": "embedding.",
    "embeddings.position_embeddings.": "position.",
    "embeddings.token_type_embeddings.": "type_embedding.",
    "embeddings.LayerNorm.": "norm.",
    "encoder.layer.": "stack.layers.",
    "pooler.dense.": "pooler.",
    "cls.predictions.transform.dense.": "head.dense.",
    "cls.predictions.transform.LayerNorm.": "head.norm.",
    "cls.predictions.decoder.": "head.out.",
    ".attention.self.([qkv])\\w+.": ".attention.\\1_proj.",
    ".attention.output.dense.": ".attention.out_proj.",
    ".attention.output.LayerNorm.": ".attention_norm.",
    ".intermediate.dense.": ".feed_forward.up.",
    ".output.dense.": ".feed_forward.down.",
    ".output.LayerNorm.": ".feed_forward_norm.",
}


def read(model: Any) -> BERT:
    """A base model, or one ``ForMaskedLM``, which has a head and no pooler."""
    state = renamed(model, NAMES)
    state.pop("cls.predictions.bias", None)  # the same tensor as the decoder's
    with torch.device("meta"):
        new_model = BERT(**options_of(model))
    fill(new_model, state)
    finish(new_model, model)
    return new_model.train(model.training)


def options_of(model: Any) -> dict[str, Any]:
    """Arguments of :class:`BERT` from a model's configuration."""
    config = model.config
    base = getattr(model, model.base_model_prefix, model)
    refuse(config, is_decoder=False, add_cross_attention=False, is_causal=False)
    return {
        "vocab_size": config.vocab_size,
        "embed_dim": config.hidden_size,
        "num_heads": config.num_attention_heads,
        "num_layers": config.num_hidden_layers,
        "hidden": config.intermediate_size,
        "max_len": config.max_position_embeddings,
        "num_types": config.type_vocab_size,
        "masked_head": base is not model,
        "pooler": getattr(base, "pooler", None) is not None,
        "activation": activation(config.hidden_act),
        "eps": config.layer_norm_eps,
    }


def finish(text: BERT, model: Any) -> None:
    """Tie the head as the model's, and set the row of padding and the rates of dropout."""
    config = model.config
    words = getattr(model, model.base_model_prefix, model).embeddings.word_embeddings
    if text.head is not None and model.get_output_embeddings().weight is words.weight:
        text.head.tie(text.embedding)
    text.embedding.padding_idx = words.padding_idx  # whose row is not trained
    text.dropout.p = config.hidden_dropout_prob
    set_dropouts(text.stack.layers, config.attention_probs_dropout_prob, config.hidden_dropout_prob)
