"""The dense twin of any layer: which formula stands for which part; the layer's parameters, none of its code."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import OptionError
from ..nn import GraphAttention, Rotary, linear_attention, normalizers, scores
from . import dense_normalizers as dense_n
from . import dense_scores as dense_s
from .dense_normalizers import DenseNormalizer
from .dense_scores import DenseScore
from .sample import Sample
from .subject import Problem
from .twins import DenseGraphAttention, turned

SCORES: dict[type, Callable[[Any], DenseScore]] = {
    scores.Dot: lambda s: dense_s.dot(s.scale),
    scores.Cosine: lambda s: dense_s.cosine(s.log_scale, s.most),
    scores.General: lambda s: dense_s.general(s.weight),
    scores.Additive: lambda s: dense_s.additive(s.weight, s.activation),
    scores.MLPScore: lambda s: dense_s.mlp(
        s.hidden.weight, s.hidden.bias, s.out.weight, s.out.bias, s.edge_dim is not None
    ),
    scores.Gaussian: lambda s: dense_s.gaussian(s.log_sigma),
    scores.Subtraction: lambda s: dense_s.subtraction(
        s.gamma[0].weight, s.gamma[0].bias, s.gamma[2].weight, s.gamma[2].bias
    ),
    linear_attention.FeatureScore: lambda s: dense_s.features(_feature_map(s.feature_map)),
}
PRODUCTS = (scores.Dot, scores.Cosine, scores.General, linear_attention.FeatureScore)

POSITIVE = ("elu", "softmax")
SMOOTH = (type(None), scores.Dot, scores.Cosine, scores.General, scores.Gaussian)
JUMPS = (normalizers.hard, normalizers.sparsemax, normalizers.by_sum)

NORMALIZERS: dict[Any, Callable[[Any], DenseNormalizer | None]] = {
    normalizers.softmax: lambda n: None,
    normalizers.SinkSoftmax: lambda n: dense_n.sink(n.logit),
    normalizers.Sigmoid: lambda n: dense_n.sigmoid(n.bias),
    normalizers.hard: lambda n: dense_n.hard,
    normalizers.sparsemax: lambda n: dense_n.sparsemax,
    normalizers.by_sum: lambda n: dense_n.by_sum,
    normalizers.none: lambda n: dense_n.none,
}


def _feature_map(given: Any) -> Callable[[Tensor], Tensor]:
    """The twin's own of those that the library has; a caller's own as it is."""
    if type(given) is linear_attention.PositiveFeatures:
        return dense_s.positive_features(given.projection)
    names = [name for name, known in linear_attention.FEATURE_MAPS.items() if known is given]
    return dense_s.FEATURE_MAPS[names[0]] if names else given


def _is_perceptron(part: Any) -> bool:
    return part is None or [type(x) for x in part] == [nn.Linear, nn.ReLU, nn.Linear]


def _known(table: dict[Any, Any], part: Any) -> Any:
    """The formula of a part, by its exact class or by itself; ``None`` if the twin has none."""
    if type(part) is scores.Subtraction and not all(map(_is_perceptron, (part.gamma, part.delta))):
        return None
    return table.get(type(part)) or (table.get(part) if callable(part) and not isinstance(part, nn.Module) else None)


def _asked(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """A caller's own function; what it raises, or gives in another shape than it should, is said to be its doing."""
    called = "dense twin called it with edges of its own choice: any number of them, float64"

    def answer(*operands: Any) -> Tensor:
        first = operands[0]
        expected = tuple(first.shape[:-1] if name == "score" else first.shape)
        try:
            found = function(*operands)
        except Exception as error:
            words = (str(error) or "?").splitlines()[0]
            raise OptionError(
                f"the layer's {name} raised {type(error).__name__}: {words}. The {called}; what belongs to edges "
                "goes in edge_attr, and what is learned in an nn.Module"
            ) from error
        if not isinstance(found, Tensor) or tuple(found.shape) != expected:
            came = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise OptionError(
                f"the layer's {name} must return (..., edges, heads) = {expected}, got {came}; the {called}"
            )
        return found

    return answer


