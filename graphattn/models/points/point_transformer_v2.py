"""Point Transformer V2: grouped vector attention, and grids in place of farthest points."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ...arguments import probability, width
from ...nn.blocks import make_norm
from ..example import example, features, small_cloud
from .levels import heads_of, sizes
from .point_transformer import PointStages, VectorBlock


@example(
    lambda new, p: new(3, 2, (8, 8), (1, 1), channels=4, drop_path=p),
    features(13, 3),
    lambda: (small_cloud(cell=0.6),),
)
class PointTransformerV2(PointStages):
    """Grouped vector attention on each level of a grid; outputs per point or per cloud.

    Args:
        features: Width of the points' features.
        out_dim: Width of the answer, from a perceptron.
        widths: C of each level, the finest first.
        depths: Blocks of each level on the way down; one follows on each level on the way up.
        channels: Channels of a group, which share a weight: 8 in the published models.
        axes: Number of axes of the positions.
        readout: "node", or "shape", from the mean over the coarsest points.
        drop_path: Probability of dropping a block's branch.

    Source: Wu et al. 2022. *What differs:* layer norms in place of batch norms, so that an output
    does not depend on the other clouds of its batch; a position adds to the relation and to the
    value (``pe_bias``) and multiplies nothing, as in the released settings; no norm inside the two
    perceptrons of the score. The hierarchy is the caller's, such as
    ``ga.graphs.hierarchy(..., cell=(0.06, 0.12, 0.24, 0.48))``.

    Example:
        >>> import torch, graphattn as ga
        >>> pos, batch = torch.rand(60, 3), torch.arange(60) // 30
        >>> model = PointTransformerV2(3, 5, widths=(16, 32), depths=(1, 1))
        >>> model(pos, ga.graphs.hierarchy(pos, batch, cell=0.3)).shape
        torch.Size([60, 5])
    """

    def __init__(
        self,
        features: int,
        out_dim: int,
        widths: Sequence[int] = (48, 96, 192, 384, 512),
        depths: Sequence[int] | int = (1, 2, 2, 6, 2),
        *,
        channels: int = 8,
        axes: int = 3,
        readout: str = "node",
        drop_path: float = 0.0,
    ) -> None:
        """Arguments as in the docstring of the class."""
        level_widths = sizes(widths, "widths")
        heads_of(level_widths, width(channels, "channels"), "channels")
        drop_path = probability(drop_path, "drop_path", below_one=True)
        block = partial(
            GroupedBlock, channels=channels, axes=width(axes, "axes"), drop_path=drop_path
        )
        super().__init__(features, out_dim, level_widths, depths, 1, block, readout)


class ActivatedLinear(nn.Linear):
    """``relu(norm(W x + b))``, the projection of queries and keys."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, embed_dim)
        self.norm = make_norm("layer", embed_dim, 1e-5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(super().forward(x)))


class GroupedBlock(VectorBlock):
    """A block whose groups of channels share weights, with normed, rectified queries and keys."""

    def __init__(self, embed_dim: int, channels: int, axes: int, drop_path: float) -> None:
        super().__init__(embed_dim, channels, axes, embed_dim // channels, drop_path)
        self.attention.q_proj = ActivatedLinear(embed_dim)
        self.attention.k_proj = ActivatedLinear(embed_dim)
