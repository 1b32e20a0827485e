"""BERT of ``transformers``, and its siblings: RoBERTa, XLM-R, Longformer."""

from typing import Any

import torch

from ..bert import BERT
from ..longformer import Longformer
from .text import State, activation, fill, refuse, renamed, set_dropouts

NAMES = {
    "longformer.": "",
    "roberta.": "",
    "bert.": "",
    "embeddings.word_embeddings.": "embedding.",
    "embeddings.position_embeddings.": "position.",
    "embeddings.token_type_embeddings.": "type_embedding.",
    "embeddings.LayerNorm.": "norm.",
    "encoder.layer.": "stack.layers.",
    "pooler.dense.": "pooler.",
    "cls.predictions.transform.dense.": "head.dense.",
    "cls.predictions.transform.LayerNorm.": "head.norm.",
    "cls.predictions.decoder.": "head.out.",
    "lm_head.layer_norm.": "head.norm.",
    "lm_head.decoder.": "head.out.",
    "lm_head.dense.": "head.dense.",
    ".attention.self.query.": ".attention.q_proj.",
    ".attention.self.key.": ".attention.k_proj.",
    ".attention.self.value.": ".attention.v_proj.",
    ".attention.output.dense.": ".attention.out_proj.",
    ".attention.output.LayerNorm.": ".attention_norm.",
    ".intermediate.dense.": ".feed_forward.up.",
    ".output.dense.": ".feed_forward.down.",
    ".output.LayerNorm.": ".feed_forward_norm.",
}


def read(model: Any) -> BERT | Longformer:
    """A model of one of the kinds, or one ``ForMaskedLM``, which has a head and no pooler."""
    config, base = model.config, getattr(model, model.base_model_prefix, model)
    refuse(config, is_decoder=False, add_cross_attention=False, is_causal=False)
    kind = type(model).__name__.removesuffix("ForMaskedLM").removesuffix("Model")
    words = base.embeddings.word_embeddings
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
        "padding_idx": None if kind == "Bert" else words.padding_idx,
        "activation": activation(config.hidden_act),
        "eps": config.layer_norm_eps,
    }
    state = renamed(model, NAMES)
    for name in ("cls.predictions.bias", "lm_head.bias"):
        state.pop(name, None)  # the same tensor as the decoder's
    with torch.device("meta"):
        made = (
            Longformer([w + 1 for w in config.attention_window], (), **options)
            if kind == "Longformer"
            else BERT(**options)
        )
    text = made.text if isinstance(made, Longformer) else made
    fill(made, _apart(state) if isinstance(made, Longformer) else state)
    if text.head is not None:
        if kind != "Bert":
            text.head.activation = "gelu"  # whatever hidden_act says
        if model.get_output_embeddings().weight is words.weight:
            text.head.tie(text.embedding)
    text.embedding.padding_idx = words.padding_idx  # whose row is not trained
    text.dropout.p = config.hidden_dropout_prob
    set_dropouts(text.stack.layers, config.attention_probs_dropout_prob, config.hidden_dropout_prob)
    for attention in made.of_global if isinstance(made, Longformer) else ():
        attention.dropout = config.attention_probs_dropout_prob
    return made.train(model.training)


def _apart(state: State) -> State:
    """Names of Longformer's parameters: those of global tokens stand beside the blocks."""
    result = {}
    for name, tensor in state.items():
        name = "text." + name
        for letter, whole in (("q", "query"), ("k", "key"), ("v", "value")):
            if f".attention.self.{whole}_global." in name:
                name = name.replace(f".attention.self.{whole}_global.", f".{letter}_proj.")
                name = name.replace("text.stack.layers.", "of_global.")
        result[name] = tensor
    return result
