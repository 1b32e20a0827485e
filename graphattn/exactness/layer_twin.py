"""The dense twin of any layer: a formula for each part, its parameters, none of its code."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..arguments import check_shape
from ..errors import OptionError
from ..nn import GraphAttention, Rotary, normalizers
from ..nn.normalizers import DenseNormalizer, entry_of, optional_arguments
from ..nn.scores import Score
from ..twins.dense import DenseGraphAttention, turned
from ..twins.pieces import Piece
from ..twins.problem import DenseScore, Problem

#: Operands of edges by name, of a row and columns (e,) in it.
NamedOperands = Callable[[int, Tensor], dict[str, Tensor | None]]


class Numbers(NamedTuple):
    """The numbers of a piece's nodes, each in its own graph, for a caller's normalisation."""

    targets: Tensor
    """int64 (R,)"""
    num_targets: Sequence[int]
    """T of the graph of each of R targets."""
    sources: Tensor
    """int64 (U,)"""


class LayerTwin(DenseGraphAttention):
    """A layer's parts by the same names, computed densely; their ``forward`` is never called.

    A score or normalisation that a caller wrote, a rotary of another class or with scaled
    frequencies, and a caller's own feature map or activation are functions that the twin calls,
    too: :attr:`borrowed` names them.
    """

    score: Any
    normalize: Any
    rotary: Any
    q_norm: Any
    k_norm: Any

    def __init__(self, layer: GraphAttention) -> None:
        names = ("score", "normalize", "rotary", "q_norm", "k_norm")
        parts = {name: deepcopy(getattr(layer, name, None)) for name in names}
        state = layer.state_dict()
        projections = {name: x for name, x in state.items() if name.split(".")[0] not in names}
        try:
            super().__init__(projections, layer.num_heads)
        except (RuntimeError, KeyError) as error:
            raise OptionError(
                f"the parameters of this {type(layer).__name__} are not those of a "
                "GraphAttention, whose dense twin verify has; a layer of your own is verified as a "
                f"function f(query, key, value). {error}"
            ) from error
        for name, part in parts.items():
            setattr(self, name, part)
        for name in ("q_proj", "v_proj"):
            # one projection, whose gradient is of all that it makes
            if getattr(layer, name) is layer.k_proj:
                setattr(self, name, self.k_proj)
        self.scale = layer.scale
        self.softcap = layer.softcap
        self.cap_bias = layer.cap_bias
        self.edge_to = layer.edge_to
        self.score_reads_edges = layer.edge_dim is not None and layer.edge_to != "value"

    @property
    def borrowed(self) -> list[str]:
        """The parts that are no formula of the twin's own, in words."""
        notes = []
        if self.score is not None and not self._knows_score:
            notes.append(
                "the score is a function of your own: called on every pair of target and source"
            )
        if not self._knows_normalize:
            notes.append(
                "the normalisation is a function of your own: called on one target at a time"
            )
            notes.append(
                "an edge whose score is -inf is a removed one: your normalisation must give it "
                "weight 0"
            )
        if not self._norms:
            notes.append("the norm of queries and keys is not judged: the twin calls the same")
        if self.rotary is not None and not self._turns:
            notes.append("the rotary is not judged: the twin turns by the same")
        return notes

    @property
    def _knows_score(self) -> bool:
        """True if the score has a formula of its own to be judged by."""
        return isinstance(self.score, Score) and self.score.has_twin

    @property
    def _knows_normalize(self) -> bool:
        """Likewise the normalisation; softmax is that of the dense twin itself."""
        return self._is_softmax or entry_of(self.normalize) is not None

    @property
    def _is_softmax(self) -> bool:
        return self.normalize is None or self.normalize is normalizers.softmax

    @property
    def _norms(self) -> bool:
        """True if the norms of queries and keys are none, or ones that the twin has formulas for."""
        known = (type(None), nn.RMSNorm, nn.LayerNorm)
        norms = (self.q_norm, self.k_norm)
        of_heads = (None, (self.head_dim,))
        return all(
            type(norm) in known and getattr(norm, "normalized_shape", None) in of_heads
            for norm in norms
        )

    @property
    def _turns(self) -> bool:
        """True if the rotary is one that the twin has a formula for."""
        return type(self.rotary) is Rotary and getattr(self.rotary, "scaling", None) is None

    @property
    def floats_per_pair(self) -> int:
        """Numbers that it holds of a pair and a head."""
        floats = 1
        if not self._knows_normalize:
            floats = 8
        if self.score is None:
            return floats
        if self._knows_score and type(self.score).as_dot is not Score.as_dot:
            return floats
        return max(floats, 2 * self.head_dim)

    def problem(
        self,
        piece: Piece,
        numbers: Numbers,
        x: Tensor,
        context: Tensor | tuple[Tensor, Tensor],
        edge_attr: Tensor | None,
        bias: Tensor | None,
        positions: tuple[Tensor, Tensor] | None,
    ) -> Problem:
        """The operands of a piece: x of its targets, context of its columns, edge_attr (..., R, U, F)."""
        query, key, value, edge = self.project(x, context, edge_attr)
        if edge_attr is not None and getattr(self.score, "delta", None) is not None:
            delta = self.score.delta
            if self._knows_score:
                delta = self.score.dense_delta
            edge_attr = delta(edge_attr)  # (..., R, U, H * D)
            edge = edge_attr.unflatten(-1, query.shape[-2:])
        of_score = None
        if edge_attr is not None and self.score is not None:
            if self.edge_to != "value":
                of_score = _everywhere(edge_attr, piece)
            if self.edge_to == "key":
                edge = None
        query, key = self._normed_and_turned(query, key, positions)
        scale = self.scale
        if scale is None:
            scale = self.head_dim**-0.5
        return Problem(
            query,
            key,
            value,
            piece.mask,
            scale,
            bias=bias,
            softcap=self.softcap,
            edge=edge,
            edge_attr=of_score,
            score=self._score(),
            normalize=self._normalize(piece, numbers, edge_attr),
            edge_to=self.edge_to,
            cap_bias=self.cap_bias,
            smooth=self._smooth(bias is None),
            finish=lambda heads: self.finish(heads, x),
        )

    def chooses_by(
        self,
        x: Tensor,
        context: Tensor | tuple[Tensor, Tensor],
        positions: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor]:
        """The queries and keys that choose edges: those of the score's dot product if it is one."""
        if isinstance(context, tuple):
            context = context[0]
        query = self.q_proj(x).unflatten(-1, (-1, self.head_dim))
        key = self.k_proj(context).unflatten(-1, (-1, self.head_dim))
        query, key = self._normed_and_turned(query, key, positions)
        if isinstance(self.score, Score) and not self.score_reads_edges:
            return self.score.as_dot(query, key) or (query, key)
        return query, key

    def _smooth(self, without_bias: bool) -> bool:
        """True if it is known to have no kink, and no sum near 0 that it divides by."""
        score_is_smooth = self.score is None
        if self._knows_score:
            score_is_smooth = self.score.smooth
        if not score_is_smooth:
            return False
        if self._is_softmax:
            return True
        if self.normalize is normalizers.by_sum:
            if self.score is None or self.softcap is not None:
                return False
            return self.score.positive and without_bias
        entry = entry_of(self.normalize)
        return entry is not None and entry.smooth

    def _normed_and_turned(
        self, query: Tensor, key: Tensor, positions: tuple[Tensor | None, Tensor | None] | None
    ) -> tuple[Tensor, Tensor]:
        query = self._normed(query, self.q_norm)
        key = self._normed(key, self.k_norm)
        if self.rotary is None:
            return query, key
        if positions is None:
            positions = (None, None)
        return self._turned(query, positions[0]), self._turned(key, positions[1])

    def _normed(self, x: Tensor, norm: Any) -> Tensor:
        if norm is None:
            return x
        if not self._norms:
            return norm(x)
        if isinstance(norm, nn.LayerNorm):
            x = x - x.mean(-1, keepdim=True)
        x = x * (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt()
        if norm.weight is not None:
            x = x * norm.weight
        if getattr(norm, "bias", None) is not None:
            x = x + norm.bias
        return x

    def _turned(self, x: Tensor, positions: Tensor | None) -> Tensor:
        if not self._turns or positions is None:
            return self.rotary(x, positions)
        return turned(
            x,
            positions,
            self.rotary.base,
            self.rotary.rotary_dim,
            self.rotary.layout,
            self.rotary.num_axes,
        )

    def _score(self) -> DenseScore | None:
        if self.score is None:
            return None
        if self._knows_score:
            return self.score.dense
        return of_pairs(checked("score", self.score))

    def _normalize(
        self, piece: Piece, numbers: Numbers, edge_attr: Tensor | None
    ) -> DenseNormalizer | None:
        if self._is_softmax:
            return None
        entry = entry_of(self.normalize)
        if entry is None:
            named = self._named_operands(piece, numbers.sources, edge_attr)
            function = checked("normalisation", self.normalize)
            return of_rows(function, numbers.targets, numbers.num_targets, named)
        if isinstance(entry.of, type):
            return partial(entry.dense, self.normalize)
        return entry.dense

    def _named_operands(
        self, piece: Piece, sources: Tensor, edge_attr: Tensor | None
    ) -> NamedOperands:
        """Operands that a custom normalisation takes by name, for the edges of a row."""
        names = optional_arguments(self.normalize)

        def operands(row: int, column: Tensor) -> dict[str, Tensor | None]:
            columns = sources
            if piece.slots is not None:
                columns = columns[piece.slots[row]]
            column = column % columns.numel()  # copies of the columns stand behind each other
            features = None
            if edge_attr is not None:
                features = edge_attr[..., row, column, :]
            of_edges = {"source": columns[column], "edge_attr": features}
            return {name: of_edges[name] for name in names}

        return operands


def _everywhere(edge_attr: Tensor, piece: Piece) -> Tensor:
    """Edge features (..., R, U, F), those of the first edge where there is no edge.

    A score may not be defined on zeros.
    """
    if piece.row.numel() == 0:
        return edge_attr
    first = edge_attr[..., piece.row[0], piece.column[0], :].detach()[..., None, None, :]
    return torch.where(piece.mask.unsqueeze(-1), edge_attr, first)


# --- a caller's own score or normalisation: called for every pair, and for each target alone


def of_pairs(function: DenseScore) -> DenseScore:
    """A caller's own ``function(query, key, edge_attr)`` of edges, called on every pair.

    So a score that mixes edges, or that holds numbers of the edges it was made for, does not agree
    with itself here.
    """

    def score(query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        T = query.shape[-3]
        S = key.shape[-3]
        query = query.unsqueeze(-3).expand(*query.shape[:-2], S, *query.shape[-2:]).flatten(-4, -3)
        key = key.unsqueeze(-4).expand(*key.shape[:-3], T, *key.shape[-3:]).flatten(-4, -3)
        if edge_attr is not None:
            edge_attr = edge_attr.flatten(-3, -2)
        result = function(query, key, edge_attr)  # (..., T * S, H)
        return result.unflatten(-2, (T, S)).movedim(-1, -3)

    return score


def of_rows(
    function: Callable[..., Tensor],
    targets: Tensor,
    num_targets: Sequence[int],
    named: NamedOperands = lambda row, column: {},
) -> DenseNormalizer:
    """A caller's own ``function(score, target, num_targets)`` of edges, called target by target.

    A call has the edges of that target alone, by source; where heads differ, a head that lacks one
    has -inf there. So a function that mixes the edges of several targets, or whose answer depends
    on their order, does not agree with itself here.

    Args:
        function: Gives weights (..., e, H) of scores (..., e, H) and int64 targets (e,).
        targets: int64 (R,), the number of each row.
        num_targets: T of the graph of each row.
        named: Further operands by name, of the edges from some columns (e,) in a row.
    """

    def weights(score: Tensor, there: Tensor) -> Tensor:
        rows = []
        for row, (target, T) in enumerate(zip(targets.tolist(), num_targets, strict=True)):
            has_edge = there[..., row, :]
            column = torch.nonzero(has_edge.flatten(0, -2).any(0)).flatten()
            masked = score[..., row, :].masked_fill(~has_edge, -torch.inf)
            row_weights = torch.zeros_like(masked)
            if column.numel():
                of_edges = masked.index_select(-1, column).transpose(-2, -1)
                targets_of_edges = torch.full_like(column, target)
                weight = function(of_edges, targets_of_edges, T, **named(row, column))
                weight = weight.to(score.dtype).transpose(-2, -1)
                row_weights = row_weights.index_copy(-1, column, weight)
            rows.append(row_weights)
        if rows:
            return torch.stack(rows, -2)
        return torch.zeros_like(score)

    return weights


def checked(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """A caller's own function, whose errors and wrong shapes are reported as its own."""
    called = "dense twin called it with edges of its own choice: any number of them, float64"

    def answer(*operands: Any, **named: Any) -> Tensor:
        expected = tuple(operands[0].shape)
        if name == "score":
            expected = expected[:-1]
        try:
            result = function(*operands, **named)
        except Exception as error:
            words = (str(error) or "?").splitlines()[0]
            raise OptionError(
                f"the layer's {name} raised {type(error).__name__}: {words}. The {called}; numbers "
                "of edges go in edge_attr, and parameters in an nn.Module"
            ) from error
        check_shape(
            result,
            f"what the layer's {name} returns",
            expected,
            f"(..., edges, heads); the {called}",
            OptionError,
        )
        return result

    return answer
