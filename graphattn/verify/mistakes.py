"""Known mistakes, each as the answer it would give. The twin recomputes them; :mod:`.diagnose` compares."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.rules import Band
from .sample import Sample
from .subject import Problem
from .twins import dense_attention


@dataclass(frozen=True, eq=False)
class Scene:
    """What a mistake is made on: a few targets, and all sources."""

    problem: Problem  # mask (R, S)
    graph: AttentionGraph
    piece: Sample
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
    heard: Tensor


Mistake = tuple[str, Callable[[Scene], Answer | None]]


def _attend(
    scene: Scene, mask: Tensor | None = None, copies: Tensor | None = None, scale: float | None = None
) -> Answer:
    """The twin under another mask (R, S), multiplicity or scale."""
    p = scene.problem
    mask = p.mask if mask is None else mask
    return _solved(replace(p, mask=mask, scale=p.scale if scale is None else scale), copies)


def _solved(problem: Problem, copies: Tensor | None) -> Answer:
    p = problem
    output = dense_attention(p.query, p.key, p.value, p.mask, p.bias, p.scale, p.softcap, copies, p.edge).output
    return Answer(output, p.mask.any(1))


def _with_mask(mask: Tensor, scene: Scene) -> Answer | None:
    counted = bool((scene.copies > 1).any())
    return None if torch.equal(mask, scene.mask) and not counted else _attend(scene, mask)


def _swapped(scene: Scene) -> Tensor | None:
    """bool (R, S): the mask transposed."""
    if not scene.graph.is_square:
        return None
    every = torch.arange(scene.graph.num_targets, device=scene.targets.device)
    return scene.graph.contains(every[None, :], scene.targets[:, None])


def rows_swapped(scene: Scene) -> Answer | None:
    mask = _swapped(scene)
    return None if mask is None else _with_mask(mask, scene)


def made_symmetric(scene: Scene) -> Answer | None:
    mask = _swapped(scene)
    return None if mask is None else _with_mask(mask | scene.mask, scene)


def symmetric_counted(scene: Scene) -> Answer | None:
    mask = _swapped(scene)
    if mask is None:
        return None
    copies = scene.copies + mask
    uniform = torch.equal(copies > 0, scene.mask) and bool((copies == 2 * scene.copies).all())
    return None if uniform else _attend(scene, copies > 0, copies)


def inverted(scene: Scene) -> Answer | None:
    return _with_mask(~scene.mask, scene)


def ignored(scene: Scene) -> Answer | None:
    return _with_mask(torch.ones_like(scene.mask), scene)


def repeats_merged(scene: Scene) -> Answer | None:
    return _attend(scene) if bool((scene.copies > 1).any()) else None


def loops_missing(scene: Scene) -> Answer | None:
    return _with_mask(scene.mask & ~scene.diagonal, scene) if scene.graph.is_square else None


def loops_added(scene: Scene) -> Answer | None:
    return _with_mask(scene.mask | scene.diagonal, scene) if scene.graph.is_square else None


def loops_counted_twice(scene: Scene) -> Answer | None:
    again = scene.copies + scene.diagonal
    if not scene.graph.is_square or not bool((again > 1).any()):
        return None
    return _attend(scene, again > 0, again)


def scale_one(scene: Scene) -> Answer | None:
    return _attend(scene, copies=scene.copies, scale=1.0)


def scale_twice(scene: Scene) -> Answer | None:
    return _attend(scene, copies=scene.copies, scale=scene.problem.scale**2)


def scale_of_all_heads(scene: Scene) -> Answer | None:
    heads = scene.problem.query.shape[-2]
    return _attend(scene, copies=scene.copies, scale=scene.problem.scale * heads**-0.5) if heads > 1 else None


def default_scale(scene: Scene) -> Answer | None:
    width = scene.problem.query.shape[-1]
    return _attend(scene, copies=scene.copies, scale=width**-0.5) if width else None


def tiled_heads(scene: Scene) -> Answer | None:
    p = scene.problem
    heads, kv_heads = p.query.shape[-2], p.key.shape[-2]
    if kv_heads in (0, 1, heads):
        return None
    wrong = torch.arange(heads, device=p.key.device) % kv_heads
    key, value = (x.index_select(-2, wrong) for x in (p.key, p.value))
    edge = None if p.edge is None else p.edge.index_select(-2, wrong)
    return _solved(replace(p, key=key, value=value, edge=edge), scene.copies)


def _scores(scene: Scene) -> tuple[Tensor, Tensor] | None:
    """Scores (..., H, R, S) and values (..., H, S, D_v), where plain."""
    p = scene.problem
    if p.edge is not None or p.softcap is not None or p.bias is not None or p.key.shape[-2] == 0:
        return None
    group = p.query.shape[-2] // p.key.shape[-2]
    key, value = (x.repeat_interleave(group, -2).transpose(-3, -2) for x in (p.key, p.value))
    return p.query.transpose(-3, -2) @ key.transpose(-2, -1) * p.scale, value


def wrong_axis(scene: Scene) -> Answer | None:
    found = _scores(scene) if scene.piece.complete else None
    if found is None:
        return None
    score, value = found
    score = score.masked_fill(~scene.mask, -torch.inf)
    silent = ~scene.mask.any(0)
    weights = torch.softmax(score.masked_fill(silent, 0.0), -2).masked_fill(silent, 0.0)
    return Answer((weights @ value).transpose(-3, -2), scene.mask.any(1))


def masked_after(scene: Scene) -> Answer | None:
    found = _scores(scene)
    if found is None:
        return None
    weights = torch.softmax(found[0], -1) * scene.mask
    return Answer((weights @ found[1]).transpose(-3, -2), scene.mask.any(1))


def mask_added(scene: Scene) -> Answer | None:
    found = _scores(scene)
    if found is None:
        return None
    weights = torch.softmax(found[0] + scene.mask.to(found[0]), -1)
    return Answer((weights @ found[1]).transpose(-3, -2), scene.mask.any(1))


def _band(graph: AttentionGraph) -> tuple[int, int] | None:
    """``lo <= t - s <= hi`` if that is the graph, as computed from its edges."""
    if graph.has_repeated_edges or graph.num_edges == 0:
        return None
    lo, hi = graph.num_targets, -graph.num_sources
    for first, _, chunk in graph.edges.walk():
        keep = chunk.hi > chunk.lo
        if bool(keep.any()):
            row = chunk.row[keep] + first
            lo = min(lo, int((row - chunk.hi[keep] + 1).min()))
            hi = max(hi, int((row - chunk.lo[keep]).max()))
    return (lo, hi) if Band(graph.num_targets, graph.num_sources, lo, hi).count() == graph.num_edges else None


def _banded(scene: Scene, lo_by: int, hi_by: int) -> Answer | None:
    """The band with its ends moved; an end that reaches the corner of the mask is open, and stays."""
    band = _band(scene.graph)
    if band is None:
        return None
    T, S = scene.graph.num_targets, scene.graph.num_sources
    lo = -S if band[0] <= 1 - S else band[0] + lo_by
    hi = T if band[1] >= T - 1 else band[1] + hi_by
    every = torch.arange(S, device=scene.targets.device)
    mask = Band(T, S, lo, hi).contains(scene.targets[:, None], every[None, :])
    return _with_mask(mask, scene) if bool(mask.any()) else None


def corner(scene: Scene, sign: int) -> Answer | None:
    apart = scene.graph.num_sources - scene.graph.num_targets
    return _banded(scene, sign * apart, sign * apart) if apart else None


def without_bias(scene: Scene) -> Answer | None:
    p = scene.problem
    return None if p.bias is None else _solved(replace(p, bias=None), scene.copies)


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
    return _solved(replace(p, bias=bias), scene.copies)


def bias_scaled(scene: Scene) -> Answer | None:
    p = scene.problem
    return None if p.bias is None else _solved(replace(p, bias=p.bias * p.scale), scene.copies)


def without_softcap(scene: Scene) -> Answer | None:
    p = scene.problem
    return None if p.softcap is None else _solved(replace(p, softcap=None), scene.copies)


KNOWN: tuple[Mistake, ...] = (
    ("edge_index rows swapped: targets read along reversed edges (a transposed mask)", rows_swapped),
    ("inverted mask: True taken as blocked, the polarity of nn.MultiheadAttention", inverted),
    ("mask ignored: every target reads every source", ignored),
    ("repeated edges merged: copies of an edge counted once", repeats_merged),
    ("self-loops counted twice: added to a graph that has them", loops_counted_twice),
    ("self-loops missing", loops_missing),
    ("self-loops added", loops_added),
    ("edges made symmetric: read both ways", made_symmetric),
    ("reversed edges added and counted beside those that were there", symmetric_counted),
    ("scale 1.0: the product is not scaled", scale_one),
    ("scale applied twice", scale_twice),
    ("scale of all heads together: (H * D) ** -0.5", scale_of_all_heads),
    ("default scale D ** -0.5 in place of the one asked for", default_scale),
    ("causal or window aligned to the wrong corner: start in place of end", lambda scene: corner(scene, 1)),
    ("causal or window aligned to the wrong corner: end in place of start", lambda scene: corner(scene, -1)),
    ("window off by one: one source too many in the past", lambda scene: _banded(scene, 0, 1)),
    ("window off by one: one source too few in the past", lambda scene: _banded(scene, 0, -1)),
    ("window off by one: one source too many in the future", lambda scene: _banded(scene, -1, 0)),
    ("window off by one: one source too few in the future", lambda scene: _banded(scene, 1, 0)),
    ("heads grouped by tiling: head h reads head h % H_kv, not h // (H / H_kv)", tiled_heads),
    ("softmax over the wrong axis: over targets, not over sources", wrong_axis),
    ("masked after the softmax: weights of missing edges dropped without renormalising", masked_after),
    ("mask added as 0 and 1 to the scores, not as -inf", mask_added),
    ("score_bias ignored", without_bias),
    ("score_bias taken in sorted order, not in the caller's edge order", bias_sorted),
    ("score_bias scaled with the product; it is added after", bias_scaled),
    ("softcap ignored", without_softcap),
)


def answers(scene: Scene) -> Iterator[tuple[str, Answer]]:
    """Every mistake that would change anything here, and the output it would give."""
    for name, make in KNOWN:
        answer = make(scene)
        if answer is not None:
            yield name, answer
