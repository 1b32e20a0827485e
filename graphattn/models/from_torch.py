"""Weights of torch's own stacks."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from torch import nn

from ..errors import OptionError
from ..nn import TransformerBlock
from ..nn.loaders import refuse_other


def stack(make: Callable[..., Any], given: Any, kind: type[nn.Module]) -> Any:
    """What ``make``, an encoder or a decoder, gives, with the weights of torch's of this kind."""
    refuse_other(given, kind)
    blocks: list[nn.Module] = [TransformerBlock.from_torch(layer) for layer in given.layers]
    if not blocks:
        raise OptionError(f"the nn.{kind.__name__} has no layers")
    first = given.layers[0].self_attn
    made = make(1, first.embed_dim, first.num_heads, final_norm=False)
    made.layers, made.norm = nn.ModuleList(blocks), deepcopy(given.norm)
    return made.train(given.training)
