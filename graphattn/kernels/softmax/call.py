"""Operands of the edge operators by name, on any device."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..arrays import dtype_of_sums
from ..cuda.bytes_moved import Sizes, bytes_kept

OPERANDS = 19  # fields of a SoftmaxCall


class SoftmaxCall(NamedTuple):
    """The operands that ``edge_attention`` and its backward share, in the order of their schemas."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    attr: Tensor | None
    attr_weight: Tensor | None
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
    edge_to: str  # "key", "value" or "both": what edge features are added to
    seed: Tensor | None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, T, E, H."""
        B, T, H, _ = self.query.shape
        return B, T, self.edge.shape[0], H

    @property
    def sum_dtype(self) -> torch.dtype:
        """The dtype of sums, and of whatever is not of nodes."""
        return dtype_of_sums(self.query)

    def adds_features_to(self, operand: str) -> bool:
        """True if edge features are added to "key", so join the scores, or to "value"."""
        return self.attr is not None and self.edge_to in (operand, "both")

    def shape_of_features(self, operand: str) -> tuple[int, ...]:
        """(B, T, H, F) of what features are multiplied with, or summed to; else no entries."""
        B, T, _, H = self.sizes
        if self.attr is None or not self.adds_features_to(operand):
            return (0, 0, 0, 0)
        return (B, T, H, self.attr.shape[2])

    def dtype_of_gradient(self, operand: Tensor | None, *shape: int) -> torch.dtype:
        """The dtype of an operand of edges, or if it was broadcast, of the sums still to come."""
        if operand is None or tuple(operand.shape) != shape:
            return self.sum_dtype
        return operand.dtype

    def new_gradients_of_edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """Memory for the gradients of bias, edge features and projection; no entries if absent."""
        B, _, E, H = self.sizes
        new = self.query.new_empty
        of_bias = shape_if(self.bias is not None, B, E, H)
        of_attr: tuple[int, ...] = (0, 0, 0)
        of_weight = new(of_attr, dtype=self.sum_dtype)
        if self.attr is not None and self.attr_weight is not None:
            of_attr = (B, E, self.attr.shape[2])
            of_weight = torch.empty_like(self.attr_weight, memory_format=torch.contiguous_format)
        return (
            new(of_bias, dtype=self.dtype_of_gradient(self.bias, *of_bias)),
            new(of_attr, dtype=self.dtype_of_gradient(self.attr, *of_attr)),
            of_weight,
        )

    @property
    def keeps_weights(self) -> bool:
        """True if the forward keeps its weights for a backward."""
        if self.source_ptr is None:
            return False
        B, T, E, H = self.sizes
        _, S, kv_heads, head_dim = self.key.shape
        number = self.query.element_size()
        sizes = Sizes(
            B, T, S, E, H, kv_heads, head_dim, self.value.shape[-1], number, self.sum_dtype.itemsize
        )
        _, weights = bytes_kept(sizes, self.softcap != 0)
        return weights > 0


def shape_if(is_present: bool, *shape: int) -> tuple[int, ...]:
    """The shape of a result, or one without entries."""
    if is_present:
        return shape
    return (0,) * len(shape)