class LayerTwin(DenseGraphAttention):
    """Holds what a layer holds, by the same names, and computes it densely; its parts' ``forward`` is never called.

    A score or normalisation that a caller wrote, a rotary of another class or with scaled frequencies, and a caller's
    own feature map or activation are functions that the twin calls, too: :attr:`borrowed` names them.
    """

    score: Any
    normalize: Any
    rotary: Any
    q_norm: Any
    k_norm: Any

    def __init__(self, layer: GraphAttention) -> None:
        parts = {name: deepcopy(getattr(layer, name, None)) for name in ("score", "normalize", "rotary")}
        norms = {name: deepcopy(getattr(layer, name, None)) for name in ("q_norm", "k_norm")}
        apart = (*parts, *norms)
        own = {name: x for name, x in layer.state_dict().items() if name.split(".")[0] not in apart}
        try:
            super().__init__(own, layer.num_heads)
        except (RuntimeError, KeyError) as error:
            raise OptionError(
                f"the parameters of this {type(layer).__name__} are not those of a GraphAttention, whose dense twin "
                f"verify has; a layer of your own is verified as a function f(query, key, value). {error}"
            ) from error
        for name, part in {**parts, **norms}.items():
            setattr(self, name, part)
        self.scale, self.softcap = layer.scale, layer.softcap

    @property
    def borrowed(self) -> list[str]:
        """The parts that are no formula of the twin's own, in words."""
        found = []
        if self.score is not None and _known(SCORES, self.score) is None:
            found.append("the score is a function of your own: asked about every pair of target and source")
        if self.normalize is not None and _known(NORMALIZERS, self.normalize) is None:
            found.append("the normalisation is a function of your own: asked about one target at a time")
            found.append("an edge whose score is -inf is a removed one: your normalisation must give it weight 0")
        if self.rotary is not None and not self._turns:
            found.append("the rotary is not judged: the twin turns by the same")
        return found

    @property
    def _turns(self) -> bool:
        """Whether the rotary is one that the twin has a formula for."""
        return type(self.rotary) is Rotary and getattr(self.rotary, "scaling", None) is None

    @property
    def floats_per_pair(self) -> int:
        """What it holds of a pair and a head, in numbers."""
        made = 1 if self.score is None or type(self.score) in PRODUCTS else 2 * self.head_dim
        return max(made, 8 if self.normalize is not None and _known(NORMALIZERS, self.normalize) is None else 1)

    def problem(
        self,
        piece: Sample,
        num_targets: int,
        x: Tensor,
        context: Tensor | tuple[Tensor, Tensor],
        edge_attr: Tensor | None,
        bias: Tensor | None,
        positions: tuple[Tensor, Tensor] | None,
    ) -> Problem:
        """The operands of a piece: x of its targets, context of its columns, edge features (..., R, U, F)."""
        query, key, value, edge = self.project(x, context, edge_attr)
        if edge_attr is not None and getattr(self.score, "delta", None) is not None:
            edge_attr = self._delta(edge_attr)
            edge = edge_attr.unflatten(-1, query.shape[-2:])
        query, key = self._normed(query, self.q_norm), self._normed(key, self.k_norm)
        if self.rotary is not None:
            of_targets, of_sources = (None, None) if positions is None else positions
            query, key = self._turned(query, of_targets), self._turned(key, of_sources)
        return Problem(
            query,
            key,
            value,
            piece.mask,
            self.head_dim**-0.5 if self.scale is None else self.scale,
            bias=bias,
            softcap=self.softcap,
            edge=edge,
            edge_attr=None if self.score is None or edge_attr is None else _everywhere(edge_attr, piece),
            score=self._score(),
            normalize=self._normalize(piece, num_targets),
            smooth=self._smooth(bias is None),
            finish=lambda heads: self.finish(heads, x),
        )

    def _smooth(self, without_bias: bool) -> bool:
        """Whether it is known to have no kink, and no sum near 0 that it divides by."""
        known = self.normalize is None or _known(NORMALIZERS, self.normalize) is not None
        phi = getattr(self.score, "feature_map", None)
        positive = any(phi is linear_attention.FEATURE_MAPS[name] for name in POSITIVE)
        curved = type(self.score) in SMOOTH or positive or getattr(self.score, "activation", None) is torch.tanh
        summed = self.normalize is normalizers.by_sum and positive and without_bias and self.softcap is None
        return known and curved and (summed or self.normalize not in JUMPS)

    def _normed(self, x: Tensor, norm: Any) -> Tensor:
        return x if norm is None else x * (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt() * norm.weight

    def _turned(self, x: Tensor, positions: Tensor | None) -> Tensor:
        if not self._turns or positions is None:
            return self.rotary(x, positions)
        return turned(x, positions, self.rotary.base, self.rotary.rotary_dim, self.rotary.layout, self.rotary.num_axes)

    def _delta(self, edge_attr: Tensor) -> Tensor:
        """The score's own encoding of edge features (..., R, U, H * D)."""
        delta = self.score.delta
        if _known(SCORES, self.score) is None:
            return delta(edge_attr)
        return dense_s.encoding(delta[0].weight, delta[0].bias, delta[2].weight, delta[2].bias)(edge_attr)

    def _score(self) -> DenseScore | None:
        if self.score is None:
            return None
        make = _known(SCORES, self.score)
        return dense_s.of_pairs(_asked("score", self.score)) if make is None else make(self.score)

    def _normalize(self, piece: Sample, num_targets: int) -> DenseNormalizer | None:
        if self.normalize is None:
            return None
        make = _known(NORMALIZERS, self.normalize)
        if make is not None:
            return make(self.normalize)
        return dense_n.of_rows(_asked("normalisation", self.normalize), piece.targets, num_targets)


def _everywhere(edge_attr: Tensor, piece: Sample) -> Tensor:
    """Edge features (..., R, U, F) where pairs without an edge have those of the first edge, which a score can bear."""
    if piece.row.numel() == 0:
        return edge_attr
    first = edge_attr[..., piece.row[0], piece.column[0], :].detach()[..., None, None, :]
    return torch.where(piece.mask.unsqueeze(-1), edge_attr, first)
