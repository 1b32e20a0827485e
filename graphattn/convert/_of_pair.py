"""A FlexAttention ``mask_mod`` of one batch and head as a rule, compared with the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from ..errors import GraphError
from ..graph import AttentionGraph, PerExample, PerHead
from ..graph.forms import of_function
from ..graph.kinds.per_head import one_or_heads
from .rule import by_pair, from_rule, on_device, sample

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
# tried if their number is not given
_TRIED = {
    "b": (1, 2, 3, 7),
    "h": (1, 2, 3, 5, 7, 8, 15, 31, 63),
}
_PROBED = 17
_COMPARED = 1 << 28  # limit of the pairs compared between batches or heads, some ten seconds
# limits of heads, and of masks of which some pairs are tried: some ten seconds, too
_HEADS = 256
_MASKS = 4096


@dataclass(frozen=True)
class OfPair:
    """A ``mask_mod`` of one batch and head; ``alone`` calls it on each pair as 0-d tensors."""

    mask_mod: MaskMod
    batch: int = 0
    head: int = 0
    alone: bool = False
    mask: ClassVar[str] = "mask_mod"

    def __call__(self, target: Tensor, source: Tensor) -> Tensor:
        if self.alone:
            return by_pair(self._ask, target, source)
        return self._ask(target, source)

    def at(self, letter: str, value: int) -> "OfPair":
        """The function at another batch or head."""
        if letter == "b":
            return replace(self, batch=value)
        return replace(self, head=value)

    def _ask(self, target: Tensor, source: Tensor) -> Tensor:
        b, h = (
            torch.full((), value, dtype=torch.int64, device=target.device)
            for value in (self.batch, self.head)
        )
        inside = self.mask_mod(b, h, target, source)
        if isinstance(inside, bool):
            return torch.full((), inside, device=target.device)
        return inside


def of_head(
    mask_mod: MaskMod, head: int, T: int, S: int, name: str | None, device: torch.device | str
) -> AttentionGraph:
    """The graph of batch 0 and one head.

    The function is called on whole index tensors if that agrees with single pairs.
    """
    rule = OfPair(mask_mod, head=head)
    alone = replace(rule, alone=True)
    failed = None
    try:
        graph = from_rule(rule, T, S, name=name, device=device)
        if _as_alone(graph, rule, alone):
            return graph
    except GraphError as error:
        failed = error
    try:
        return from_rule(alone, T, S, name=name, device=device)
    except GraphError as error:
        if failed is None:
            raise
        raise GraphError(
            f"{failed}. For each pair alone, as FlexAttention calls it: {_cause(error)}"
        ) from error


def _cause(error: BaseException) -> BaseException:
    """The original error."""
    if error.__cause__ is None:
        return error
    return _cause(error.__cause__)


def _as_alone(graph: AttentionGraph, rule: OfPair, alone: OfPair) -> bool:
    """True if some pairs have the same answers together as alone."""
    t, s = _pairs(graph)
    try:
        expected = alone(t, s)
    except Exception:  # code that torch.vmap cannot run
        return True
    table = rule(t, s)
    if t.numel() == 0:
        return True
    if table.dim() == 0:  # one answer for all pairs may be a reduction
        return False
    return torch.equal(table.expand(t.shape), expected.expand(t.shape))


def _pairs(graph: AttentionGraph) -> tuple[Tensor, Tensor]:
    """Some pairs, as two flat lists."""
    t, s = (
        sample(size, _PROBED).to(graph.device) for size in (graph.num_targets, graph.num_sources)
    )
    return t.repeat_interleave(s.numel()), s.repeat(t.numel())


class _Rule(Protocol):
    mask: ClassVar[str]

    def __call__(self, target: Tensor, source: Tensor) -> Tensor: ...

    def at(self, letter: str, value: int) -> "_Rule": ...


def rule_of(graph: AttentionGraph) -> _Rule:
    """The rule of a graph of :func:`of_heads`."""
    return graph.edges.function  # type: ignore[return-value]


def of_heads(
    graph_of: Callable[[int, str], AttentionGraph],
    size: tuple[int, int],
    name: str,
    B: int | None,
    H: int | None,
) -> AttentionGraph | PerHead | PerExample:
    """One graph if all batches and heads have the same edges, else graphs of batches or heads."""
    batches = 1
    if B is not None:
        batches = B
    if H is None:
        _refuse_many(batches, 1, size[0] * size[1])
        heads = [graph_of(0, name)]
    else:
        _refuse_many(batches, H, size[0] * size[1])
        heads = [graph_of(h, f"{name}[h={h}]") for h in range(H)]
    if B is None:
        for graph in heads:
            _check_same(graph, "b", None)
    every = heads + [_at_batch(graph, b) for b in range(1, batches) for graph in heads]
    if H is None:
        for graph in every:
            _check_same(graph, "h", None)
    graphs = _shared(every)
    if len(set(graphs)) == 1:
        return replace(graphs[0], name=name)
    number = len(heads)
    examples = [one_or_heads(graphs[b * number : (b + 1) * number]) for b in range(batches)]
    if graphs == graphs[:number] * batches:
        return examples[0]
    return PerExample(tuple(examples))


def _at_batch(graph: AttentionGraph, batch: int) -> AttentionGraph:
    """The graph at another batch, or an error if the function fails there."""
    other = _at(graph, "b", batch)
    try:
        other.contains(*_pairs(graph))
    except GraphError as error:
        raise GraphError(
            f"{rule_of(graph).mask} fails for b = {batch}: {_cause(error)}; pass as B the number "
            "of batches that it has, B=1 for a single one"
        ) from error
    return other


def _refuse_many(B: int, H: int, size: int) -> None:
    """Refuse too many batches, heads, and pairs; all pairs of several batches are compared."""
    pairs = B * H * size
    is_compared = B > 1 and pairs > _COMPARED
    if H > _HEADS or B * H > _MASKS or is_compared:
        raise GraphError(
            f"B={B} and H={H} are {B * H:,} masks of {pairs:,} pairs, of which at most {_HEADS:,} "
            f"heads, {_MASKS:,} masks, and {_COMPARED:,} pairs of several batches are compared; "
            "convert the mask of each head, with H=1, or leave B out to try some"
        )


def _check_same(graph: AttentionGraph, letter: str, number: int | None) -> None:
    """Refuse a mask that differs on some pairs between batches, or between heads.

    If their number is not given, some are tried; an index error means that they are beyond the
    last.
    """
    t, s = _pairs(graph)
    expected = graph.contains(t, s)
    before = 0
    values: Sequence[int] = _TRIED[letter]
    if number is not None:
        values = range(1, number)
    while values:
        value = values[0]
        values = values[1:]
        try:
            bad = torch.nonzero(_at(graph, letter, value).contains(t, s) != expected).flatten()
        except GraphError as error:
            if number is None and isinstance(_cause(error), IndexError):
                values = range(before + 1, value)
                continue
            raise _depends(
                graph, letter, f"it fails for {letter} = {value}: {_cause(error)}"
            ) from error
        if bad.numel():
            pair = f"(q_idx={int(t[bad[0]])}, kv_idx={int(s[bad[0]])})"
            raise _depends(
                graph, letter, f"{pair} differs between {letter} = 0 and {letter} = {value}"
            )
        before = value


def _at(graph: AttentionGraph, letter: str, value: int) -> AttentionGraph:
    """The graph at another batch or head."""
    rule = rule_of(graph).at(letter, value)
    edges = of_function(graph.num_targets, graph.num_sources, on_device(rule, graph.device), rule)
    name = f"{graph.name}[{letter}={value}]".replace("][", ", ")
    return replace(graph, edges=edges, name=name)


def _shared(heads: Sequence[AttentionGraph]) -> list[AttentionGraph]:
    """The graphs of heads, with one object for equal ones, where the number of pairs allows it."""
    graphs: list[AttentionGraph] = []
    num_left = _COMPARED // max(1, heads[0].num_targets * heads[0].num_sources)  # comparisons
    if len(heads) > num_left:
        num_left = 0
    for graph in heads:
        t, s = _pairs(graph)
        answers = graph.contains(t, s)
        candidates = [
            other for other in dict.fromkeys(graphs) if torch.equal(other.contains(t, s), answers)
        ]
        for other in candidates[:num_left]:
            num_left -= 1
            if other.equals(graph):
                graph = other
                break
        graphs.append(graph)
    return graphs


def _depends(graph: AttentionGraph, letter: str, evidence: str) -> GraphError:
    mask = rule_of(graph).mask
    chosen = "with b0 and h0 as tensors"
    if letter == "h":
        return GraphError(
            f"{mask} must not depend on h, since one graph serves all heads, but {evidence}. Pass "
            "H=, the number of heads, for a graph of each; or fix one: "
            f"lambda b, h, q, kv: {mask}(b, h0, q, kv), {chosen}"
        )
    return GraphError(
        f"{mask} must not depend on b, since one graph serves a batch, but {evidence}. Pass B=, "
        "the number of batches, for a graph of each (B=1 for a single one); or fix one: "
        f"lambda b, h, q, kv: {mask}(b0, h, q, kv), {chosen}"
    )
