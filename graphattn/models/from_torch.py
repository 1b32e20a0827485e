"""Weights of torch's own stacks."""

from copy import deepcopy
from typing import Any

from torch import nn

from ..errors import OptionError
from ..nn import TransformerBlock
from ..nn.loaders import refuse_other


def _stack(made: Any, given: Any, kind: type[nn.Module]) -> Any:
    refuse_other(given, kind)
    blocks: list[nn.Module] = [TransformerBlock.from_torch(layer) for layer in given.layers]
    if not blocks:
        raise OptionError(f"the nn.{kind.__name__} has no layers")
    first = given.layers[0].self_attn
    stack = made(1, first.embed_dim, first.num_heads, final_norm=False)
    stack.layers, stack.norm = nn.ModuleList(blocks), deepcopy(given.norm)
    return stack.train(given.training)


def encoder_from_torch(made: Any, stack: nn.TransformerEncoder) -> Any:
    """The encoder with torch's weights."""
    return _stack(made, stack, nn.TransformerEncoder)


def decoder_from_torch(made: Any, stack: nn.TransformerDecoder) -> Any:
    """The decoder with torch's weights."""
    return _stack(made, stack, nn.TransformerDecoder)
