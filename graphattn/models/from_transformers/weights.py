"""The common part of all readers: a table of names, and strict loading of renamed parameters."""

import re
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import one_of
from ...errors import OptionError

State = dict[str, Tensor]
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",  # their sqrt(2 / pi) has ten digits
    "silu": "silu",
    "swish": "silu",
}


def rename(name: str, table: dict[str, str]) -> str:
    """A name after a table's replacements, in order; dots in regular expressions are literal."""
    for old, new in table.items():
        name = re.sub(old.replace(".", r"\."), new, name)
    return name


def renamed(model: nn.Module, table: dict[str, str]) -> State:
    """A model's parameters by our names, as copies; ``qkv`` is split into three projections."""
    state = {}
    for name, tensor in model.state_dict().items():
        # GPT-2's are stored transposed
        if type(model.get_submodule(name.rpartition(".")[0])).__name__ == "Conv1D":
            tensor = tensor.t()
        name = rename(name, table)
        if ".qkv." in name:
            parts = tensor.chunk(3)
        else:
            parts = (tensor,)
        for letter, part in zip("qkv", parts, strict=False):
            state[name.replace(".qkv.", f".{letter}_proj.")] = part.clone(
                memory_format=torch.contiguous_format
            )
    return state


def fill(new_model: nn.Module, state: State) -> None:
    """Load parameters into a model built on meta; only biases may be missing, and are dropped.

    The number of axes of length 1 may differ.

    Raises:
        OptionError: If a parameter is missing or left over.
    """
    expected = new_model.state_dict()
    for name in expected.keys() - state.keys():
        owner, _, leaf = name.rpartition(".")
        if leaf == "bias":
            new_model.get_submodule(owner).register_parameter("bias", None)
    for name in expected.keys() & state.keys():
        if expected[name].squeeze().shape == state[name].squeeze().shape:
            state[name] = state[name].view(expected[name].shape)
    try:
        new_model.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise OptionError(
            f"the model's parameters differ from those of its class: {error}"
        ) from None


def activation(name: str) -> str:
    """The name of an activation here."""
    return ACTIVATIONS[one_of(name, "the activation", ACTIVATIONS)]


def refuse(config: Any, **plain: Any) -> None:
    """Refuse a configuration in which an unsupported option does not have its plain value."""
    for name, value in plain.items():
        # None, False and 0 are all off
        if (getattr(config, name, value) or None) != (value or None):
            raise OptionError(
                f"{name} = {getattr(config, name)!r} cannot be read; only {value!r} can"
            )


def refuse_mask_token(embeddings: Any) -> None:
    """Refuse a token for masked patches, which our models lack."""
    if getattr(embeddings, "mask_token", None) is not None:
        raise OptionError("use_mask_token=True is not supported; load the model without it")


def sizes(config: Any) -> tuple[int, int, int, int]:
    """Layers, C, H and the width of the feed-forwards."""
    return (
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
    )


def set_dropouts(blocks: nn.ModuleList, weights: float, branch: float) -> None:
    """Set dropout of attention weights and of branch outputs; none inside the feed-forwards."""
    for block in blocks:
        parts: Any = block
        parts.attention.dropout = weights
        parts.branch[0].p = branch
        parts.feed_forward.dropout.p = 0.0
