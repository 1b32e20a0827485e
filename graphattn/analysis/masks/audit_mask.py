"""One mask beside one graph: the wrong entries, by kind, and the mistakes that make them."""

import inspect
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...convert import from_mask, from_mask_mod, from_rule
from ...convert.masks import bool_mask
from ...graph import AttentionGraph, need_nodes
from ...graph.advice import advice, no_graph
from ...graph.forms import of_mask
from ...graph.limits import refuse_over
from ...mistakes.graphs.search import compared, mistakes
from ...mistakes.graphs.simple import remark
from ...printed import Printed

BUDGET = 1 << 27  # seconds
OR_ELSE = "\n    or, with the same edges: "
_WRONG = 4  # entries that may be looked at for each wrong one that is listed
_FULL = 8  # a mask with more than an eighth of its entries is walked over, and not listed
_NAMED = 6  # entries of a group that are named


@dataclass(frozen=True)
class WrongEdges:
    """Wrong entries of one kind.

    Args:
        kind: "too many" (edges the mask has and the graph lacks) or "missing", and where they lie.
        count: How many.
        examples: The first of them, as (source, target).
        where: What they have in common, if anything.
    """

    kind: str
    count: int
    examples: tuple[tuple[int, int], ...]
    where: str = ""

    def __str__(self) -> str:
        edges = ", ".join(f"{s} -> {t}" for s, t in self.examples)
        if self.count > len(self.examples):
            edges = f"{edges} and {self.count - len(self.examples):,} more"
        kind = self.kind
        if self.where:
            kind = f"{kind}, {self.where}"
        return f"{self.count:,} {kind}: {edges}"


