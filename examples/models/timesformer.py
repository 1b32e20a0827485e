"""TimeSformer: blocks of attention over time, within places, then over space, within frames."""

import torch
from torch import Tensor, nn

from graphattn.arguments import shown, width
from graphattn.errors import OptionError, ShapeError
from graphattn.graph.foreign_names import names_checked
from graphattn.graphs import window_partition
from graphattn.models.images.patches import PatchEmbedding, behind_tokens, lies_on_grid, sides
from graphattn.models.stacks import growing, layers_in
from graphattn.nn import DropPath, FeedForward, GraphAttention
from graphattn.nn.blocks import Graph

Grid = tuple[int, int, int]
TimeAndSpace = tuple[Graph, Graph]


class DividedBlock(nn.Module):
    """Attention over time, attention over space, a feed-forward, each pre-norm with a residual.

    Patches are a grid (time, places). The class token is not part of attention over time. Over
    space every frame has a copy of it in front, and the token becomes the mean of its copies.

    Args:
        embed_dim: C.
        num_heads: H.
        hidden: Width of the feed-forward, ``4 * embed_dim`` by default.
        activation: Activation of the feed-forward.
        drop_path: Probability of dropping a branch, by example.

    Source: Bertasius et al. 2021, "Is Space-Time Attention All You Need for Video Understanding?",
    section 3, and their code, which has a linear layer after the attention over time.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        hidden: int | None = None,
        activation: str = "gelu",
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.time_norm = nn.LayerNorm(embed_dim)
        self.time_attention = GraphAttention(embed_dim, num_heads)
        self.time_dense = nn.Linear(embed_dim, embed_dim)
        self.space_norm = nn.LayerNorm(embed_dim)
        self.space_attention = GraphAttention(embed_dim, num_heads)
        self.feed_forward_norm = nn.LayerNorm(embed_dim)
        if hidden is None:
            hidden = 4 * embed_dim
        self.feed_forward = FeedForward(embed_dim, hidden, activation)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, num_frames: int, graphs: TimeAndSpace) -> Tensor:
        """(B, 1 + N, C) to the same.

        Args:
            x: The class token, then the patches of every frame.
            num_frames: T, which divides N.
            graphs: Over time, between the N patches; and over space, between T frames after their
                copies of the class token, T * (1 + N / T) nodes.
        """
        token = x[..., :1, :]
        patches = x[..., 1:, :]
        over_time, over_space = graphs
        attended = self.drop_path(self.time_attention(self.time_norm(patches), over_time))
        patches = patches + self.time_dense(attended)
        copies = token.unsqueeze(-3).expand(*token.shape[:-2], num_frames, 1, -1)
        frames = torch.cat((copies, patches.unflatten(-2, (num_frames, -1))), -2)
        attended = self.drop_path(
            self.space_attention(self.space_norm(frames.flatten(-3, -2)), over_space)
        )
        attended = attended.unflatten(-2, (num_frames, -1))
        token = token + attended[..., 0, :].mean(-2, keepdim=True)
        patches = patches + attended[..., 1:, :].flatten(-3, -2)
        x = torch.cat((token, patches), -2)
        return x + self.drop_path(self.feed_forward(self.feed_forward_norm(x)))


class TimeSformer(nn.Module):
    """TimeSformer with divided space-time attention.

    Args:
        size: Size of the videos, (time, height, width): frames and pixels.
        patch: Pixels of a patch in one frame, (height, width), or one number for both.
        num_layers: Number of blocks.
        embed_dim: C.
        num_heads: H.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        channels: Channels of the videos, which are (B, channels, time, height, width).
        num_classes: Classes of a linear head on the class token; no head by default.
        activation: Activation of the feed-forwards.
        drop_path: Rate of the last block; it grows from 0 in equal steps.

    Attributes:
        grid: Numbers of patches, (time, height, width).
        graphs: The paper's pair: patches of the same place; patches of the same frame and its copy
            of the class token.

    Source: Bertasius et al. 2021. Equal to ``TimesformerModel`` and
    ``TimesformerForVideoClassification`` of ``transformers`` with
    ``attention_type="divided_space_time"``, whose patches come place by place.

    Example:
        >>> import graphattn as ga
        >>> model = TimeSformer((4, 8, 12), (4, 4), num_layers=2, embed_dim=16, num_heads=2, num_classes=10)
        >>> videos = torch.randn(5, 3, 4, 8, 12)
        >>> model(videos).shape
        torch.Size([5, 10])
        >>> time, space = model.graphs
        >>> past = ga.graphs.grid_neighbourhood(..., (4, 1, 1), causal=(True, False, False))
        >>> model(videos, (past, space)).shape, model(videos, [(past, space), (time, space)]).shape
        (torch.Size([5, 10]), torch.Size([5, 10]))
    """

    def __init__(
        self,
        size: Grid,
        patch: tuple[int, int] | int,
        num_layers: int,
        embed_dim: int,
        num_heads: int,
        hidden: int | None = None,
        *,
        channels: int = 3,
        num_classes: int | None = None,
        activation: str = "gelu",
        drop_path: float = 0.0,
    ) -> None:
        """Arguments as in the docstring of the class."""
        super().__init__()
        self.patches = PatchEmbedding(
            channels, embed_dim, (1, *sides("patch", patch, ("height", "width")))
        )
        time, height, grid_width = self.patches.grid(
            sides("size", size, ("time", "height", "width"))
        )
        self.grid: Grid = (time, height, grid_width)
        self.class_token = nn.Parameter(torch.randn(embed_dim) * 0.02)
        self.space_positions = nn.Parameter(torch.randn(1 + height * grid_width, embed_dim) * 0.02)
        self.time_positions = nn.Parameter(torch.zeros(time, embed_dim))
        rates = growing(drop_path, num_layers)
        self.layers = nn.ModuleList(
            DividedBlock(embed_dim, num_heads, hidden, activation, rate) for rate in rates
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.head: nn.Module | None = None
        if num_classes is not None:
            self.head = nn.Linear(embed_dim, width(num_classes, "num_classes"))
        places = height * grid_width
        with torch.device("cpu"):  # a model may be made on meta
            over_space = window_partition((time, 1 + places), (1, 1 + places))
            self.graphs: TimeAndSpace = window_partition(self.grid, (time, 1, 1)), over_space

    def nodes(self, videos: Tensor) -> Tensor:
        """The input of the first block, (B, 1 + N, C): the class token, then patches by frame."""
        x = self.patches(videos)
        grid = self.patches.grid(tuple(videos.shape[-3:]))
        if grid != self.grid:
            raise ShapeError(
                f"videos must have a grid of {self.grid} patches, as the model's positions, got "
                f"{grid}"
            )
        positions = self.space_positions[1:] + self.time_positions.unsqueeze(1)  # (time, places, C)
        token = (self.class_token + self.space_positions[0]).expand(*x.shape[:-2], 1, -1)
        return torch.cat((token, x + positions.flatten(0, 1)), -2)

    def features(
        self, videos: Tensor, graphs: TimeAndSpace | list[TimeAndSpace] | None = None
    ) -> Tensor:
        """All nodes after the last norm, (B, 1 + N, C); arguments as of :meth:`forward`."""
        if graphs is None:
            graphs = self.graphs
        if isinstance(graphs, tuple):
            pairs = [graphs] * len(self.layers)
        else:
            pairs = layers_in(graphs)
        if len(pairs) != len(self.layers):
            raise OptionError(
                f"{len(self.layers)} layers need as many pairs (over time, over space), got "
                f"{len(pairs)}"
            )
        x = self.nodes(videos)
        for layer, pair in zip(self.layers, pairs, strict=True):
            x = layer(x, self.grid[0], self._sized(pair))
        return self.norm(x)

    def _sized(self, graphs: TimeAndSpace) -> TimeAndSpace:
        if not isinstance(graphs, tuple | list) or len(graphs) != 2:
            raise OptionError(
                f"graphs of a layer must be a pair (over time, over space), got {shown(graphs)}"
            )
        time, space = graphs
        if lies_on_grid(time):
            time = time.at(self.grid)
        if lies_on_grid(space):
            space = behind_tokens(space, self.grid[1:], times=self.grid[0])
        return time, space

    @names_checked
    def forward(
        self, videos: Tensor, graphs: TimeAndSpace | list[TimeAndSpace] | None = None
    ) -> Tensor:
        """The head's output for the class token, (B, num_classes), or the :meth:`features`.

        Args:
            videos: (B, channels, time, height, width).
            graphs: A pair (over time, over space) as of :class:`DividedBlock` for all layers, or a
                list with one for each; ``graphs`` by default. A pattern on a grid is over time one
                of (time, height, width), over space one of (height, width), the same in all frames,
                each behind its copy of the class token.
        """
        x = self.features(videos, graphs)
        if self.head is None:
            return x
        return self.head(x[..., 0, :])
