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

    @property
    def diagonal(self) -> Tensor:
        """bool (R, S): the self-loops."""
        return self.targets[:, None] == torch.arange(self.graph.num_sources, device=self.targets.device)[None, :]


class Answer(NamedTuple):
    """Heads' output (..., R, H, D_v), and the rows (R,) for which the mistake says something."""

    output: Tensor
    has_edges: Tensor


Mistake = tuple[str, Callable[[Scene], Answer | None]]
"""In words, and as the answer it would give; a table has the simpler ones first."""


def attend(
    scene: Scene, mask: Tensor | None = None, copies: Tensor | None = None, scale: float | None = None
) -> Answer | None:
    """The twin under another mask (R, S), multiplicity or scale; ``None`` where a score has no such scale."""
    p = scene.problem
    if scale is not None and p.score is not None:
        return None
    mask = p.mask if mask is None else mask
    return solved(scene, replace(p, mask=mask, scale=p.scale if scale is None else scale), copies)


def solved(scene: Scene, problem: Problem, copies: Tensor | None) -> Answer | None:
    """Its answer; ``None`` where edges count several times and the weights are not of softmax."""
    several = copies is not None and bool((copies[problem.mask] > 1).any())
    if several and problem.normalize is not None:
        return None
    output = problem.attend(scene.piece, copies if problem.normalize is None else None).output
    return Answer(output, problem.mask.any(1))


def with_mask(mask: Tensor, scene: Scene) -> Answer | None:
    counted = bool((scene.copies > 1).any())
    return None if torch.equal(mask, scene.mask) and not counted else attend(scene, mask)


def _scaled(by: Callable[[float, int, int], float]) -> Callable[[Scene], Answer | None]:
    """Another scale, of the right one, the width and the number of heads."""

    def make(scene: Scene) -> Answer | None:
        heads, width = scene.problem.query.shape[-2:]
        return attend(scene, copies=scene.copies, scale=by(scene.problem.scale, width, heads)) if width else None

    return make


def tiled_heads(scene: Scene) -> Answer | None:
    p = scene.problem
    heads, kv_heads = p.query.shape[-2], p.key.shape[-2]
    if kv_heads in (0, 1, heads):
        return None
    wrong = torch.arange(heads, device=p.key.device) % kv_heads
    key, value = (x.index_select(-2, wrong) for x in (p.key, p.value))
    edge = None if p.edge is None else p.edge.index_select(-2, wrong)
    return solved(scene, replace(p, key=key, value=value, edge=edge), scene.copies)


def _scores(scene: Scene) -> tuple[Tensor, Tensor] | None:
    """Scores (..., H, R, S) and values (..., H, S, D_v), where plain."""
    p = scene.problem
    parts = (p.score, p.normalize, p.edge, p.softcap, p.bias)
    if any(part is not None for part in parts) or p.key.shape[-2] == 0:
        return None
    group = p.query.shape[-2] // p.key.shape[-2]
    key, value = (x.repeat_interleave(group, -2).transpose(-3, -2) for x in (p.key, p.value))
    return p.query.transpose(-3, -2) @ key.transpose(-2, -1) * p.scale, value


def wrong_axis(scene: Scene) -> Answer | None:
    operands = _scores(scene) if scene.piece.complete else None
    if operands is None:
        return None
    score, value = operands
    score = score.masked_fill(~scene.mask, -torch.inf)
    silent = ~scene.mask.any(0)
    weights = torch.softmax(score.masked_fill(silent, 0.0), -2).masked_fill(silent, 0.0)
    return Answer((weights @ value).transpose(-3, -2), scene.mask.any(1))


def masked_after(scene: Scene) -> Answer | None:
    operands = _scores(scene)
    if operands is None:
        return None
    weights = torch.softmax(operands[0], -1) * scene.mask
    return Answer((weights @ operands[1]).transpose(-3, -2), scene.mask.any(1))


