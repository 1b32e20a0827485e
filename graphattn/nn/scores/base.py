"""The interface of a score: a formula on edges, its dense twin, and its construction by a layer."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ...backends.rows import NAMES, is_changed
from ...backends.scored import AdditiveForm
from ...errors import OptionError
from ...operands import of_every_edge
from ..arguments import made_with

ScoreFunction = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""``score(query, key, edge_attr)`` with query and key (..., E, H, D) and edge_attr (..., E, F)
gives (..., E, H).
"""

#: Scores by their names in a layer.
SCORES: dict[str, type["Score"]] = {}


class Score(nn.Module):
    """A score on edges. A subclass defines ``forward``; a plain function of the same arguments
    serves as well.

    A score that is a dot product of *something* also defines :meth:`as_dot`, and runs on every
    backend; an additive one defines :meth:`as_additive`, and has a fused kernel. A class
    attribute ``alias`` is its name in a layer, ``GraphAttention(..., score=alias)``. :meth:`dense`,
    its formula on all pairs, judges it in :func:`graphattn.verify`; without it the score is called
    there for every pair.

    Attributes:
        num_heads: H of its layer; ``None`` for any.
        head_dim: D of its layer; ``None`` for any.
        edge_dim: F of the edge features of its layer, if any; ``None`` for any.
        delta: A module that encodes the edge features as (..., E, H * D). The layer adds the
            encoding to the value in place of a projection, and passes it to the score in place of
            the features. None by default.
        smooth: True if the formula has no kink.
        positive: True if no score is below 0.
    """

    alias: str
    smooth: bool = False
    positive: bool = False
    num_heads: int | None = None
    head_dim: int | None = None
    edge_dim: int | None = None
    delta: nn.Module | None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "alias" in vars(cls):
            SCORES[cls.alias] = cls
            NAMES["score"] += [cls.alias] * (cls.alias not in NAMES["score"])
        if "forward" in vars(cls):  # another formula than that of the parent class
            for form in {"as_dot", "as_additive"} - vars(cls).keys():
                setattr(cls, form, getattr(Score, form))

    def __init__(self) -> None:
        super().__init__()
        self.delta = None

    def forward(self, query: Tensor, key: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Scores (..., E, H) from query and key (..., E, H, D) of each edge, and its features (...,
        E, F).
        """
        raise NotImplementedError

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor] | None:
        """Query (..., T, H, D') and key (..., S, H_kv, D') whose product is the score; ``None`` if
        there are none.
        """
        return None

    def as_additive(
        self, query: Tensor, key: Tensor, edge_attr: Tensor | None, last: nn.Linear | None = None
    ) -> AdditiveForm | None:
        """The score as a weighted sum of activations, of query (..., T, H, D), key (..., S, H_kv,
        D) and features (..., E, F), to which ``last`` is applied; ``None`` if it is not additive.
        """
        return None

    def delta_in_parts(self) -> tuple[Callable[[Tensor], Tensor], nn.Linear] | None:
        """:attr:`delta` as a function and a linear layer after it, if it is one; edges cost the
        function only.
        """
        return None

    def dense(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        """The dense twin: scores (..., H, T, S) of query (..., T, H, D), key (..., S, H, D),
        features (..., T, S, F).

        The published formula, with torch and the parameters only: a test reads the code.
        """
        raise NotImplementedError

    def dense_delta(self, edge_attr: Tensor) -> Tensor:
        """The dense twin of :attr:`delta`: (..., T, S, H * D) of edge features (..., T, S, F)."""
        raise NotImplementedError

    @property
    def has_twin(self) -> bool:
        """True if :meth:`dense` is the formula of this class; a subclass may compute something
        else.
        """
        return "dense" in vars(type(self))

    @classmethod
    def for_layer(cls, num_heads: int, head_dim: int, edge_dim: int | None) -> "Score":
        """The score of a layer, built with the sizes that the class accepts."""
        return made_with(cls, num_heads=num_heads, head_dim=head_dim, edge_dim=edge_dim)


def make_score(
    score: Any, num_heads: int, head_dim: int, edge_dim: int | None = None
) -> ScoreFunction | None:
    """The score of a layer, from a name or a function; ``None`` for the scaled dot product."""
    if isinstance(score, str):
        if score == "scaled_dot":
            return None
        if score in SCORES:
            return SCORES[score].for_layer(num_heads, head_dim, edge_dim)
    if not callable(score):
        raise OptionError(
            f"score must be one of scaled_dot, {', '.join(SCORES)} or a function "
            f"score(query, key, edge_attr), got {score!r}"
        )
    if not isinstance(score, Score):
        return score
    sizes = {"num_heads": num_heads, "head_dim": head_dim, "edge_dim": edge_dim}
    for name, size in sizes.items():
        expected = getattr(score, name)
        if None in (expected, size):
            continue
        if expected != size:
            raise OptionError(
                f"the score {type(score).__name__} has {name}={expected}, but the layer "
                f"{name}={size}"
            )
    return score


class LayerScore:
    """A layer's score in the dtype of its parameters; half precision is otherwise computed in
    float32.

    Args:
        last: The linear layer of :meth:`Score.delta_in_parts`, to be applied to edge features.
    """

    def __init__(self, score: ScoreFunction, last: nn.Linear | None = None) -> None:
        self.score = score
        self.last = last
        if isinstance(score, nn.Module):
            parameter = next(score.parameters(), None)
        else:
            parameter = None
        if parameter is None:
            self.dtype = None
        else:
            self.dtype = parameter.dtype

    def __call__(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
        query_, key_, edge_attr = self._operands(query, key, edge_attr)
        if self.last is not None:
            edge_attr = self.last(edge_attr)
        return of_every_edge("score", self.score(query_, key_, edge_attr), query[..., 0])

    def as_additive(
        self, query: Tensor, key: Tensor, edge_attr: Tensor | None
    ) -> AdditiveForm | None:
        """:meth:`Score.as_additive`."""
        if not isinstance(self.score, Score) or any(map(is_changed, self.score.modules())):
            return None
        query, key, edge_attr = self._operands(query, key, edge_attr)
        return self.score.as_additive(query, key, edge_attr, self.last)

    def _operands(self, query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Any:
        if self.dtype is None:
            dtype = query.dtype
        else:
            dtype = self.dtype
        return query.to(dtype), key.to(dtype), None if edge_attr is None else edge_attr.to(dtype)
