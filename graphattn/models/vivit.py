"""ViViT: the tubelets of a video and a class token, which read all of space-time, or space and time by turns."""

from ..arguments import kinds_checked
from ..graph import AttentionGraph
from ..graphs import cell_partition
from .example import example, features
from .patches import PatchTransformer, sides


@kinds_checked()
def divided_space_time(grid: tuple[int, int, int], *, class_token: bool = True) -> list[AttentionGraph]:
    """Two layers: nodes read their own frame; then their own place in all frames.

    Args:
        grid: (time, height, width).
        class_token: Whether a node in front reads all and is read by all, in both.

    Source: Arnab et al. 2021, section 3.3, model 3, in the order of their figure 5, space before time. *What differs:*
    they have no class token there, and one feed-forward after both; in a stack of blocks there is one after each.
    :class:`graphattn.models.TimeSformer` has both attentions in one block.

    Example:
        >>> print(divided_space_time((2, 1, 2), class_token=False)[0])
        AttentionGraph(cell_partition((2, 1, 2), (1, 1, 2)): 4 nodes, 8 edges, density 0.5, rule)
        █ █ · ·
        █ █ · ·
        · · █ █
        · · █ █
    """
    time, height, width = sides("grid", grid, ("time", "height", "width"))
    layers = cell_partition(grid, (1, height, width)), cell_partition(grid, (time, 1, 1))
    return [layer.with_global_tokens(1) if class_token else layer for layer in layers]


@example(
    lambda new, p: new((4, 4, 6), (2, 2, 2), 2, 8, 2, num_classes=5, dropout=p),
    features(3, 4, 4, 6),
    lambda: (divided_space_time((2, 2, 3)),),
)
class ViViT(PatchTransformer):
    """The Video Vision Transformer.

    Args:
        size: Of the videos, (time, height, width): frames and pixels.
        patch: A tubelet, (time, height, width).
        num_layers: Blocks, pre-norm.
        embed_dim: C.
        num_heads: H.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        channels: Of the videos, which are (B, channels, time, height, width) as for ``nn.Conv3d``.
        num_classes: Of a linear head on the class token (without one, on the mean); no head by default.
        num_tokens: K, learned nodes before the patches: the class token; a second is DeiT's distillation token; none 0.
        dropout: As of the blocks, and on the embeddings.
        drop_path: Rate of the last block; it grows from 0 in equal steps.
        options: Further arguments of :class:`graphattn.models.Encoder`.

    Attributes:
        grid: Tubelets, (time, height, width). The graph's nodes are the tokens, the class token first, then these row
            by row.

    Source: Arnab et al. 2021, "ViViT", section 3.3, model 1 (joint space-time attention, the full graph). Equal to
    ``VivitModel`` and ``VivitForVideoClassification`` of ``transformers``, and without a class token to
    ``VideoMAEModel`` and ``VideoMAEForVideoClassification`` (Tong et al. 2022); their videos have the frames before the
    channels.

    Example:
        >>> import torch
        >>> model = ViViT((4, 8, 12), (2, 4, 4), num_layers=4, embed_dim=16, num_heads=2, num_classes=10)
        >>> videos = torch.randn(5, 3, 4, 8, 12)
        >>> model(videos).shape
        torch.Size([5, 10])
        >>> model(videos, divided_space_time(model.grid) * 2).shape
        torch.Size([5, 10])
    """

    axes = ("time", "height", "width")
