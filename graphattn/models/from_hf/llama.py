"""Llama of ``transformers``; and Mistral and Qwen2, which are Llamas with a window or with biases."""

from typing import Any

import torch

from ...errors import OptionError
from ...graph import Pattern
from ...graphs import causal, sliding_window
from ..gpt import GPT, llama
from .text import activation, fill, renamed, set_dropouts

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
    """A ``LlamaForCausalLM``, ``MistralForCausalLM`` or ``Qwen2ForCausalLM``."""
    config, layers = model.config, model.model.layers
    rotary = config.rope_parameters
    if rotary["rope_type"] != "default" or rotary.get("partial_rotary_factor", 1.0) != 1.0:
        raise OptionError(f'rope_parameters must have rope_type "default", all channels turned; got {rotary}')
    with torch.device("meta"):
        made = llama(
            config.vocab_size,
            config.hidden_size,
            config.num_attention_heads,
            config.num_hidden_layers,
            config.intermediate_size,
            base=rotary["rope_theta"],
            head_dim=layers[0].self_attn.head_dim,
            num_kv_heads=config.num_key_value_heads,
            activation=f"gated_{activation(config.hidden_act)}",
            eps=config.rms_norm_eps,
            bias=True,
            graph=[_graph(config, number) for number in range(len(layers))],
        )
    fill(made, renamed(model, NAMES))
    if config.tie_word_embeddings:
        made.tie()
    made.embedding.padding_idx = model.model.embed_tokens.padding_idx  # whose row is not trained
    set_dropouts(made.stack.layers, config.attention_dropout, 0.0)
    return made.train(model.training)


def _graph(config: Any, layer: int) -> Pattern:
    """The causal graph of a layer, or its window."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if window is None or (kinds is not None and kinds[layer] == "full_attention"):
        return causal(..., ...)
    return sliding_window(..., window)
