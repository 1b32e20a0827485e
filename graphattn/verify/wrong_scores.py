"""Known mistakes about scores, heads, copies of edges and the softmax, as the answer each would give; ``None``: none.

The table at the end says in words what each function gets wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from .pieces import Piece
from .subject import Problem


class Answer(NamedTuple):
    """Heads' output (..., R, H, D_v), and the rows (R,) for which the mistake says something."""

    output: Tensor
    has_edges: Tensor


@dataclass(frozen=True, eq=False)
class Scene:
    """What a mistake is made on: a few targets, and all sources."""

    problem: Problem  # mask (R, S)
    graph: AttentionGraph
    piece: Piece
    copies: Tensor  # int64 (R, S), how often each edge is listed

    @property
    def mask(self) -> Tensor:
        """bool (R, S)."""
        return self.problem.mask

    @property
    def targets(self) -> Tensor:
        """int64 (R,)."""
        return self.piece.targets

    def solve(self, copies: Tensor | None, **changes: Any) -> Answer | None:
        """The twin of a changed problem whose edges count so often, once if None."""
        problem = replace(self.problem, **changes)
        return Answer(problem.attend(self.piece, copies).output, problem.mask.any(1))


Make = Callable[[Scene], Answer | None]
Mistake = tuple[str, Make]
"""In words, and as the answer it would give; a table has the simpler ones first."""


def with_mask(mask: Tensor, scene: Scene) -> Answer | None:
    """The answer of another mask (R, S), each edge counted once."""
    counted = bool((scene.copies > 1).any())
    return None if torch.equal(mask, scene.mask) and not counted else scene.solve(None, mask=mask)


def _scaled(by: Callable[[float, int, int], float]) -> Make:
    """Another scale, of the right one, the width and the number of heads."""

    def make(scene: Scene) -> Answer | None:
        p = scene.problem
        heads, width = p.query.shape[-2:]
        return None if p.score is not None or not width else scene.solve(scene.copies, scale=by(p.scale, width, heads))

    return make


def _tiled_heads(scene: Scene) -> Answer | None:
    p = scene.problem
    heads, kv_heads = p.query.shape[-2], p.key.shape[-2]
    if kv_heads in (0, 1, heads):
        return None
    wrong = torch.arange(heads, device=p.key.device) % kv_heads
    parts = {name: getattr(p, name) for name in ("key", "value", "edge")}
    changes = {name: x.index_select(-2, wrong) for name, x in parts.items() if x is not None}
    return scene.solve(scene.copies, **changes)


def _weighted(weights: Callable[[Tensor, Tensor], Tensor], *, needs_all: bool = False) -> Make:
    """Other weights (..., H, R, S) of plain scores and the mask; ``needs_all`` if they depend on all targets."""

    def make(scene: Scene) -> Answer | None:
        p = scene.problem
        parts = (p.score, p.normalize, p.edge, p.softcap, p.bias)
        if any(x is not None for x in parts) or p.key.shape[-2] == 0 or (needs_all and not scene.piece.complete):
            return None
        group = p.query.shape[-2] // p.key.shape[-2]
        key, value = (x.repeat_interleave(group, -2).transpose(-3, -2) for x in (p.key, p.value))
        score = p.query.transpose(-3, -2) @ key.transpose(-2, -1) * p.scale
        return Answer((weights(score, scene.mask) @ value).transpose(-3, -2), scene.mask.any(1))

    return make


def _over_targets(score: Tensor, mask: Tensor) -> Tensor:
    unread = ~mask.any(0)
    score = score.masked_fill(~mask, -torch.inf).masked_fill(unread, 0.0)
    return torch.softmax(score, -2).masked_fill(unread, 0.0)


