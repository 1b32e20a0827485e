"""GPT-2 of ``transformers``."""

from typing import Any

import torch

from ..text.gpt import GPT
from .weights import activation, fill, refuse, renamed, set_dropouts

NAMES = {
    ".ln_1.": ".attention_norm.",
    ".ln_2.": ".feed_forward_norm.",
    ".attn.c_proj.": ".attention.out_proj.",
    ".attn.c_attn.": ".attention.qkv.",
    ".mlp.c_fc.": ".feed_forward.up.",
    ".mlp.c_proj.": ".feed_forward.down.",
    "transformer.wte.": "embedding.",
    "transformer.wpe.": "position.",
    "transformer.h.": "stack.layers.",
    "transformer.ln_f.": "stack.norm.",
    "lm_head.": "head.",
}


def read(model: Any) -> GPT:
    """A ``GPT2LMHeadModel``."""
    config = model.config
    refuse(config, add_cross_attention=False, is_causal=True)
    with torch.device("meta"):
        new_model = GPT.gpt2(
            config.vocab_size,
            config.n_embd,
            config.n_head,
            config.n_layer,
            max_len=config.n_positions,
            tied=False,
            hidden=config.n_inner,
            activation=activation(config.activation_function),
            eps=config.layer_norm_epsilon,
        )
    fill(new_model, renamed(model, NAMES))
    if model.lm_head.weight is model.transformer.wte.weight:
        new_model.tie()
    for number, block in enumerate(new_model.stack.layers):
        attention: Any = block.attention
        if not config.scale_attn_weights:
            attention.scale = 1.0
        if config.scale_attn_by_inverse_layer_idx:
            attention.scale = (attention.scale or attention.head_dim**-0.5) / (number + 1)
    new_model.dropout.p = config.embd_pdrop
    set_dropouts(new_model.stack.layers, config.attn_pdrop, config.resid_pdrop)
    return new_model.train(model.training)