def mask_added(scene: Scene) -> Answer | None:
    operands = _scores(scene)
    if operands is None:
        return None
    weights = torch.softmax(operands[0] + scene.mask.to(operands[0]), -1)
    return Answer((weights @ operands[1]).transpose(-3, -2), scene.mask.any(1))


def bias_sorted(scene: Scene) -> Answer | None:
    """The biases dealt out by target and then by source, to edges that came in another order."""
    p, graph, piece = scene.problem, scene.graph, scene.piece
    if p.bias is None or graph.is_rule or not piece.complete or graph.has_repeated_edges:
        return None
    order = torch.argsort(graph.target * graph.num_sources + graph.source)
    target, source = graph.target[order], graph.source[order]
    given = p.bias[..., graph.target, graph.source]  # in the caller's order
    bias = p.bias.clone()
    bias[..., target, source] = given
    return solved(scene, replace(p, bias=bias), scene.copies)


def bias_scaled(scene: Scene) -> Answer | None:
    p = scene.problem
    return None if p.bias is None else solved(scene, replace(p, bias=p.bias * p.scale), scene.copies)


def _without(part: str) -> Callable[[Scene], Answer | None]:
    def make(scene: Scene) -> Answer | None:
        p = scene.problem
        changes: dict[str, Any] = {part: None}
        return None if getattr(p, part) is None else solved(scene, replace(p, **changes), scene.copies)

    return make


def repeats_merged(scene: Scene) -> Answer | None:
    return attend(scene) if bool((scene.copies > 1).any()) else None


def loops_counted_twice(scene: Scene) -> Answer | None:
    again = scene.copies + scene.diagonal
    if not scene.graph.is_square or not bool((again > 1).any()):
        return None
    return attend(scene, again > 0, again)


def symmetric_counted(scene: Scene) -> Answer | None:
    if not scene.graph.is_square:
        return None
    every = torch.arange(scene.graph.num_targets, device=scene.targets.device)
    copies = scene.copies + scene.graph.contains(every[None, :], scene.targets[:, None])
    uniform = torch.equal(copies > 0, scene.mask) and bool((copies == 2 * scene.copies).all())
    return None if uniform else attend(scene, copies > 0, copies)


WRONG_SCORES: tuple[Mistake, ...] = (
    ("repeated edges merged: copies of an edge counted once", repeats_merged),
    ("self-loops counted twice: added to a graph that has them", loops_counted_twice),
    ("scale 1.0: the product is not scaled", _scaled(lambda scale, width, heads: 1.0)),
    ("scale 1 / D, not 1 / sqrt(D)", _scaled(lambda scale, width, heads: 1 / width)),
    ("scale applied twice", _scaled(lambda scale, width, heads: scale**2)),
    ("scale of all heads together: (H * D) ** -0.5", _scaled(lambda scale, width, heads: scale * heads**-0.5)),
    ("default scale D ** -0.5 in place of the given one", _scaled(lambda scale, width, heads: width**-0.5)),
    ("heads grouped by tiling: head h reads head h % H_kv, not h // (H / H_kv)", tiled_heads),
    ("softmax over the wrong axis: over targets, not over sources", wrong_axis),
    ("masked after the softmax: weights of missing edges dropped without renormalising", masked_after),
    ("mask added as 0 and 1 to the scores, not as -inf", mask_added),
    ("score_bias ignored", _without("bias")),
    ("score_bias taken in sorted order, not in the caller's edge order", bias_sorted),
    ("score_bias scaled with the product; it is added after", bias_scaled),
    ("softcap ignored", _without("softcap")),
    ("the score ignored: scaled dot product in its place", _without("score")),
    ("the normalisation ignored: softmax in its place", _without("normalize")),
)
RARE_SCORES: tuple[Mistake, ...] = (
    ("reversed edges added and counted beside those that were there", symmetric_counted),
)  # not named where a simpler mistake explains as well
