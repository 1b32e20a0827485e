"""GPT-2 of ``transformers``."""

from typing import Any

import torch

from ..gpt import GPT, gpt2
from .text import activation, fill, refuse, renamed, set_dropouts

NAMES = {
    "transformer.wte.": "embedding.",
    "transformer.wpe.": "position.",
    "transformer.h.": "stack.layers.",
    "transformer.ln_f.": "stack.norm.",
    "lm_head.": "head.",
    ".ln_1.": ".attention_norm.",
    ".ln_2.": ".feed_forward_norm.",
    ".attn.c_proj.": ".attention.out_proj.",
    ".attn.c_attn.": ".attention.qkv.",
    ".mlp.c_fc.": ".feed_forward.up.",
    ".mlp.c_proj.": ".feed_forward.down.",
}


def read(model: Any) -> GPT:
    """A ``GPT2LMHeadModel``, whose linear maps are stored the other way round, those of query, key and value as one."""
    config = model.config
    refuse(config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    with torch.device("meta"):
        made = gpt2(
            config.vocab_size,
            config.n_embd,
            config.n_head,
            config.n_layer,
            hidden=config.n_inner,
            max_len=config.n_positions,
            activation=activation(config.activation_function),
            eps=config.layer_norm_epsilon,
            tied=False,
        )
    state = renamed(model, NAMES)
    for name in [
        name for name in state if ".qkv." in name or name.endswith(("out_proj.weight", "up.weight", "down.weight"))
    ]:
        tensor = state.pop(name).t().contiguous() if name.endswith("weight") else state.pop(name)
        if ".qkv." not in name:
            state[name] = tensor
            continue
        for part, rows in zip("qkv", tensor.chunk(3), strict=True):
            state[name.replace(".qkv.", f".{part}_proj.")] = rows.clone()
    fill(made, state)
    if config.tie_word_embeddings:
        made.tie()
    made.dropout.p = config.embd_pdrop
    set_dropouts(made.stack.layers, config.attn_pdrop, config.resid_pdrop)
    return made.train(model.training)
