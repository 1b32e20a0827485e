"""Operands of the edge operators by name, on any device."""

from typing import NamedTuple

import torch
from torch import Tensor

from .arrays import dtype_of_sums
from .bytes_moved import Sizes, kept

OPERANDS = 18  # fields of a Call


class Call(NamedTuple):
    """The operands that ``edge_attention`` and its backward share, in the order of their schemas."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    attr: Tensor | None
    attr_query: Tensor | None
    ptr: Tensor
    source: Tensor  # ``index`` of the schema
    edge: Tensor
    order: Tensor
    source_ptr: Tensor | None
    target: Tensor | None
    place: Tensor | None
    source_order: Tensor | None
    scale: float
    softcap: float
    dropout_p: float
    seed: Tensor | None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, T, E, H."""
        B, T, H, _ = self.query.shape
        return B, T, self.edge.shape[0], H

    @property
    def wide(self) -> torch.dtype:
        """The dtype of sums, and of whatever is not of nodes."""
        return dtype_of_sums(self.query)

    @property
    def shape_of_feature_sums(self) -> tuple[int, ...]:
        """(B, T, H, F): edge features summed over each target; no entries without features."""
        if self.attr_query is None:
            return (0, 0, 0, 0)
        return tuple(self.attr_query.shape)

    @property
    def shape_of_feature_gradients(self) -> tuple[int, ...]:
        """(B, E, F): gradients of edge features; no entries without features."""
        if self.attr is None:
            return (0, 0, 0)
        return (self.query.shape[0], *self.attr.shape[1:])

    @property
    def keeps_weights(self) -> bool:
        """True if the forward keeps its weights for a backward."""
        if self.source_ptr is None:
            return False
        B, T, E, H = self.sizes
        _, S, kv_heads, head_dim = self.key.shape
        number = self.query.element_size()
        sizes = Sizes(
            B, T, S, E, H, kv_heads, head_dim, self.value.shape[-1], number, self.wide.itemsize
        )
        _, weights = kept(sizes, self.softcap != 0)
        return weights > 0


def shape_if(wanted: bool, *shape: int) -> tuple[int, ...]:
    """The shape of a result, or one without entries."""
    if wanted:
        return shape
    return (0,) * len(shape)
