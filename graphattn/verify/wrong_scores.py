"""Known mistakes about scores, heads and the softmax, as the answer each would give; ``None`` where there is none.

The table at the end says in words what each function gets wrong.
"""

from dataclasses import replace

import torch
from torch import Tensor

from .scene import Answer, Mistake, Scene, attend, solved


def scale_one(scene: Scene) -> Answer | None:
    return attend(scene, copies=scene.copies, scale=1.0)


def scale_of_width(scene: Scene) -> Answer | None:
    width = scene.problem.query.shape[-1]
    return attend(scene, copies=scene.copies, scale=1 / width) if width else None


def scale_twice(scene: Scene) -> Answer | None:
    return attend(scene, copies=scene.copies, scale=scene.problem.scale**2)


def scale_of_all_heads(scene: Scene) -> Answer | None:
    heads = scene.problem.query.shape[-2]
    return attend(scene, copies=scene.copies, scale=scene.problem.scale * heads**-0.5) if heads > 1 else None


def default_scale(scene: Scene) -> Answer | None:
    width = scene.problem.query.shape[-1]
    return attend(scene, copies=scene.copies, scale=width**-0.5) if width else None


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
    if not p.is_plain or p.edge is not None or p.softcap is not None or p.bias is not None or p.key.shape[-2] == 0:
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


def without_bias(scene: Scene) -> Answer | None:
    p = scene.problem
    return None if p.bias is None else solved(scene, replace(p, bias=None), scene.copies)


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


def without_softcap(scene: Scene) -> Answer | None:
    p = scene.problem
    return None if p.softcap is None else solved(scene, replace(p, softcap=None), scene.copies)


def without_score(scene: Scene) -> Answer | None:
    p = scene.problem
    return None if p.score is None else solved(scene, replace(p, score=None), scene.copies)


def without_normalizer(scene: Scene) -> Answer | None:
    p = scene.problem
    return None if p.normalize is None else solved(scene, replace(p, normalize=None), scene.copies)


WRONG_SCORES: tuple[Mistake, ...] = (
    ("scale 1.0: the product is not scaled", scale_one),
    ("scale 1 / D, not 1 / sqrt(D)", scale_of_width),
    ("scale applied twice", scale_twice),
    ("scale of all heads together: (H * D) ** -0.5", scale_of_all_heads),
    ("default scale D ** -0.5 in place of the one asked for", default_scale),
    ("heads grouped by tiling: head h reads head h % H_kv, not h // (H / H_kv)", tiled_heads),
    ("softmax over the wrong axis: over targets, not over sources", wrong_axis),
    ("masked after the softmax: weights of missing edges dropped without renormalising", masked_after),
    ("mask added as 0 and 1 to the scores, not as -inf", mask_added),
    ("score_bias ignored", without_bias),
    ("score_bias taken in sorted order, not in the caller's edge order", bias_sorted),
    ("score_bias scaled with the product; it is added after", bias_scaled),
    ("softcap ignored", without_softcap),
    ("the score ignored: scaled dot product in its place", without_score),
    ("the normalisation ignored: softmax in its place", without_normalizer),
)
