"""Masks of heads beside their graphs: heads that are wrong, or that read another head's graph."""

import inspect
from dataclasses import asdict, dataclass
from math import lcm
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...arguments import several
from ...convert import from_mask_mod
from ...convert.masks import bool_mask
from ...errors import GraphError
from ...graph import AttentionGraph, PerHead
from ...mistakes.graphs.search import same
from ...printed import Printed
from .audit_mask import BUDGET, OR_ELSE, Audit, audit_one, graph_of

_NAMED = 4  # heads of a permutation that are named


@dataclass(frozen=True, repr=False)
class AuditOfHeads(Printed):
    """Findings of :func:`audit` about graphs of heads.

    Args:
        heads: The findings about each head.
        diagnosis: What explains the wrong heads together, if anything: they read one another's
            graphs.
    """

    heads: tuple[Audit, ...]
    diagnosis: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if all heads are right."""
        return all(self.heads)

    def __bool__(self) -> bool:
        return self.ok

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain Python values."""
        return {"ok": self.ok, **asdict(self)}

    def in_full(self) -> str:
        alike: dict[str, list[int]] = {}
        for head, report in enumerate(self.heads):
            if not report:
                alike.setdefault(str(report), []).append(head)
        if not alike:
            return f"ok: all {len(self.heads)} heads"
        wrong = sum(map(len, alike.values()))
        verb = "are"
        if wrong == 1:
            verb = "is"
        lines = [f"{wrong} of {len(self.heads)} heads {verb} wrong"]
        if self.diagnosis:
            lines.append(f"  diagnosis: {OR_ELSE.join(self.diagnosis)}")
        for words, heads in alike.items():
            if len(heads) == 1:
                named = f"head {heads[0]}"
            else:
                named = f"heads {', '.join(map(str, heads))}"
            lines.append(f"{named}\n  " + words.replace("\n", "\n  "))
        return "\n".join(lines)


