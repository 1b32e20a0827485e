"""Known mistakes about scores, biases, copies of edges and the softmax, as answers or ``None``.

The tables at the end say in words what each function gets wrong.
"""

from collections.abc import Callable, Sequence
from math import log
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from ...twins.problem import Problem
from .scene import Answer, Make, Mistake, Scene


def with_mask(mask: Tensor, scene: Scene) -> Answer | None:
    """The answer of another mask (R, S), each edge counted once."""
    counted = bool((scene.copies > 1).any())
    if torch.equal(mask, scene.mask) and not counted:
        return None
    return scene.solve(None, mask=mask)


def _changed(
    applies: Callable[[Problem], bool], changes: Callable[[Problem], dict[str, Any]]
) -> Make:
    """A problem with other values, where the mistake can be made."""

    def make(scene: Scene) -> Answer | None:
        if not applies(scene.problem):
            return None
        return scene.solve(scene.copies, **changes(scene.problem))

    return make


def _scaled(by: Callable[[float, int, int], float]) -> Make:
    """Another scale, of the right one, the width and the number of heads."""
    return _changed(
        lambda p: p.score is None and p.query.shape[-1] > 0,
        lambda p: {"scale": by(p.scale, p.query.shape[-1], p.query.shape[-2])},
    )


def _weighted(weights: Callable[[Tensor, Tensor], Tensor]) -> Make:
    return lambda scene: scene.weigh(weights)


