"""Mixtral and GPT-OSS of ``transformers``: of the kind of Llama, with experts in place of feed-forwards."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from ...nn import ClampedGLU, FeedForward, MixtureOfExperts
from ..gpt import GPT
from .llama import NAMES, decoder, finished
from .text import State, activation, fill, refuse, renamed

PARTS = {
    ".self_attn.sinks": ".attention.normalize.logit",
    ".mlp.gate.": ".feed_forward.router.",
    ".mlp.router.": ".feed_forward.router.",
    ".mlp.experts.": ".feed_forward.experts.",
}


def read(model: Any) -> GPT:
    """A ``MixtralForCausalLM``; or a ``GptOssForCausalLM``, whose heads have sinks and every other layer a window."""
    config = model.config
    refuse(config, router_jitter_noise=0.0)
    sizes = (config.hidden_size, config.intermediate_size)
    has_sinks = type(model).__name__ == "GptOssForCausalLM"
    make: Callable[[], nn.Module] = (
        partial(ClampedGLU, *sizes, config.swiglu_alpha, config.swiglu_limit)  # whatever hidden_act says
        if has_sinks
        else partial(FeedForward, *sizes, f"gated_{activation(config.hidden_act)}", bias=False)
    )
    made = decoder(model, "silu", config.rope_parameters, normalize="sink" if has_sinks else "softmax")
    with torch.device("meta"):
        for block in made.stack.layers:
            experts = [make() for _ in range(config.num_local_experts)]
            block.feed_forward = MixtureOfExperts(
                experts, sizes[0], config.num_experts_per_tok, bias=has_sinks, softmax_over="chosen"
            )
    state = renamed(model, PARTS | NAMES)
    for name in [name for name in state if ".experts." in name]:
        _split(state, name, has_sinks)
    fill(made, state)
    return finished(made, model)


def _split(state: State, name: str, turned: bool) -> None:
    """Put a tensor of all experts in the places of each; GPT-OSS has inputs first, and gate and up by turns."""
    place, _, what = name.rpartition(".")
    leaf = "bias" if what.endswith("_bias") else "weight"
    for number, tensor in enumerate(state.pop(name)):
        tensor = tensor.t() if turned and leaf == "weight" else tensor
        if what.startswith("down"):
            parts = {"down": tensor}
        else:
            gate, up = (tensor[::2], tensor[1::2]) if turned else tensor.chunk(2)
            parts = {"gate": gate, "up": up}
        state |= {f"{place}.{number}.{part}.{leaf}": tensor.contiguous() for part, tensor in parts.items()}
