"""What the readers of vision models share: their layers have the same parts under the same names."""

from copy import deepcopy
from typing import Any

from torch import nn

from ...errors import OptionError
from ...nn import TransformerBlock

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",  # their sqrt(2 / pi) has ten digits
    "silu": "silu",
    "swish": "silu",
}


def activation(config: Any) -> str:
    """Our name of the activation in the feed-forwards."""
    if config.hidden_act not in ACTIVATIONS:
        raise OptionError(f"hidden_act must be one of {', '.join(ACTIVATIONS)}; got {config.hidden_act!r}")
    return ACTIVATIONS[config.hidden_act]


def pair(size: Any) -> tuple[int, int]:
    """(height, width) of what a configuration may give as one number."""
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def refuse_mask_token(embeddings: Any) -> None:
    """Refuse a token in place of masked patches, which our models do not have."""
    if embeddings.mask_token is not None:
        raise OptionError("the model was built with use_mask_token=True, for which there is no place")


def fill(block: TransformerBlock, layer: Any, config: Any) -> None:
    """Copy a pre-norm layer of ViT, ViViT or Swin into a block."""
    mine, theirs = block.attention, layer.attention
    for name in ("q_proj", "k_proj", "v_proj"):
        setattr(mine, name, deepcopy(getattr(theirs, name)))
    mine.out_proj, mine.dropout = deepcopy(theirs.o_proj), config.attention_probs_dropout_prob
    block.attention_norm = deepcopy(layer.layernorm_before)
    block.feed_forward_norm = deepcopy(layer.layernorm_after)
    perceptron: Any = block.feed_forward
    perceptron.up, perceptron.down = deepcopy(layer.mlp.fc1), deepcopy(layer.mlp.fc2)
    perceptron.dropout = nn.Dropout(0.0)
    block.branch[0] = nn.Dropout(config.hidden_dropout_prob)
