"""Llama of ``transformers``, 1 to 3.1."""

from typing import Any

import torch

from ...errors import OptionError
from ...nn import LinearScaling, Llama3Scaling, Rotary
from ..text.gpt import GPT
from .weights import activation, fill, refuse, renamed, set_dropouts

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
LENGTH = "original_max_position_embeddings"
SCALINGS: dict[str, Any] = {
    "default": lambda parameters: None,
    "linear": lambda parameters: LinearScaling(parameters["factor"]),
    "llama3": lambda parameters: Llama3Scaling(
        parameters["factor"],
        parameters[LENGTH],
        parameters["low_freq_factor"],
        parameters["high_freq_factor"],
    ),
}


def read(model: Any) -> GPT:
    """A ``LlamaForCausalLM``."""
    config = model.config
    head_dim = model.model.layers[0].self_attn.head_dim
    refuse(config, is_causal=True)
    with torch.device("meta"):
        kind = config.rope_parameters["rope_type"]
        if kind not in SCALINGS or config.rope_parameters.get("partial_rotary_factor", 1.0) != 1.0:
            raise OptionError(
                f"rope_parameters must rotate all channels by {', '.join(SCALINGS)}; got "
                f"{config.rope_parameters}"
            )
        new_model = GPT.llama(
            config.vocab_size,
            config.hidden_size,
            config.num_attention_heads,
            config.num_hidden_layers,
            config.intermediate_size,
            rotary=Rotary(
                head_dim,
                base=config.rope_parameters["rope_theta"],
                scaling=SCALINGS[kind](config.rope_parameters),
            ),
            head_dim=head_dim,
            num_kv_heads=config.num_key_value_heads,
            activation=f"gated_{activation(config.hidden_act)}",
            eps=config.rms_norm_eps,
            bias=True,
        )
    fill(new_model, renamed(model, NAMES))
    if model.lm_head.weight is model.model.embed_tokens.weight:
        new_model.tie()
    # its row is not trained
    new_model.embedding.padding_idx = model.model.embed_tokens.padding_idx
    set_dropouts(new_model.stack.layers, config.attention_dropout, 0.0)
    return new_model.train(model.training)