def _inside(score: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the edges that are there; 0 in rows without one."""
    empty = ~mask.any(-1, keepdim=True)
    return torch.softmax(score.masked_fill(~mask, -torch.inf).masked_fill(empty, 0.0), -1) * mask


def _over_targets(scene: Scene) -> Answer | None:
    def weights(score: Tensor, mask: Tensor) -> Tensor:
        return _inside(score.mT, mask.mT).mT

    if scene.piece.complete:
        return scene.weigh(weights)
    return None


def rounded_weights(dtype: torch.dtype) -> dict[str, Make]:
    """Weights in a narrower dtype, by the words for it."""
    name = str(dtype).removeprefix("torch.")
    return {
        f"weights rounded to {name}, as by a softmax in {name}": _weighted(
            lambda z, mask: _inside(z.to(dtype), mask).to(z)
        ),
        f"weights rounded to {name} after the softmax": _weighted(
            lambda z, mask: _inside(z, mask).to(dtype).to(z)
        ),
    }


def _bias_sorted(scene: Scene) -> Answer | None:
    """The biases dealt out by target and then by source, to edges that came in another order."""
    p = scene.problem
    graph = scene.graph
    piece = scene.piece
    if p.bias is None or graph.is_rule or not piece.complete or graph.has_repeated_edges:
        return None
    order = torch.argsort(graph.target * graph.num_sources + graph.source)
    bias = p.bias.clone()
    # the caller's order
    bias[..., graph.target[order], graph.source[order]] = p.bias[..., graph.target, graph.source]
    return scene.solve(scene.copies, bias=bias)


def _biased(change: Callable[[Tensor, float], Tensor]) -> Make:
    """Other biases, of the right ones and the scale."""
    return _changed(
        lambda p: p.bias is not None,
        lambda p: {"bias": change(p.bias, p.scale)},  # type: ignore[arg-type]
    )


def _bias_late(scene: Scene) -> Answer | None:
    bias = scene.problem.bias
    if bias is None:
        return None
    return scene.weigh(
        lambda score, mask: _inside(score, mask) + torch.where(mask, bias, 0.0), bias=None
    )


def _capped(capped: Callable[[Tensor, float, float], Tensor]) -> Make:
    """Another score of the product, the scale and the cap."""

    def make(scene: Scene) -> Answer | None:
        p = scene.problem
        cap = p.softcap
        if cap is None or p.cap_bias:
            return None
        if p.score is not None or p.edge is not None:
            return None

        def score(query: Tensor, key: Tensor, edge_attr: Tensor | None) -> Tensor:
            return capped(torch.einsum("...thd,...shd->...hts", query, key), p.scale, cap)

        return scene.solve(scene.copies, score=score, softcap=None)

    return make


def _without(part: str) -> Make:
    """The answer where an option of the problem is ignored."""
    return _changed(lambda p: getattr(p, part) is not None, lambda p: {part: None})


def _repeats_merged(scene: Scene) -> Answer | None:
    if bool((scene.copies > 1).any()):
        return scene.solve(None)
    return None


def _copies_as_bias(scene: Scene) -> Answer | None:
    p = scene.problem
    if p.normalize is None or p.bias is not None or not bool((scene.copies > 1).any()):
        return None
    return scene.solve(None, bias=scene.copies.to(p.query.dtype).log())


def _loops_counted_twice(scene: Scene) -> Answer | None:
    sources = torch.arange(scene.graph.num_sources, device=scene.targets.device)
    copies = scene.copies + (scene.targets[:, None] == sources)
    if not scene.graph.is_square or not bool((copies > 1).any()):
        return None
    return scene.solve(copies, mask=copies > 0)


def _symmetric_counted(scene: Scene) -> Answer | None:
    if not scene.graph.is_square:
        return None
    nodes = torch.arange(scene.graph.num_targets, device=scene.targets.device)
    copies = scene.copies + scene.graph.contains(nodes[None, :], scene.targets[:, None])
    uniform = torch.equal(copies > 0, scene.mask) and bool((copies == 2 * scene.copies).all())
    if uniform:
        return None
    return scene.solve(copies, mask=copies > 0)


WRONG_SCORES: tuple[Mistake, ...] = (
    ("repeated edges merged: copies of an edge counted once", _repeats_merged),
    (
        "copies of an edge as log(count) on its score, which is right for softmax alone",
        _copies_as_bias,
    ),
    ("self-loops counted twice: added to a graph that has them", _loops_counted_twice),
    ("scale 1.0: the product is not scaled", _scaled(lambda scale, width, heads: 1.0)),
    ("scale 1 / D, not 1 / sqrt(D)", _scaled(lambda scale, width, heads: 1 / width)),
    (
        "scale sqrt(D): multiplied by it, not divided",
        _scaled(lambda scale, width, heads: width**0.5),
    ),
    ("scale applied twice", _scaled(lambda scale, width, heads: scale**2)),
    (
        "scale of all heads together: (H * D) ** -0.5",
        _scaled(lambda scale, width, heads: scale * heads**-0.5),
    ),
    (
        "default scale D ** -0.5 in place of the given one",
        _scaled(lambda scale, width, heads: width**-0.5),
    ),
    (
        "exp2 in place of exp: the scores lack a factor of log2(e)",
        _scaled(lambda scale, width, heads: scale * log(2)),
    ),
    (
        "cosines in place of products: queries and keys divided by their norms",
        _changed(
            lambda p: p.score is None and p.edge is None,
            lambda p: {"query": normalize(p.query, dim=-1), "key": normalize(p.key, dim=-1)},
        ),
    ),
    ("softmax over the wrong axis: over targets, not over sources", _over_targets),
    (
        "softmax over the wrong axis: over heads, not over sources",
        _weighted(lambda z, mask: z.softmax(-3) * mask),
    ),
    (
        "masked after the softmax: weights of missing edges dropped without renormalising",
        _weighted(lambda z, mask: z.softmax(-1) * mask),
    ),
    (
        "mask added as 0 and 1 to the scores, not as -inf",
        _weighted(lambda z, mask: (z + mask.to(z)).softmax(-1)),
    ),
    ("no softmax: the scores are the weights", _weighted(lambda z, mask: z * mask)),
    ("exp of the scores, not divided by their sum", _weighted(lambda z, mask: z.exp() * mask)),
    (
        "1 added to the sum of the softmax",
        _weighted(lambda z, mask: _inside(pad(z, (0, 1)), pad(mask, (0, 1), value=True))[..., :-1]),
    ),
    ("sigmoid in place of softmax", _weighted(lambda z, mask: z.sigmoid() * mask)),
    ("softmax twice", _weighted(lambda z, mask: _inside(_inside(z, mask), mask))),
    (
        "log_softmax in place of softmax",
        _weighted(lambda z, mask: _inside(z, mask).log().masked_fill(~mask, 0.0)),
    ),
    (
        "the scores ignored: the mean of the sources",
        _weighted(lambda z, mask: _inside(0.0 * z, mask)),
    ),
    (
        "weights averaged over heads",
        _weighted(lambda z, mask: _inside(z, mask).mean(-3, keepdim=True).expand_as(z)),
    ),
    ("score_bias ignored", _without("bias")),
    ("score_bias taken in sorted order, not in the caller's edge order", _bias_sorted),
    (
        "score_bias scaled with the product; it is added after",
        _biased(lambda bias, scale: bias * scale),
    ),
    ("score_bias subtracted, not added", _biased(lambda bias, scale: -bias)),
    ("score_bias added twice", _biased(lambda bias, scale: 2 * bias)),
    ("score_bias added after the softmax, to the weights", _bias_late),
    ("softcap ignored", _without("softcap")),
    (
        "softcap of the score with its bias where that of the score alone is meant, or the other "
        "way round",
        _changed(
            lambda p: p.softcap is not None and p.bias is not None,
            lambda p: {"cap_bias": not p.cap_bias},
        ),
    ),
    ("softcap before the scale", _capped(lambda x, scale, cap: cap * torch.tanh(x / cap) * scale)),
    (
        "softcap without its factor: tanh(score / softcap)",
        _capped(lambda x, scale, cap: torch.tanh(x * scale / cap)),
    ),
    ("softcap as a clamp, not a tanh", _capped(lambda x, scale, cap: (x * scale).clamp(-cap, cap))),
    ("the score ignored: scaled dot product in its place", _without("score")),
    ("the normalisation ignored: softmax in its place", _without("normalize")),
)
# not named where a simpler mistake explains as well
RARE_SCORES: tuple[Mistake, ...] = (
    ("reversed edges added and counted beside those that were there", _symmetric_counted),
)


def _added_to_the_sum(of: Callable[[Tensor, Tensor], Tensor]) -> Callable[[float], Make]:
    """Weights that are divided by their sum and a number."""

    def mistake(number: float) -> Make:
        def weights(z: Tensor, mask: Tensor) -> Tensor:
            weight = of(z, mask) * mask
            empty = ~mask.any(-1, keepdim=True)
            total = (weight.sum(-1, keepdim=True) + number).masked_fill(empty, 1.0)
            return weight / total

        return _weighted(weights)

    return mistake


_FILLS = tuple(range(-36, 37, 3))
_SMALL = (0.0, 1e-9, 1e-7, 1e-5, 1e-3, 0.1, 10.0)
_EPSILON = "{} added to the sum that the weights are divided by"
# mistakes with a number in them, which is found between these
NUMBERS: tuple[tuple[str, Callable[[float], Make], Sequence[float]], ...] = (
    (
        "missing edges filled with {} before the softmax, not with -inf",
        lambda fill: _weighted(lambda z, mask: torch.where(mask, z, fill).softmax(-1)),
        _FILLS,
    ),
    (
        "{} added to the scores of missing edges, not -inf",
        lambda more: _weighted(lambda z, mask: (z + more * ~mask).softmax(-1)),
        _FILLS,
    ),
    (
        "missing edges filled with {} before the softmax, and dropped after it",
        lambda fill: _weighted(lambda z, mask: torch.where(mask, z, fill).softmax(-1) * mask),
        _FILLS,
    ),
    (
        _EPSILON,
        _added_to_the_sum(
            lambda z, mask: (
                (z - z.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)).exp().nan_to_num(0, 0)
            )
        ),
        _SMALL,
    ),
    (_EPSILON, _added_to_the_sum(lambda z, mask: z.exp()), _SMALL),
    (
        f"{_EPSILON}, after a softmax over all sources",
        _added_to_the_sum(lambda z, mask: z.softmax(-1)),
        _SMALL,
    ),
    (
        "{} times the right scale",
        lambda by: _scaled(lambda scale, width, heads: scale * by),
        tuple(2.0 ** (i / 2) for i in range(-10, 11)),
    ),
)
