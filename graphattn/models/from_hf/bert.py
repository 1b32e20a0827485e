"""BERT of ``transformers``."""

from typing import Any

import torch

from ..bert import BERT
from .text import activation, fill, refuse, renamed, set_dropouts

NAMES = {
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
    ".attention.self.query.": ".attention.q_proj.",
    ".attention.self.key.": ".attention.k_proj.",
    ".attention.self.value.": ".attention.v_proj.",
    ".attention.output.dense.": ".attention.out_proj.",
    ".attention.output.LayerNorm.": ".attention_norm.",
    ".intermediate.dense.": ".feed_forward.up.",
    ".output.dense.": ".feed_forward.down.",
    ".output.LayerNorm.": ".feed_forward_norm.",
}


def read(model: Any) -> BERT:
    """A ``BertModel``, or a ``BertForMaskedLM``, which has a head and no pooler."""
    config, base = model.config, getattr(model, "bert", model)
    refuse(config, is_decoder=False, add_cross_attention=False)
    with torch.device("meta"):
        made = BERT(
            config.vocab_size,
            config.hidden_size,
            config.num_attention_heads,
            config.num_hidden_layers,
            config.intermediate_size,
            max_len=config.max_position_embeddings,
            num_types=config.type_vocab_size,
            masked_head=base is not model,
            pooler=base.pooler is not None,
            activation=activation(config.hidden_act),
            eps=config.layer_norm_eps,
        )
    state = renamed(model, NAMES)
    state.pop("cls.predictions.bias", None)  # the same tensor as the decoder's
    fill(made, state)
    if made.head is not None and config.tie_word_embeddings:
        made.head.tie(made.embedding)
    made.embedding.padding_idx = base.embeddings.word_embeddings.padding_idx  # whose row is not trained
    made.dropout.p = config.hidden_dropout_prob
    set_dropouts(made.stack.layers, config.attention_probs_dropout_prob, config.hidden_dropout_prob)
    return made.train(model.training)
