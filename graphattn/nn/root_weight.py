"""Terms that PyG's convolutions add after attention: a projection of the target, or a bias."""

import torch
from torch import Tensor, nn

from .lazy_widths import linear


class RootWeight(nn.Module):
    r"""``out + W x``, or with ``beta`` a learned gate between the two.

    .. math:: \beta \, W x + (1 - \beta) \, \mathrm{out}, \qquad
              \beta = \sigma(w \cdot [\mathrm{out}, W x, \mathrm{out} - W x])

    Args:
        in_dim: Width of the targets' features.
        out_dim: Width of the attention's output.
        bias: True if ``W`` has a bias.
        beta: True if the sum is gated.

    Source: Shi et al. 2021, "Masked Label Prediction" (UniMP); PyG ``TransformerConv``.
    """

    def __init__(self, in_dim: int, out_dim: int, bias: bool = True, beta: bool = False) -> None:
        super().__init__()
        self.root = linear(in_dim, out_dim, bias)
        self.gate: nn.Linear | None = None
        if beta:
            self.gate = nn.Linear(3 * out_dim, 1, bias=False)

    def forward(self, output: Tensor, x: Tensor) -> Tensor:
        """Join ``output`` (..., T, C) and the targets' features (..., T, C_in)."""
        # context or a bias may have a batch that x lacks
        output, root = torch.broadcast_tensors(output, self.root(x))
        if self.gate is None:
            return output + root
        beta = torch.sigmoid(self.gate(torch.cat((output, root, output - root), -1)))
        return beta * root + (1 - beta) * output


class OutputBias(nn.Module):
    """A bias (C,) added to the outputs of the heads, without a projection.

    Args:
        dim: C.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, output: Tensor, x: Tensor) -> Tensor:
        """``output`` (..., T, C) with the bias; ``x`` is not read."""
        return output + self.bias
