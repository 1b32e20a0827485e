"""Edge features folded into the nodes: ``<q, W a> = <W' q, a>``, so an edge costs F numbers.

The projection ``W`` is (H, D, F); all sums are float32 or wider.
"""

import torch
from torch import Tensor

from ...graph.modes import without_autocast
from ..arrays import dtype_of_sums
from .call import SoftmaxCall


def _einsum(equation: str, *operands: Tensor) -> Tensor:
    """The sums in the dtype of their operands, also in a backward under autocast."""
    with without_autocast(operands[0].device.type):
        return torch.einsum(equation, *operands)


def feature_queries(x: Tensor, weight: Tensor) -> Tensor:
    """Nodes (B, T, H, D) as queries of features, (B, T, H, F)."""
    dtype = dtype_of_sums(x)
    return _einsum("bthd,hdf->bthf", x.to(dtype), weight.to(dtype)).contiguous()


def projected(sums: Tensor, weight: Tensor) -> Tensor:
    """Sums of features (B, T, H, F) as those of their projections, (B, T, H, D)."""
    return _einsum("bthf,hdf->bthd", sums, weight.to(sums.dtype))


def queries_of(call: SoftmaxCall) -> Tensor:
    """The queries of a call's features, 0 if they do not join the scores; no entries without any."""
    if call.attr_weight is None:
        return call.query.new_empty((0, 0, 0, 0), dtype=call.sum_dtype)
    if call.adds_features_to("key"):
        return feature_queries(call.query.detach(), call.attr_weight.detach())
    return _zeros(call)


def _zeros(call: SoftmaxCall) -> Tensor:
    """(B, T, H, F), of a call with edge features."""
    assert call.attr_weight is not None
    B, T, _, H = call.sizes
    return call.query.new_zeros((B, T, H, call.attr_weight.shape[2]), dtype=call.sum_dtype)


def joined(call: SoftmaxCall, queries: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and sums without the entries of those that features do not join."""
    if not call.adds_features_to("key"):
        queries = queries.new_empty(0, 0, 0, 0)
    if not call.adds_features_to("value"):
        sums = sums.new_empty(0, 0, 0, 0)
    return queries, sums


def add_projected(call: SoftmaxCall, sums: Tensor, output: Tensor) -> None:
    """Add to the output the projection of the sums of features, if they join it."""
    if call.attr_weight is not None and call.adds_features_to("value"):
        output += projected(sums, call.attr_weight.detach())


def gradients_of_sums(call: SoftmaxCall, grad_output: Tensor) -> Tensor:
    """The gradient of the sums of features, 0 if they do not join the output."""
    if call.attr_weight is None:
        return grad_output.new_empty((0, 0, 0, 0), dtype=call.sum_dtype)
    if call.adds_features_to("value"):
        return feature_queries(grad_output, call.attr_weight.detach())
    return _zeros(call)


def gradients_of_projection(
    call: SoftmaxCall, grad_query: Tensor, grad_queries: Tensor, grad_output: Tensor, sums: Tensor
) -> Tensor:
    """The gradient of the projection (H, D, F); its share of the query's is added to that."""
    if call.attr_weight is None:
        return grad_query.new_empty((0, 0, 0), dtype=call.sum_dtype)
    weight = call.attr_weight.detach()
    total = torch.zeros_like(weight, dtype=call.sum_dtype, memory_format=torch.contiguous_format)
    if call.adds_features_to("key"):
        grad_query += projected(grad_queries, weight)
        total += _einsum("bthd,bthf->hdf", call.query.detach().to(call.sum_dtype), grad_queries)
    if call.adds_features_to("value"):
        total += _einsum("bthd,bthf->hdf", grad_output.to(call.sum_dtype), sums)
    return total.to(weight.dtype)
