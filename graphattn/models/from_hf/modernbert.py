"""ModernBERT of ``transformers``: two of three layers have a window, and positions are rotary."""

from typing import Any

import torch
from torch import nn

from ...graphs import full, sliding_window
from ..bert import BERT
from .rope import read_rotary
from .text import State, activation, fill, renamed, set_dropouts

NAMES = {
    "model.": "",
    "embeddings.tok_embeddings.": "embedding.",
    "embeddings.norm.": "norm.",
    "final_norm.": "stack.norm.",
    "layers.": "stack.layers.",
    "decoder.": "head.out.",
    ".attn_norm.": ".attention_norm.",
    ".mlp_norm.": ".feed_forward_norm.",
    ".attn.Wo.": ".attention.out_proj.",
    ".mlp.Wo.": ".feed_forward.down.",
}


def read(model: Any) -> BERT:
    """A ``ModernBertModel`` or ``ModernBertForMaskedLM``; the first layer reads the embeddings without a norm."""
    config, base = model.config, getattr(model, "model", model)
    kinds, head_dim = config.layer_types, config.hidden_size // config.num_attention_heads
    window = sliding_window(..., 2 * config.sliding_window + 1, causal=False)
    rotary = {kind: read_rotary(config.rope_parameters[kind], head_dim) for kind in kinds}
    with torch.device("meta"):
        made = BERT(
            config.vocab_size,
            config.hidden_size,
            config.num_attention_heads,
            config.num_hidden_layers,
            config.intermediate_size,
            max_len=None,
            num_types=0,
            masked_head=base is not model,
            pooler=False,
            graph=[window if kind == "sliding_attention" else full(...) for kind in kinds],
            activation=f"gated_{activation(config.hidden_activation)}",
            eps=config.norm_eps,
            norm_first=True,
            rotary=rotary[kinds[0]],
        )
    blocks: Any = made.stack.layers
    blocks[0].attention_norm = nn.Identity()
    fill(made, _apart(renamed(model, NAMES)))
    if made.head is not None:
        made.head.activation, made.head.norm.eps = activation(config.classifier_activation), config.norm_eps
        if model.get_output_embeddings().weight is model.get_input_embeddings().weight:
            made.head.tie(made.embedding)
    made.embedding.padding_idx = base.embeddings.tok_embeddings.padding_idx  # whose row is not trained
    made.dropout.p = config.embedding_dropout
    set_dropouts(blocks, config.attention_dropout, 0.0, config.mlp_dropout)
    for block, kind in zip(blocks, kinds, strict=True):
        block.attention.rotary = rotary[kind]
        if config.attention_dropout:  # of the output, too, and not of the feed-forward's
            block.attention.out_proj = nn.Sequential(block.attention.out_proj, nn.Dropout(config.attention_dropout))
    return made.train(model.training)


def _apart(state: State) -> State:
    """Query, key and value are one linear map, gate and up another."""
    parts = {
        ".attn.Wqkv.": (".attention.q_proj.", ".attention.k_proj.", ".attention.v_proj."),
        ".mlp.Wi.": (".feed_forward.gate.", ".feed_forward.up."),
    }
    result: State = {}
    for name, tensor in state.items():
        joint = next((part for part in parts if part in name), "")
        pieces = tensor.chunk(len(parts[joint])) if joint else ()
        result |= {
            name.replace(joint, part): rows.clone() for part, rows in zip(parts.get(joint, ()), pieces, strict=True)
        }
        if not joint:
            result[name] = tensor
    return result
