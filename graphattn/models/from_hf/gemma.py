"""Gemma 2 and 3 of ``transformers``: layers with windows and without, norms before and after every branch."""

from typing import Any

from ..gpt import GPT
from .llama import NAMES, decoder, finished
from .rope import read_rotary
from .text import fill, renamed

BRANCHES = {
    ".post_attention_layernorm.": ".end_norm.attention.",
    ".pre_feedforward_layernorm.": ".feed_forward_norm.",
    ".post_feedforward_layernorm.": ".end_norm.feed_forward.",
}


def read(model: Any) -> GPT:
    """A ``Gemma2ForCausalLM`` or ``Gemma3ForCausalLM``, whose norms multiply by 1 plus their weight."""
    config, layers = model.config, model.model.layers
    kinds = [layer.self_attn.layer_type for layer in layers]
    rotary = config.rope_parameters
    of_kind = {kind: rotary.get(kind, rotary) for kind in kinds}  # Gemma 3 has one for windows and one for the others
    made = decoder(
        model,
        config.hidden_activation,
        of_kind[kinds[0]],
        scale=config.query_pre_attn_scalar**-0.5,
        softcap=config.attn_logit_softcapping if "rope_type" in rotary else None,  # Gemma 3 does not use it
        branch_norm=True,
        embed_scale=config.hidden_size**0.5,
        logit_softcap=config.final_logit_softcapping,
    )
    for block, kind in zip(made.stack.layers, kinds, strict=True):
        block.attention.rotary = read_rotary(of_kind[kind], layers[0].self_attn.head_dim)  # type: ignore[union-attr]
    state = renamed(model, NAMES | BRANCHES)
    fill(made, {name: tensor + 1 if "norm." in name else tensor for name, tensor in state.items()})
    return finished(made, model)
