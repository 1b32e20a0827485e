"""A convolution as attention: a head for each place of its kernel."""

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import for_each, whole
from ..errors import OptionError
from ..graph import PerHead
from ..graph.edge_index import from_edge_index
from .loaders import linear, refuse_other

_FROM_LATER = ("circular", "reflect")  # padding before the start is a copy of what comes later


def from_conv(
    make: Callable[..., Any],
    conv: Any,
    size: Any,
    causal: bool,
) -> tuple[Any, PerHead]:
    """The layer, ``make``, with the weights of a convolution, and the graph of each head."""
    refuse_other(conv, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    kernel = conv.kernel_size
    sides = for_each(size, "size", len(kernel), "axis of the input")
    lengths = tuple(whole(length, "size", 1) for length in sides)
    places = _places(conv, lengths, causal)
    graphs = tuple(_graph(chosen, lengths) for chosen in product(*places))
    inputs = conv.in_channels
    heads = len(graphs)
    options = {"head_dim": 1, "value_dim": inputs, "num_kv_heads": 1, "bias": conv.bias is not None}
    layer = make(conv.out_channels, heads, qdim=inputs, kdim=inputs, vdim=inputs, **options).to(
        conv.weight
    )
    with torch.no_grad():
        nn.init.eye_(layer.v_proj.weight)
    layer.v_proj.requires_grad_(False)
    layer.out_proj = linear(_of_heads(conv), conv.bias, conv.weight)
    return layer.train(conv.training), PerHead(graphs)


def _of_heads(conv: Any) -> Tensor:
    """The kernel (C_out, heads * C_in): what each head writes, with zeros between groups."""
    # (C_out / G, heads, C_in / G) for each group
    blocks = conv.weight.detach().flatten(2).transpose(1, 2).chunk(conv.groups)
    kernels = [
        torch.block_diag(*(block[:, head] for block in blocks))
        for head in range(blocks[0].shape[1])
    ]
    return torch.cat(kernels, 1)


def _places(
    conv: Any,
    lengths: tuple[int, ...],
    causal: bool,
) -> list[list[Tensor]]:
    """The source of every target (n,) for each axis and place of its kernel; -1 for padding."""
    if causal:
        _check_causal(conv)
    places = []
    for axis, length in enumerate(lengths):
        dilation = conv.dilation[axis]
        stride = conv.stride[axis]
        reach = dilation * (conv.kernel_size[axis] - 1)
        if causal and axis == 0:
            before = reach
            after = 0
        else:
            if conv.padding == "valid":
                before = after = 0
            elif conv.padding == "same":
                before = reach // 2
                after = reach - before
            else:
                before = after = conv.padding[axis]
        last = length + before + after - reach  # first places of the kernel
        if last < 1:
            raise OptionError(
                f"size must hold the kernel, {reach + 1} on axis {axis} with padding, got {length}"
            )
        starts = torch.arange(0, last, stride) - before
        shifts = range(0, reach + 1, dilation)
        places.append([_padded(starts + shift, length, conv.padding_mode) for shift in shifts])
    return places


def _check_causal(conv: Any) -> None:
    """Refuse padding of axis 0, which ``causal`` replaces, and padding with later nodes."""
    unpadded = conv.padding == "valid" or conv.padding[0] == 0
    if not unpadded:
        raise OptionError(
            "causal=True pads axis 0 itself and requires conv.padding 0 there, got "
            f"{conv.padding!r}"
        )
    if conv.kernel_size[0] > 1 and conv.padding_mode in _FROM_LATER:
        raise OptionError(
            "causal=True requires conv.padding_mode 'zeros' or 'replicate', got "
            f"{conv.padding_mode!r}, which pads the start of axis 0 with later nodes"
        )


def _padded(place: Tensor, length: int, mode: str) -> Tensor:
    """The source at each place, which may be before or after the sources."""
    if mode == "circular":
        return place % length
    if mode == "replicate":
        return place.clamp(0, length - 1)
    if mode == "reflect":
        return (place.abs() - (length - 1)).abs().neg() + length - 1
    return torch.where((place >= 0) & (place < length), place, -1)


def _graph(places: tuple[Tensor, ...], lengths: tuple[int, ...]) -> Any:
    """Every target reads its place on each axis."""
    grid = torch.meshgrid(*places, indexing="ij")
    number = torch.zeros_like(grid[0])
    for place, length in zip(grid, lengths, strict=True):
        number = number * length + place
    exists = torch.stack(grid).amin(0).flatten() >= 0
    target = exists.nonzero().flatten()
    edge_index = torch.stack((number.flatten()[target], target))
    return from_edge_index(
        edge_index, num_sources=torch.Size(lengths).numel(), num_targets=exists.numel()
    )
