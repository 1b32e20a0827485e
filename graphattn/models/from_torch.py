"""Weights of torch's own stacks."""

from typing import Any

from torch import nn

from ..errors import OptionError
from ..nn import TransformerBlock


def _stack(made: Any, given: Any, kind: type[nn.Module]) -> Any:
    stack: Any = given
    if type(given) is not kind:
        raise OptionError(f"expected an nn.{kind.__name__}, got {type(given).__name__}")
    blocks: list[nn.Module] = [TransformerBlock.from_torch(layer) for layer in stack.layers]
    if not blocks:
        raise OptionError(f"the nn.{kind.__name__} has no layers")
    first = stack.layers[0]
    found = made(
        0,
        first.self_attn.embed_dim,
        first.self_attn.num_heads,
        final_norm=stack.norm is not None,
        eps=stack.norm.eps if stack.norm is not None else 1e-5,
        bias=first.linear1.bias is not None,
    )
    found.layers.extend(blocks)
    if stack.norm is not None:
        found.norm.to(first.linear1.weight).load_state_dict(stack.norm.state_dict())
    return found.train(stack.training)


def encoder_from_torch(made: Any, stack: nn.TransformerEncoder) -> Any:
    """The encoder with torch's weights."""
    return _stack(made, stack, nn.TransformerEncoder)


def decoder_from_torch(made: Any, stack: nn.TransformerDecoder) -> Any:
    """The decoder with torch's weights."""
    return _stack(made, stack, nn.TransformerDecoder)
