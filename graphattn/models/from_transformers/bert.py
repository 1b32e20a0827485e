"""BERT of ``transformers``, and Longformer."""

from typing import Any

import torch

from ..text.bert import BERT
from ..text.longformer import Longformer
from .weights import activation, fill, refuse, renamed, set_dropouts

NAMES = {
    "^(longformer|bert).": "",
    "embeddings.word_embeddings.": "embedding.",
    "embeddings.position_embeddings.": "position.",
    "embeddings.token_type_embeddings.": "type_embedding.",
    "embeddings.LayerNorm.": "norm.",
    "encoder.layer.(\\d+).attention.self.(\\w)\\w+_global.": "of_global.\\1.\\2_proj.",
    "encoder.layer.": "stack.layers.",
    "pooler.dense.": "pooler.",
    "cls.predictions.transform.dense.": "head.dense.",
    "cls.predictions.transform.LayerNorm.": "head.norm.",
    "lm_head.dense.": "head.dense.",
    "lm_head.layer_norm.": "head.norm.",
    "(cls.predictions|lm_head).decoder.": "head.out.",
    ".attention.self.([qkv])\\w+.": ".attention.\\1_proj.",
    ".attention.output.dense.": ".attention.out_proj.",
    ".attention.output.LayerNorm.": ".attention_norm.",
    ".intermediate.dense.": ".feed_forward.up.",
    ".output.dense.": ".feed_forward.down.",
    ".output.LayerNorm.": ".feed_forward_norm.",
}


def read(model: Any) -> BERT | Longformer:
    """A base model, or one ``ForMaskedLM``, which has a head and no pooler."""
    config = model.config
    base = getattr(model, model.base_model_prefix, model)
    refuse(config, is_decoder=False, add_cross_attention=False, is_causal=False)
    words = base.embeddings.word_embeddings
    is_long = hasattr(config, "attention_window")
    padding_idx = None
    if is_long:
        padding_idx = words.padding_idx
    options = {
        "vocab_size": config.vocab_size,
        "embed_dim": config.hidden_size,
        "num_heads": config.num_attention_heads,
        "num_layers": config.num_hidden_layers,
        "hidden": config.intermediate_size,
        "max_len": config.max_position_embeddings,
        "num_types": config.type_vocab_size,
        "masked_head": base is not model,
        "pooler": getattr(base, "pooler", None) is not None,
        "padding_idx": padding_idx,
        "activation": activation(config.hidden_act),
        "eps": config.layer_norm_eps,
    }
    state = renamed(model, NAMES)
    for name in ("cls.predictions.bias", "lm_head.bias"):
        state.pop(name, None)  # the same tensor as the decoder's
    new_model: BERT | Longformer
    with torch.device("meta"):
        if is_long:
            new_model = Longformer([w + 1 for w in config.attention_window], (), **options)
            of_global = {name: x for name, x in state.items() if name.startswith("of_global.")}
            text_state = {f"text.{name}": x for name, x in state.items() if name not in of_global}
            state = of_global | text_state
        else:
            new_model = BERT(**options)
    if isinstance(new_model, Longformer):
        text = new_model.text
    else:
        text = new_model
    fill(new_model, state)
    if text.head is not None:
        if is_long:
            text.head.activation = "gelu"  # for any hidden_act
        if model.get_output_embeddings().weight is words.weight:
            text.head.tie(text.embedding)
    text.embedding.padding_idx = words.padding_idx  # whose row is not trained
    text.dropout.p = config.hidden_dropout_prob
    set_dropouts(text.stack.layers, config.attention_probs_dropout_prob, config.hidden_dropout_prob)
    if isinstance(new_model, Longformer):
        for attention in new_model.of_global:
            attention.dropout = config.attention_probs_dropout_prob
    return new_model.train(model.training)