@dataclass(frozen=True, repr=False)
class Audit(Printed):
    """Findings of :func:`graphattn.audit`.

    Args:
        name: What the mask should be.
        entries: Pairs in all.
        too_many: Edges that the mask has and the graph lacks.
        missing: Edges that the graph has and the mask lacks.
        diagnosis: The mistakes that make exactly this mask of the graph, the simplest first.
        groups: The wrong entries by kind.
        remark: Which simpler graph the one that was meant equals, or which of its parts changes
            nothing, if any.
        left_out: Which mistakes were not looked for, and why, if any.
    """

    name: str
    entries: int
    too_many: int
    missing: int
    diagnosis: tuple[str, ...]
    groups: tuple[WrongEdges, ...]
    remark: str = ""
    left_out: str = ""

    @property
    def ok(self) -> bool:
        """True if the mask is the graph."""
        return self.too_many == self.missing == 0

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain Python values."""
        return {"ok": self.ok, **asdict(self)}

    def in_full(self) -> str:
        if self.ok:
            return f"ok: all {self.entries:,} entries are those of {self.name}{self._note}"
        wrong = self.too_many + self.missing
        lines = [
            f"{wrong:,} of {self.entries:,} entries differ from {self.name}: "
            f"{self.too_many:,} too many, {self.missing:,} missing"
        ]
        if self.diagnosis:
            lines.append(f"  diagnosis: {OR_ELSE.join(self.diagnosis)}")
        elif self.left_out:
            lines.append(f"  {self.left_out}")
        else:
            lines.append("  no known mistake makes all of them; by kind:")
        return "\n".join([*lines, *(f"  {group}" for group in self.groups)]) + self._note

    @property
    def _note(self) -> str:
        if self.remark.startswith("equals"):
            return f"\n  note: what is expected {self.remark}"
        if self.remark:
            return f"\n  note: in what is expected, {self.remark}"
        return ""


def audit_one(mask: AttentionGraph, expect: AttentionGraph, budget: int) -> Audit:
    """The differences of a graph from the one that is expected."""
    need_nodes(mask, "mask", expect.num_targets, expect.num_sources)
    mask = mask.to("cpu")
    expect = expect.to("cpu")
    cost = compared(mask) + compared(expect)
    instead = f"audit a smaller size, or try budget={cost}"
    refuse_over(cost, f"audit of {mask.name}", instead, budget, "entries")
    too_many = mask - expect
    missing = expect - mask
    counts = too_many.num_edges, missing.num_edges
    entries = expect.num_targets * expect.num_sources
    if counts == (0, 0):
        return Audit(expect.name, entries, 0, 0, (), (), remark(expect))
    cost = _WRONG * max(counts)
    instead = f"audit a smaller size, or try budget={cost}"
    refuse_over(cost, f"audit of {sum(counts):,} differences", instead, budget, "steps")
    groups = [*_groups(too_many, "too many", expect), *_groups(missing, "missing", expect)]
    names, left_out = mistakes(expect, mask, (too_many, missing), budget)
    return Audit(expect.name, entries, *counts, names, tuple(groups), remark(expect), left_out)


def graph_of(mask: Any, expect: AttentionGraph, budget: int) -> AttentionGraph:
    """A mask of any kind as a graph of the sizes that are expected."""
    if isinstance(mask, AttentionGraph):
        return mask
    if not isinstance(mask, Tensor | np.ndarray) and advice(mask) is not None:
        raise no_graph(mask, "mask must be a bool mask (T, S), a function or an AttentionGraph")
    if callable(mask) and not isinstance(mask, Tensor):
        entries = _called(mask, expect, budget)
    else:
        entries = mask
    entries = bool_mask(entries, "mask").cpu()
    dense = _FULL * int(entries.sum()) > entries.numel()
    if dense:
        return AttentionGraph(of_mask(entries), "mask")
    return from_mask(entries)


def _called(function: Any, expect: AttentionGraph, budget: int) -> Tensor:
    """The mask of a function, which is called once."""
    T = expect.num_targets
    S = expect.num_sources
    instead = f"audit a smaller size, or try budget={T * S}"
    refuse_over(T * S, f"a function on all pairs of {expect.name}", instead, budget, "calls")
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    if len(required) == 4:
        return from_mask_mod(function, T, S).mask()
    return from_rule(function, T, S).mask()


def _groups(wrong: AttentionGraph, fault: str, expect: AttentionGraph) -> list[WrongEdges]:
    """The wrong edges before, on and after the diagonal; of two sets of nodes all together.

    Nodes of a listed symmetric graph, such as a social network, have no past: all but self-loops
    are one group.
    """
    source, target = wrong.edge_index.cpu()
    if not expect.is_square:
        return _some({fault: torch.ones_like(source, dtype=torch.bool)}, source, target)
    if expect.is_symmetric and not expect.is_rule:
        loops = f"{fault} on the diagonal (self-loops)"
        return _some({fault: source != target, loops: source == target}, source, target)
    future = "in the future"
    if fault == "too many":
        future = "in the future (a target reads a later source)"
    kinds = {
        f"{fault} {future}": source > target,
        f"{fault} on the diagonal (self-loops)": source == target,
        f"{fault} in the past": source < target,
    }
    return _some(kinds, source, target)


def _some(kinds: dict[str, Tensor], source: Tensor, target: Tensor) -> list[WrongEdges]:
    """The groups that have an edge."""
    groups = []
    for kind, edges in kinds.items():
        if bool(edges.any()):
            s = source[edges]
            t = target[edges]
            examples = tuple(zip(s[:_NAMED].tolist(), t[:_NAMED].tolist(), strict=True))
            groups.append(WrongEdges(kind, s.numel(), examples, _common(s, t)))
    return groups


def _common(source: Tensor, target: Tensor) -> str:
    """The source, target or distance that several wrong edges have in common."""
    if source.numel() < 2:
        return ""
    for words, number in (
        ("of source", source),
        ("of target", target),
        ("at distance", target - source),
    ):
        if bool((number == number[0]).all()):
            return f"all {words} {int(number[0])}"
    return ""
