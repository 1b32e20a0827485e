"""The Vision Transformer: patches and a class token that all read all, or along any graph."""

from .example import example, features
from .patches import PatchTransformer


@example(lambda new, p: new((8, 12), (4, 4), 1, 8, 2, num_classes=5, dropout=p), features(3, 8, 12))
class ViT(PatchTransformer):
    """The Vision Transformer.

    Args:
        size: Of the images in pixels, (height, width), or one number for both.
        patch: Pixels of a patch, (height, width), or one number for both.
        num_layers: Blocks, pre-norm.
        embed_dim: C.
        num_heads: H.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        channels: Of the images.
        num_classes: Of a linear head on the class token (without one, on the mean); no head by default.
        num_tokens: K, learned nodes before the patches: the class token; a second is DeiT's distillation token; none 0.
        dropout: As of the blocks, and on the embeddings.
        drop_path: Rate of the last block; it grows from 0 in equal steps.
        options: Further arguments of :class:`graphattn.models.Encoder`.

    Attributes:
        grid: Patches, (height, width). The graph's nodes are the tokens, the class token first, then these row by row.

    Source: Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words". Equal to ``ViTModel`` and
    ``ViTForImageClassification`` of ``transformers``, and with a second token to ``DeiTModel`` and
    ``DeiTForImageClassification`` (Touvron et al. 2021): :func:`graphattn.models.from_hf`.

    Example:
        >>> import torch, graphattn as ga
        >>> model = ViT((24, 32), (8, 8), num_layers=2, embed_dim=16, num_heads=2, num_classes=10)
        >>> images = torch.randn(5, 3, 24, 32)
        >>> model(images).shape
        torch.Size([5, 10])
        >>> local = ga.graphs.grid_neighbourhood(..., 3)  # of the patches; the class token reads all
        >>> model(images, local).shape, model(images, [local, ga.graphs.full(...)]).shape
        (torch.Size([5, 10]), torch.Size([5, 10]))
    """

    axes = ("height", "width")