def audit_heads(
    masks: Any, expect: AttentionGraph | PerHead, *, budget: int = BUDGET
) -> AuditOfHeads:
    """:func:`audit` of each head, and which heads are mixed up.

    Args:
        masks: bool (H, T, S) or (1, H, T, S); or a FlexAttention ``mask_mod(b, h, q_idx, kv_idx)``;
            or a :class:`PerHead`; or a list of what :func:`audit` takes.
        expect: The graphs that were meant, each for as many heads as the others; one graph is for
            all.
        budget: As of :func:`audit`, for each head.
    Raises:
        GraphError: If the heads are no multiple of the graphs, or :func:`audit` refuses one of
            them.
    Example:
        >>> from graphattn.graphs import causal, sliding_window
        >>> heads = PerHead((causal(8), sliding_window(8, 3, causal=True)))
        >>> print(audit_heads(PerHead(heads.graphs[::-1]), heads).diagnosis[0])
        heads 0 and 1 swapped
    """
    if isinstance(expect, PerHead):
        graphs = tuple(graph.to("cpu") for graph in expect.graphs)
    else:
        graphs = (expect.to("cpu"),)
    masks_of_heads = _heads_of(masks, graphs)
    graph_by_mask = {
        id(mask): graph_of(mask, graphs[0], budget).to("cpu") for mask in masks_of_heads
    }
    head_graphs = [graph_by_mask[id(mask)] for mask in masks_of_heads]
    if isinstance(masks, PerHead):
        H = lcm(len(head_graphs), len(graphs))
    else:
        H = len(head_graphs)
    if H % len(graphs):
        raise GraphError(
            f"{H} masks of heads are no multiple of the {len(graphs)} graphs in expect"
        )
    if H % len(head_graphs) == 0:
        head_graphs = [graph for graph in head_graphs for _ in range(H // len(head_graphs))]
    expected_graphs = [graph for graph in graphs for _ in range(H // len(graphs))]
    audits: dict[tuple[int, int], Audit] = {}
    heads = []
    for mask, graph in zip(head_graphs, expected_graphs, strict=True):
        pair = (id(mask), id(graph))
        if pair not in audits:
            audits[pair] = audit_one(mask, graph, budget)
        heads.append(audits[pair])
    if all(heads):
        return AuditOfHeads(tuple(heads), ())
    return AuditOfHeads(tuple(heads), tuple(_mixed_up(head_graphs, graphs)))


def is_of_heads(mask: Any) -> bool:
    """True if it holds the masks of several heads."""
    if isinstance(mask, Tensor | np.ndarray):
        axes = tuple(mask.shape)
    else:
        axes = ()
    return (
        isinstance(mask, PerHead)
        or len(axes) == 3
        or (len(axes) == 4 and axes[:1] == (1,) != axes[1:2])
    )


def _heads_of(masks: Any, graphs: tuple[AttentionGraph, ...]) -> list[Any]:
    if isinstance(masks, PerHead):
        return list(masks.graphs)
    if isinstance(masks, Tensor | np.ndarray):
        table = torch.as_tensor(masks)
        if table.dim() == 2:
            return [bool_mask(table, "mask")] * len(graphs)
        if table.dim() == 4:
            table = table[0]
        alike: dict[bytes, Tensor] = {}
        rows = [bool_mask(row, f"mask[{head}]").cpu() for head, row in enumerate(table)]
        return [alike.setdefault(row.numpy().tobytes(), row) for row in rows]
    if isinstance(masks, AttentionGraph):
        return [masks] * len(graphs)
    if callable(masks):
        if len(inspect.signature(masks).parameters) < 4:
            return [masks] * len(graphs)
        graph = from_mask_mod(masks, graphs[0].num_targets, graphs[0].num_sources, H=len(graphs))
        if isinstance(graph, PerHead):
            head_graphs = graph.graphs
        else:
            head_graphs = (graph,)
        return [head_graphs[head * len(head_graphs) // len(graphs)] for head in range(len(graphs))]
    return several(
        masks, "mask", "must be masks of heads: bool (H, T, S), a PerHead, or a list", GraphError
    )


def _mixed_up(head_graphs: list[AttentionGraph], graphs: tuple[AttentionGraph, ...]) -> list[str]:
    """Diagnosis of all heads together: each reads a graph that was meant for another one."""
    reads = [
        {number for number, graph in enumerate(graphs) if same(mask, graph)} for mask in head_graphs
    ]
    H = len(head_graphs)
    n = len(graphs)
    if n > 1 and set.intersection(*reads):
        return [f"every head reads the graph of head {min(set.intersection(*reads)) * (H // n)}"]
    expected_index = [head * n // H for head in range(H)]
    orders = {
        f"heads interleaved: head h reads graph h % {n}, not h // {H // n}": [
            h % n for h in range(H)
        ],
        "heads in reverse order": expected_index[::-1],
        "heads one place late: head h reads the graph of head h - 1": [
            expected_index[h - 1] for h in range(H)
        ],
        "heads one place early: head h reads the graph of head h + 1": [
            expected_index[(h + 1) % H] for h in range(H)
        ],
    }
    wrong = [head for head in range(H) if expected_index[head] not in reads[head]]
    if len(wrong) == 2:
        a, b = wrong
        if expected_index[b] in reads[a] and expected_index[a] in reads[b]:
            return [f"heads {a} and {b} swapped"]
    named = [
        words for words, order in orders.items() if all(order[h] in reads[h] for h in range(H))
    ]
    if named:
        return named[:1]
    if all(reads):
        moved = [f"head {h} reads the graph of head {min(reads[h]) * (H // n)}" for h in wrong]
        words = ", ".join(moved[:_NAMED])
        if len(moved) > _NAMED:
            words = f"{words} and {len(moved) - _NAMED} more"
        return [words]
    union = PerHead(graphs).union()
    if all(same(mask, union) for mask in head_graphs):
        return ["every head reads what any head should"]
    return []
