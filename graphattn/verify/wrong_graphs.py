"""Known mistakes about who reads whom, as the answer each would give; ``None`` where it would change nothing.

The table at the end says in words what each function gets wrong.
"""

import torch
from torch import Tensor

from ..graph import AttentionGraph
from ..graph.rules import Band
from .scene import Answer, Mistake, Scene, attend, with_mask


def _swapped(scene: Scene) -> Tensor | None:
    """bool (R, S): the mask transposed."""
    if not scene.graph.is_square:
        return None
    every = torch.arange(scene.graph.num_targets, device=scene.targets.device)
    return scene.graph.contains(every[None, :], scene.targets[:, None])


def rows_swapped(scene: Scene) -> Answer | None:
    mask = _swapped(scene)
    return None if mask is None else with_mask(mask, scene)


def made_symmetric(scene: Scene) -> Answer | None:
    mask = _swapped(scene)
    return None if mask is None else with_mask(mask | scene.mask, scene)


def symmetric_counted(scene: Scene) -> Answer | None:
    mask = _swapped(scene)
    if mask is None:
        return None
    copies = scene.copies + mask
    uniform = torch.equal(copies > 0, scene.mask) and bool((copies == 2 * scene.copies).all())
    return None if uniform else attend(scene, copies > 0, copies)


def inverted(scene: Scene) -> Answer | None:
    return with_mask(~scene.mask, scene)


def ignored(scene: Scene) -> Answer | None:
    return with_mask(torch.ones_like(scene.mask), scene)


def repeats_merged(scene: Scene) -> Answer | None:
    return attend(scene) if bool((scene.copies > 1).any()) else None


def loops_missing(scene: Scene) -> Answer | None:
    return with_mask(scene.mask & ~scene.diagonal, scene) if scene.graph.is_square else None


def loops_added(scene: Scene) -> Answer | None:
    return with_mask(scene.mask | scene.diagonal, scene) if scene.graph.is_square else None


def loops_counted_twice(scene: Scene) -> Answer | None:
    again = scene.copies + scene.diagonal
    if not scene.graph.is_square or not bool((again > 1).any()):
        return None
    return attend(scene, again > 0, again)


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
    return with_mask(mask, scene) if bool(mask.any()) else None


def corner(scene: Scene, sign: int) -> Answer | None:
    apart = scene.graph.num_sources - scene.graph.num_targets
    return _banded(scene, sign * apart, sign * apart) if apart else None


SYMMETRIC = "edges made symmetric: read both ways"
COUNTED = "reversed edges added and counted beside those that were there"
RARE = (SYMMETRIC, COUNTED)  # not said of what a simpler mistake explains as well, such as no mask on a causal graph

WRONG_GRAPHS: tuple[Mistake, ...] = (
    ("edge_index rows swapped: targets read along reversed edges (a transposed mask)", rows_swapped),
    ("inverted mask: True taken as blocked, the polarity of nn.MultiheadAttention", inverted),
    ("mask ignored: every target reads every source", ignored),
    ("repeated edges merged: copies of an edge counted once", repeats_merged),
    ("self-loops counted twice: added to a graph that has them", loops_counted_twice),
    ("self-loops missing", loops_missing),
    ("self-loops added", loops_added),
    (SYMMETRIC, made_symmetric),
    (COUNTED, symmetric_counted),
    ("causal or window aligned to the wrong corner: start in place of end", lambda scene: corner(scene, 1)),
    ("causal or window aligned to the wrong corner: end in place of start", lambda scene: corner(scene, -1)),
    ("window off by one: one source too many in the past", lambda scene: _banded(scene, 0, 1)),
    ("window off by one: one source too few in the past", lambda scene: _banded(scene, 0, -1)),
    ("window off by one: one source too many in the future", lambda scene: _banded(scene, -1, 0)),
    ("window off by one: one source too few in the future", lambda scene: _banded(scene, 1, 0)),
)
