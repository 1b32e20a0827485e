"""What a Swin layer does by hand: roll, cut into cells, dense attention in each, and back."""

import re

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ..problem import Problem
from .base import Forward, Peer

_PAIR = r"\((\d+), (\d+)\)"
_NAME = re.compile(rf"cell_partition\({_PAIR}, {_PAIR}(?:, shift={_PAIR})?\)")


class Swin(Peer):
    """Roll, partition, SDPA with the usual mask of -100 where the roll put strangers together."""

    name = "Swin by hand"
    about = "torch.roll, partition, scaled_dot_product_attention with the additive mask of Swin, reverse"

    def reasons_against(self, problem: Problem) -> list[str]:
        if _NAME.fullmatch(problem.graph.name or "") is None:
            return ["only for a cell_partition of a (height, width) grid without padding"]
        return []

    def prepare(self, problem: Problem, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        match = _NAME.fullmatch(problem.graph.name or "")
        assert match is not None  # reasons_against looked
        height, width, h, w, dy, dx = (int(part or 0) for part in match.groups())
        heads, D, shifted = problem.heads, problem.head_dim, dy or dx

        def cells(x: Tensor) -> Tensor:
            """(B * cells, H, h * w, D) from (B, height, width, H, D)."""
            x = x.view(-1, height // h, h, width // w, w, heads, D)
            return x.permute(0, 1, 3, 5, 2, 4, 6).reshape(-1, heads, h * w, D)

        def taken(x: Tensor) -> Tensor:
            x = x.view(-1, height, width, heads, D)
            return cells(torch.roll(x, (-dy, -dx), (1, 2)) if shifted else x)

        mask = _mask((height, width), (h, w), (dy, dx), query).repeat(problem.batch, 1, 1, 1) if shifted else None

        def forward() -> Tensor:
            out = scaled_dot_product_attention(taken(query), taken(key), taken(value), mask)
            out = out.view(-1, height // h, width // w, heads, h, w, D).permute(0, 1, 4, 2, 5, 3, 6)
            out = out.reshape(-1, height, width, heads, D)
            return torch.roll(out, (dy, dx), (1, 2)) if shifted else out

        return forward


def _mask(size: tuple[int, int], cell: tuple[int, int], shift: tuple[int, int], like: Tensor) -> Tensor:
    """(cells, 1, h * w, h * w): 0 within a region, -100 between regions, as in Swin's own code."""
    region = torch.zeros(size, device=like.device)
    for axis, (length, side, moved) in enumerate(zip(size, cell, shift, strict=True)):
        place = torch.arange(length, device=like.device)
        part = (place >= length - side).long() + (place >= length - moved).long()
        region += (part[:, None] if axis == 0 else part[None, :]) * 3**axis
    (h, w), (height, width) = cell, size
    region = region.view(height // h, h, width // w, w).transpose(1, 2).reshape(-1, 1, h * w)
    return torch.where(region[..., None, :] == region[..., :, None], 0.0, -100.0).to(like.dtype)
