"""Llama of ``transformers``; and Mistral and Qwen, which are Llamas with windows, biases, or norms of heads."""

from typing import Any

import torch

from ...graph import Pattern
from ...graphs import causal, sliding_window
from ..gpt import GPT, llama
from .rope import read_rotary
from .text import activation, fill, refuse, renamed, set_dropouts

NAMES = {
    "model.embed_tokens.": "embedding.",
    "model.layers.": "stack.layers.",
    "model.norm.": "stack.norm.",
    "lm_head.": "head.",
    ".self_attn.o_proj.": ".attention.out_proj.",
    ".self_attn.": ".attention.",
    ".input_layernorm.": ".attention_norm.",
    ".post_attention_layernorm.": ".feed_forward_norm.",
    ".mlp.gate_proj.": ".feed_forward.gate.",
    ".mlp.up_proj.": ".feed_forward.up.",
    ".mlp.down_proj.": ".feed_forward.down.",
}


def read(model: Any) -> GPT:
    """A ``LlamaForCausalLM``, ``MistralForCausalLM``, ``Qwen2ForCausalLM`` or ``Qwen3ForCausalLM``."""
    config, attention = model.config, model.model.layers[0].self_attn
    refuse(config, is_causal=True)
    with torch.device("meta"):
        made = llama(
            config.vocab_size,
            config.hidden_size,
            config.num_attention_heads,
            config.num_hidden_layers,
            config.intermediate_size,
            rotary=read_rotary(config.rope_parameters, attention.head_dim),
            head_dim=attention.head_dim,
            num_kv_heads=config.num_key_value_heads,
            activation=f"gated_{activation(config.hidden_act)}",
            eps=config.rms_norm_eps,
            bias=True,
            qk_norm=config.rms_norm_eps if hasattr(attention, "q_norm") else None,
            graph=[_graph(config, layer.self_attn) for layer in model.model.layers],
        )
    fill(made, renamed(model, NAMES))
    if model.lm_head.weight is model.model.embed_tokens.weight:
        made.tie()
    made.embedding.padding_idx = model.model.embed_tokens.padding_idx  # whose row is not trained
    set_dropouts(made.stack.layers, config.attention_dropout, 0.0)
    return made.train(model.training)


def _graph(config: Any, attention: Any) -> Pattern:
    """The causal graph of a layer, or its window. All of Mistral's have it, of the others' those that say so."""
    of_all = config.sliding_window if type(attention).__name__ == "MistralAttention" else None
    window = getattr(attention, "sliding_window", of_all)
    return causal(..., ...) if window is None else sliding_window(..., window)
