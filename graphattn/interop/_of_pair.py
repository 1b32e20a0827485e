"""A FlexAttention ``mask_mod`` of one batch and one head as a rule, and what it does for the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import GraphError
from ..graph import AttentionGraph
from ..graph.rules import Predicate
from ._by_pair import by_pair
from .rule import dressed, from_rule, sample, undressed

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
BATCHES, HEADS = (0, 1, 2, 3, 7), (0, 1, 2, 3, 5, 7, 8, 15, 31, 63)  # tried where their number is not given
_PROBED = 17
_COMPARED = 1 << 30  # pairs that several batches or heads are compared on


@dataclass(frozen=True)
class OfPair:
    """A ``mask_mod`` of one batch and one head; ``alone`` asks about each pair as 0-d tensors."""

    mask_mod: MaskMod
    batch: int = 0
    head: int = 0
    alone: bool = False

    def __call__(self, target: Tensor, source: Tensor) -> Tensor:
        return by_pair(self._ask, target, source) if self.alone else self._ask(target, source)

    def _ask(self, target: Tensor, source: Tensor) -> Tensor:
        b, h = (torch.full((), value, dtype=torch.int64, device=target.device) for value in (self.batch, self.head))
        inside = self.mask_mod(b, h, target, source)
        return torch.full((), inside, device=target.device) if isinstance(inside, bool) else inside


def of_head(
    mask_mod: MaskMod, head: int, T: int, S: int, name: str | None, device: torch.device | str
) -> AttentionGraph:
    """The graph of batch 0 and one head: called on whole index tensors if that gives what each pair gives alone."""
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
        raise GraphError(f"{failed}. For each pair alone, as FlexAttention calls it: {_cause(error)}") from error


def _cause(error: BaseException) -> BaseException:
    """What went wrong in the first place."""
    return error if error.__cause__ is None else _cause(error.__cause__)


def _as_alone(graph: AttentionGraph, rule: OfPair, alone: OfPair) -> bool:
    """Whether some pairs get the answers that they get alone; one answer about all of them may be a reduction."""
    t, s = _pairs(graph)
    try:
        expected = alone(t, s)
    except Exception:  # what torch.vmap cannot run
        return True
    table = rule(t, s)
    return t.numel() == 0 or (table.dim() > 0 and torch.equal(table.expand(t.shape), expected.expand(t.shape)))


def _pairs(graph: AttentionGraph) -> tuple[Tensor, Tensor]:
    """Some pairs, as two flat lists."""
    t, s = (sample(size, _PROBED).to(graph.device) for size in (graph.num_targets, graph.num_sources))
    return t.repeat_interleave(s.numel()), s.repeat(t.numel())


def rule_of(graph: AttentionGraph) -> OfPair:
    """The rule of a graph of :func:`of_head`."""
    rule = undressed(graph.edges.function) if isinstance(graph.edges, Predicate) else None
    assert isinstance(rule, OfPair)
    return rule


def check_same(graph: AttentionGraph, letter: str, values: Sequence[int]) -> None:
    """Refuse a ``mask_mod`` that answers some pairs differently for some batch, or some head."""
    t, s = _pairs(graph)
    expected = graph.contains(t, s)
    for value in values:
        try:
            bad = torch.nonzero(_for(graph, letter, value).contains(t, s) != expected).flatten()
        except GraphError as error:
            raise GraphError(_depends(letter, f"it fails for {letter} = {value}: {_cause(error)}")) from error
        if bad.numel():
            pair = f"(q_idx={int(t[bad[0]])}, kv_idx={int(s[bad[0]])})"
            raise GraphError(_depends(letter, f"{pair} differs between {letter} = 0 and {letter} = {value}"))


def check_equal_batches(graph: AttentionGraph, batches: int) -> None:
    """Refuse a ``mask_mod`` that answers any pair differently for some batch."""
    pairs = batches * graph.num_targets * graph.num_sources
    if batches > 1 and pairs > _COMPARED:
        raise GraphError(f"B={batches} compares {pairs:,} pairs (limit {_COMPARED:,}); without B some are tried")
    for b in range(1, batches):
        if not graph.equals(_for(graph, "b", b)):
            raise GraphError(_depends("b", f"some pair differs between b = 0 and b = {b}"))


def _for(graph: AttentionGraph, letter: str, value: int) -> AttentionGraph:
    """The graph of another batch or head."""
    rule = rule_of(graph)
    other = replace(rule, batch=value) if letter == "b" else replace(rule, head=value)
    edges = Predicate(graph.num_targets, graph.num_sources, dressed(other, graph.device))
    return replace(graph, edges=edges)


def shared(heads: Sequence[AttentionGraph]) -> list[AttentionGraph]:
    """The graphs of heads, those with the same edges as one object; of very many pairs each head keeps its own."""
    kept: list[AttentionGraph] = []
    cheap = len(heads) * heads[0].num_targets * heads[0].num_sources <= _COMPARED
    for graph in heads:
        t, s = _pairs(graph)
        alike = (g for g in dict.fromkeys(kept) if torch.equal(g.contains(t, s), graph.contains(t, s)))
        kept.append(next((g for g in alike if cheap and g.equals(graph)), graph))
    return kept


def _depends(letter: str, how: str) -> str:
    chosen = "with b0 and h0 as tensors"
    if letter == "h":
        return (
            f"mask_mod must not depend on h, since one graph serves all heads, but {how}. Pass H=, the number of "
            f"heads, for a graph of each; or choose one: lambda b, h, q, kv: mask_mod(b, h0, q, kv), {chosen}"
        )
    return (
        f"mask_mod must not depend on b, since one graph serves a batch, but {how}. Pass B=1 where there is one. Or "
        f"choose one, lambda b, h, q, kv: mask_mod(b0, h, q, kv), {chosen}; or make a graph for each b0, and one of "
        "them all with disjoint_union"
    )
