"""Known mistakes about which queries, keys and values meet: heads, tokens, rotary positions."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ...twins.dense import turned
from ...twins.problem import Problem
from .scene import Answer, Make, Mistake, Rotation, Scene

_HEADS = 16  # up to which each is tried in the place of each
_OPERANDS = ("query", "key", "value")
_OTHER_LAYOUT = {"half": "interleaved", "interleaved": "half"}
Change = Callable[[Tensor], Tensor]


def _products(scene: Scene) -> bool:
    """True if scores are products of operands that have heads, and nothing belongs to pairs."""
    p = scene.problem
    return p.score is None and p.edge is None and 0 not in (p.query.shape[-2], p.key.shape[-2])


def _per_head(p: Problem) -> dict[str, Tensor]:
    """The operands, keys and values repeated for every head of the queries."""
    group = p.query.shape[-2] // p.key.shape[-2]
    return {
        "query": p.query,
        "key": p.key.repeat_interleave(group, -2),
        "value": p.value.repeat_interleave(group, -2),
    }


# --- heads


def _tiled_heads(scene: Scene) -> Answer | None:
    p = scene.problem
    heads = p.query.shape[-2]
    kv_heads = p.key.shape[-2]
    if kv_heads in (0, 1, heads):
        return None
    wrong = torch.arange(heads, device=p.key.device) % kv_heads
    parts = {name: getattr(p, name) for name in ("key", "value", "edge")}
    changes = {name: x.index_select(-2, wrong) for name, x in parts.items() if x is not None}
    return scene.solve(scene.copies, **changes)


def _other_heads(*names: str) -> Make:
    """Operands with their heads in any order: for each head of the output, the nearest one."""

    def make(scene: Scene) -> Answer | None:
        heads = scene.problem.query.shape[-2]
        if not 1 < heads <= _HEADS or scene.output.dim() < 3 or not _products(scene):
            return None
        operands = _per_head(scene.problem)

        def solved(order: Tensor) -> Answer | None:
            permuted = {name: operands[name].index_select(-2, order) for name in names}
            return scene.solve(scene.copies, **operands | permuted)

        apart = []
        for head in torch.arange(heads, device=scene.targets.device):
            answer = solved(head.expand(heads))
            if answer is None or answer.output.shape != scene.output.shape:
                return None  # of a layer, which mixes its heads
            error = (answer.output - scene.output)[..., answer.has_edges, :, :].abs()
            apart.append(error.movedim(-2, 0).flatten(1).sum(1))
        return solved(torch.stack(apart).argmin(0))

    return make


def _split(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:-3], x.shape[-2], x.shape[-3], x.shape[-1]).transpose(-3, -2)


def _joined(x: Tensor) -> Tensor:
    return x.transpose(-3, -2).reshape(x.shape)


def _innermost(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2]).mT


def _moved(names: tuple[str, ...], change: Change, finish: Change = lambda output: output) -> Make:
    """Operands of all targets, and then the output, with tokens or numbers in other places."""

    def make(scene: Scene) -> Answer | None:
        if not scene.piece.complete or not _products(scene):
            return None
        operands = {name: change(getattr(scene.problem, name)) for name in names}
        answer = scene.solve(scene.copies, **operands)
        if answer is None:
            return None
        return answer._replace(output=finish(answer.output))

    return make


# --- tokens


def _a_token_off() -> Iterator[Mistake]:
    for by, other in ((1, "- 1"), (-1, "+ 1")):
        for round_the_end in (True, False):

            def late(x: Tensor, by: int = by, round_the_end: bool = round_the_end) -> Tensor:
                x = x.roll(by, -3)
                if round_the_end or not x.shape[-3]:
                    return x
                end = torch.tensor([min(0, by) % x.shape[-3]], device=x.device)
                return x.index_fill(-3, end, 0.0)

            yield f"a token off: target t has the query of t {other}", _moved(("query",), late)
            yield (
                f"a token off: the weight of source s is that of the key of s {other}",
                _moved(("key",), late),
            )
            yield f"a token off: source s has the value of s {other}", _moved(("value",), late)
            yield (
                f"a token off: source s has key and value of s {other}",
                _moved(("key", "value"), late),
            )
            yield f"a token off: target t has the output of t {other}", _moved((), late, late)


def _in_place_of(right: str, wrong: str) -> Make:
    """One operand in the place of another, where it fits."""

    def make(scene: Scene) -> Answer | None:
        operands = _exchangeable(scene, right, wrong)
        if operands is None:
            return None
        return scene.solve(scene.copies, **operands | {right: operands[wrong]})

    return make


def _swapped(first: str, second: str) -> Make:
    """Two operands in the place of each other, where they fit."""

    def make(scene: Scene) -> Answer | None:
        operands = _exchangeable(scene, first, second)
        if operands is None:
            return None
        swapped = {first: operands[second], second: operands[first]}
        return scene.solve(scene.copies, **operands | swapped)

    return make


def _exchangeable(scene: Scene, first: str, second: str) -> dict[str, Tensor] | None:
    """The operands per head, if all of two are there and have the same shape."""
    if "query" in (first, second) and not scene.piece.complete:
        return None
    if not _products(scene):
        return None
    operands = _per_head(scene.problem)
    if operands[first].shape == operands[second].shape:
        return operands
    return None


# --- rotary positions


def _rotated(layout: str, *names: str) -> Make:
    """Queries or keys rotated by their places in code that is to attend alone."""

    def make(scene: Scene) -> Answer | None:
        p = scene.problem
        width = p.query.shape[-1]
        is_even = width > 0 and width % 2 == 0
        if not is_even or scene.rotation is not None or not _products(scene):
            return None
        places = {
            "query": scene.targets,
            "key": torch.arange(scene.graph.num_sources, device=scene.targets.device),
        }
        rotary = (10_000.0, width, layout, 1)
        rotated = {name: turned(getattr(p, name), places[name], *rotary) for name in names}
        return scene.solve(scene.copies, **rotated)

    return make


def _rotated_by(
    change: Callable[[Rotation], Rotation], names: tuple[str, ...] = ("query", "key")
) -> Make:
    """Queries or keys of a layer rotated in another way, the others not at all."""

    def make(scene: Scene) -> Answer | None:
        if scene.rotation is None or not _products(scene):
            return None
        r = change(scene.rotation)
        operands = {"query": r.query, "key": r.key}
        for name, at in zip(operands, r.positions, strict=True):
            if name in names:
                operands[name] = turned(operands[name], at, r.base, r.width, r.layout, r.num_axes)
        return scene.solve(scene.copies, **operands)

    return make


def _positions(change: Callable[[Tensor], Tensor]) -> Callable[[Rotation], Rotation]:
    def changed(r: Rotation) -> Rotation:
        return r._replace(positions=(change(r.positions[0]), change(r.positions[1])))

    return changed


def _of_queries(change: Callable[[Tensor], Tensor]) -> Callable[[Rotation], Rotation]:
    return lambda r: r._replace(positions=(change(r.positions[0]), r.positions[1]))


SPLIT = "heads split by a view alone, (N, H, D) read as (H, N, D)"
JOINED = "heads joined by a view alone, (H, N, D) read as (N, H, D): transpose before"
OUTSIDE = "; verify compares attention alone, so rotate before the call"
WRONG_OPERANDS: tuple[Mistake, ...] = (
    ("heads grouped by tiling: head h reads head h % H_kv, not h // (H / H_kv)", _tiled_heads),
    ("rotary ignored: queries and keys are not rotated", _rotated_by(lambda r: r, ())),
    ("rotary of queries alone: keys are not rotated", _rotated_by(lambda r: r, ("query",))),
    ("rotary of keys alone: queries are not rotated", _rotated_by(lambda r: r, ("key",))),
    ("rotary applied twice", _rotated_by(_positions(lambda at: 2 * at))),
    (
        "rotary by places 0, 1, 2, ... in place of the positions",
        _rotated_by(_positions(lambda at: torch.ones_like(at).cumsum(0) - 1)),
    ),
    (
        "rotary by positions one too large at the queries",
        _rotated_by(_of_queries(lambda at: at + 1)),
    ),
    (
        "rotary by positions one too small at the queries",
        _rotated_by(_of_queries(lambda at: at - 1)),
    ),
    ("rotary with the opposite sign at the queries", _rotated_by(_of_queries(lambda at: -at))),
    (
        "rotary in the other layout: pairs of halves for interleaved ones, or the other way round",
        _rotated_by(lambda r: r._replace(layout=_OTHER_LAYOUT[r.layout])),
    ),
    *(
        (
            f"queries and keys rotated by their places (rotary, {x}){OUTSIDE}",
            _rotated(x, "query", "key"),
        )
        for x in ("half", "interleaved")
    ),
)
# not named where a simpler mistake explains as well
RARE_OPERANDS: tuple[Mistake, ...] = (
    *_a_token_off(),
    ("query and key swapped", _swapped("query", "key")),
    ("key and value swapped", _swapped("key", "value")),
    ("query and value swapped", _swapped("query", "value")),
    ("keys in place of values", _in_place_of("value", "key")),
    ("queries in place of keys", _in_place_of("key", "query")),
    ("keys in place of queries", _in_place_of("query", "key")),
    (JOINED, _moved((), _joined, _joined)),
    (SPLIT, _moved(_OPERANDS, _split)),
    (f"{SPLIT}, and joined likewise", _moved(_OPERANDS, _split, _joined)),
    ("heads innermost: (N, H, D) read as (N, D, H)", _moved(_OPERANDS, _innermost)),
    (
        "heads innermost: (N, H, D) read as (N, D, H), and joined likewise",
        _moved(_OPERANDS, _innermost, lambda x: x.mT.reshape(x.shape)),
    ),
    (
        "heads of value mixed up: weights of one head gather values of another",
        _other_heads("value"),
    ),
    ("heads of key mixed up: queries of one head meet keys of another", _other_heads("key")),
    (
        "heads of key and value mixed up: head h must read key and value head h // (H / H_kv)",
        _other_heads("key", "value"),
    ),
    ("heads of query mixed up", _other_heads("query")),
    ("heads of the output mixed up", _other_heads(*_OPERANDS)),
    *(
        (f"queries alone rotated by their places (rotary, {x}){OUTSIDE}", _rotated(x, "query"))
        for x in ("half", "interleaved")
    ),
)
