"""The mistakes that turn the graph that was meant into the graph of a mask, in words."""

from itertools import combinations
from time import thread_time
from typing import NamedTuple

import torch
from torch import Tensor

from ...graph import AttentionGraph
from .mutant import Mutant, Node
from .mutants import Mutants
from .of_masks import of_mask

# pairs of either kind on which a mutant must agree before all are compared
_WRONG = 1024
_RIGHT = 64
_PAIRS = 4096  # of mistakes that are tried,
_PAIRED_EDGES = 1 << 23  # fewer where nodes and listed edges are many
# entries of a mask that cost what an interval, a listed edge, and one made anew do
_INTERVAL = 64
_EDGE = 16
_REMADE = 8
_CHANGED = 0.5  # of the wrong pairs that two mistakes change, each alone
_SECONDS = 5.0  # of this thread's time for pairs of mistakes


def compared(graph: AttentionGraph) -> int:
    """Cost of comparing a graph with another, in entries of a mask."""
    if not graph.is_rule:
        return _EDGE * graph.num_edges
    return graph.num_targets * min(graph.num_sources, _INTERVAL * graph.edges.runs_per_row)


def mistakes(
    meant: AttentionGraph, mask: AttentionGraph, wrong: tuple[AttentionGraph, ...], budget: int
) -> tuple[tuple[str, ...], str]:
    """The mistakes that make exactly the graph of the mask, simplest first, or a pair of them.

    Pairs are tried for some seconds of work. The second answer says why some mistakes were not
    looked for, or is "".

    Args:
        meant: The graph that it should be.
        mask: Another one, of the same sizes.
        wrong: The edges in which they differ, listed: too many, missing.
        budget: What the mutants may cost, in entries of a mask.
    """
    mutants = Mutants(meant)
    cost = _REMADE * len(mutants.all) * mutants.num_listed
    if cost > budget:
        return (
            (),
            f"no mistake was looked for: that makes {len(mutants.all)} graphs anew; try "
            f"budget={cost}. By kind:",
        )
    probe = _Probe(mutants, mask, wrong, budget)
    answers = [probe.answer(mutants.mutated(mutant)) for mutant in mutants.all]
    tried = zip(mutants.all, answers, strict=True)
    single = [mutant for mutant, answer in tried if probe.explains(answer)]
    if not single or single[0].remote:
        read = of_mask(mutants, mask, wrong, budget // max(1, compared(meant)))
        single += [
            mutant for mutant in read if probe.explains(probe.answer(mutants.mutated(mutant)))
        ]
        single.sort(key=lambda mutant: mutant.rank)
    if single:
        return mutants.described(single), ""
    work = meant.num_targets
    if not meant.is_rule:
        work += meant.num_edges
    most = min(_PAIRS, _PAIRED_EDGES // max(1, work))
    begin = thread_time()
    for first, second in _pairs(mutants, probe, answers)[:most]:
        if thread_time() - begin > _SECONDS:
            break
        pair = mutants.mutated_twice(first, second)
        if pair is not None and probe.explains(probe.answer(pair)):
            return (f"{mutants.in_words(first)}; and {mutants.in_words(second)}",), ""
    if not probe.needed:
        return (), ""
    return (), (
        "no known mistake makes all of them, and some were not looked for; try "
        f"budget={probe.needed}. By kind:"
    )


def _pairs(
    mutants: Mutants, probe: "_Probe", answers: "list[_Answer | None]"
) -> list[tuple[Mutant, Mutant]]:
    """Pairs that may explain the graph, the commonest mistakes first.

    Those change most of the wrong pairs, or one reverses all edges.
    """
    meant = probe.answer(mutants.root)
    assert meant is not None
    wrong = meant.bits != probe.bits
    changes = [
        wrong.new_zeros(()) if answer is None else (answer.bits != meant.bits) & wrong
        for answer in answers
    ]
    turns = [
        mutant.part is mutants.root and getattr(mutant.changed, "function", "") in ("~", "reverse")
        for mutant in mutants.all
    ]
    visible = [answer is None or not torch.equal(answer.bits, meant.bits) for answer in answers]
    enough = _CHANGED * int(wrong.sum())

    def may(i: int, j: int) -> bool:
        if turns[i] or turns[j]:
            return True
        return visible[i] and visible[j] and int((changes[i] | changes[j]).sum()) >= enough

    places = sorted(
        combinations(range(len(answers)), 2),
        key=lambda pair: sum(mutants.all[i].rank for i in pair),
    )
    pairs = ((mutants.all[i], mutants.all[j], i, j) for i, j in places)
    return [
        (one, other) for one, other, i, j in pairs if not (one.remote or other.remote) and may(i, j)
    ]


class _Answer(NamedTuple):
    """A graph, and which of the probed pairs are its edges."""

    graph: AttentionGraph
    bits: Tensor


class _Probe:
    """Pairs at which a wrong guess soon fails: of wrong entries, and of right ones."""

    def __init__(
        self,
        mutants: Mutants,
        mask: AttentionGraph,
        wrong: tuple[AttentionGraph, ...],
        budget: int,
    ) -> None:
        self.mutants = mutants
        self.mask = mask
        self.budget = budget
        self.needed = 0  # of what was not compared, because it costs more than the budget
        seeded = torch.Generator().manual_seed(0)
        chance = [
            torch.randint(size, (_RIGHT,), generator=seeded)
            for size in (mask.num_targets, mask.num_sources)
        ]
        # the first and the last edge of some targets; nothing is listed
        target = _spread(mask.num_targets, _RIGHT)
        row, lo, hi = mask.edges.rows(target)
        has_edges = (hi > lo).repeat(2)
        ends = torch.stack((target[row].repeat(2), torch.cat((lo, hi - 1))))[:, has_edges]
        pairs = [torch.stack(chance), ends]
        for graph in wrong:
            place = _spread(graph.num_edges, _WRONG)
            edges = graph._listed()
            pairs.append(torch.stack((edges.target[place], edges.source[place])).cpu())
        self.target, self.source = torch.cat(pairs, 1)
        self.bits = mask.contains(self.target, self.source)

    def answer(self, node: Node) -> _Answer | None:
        graph = self.mutants.made(node)
        if graph is None:
            return None
        return _Answer(graph, graph.contains(self.target, self.source))

    def explains(self, answer: _Answer | None) -> bool:
        if answer is None or not torch.equal(answer.bits, self.bits):
            return False
        cost = compared(answer.graph)
        if cost > self.budget:
            self.needed = max(self.needed, cost)
        return cost <= self.budget and same(answer.graph, self.mask)


def same(one: AttentionGraph, other: AttentionGraph) -> bool:
    """True if two graphs have the same edges; a full one is compared with no other."""
    full = one.num_targets * one.num_sources
    return one.num_edges == other.num_edges and (one.num_edges == full or one.equals(other))


def _spread(size: int, most: int) -> Tensor:
    """Places spread over all of a size, at most so many."""
    return torch.linspace(0, size - 1, min(most, size), dtype=torch.float64).long()
