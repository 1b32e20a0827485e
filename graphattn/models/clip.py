"""CLIP: an encoder of patches beside a causal one of words, whose vectors agree where image and text do."""

from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import kinds_checked, shown, tensor, width
from ..errors import ShapeError
from ..graph import Pattern
from ..graph.foreign_names import names_checked
from ..graph.layers import Layers
from ..graphs import causal
from ..nn import LearnedPosition
from .example import example, tokens
from .stacks import Encoder
from .tokens import check_tokens
from .vit import ViT

UP_TO_EACH: Pattern = causal(...)


def quick_gelu(x: Tensor) -> Tensor:
    r"""CLIP's activation, :math:`x \, \sigma(1.702 x)`: nearly GELU (Hendrycks and Gimpel 2016, section 2)."""
    return x * torch.sigmoid(1.702 * x)


@example(lambda new, p: new(11, 8, 2, 1, max_len=9, out_dim=5, dropout=p), tokens(7))
class CLIPText(nn.Module):
    """Tokens, learned positions, blocks on a causal graph and a norm; one vector of the end token.

    Args:
        vocab_size: V.
        embed_dim: C.
        num_heads: H.
        num_layers: Blocks, pre-norm.
        hidden: Width of the feed-forwards, ``4 * embed_dim`` by default.
        max_len: Learned positions.
        eos: The end token, whose first place is read; by default the largest number in a text is the end token.
        out_dim: Of a linear head without a bias on the end token's vector; no head by default.
        options: Further arguments of :class:`graphattn.models.Encoder`.

    Source: Radford et al. 2021, "Learning Transferable Visual Models", section 2.4, and their code. Equal to
    ``CLIPTextModel`` and ``CLIPTextModelWithProjection`` of ``transformers``.

    Example:
        >>> CLIPText(11, 8, 2, 2, max_len=9, out_dim=4)(torch.randint(11, (3, 7))).shape
        torch.Size([3, 4])
    """

    @kinds_checked()
    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        hidden: int | None = None,
        *,
        max_len: int = 77,
        eos: int | None = None,
        out_dim: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(width(vocab_size, "vocab_size"), width(embed_dim, "embed_dim"))
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.position = LearnedPosition(max_len, embed_dim)
        self.stack = Encoder(num_layers, embed_dim, num_heads, hidden, **{"activation": quick_gelu, **options})
        self.eos = eos
        self.head = None if out_dim is None else nn.Linear(embed_dim, width(out_dim, "out_dim"), bias=False)

    def features(self, tokens: Tensor, graph: Layers | None = None) -> Tensor:
        """All tokens after the last norm, (..., N, C); arguments as of :meth:`forward`."""
        check_tokens("tokens", tokens, self.embedding.num_embeddings)
        return self.stack(self.position(self.embedding(tokens)), UP_TO_EACH if graph is None else graph)

    def pooled(self, features: Tensor, tokens: Tensor) -> Tensor:
        """The end token's features (..., C) of those of all tokens (..., N, C)."""
        check_tokens("tokens", tokens, self.embedding.num_embeddings)
        if tensor(features, "features", "(..., N, C)", ShapeError).shape[:-1] != tokens.shape:
            raise ShapeError(f"features must be {(*tokens.shape, self.embedding.embedding_dim)}, got {shown(features)}")
        place = (tokens if self.eos is None else (tokens == self.eos).int()).argmax(-1)
        return features.take_along_dim(place[..., None, None], -2).squeeze(-2)

    @names_checked
    def forward(self, tokens: Tensor, graph: Layers | None = None) -> Tensor:
        """What the head makes of the :meth:`pooled` features, (..., out_dim); without a head the :meth:`features`.

        Args:
            tokens: Integers (..., N); what follows the end token is not read.
            graph: N nodes, one for all layers or a list; causal by default.
        """
        x = self.features(tokens, graph)
        return x if self.head is None else self.head(self.pooled(x, tokens))


class CLIP(nn.Module):
    """How well images and texts agree: cosines of their vectors, times a learned factor.

    Args:
        vision: Whose head gives (B, P): a :class:`ViT` with ``num_classes=P``.
        text: Whose head gives as wide vectors: a :class:`CLIPText` with ``out_dim=P``.

    Attributes:
        log_scale: Logarithm of the factor; 1 / 0.07 at first.

    Source: Radford et al. 2021, section 2.3 and figure 3. Equal to ``CLIPModel`` of ``transformers``.

    Example:
        >>> vision, text = ViT(8, 4, 2, 8, 2, num_classes=4), CLIPText(11, 8, 2, 2, out_dim=4)
        >>> CLIP(vision, text)(torch.randn(5, 3, 8, 8), torch.randint(11, (3, 7))).shape
        torch.Size([5, 3])
    """

    @kinds_checked()
    def __init__(self, vision: ViT, text: CLIPText) -> None:
        super().__init__()
        self.vision, self.text = vision, text
        self.log_scale = nn.Parameter(torch.tensor(1 / 0.07).log())

    @names_checked
    def forward(
        self, images: Tensor, tokens: Tensor, image_graph: Layers | None = None, text_graph: Layers | None = None
    ) -> Tensor:
        """Scores (images, texts); their softmax over the texts says which one fits an image.

        Args:
            images: (B, channels, height, width).
            tokens: (texts, N).
            image_graph: As of :class:`ViT`, full by default.
            text_graph: As of :class:`CLIPText`, causal by default.

        Raises:
            ShapeError: If the vectors of images and texts differ in width.
        """
        seen, read = self.vision(images, image_graph), self.text(tokens, text_graph)
        if seen.dim() != 2 or read.shape[1:] != seen.shape[1:]:
            raise ShapeError(
                f"images and texts must give vectors (B, P) of one width, got {tuple(seen.shape)} and "
                f"{tuple(read.shape)}; ViT(num_classes=P) and CLIPText(out_dim=P)"
            )
        return self.log_scale.exp() * nn.functional.normalize(seen, dim=-1) @ nn.functional.normalize(read, dim=-1).T
