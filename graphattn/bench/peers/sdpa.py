"""torch's scaled_dot_product_attention: with the graph as a mask, and bare where the graph needs none."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ...graph.facts import is_full, is_lower_triangle
from ..problem import Problem
from .base import Forward, HeadsFirst, too_large


class MaskedSDPA(HeadsFirst):
    """Dense attention over all T x S pairs."""

    name = "SDPA + mask"
    about = "torch scaled_dot_product_attention with a bool mask (T, S), heads first"

    def reasons_against(self, problem: Problem) -> list[str]:
        graph = problem.graph
        if graph.has_repeated_edges:
            return ["a bool mask cannot count repeated edges"]
        pairs = graph.num_targets * graph.num_sources
        wide = 4 if problem.device == "cpu" else 2 * problem.batch * problem.heads  # a mask in numbers; on CUDA scores
        return too_large(f"a mask of {graph.num_targets:,} x {graph.num_sources:,}", pairs * (1 + wide), problem.device)

    def prepare(self, problem: Problem, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        mask = problem.graph.mask().to(problem.device)
        silent = ~mask.any(1, keepdim=True)
        if not bool(silent.any()):
            return lambda: scaled_dot_product_attention(query, key, value, mask)
        readable = mask | silent  # a row of nothing would be NaN
        return lambda: scaled_dot_product_attention(query, key, value, readable).masked_fill(silent, 0.0)


class BareSDPA(HeadsFirst):
    """The same without a mask, where the graph is full or causal."""

    name = "SDPA"
    about = "torch scaled_dot_product_attention, no mask, or is_causal=True, heads first"

    def reasons_against(self, problem: Problem) -> list[str]:
        plain = is_full(problem.graph) or is_lower_triangle(problem.graph)
        return [] if plain else ["only for a full or a causal graph; another one needs the mask"]

    def prepare(self, problem: Problem, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        causal = not is_full(problem.graph)
        return lambda: scaled_dot_product_attention(query, key, value, is_causal=causal)


class Flex(HeadsFirst):
    """FlexAttention with a block mask made from exact counts (``graphattn.to_block_mask``)."""

    name = "FlexAttention"
    about = "torch.compile(flex_attention), BlockMask of 128 x 128 blocks, heads first"

    def __init__(self) -> None:
        self._compiled: object = None

    def no_backward(self, problem: Problem) -> str:
        return "FlexAttention has no backward pass on a CPU" if problem.device == "cpu" else ""

    def reasons_against(self, problem: Problem) -> list[str]:
        return ["a mask function cannot count repeated edges"] if problem.graph.has_repeated_edges else []

    def prepare(self, problem: Problem, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        from torch.nn.attention.flex_attention import flex_attention

        from ...interop import to_block_mask

        if self._compiled is None:
            self._compiled = torch.compile(flex_attention, dynamic=False)
        block_mask, call = to_block_mask(problem.graph), self._compiled
        return lambda: call(query, key, value, block_mask=block_mask)  # type: ignore[operator]