def _bias_sorted(scene: Scene) -> Answer | None:
    """The biases dealt out by target and then by source, to edges that came in another order."""
    p, graph, piece = scene.problem, scene.graph, scene.piece
    if p.bias is None or graph.is_rule or not piece.complete or graph.has_repeated_edges:
        return None
    order = torch.argsort(graph.target * graph.num_sources + graph.source)
    bias = p.bias.clone()
    bias[..., graph.target[order], graph.source[order]] = p.bias[..., graph.target, graph.source]  # the caller's order
    return scene.solve(scene.copies, bias=bias)


def _bias_scaled(scene: Scene) -> Answer | None:
    p = scene.problem
    return None if p.bias is None else scene.solve(scene.copies, bias=p.bias * p.scale)


def _without(part: str) -> Make:
    return lambda scene: None if getattr(scene.problem, part) is None else scene.solve(scene.copies, **{part: None})


def _repeats_merged(scene: Scene) -> Answer | None:
    return scene.solve(None) if bool((scene.copies > 1).any()) else None


def _copies_as_bias(scene: Scene) -> Answer | None:
    p = scene.problem
    if p.normalize is None or p.bias is not None or not bool((scene.copies > 1).any()):
        return None
    return scene.solve(None, bias=scene.copies.to(p.query.dtype).log())


def _loops_counted_twice(scene: Scene) -> Answer | None:
    every = torch.arange(scene.graph.num_sources, device=scene.targets.device)
    again = scene.copies + (scene.targets[:, None] == every)
    if not scene.graph.is_square or not bool((again > 1).any()):
        return None
    return scene.solve(again, mask=again > 0)


def _symmetric_counted(scene: Scene) -> Answer | None:
    if not scene.graph.is_square:
        return None
    every = torch.arange(scene.graph.num_targets, device=scene.targets.device)
    copies = scene.copies + scene.graph.contains(every[None, :], scene.targets[:, None])
    uniform = torch.equal(copies > 0, scene.mask) and bool((copies == 2 * scene.copies).all())
    return None if uniform else scene.solve(copies, mask=copies > 0)


WRONG_SCORES: tuple[Mistake, ...] = (
    ("repeated edges merged: copies of an edge counted once", _repeats_merged),
    ("copies of an edge as log(count) on its score, which is right for softmax alone", _copies_as_bias),
    ("self-loops counted twice: added to a graph that has them", _loops_counted_twice),
    ("scale 1.0: the product is not scaled", _scaled(lambda scale, width, heads: 1.0)),
    ("scale 1 / D, not 1 / sqrt(D)", _scaled(lambda scale, width, heads: 1 / width)),
    ("scale applied twice", _scaled(lambda scale, width, heads: scale**2)),
    ("scale of all heads together: (H * D) ** -0.5", _scaled(lambda scale, width, heads: scale * heads**-0.5)),
    ("default scale D ** -0.5 in place of the given one", _scaled(lambda scale, width, heads: width**-0.5)),
    ("heads grouped by tiling: head h reads head h % H_kv, not h // (H / H_kv)", _tiled_heads),
    ("softmax over the wrong axis: over targets, not over sources", _weighted(_over_targets, needs_all=True)),
    (
        "masked after the softmax: weights of missing edges dropped without renormalising",
        _weighted(lambda score, mask: torch.softmax(score, -1) * mask),
    ),
    (
        "mask added as 0 and 1 to the scores, not as -inf",
        _weighted(lambda score, mask: torch.softmax(score + mask.to(score), -1)),
    ),
    ("score_bias ignored", _without("bias")),
    ("score_bias taken in sorted order, not in the caller's edge order", _bias_sorted),
    ("score_bias scaled with the product; it is added after", _bias_scaled),
    ("softcap ignored", _without("softcap")),
    ("the score ignored: scaled dot product in its place", _without("score")),
    ("the normalisation ignored: softmax in its place", _without("normalize")),
)
RARE_SCORES: tuple[Mistake, ...] = (
    ("reversed edges added and counted beside those that were there", _symmetric_counted),
)  # not named where a simpler mistake explains as well
