"""A mask beside the graph that it should be: the wrong entries, and what mistake they look like."""

from typing import Any

from ...arguments import whole
from ...errors import GraphError
from ...graph import AttentionGraph, PerExample, PerHead
from ...graph.advice import no_graph
from .audit_heads import AuditOfHeads, audit_heads, is_of_heads
from .audit_mask import BUDGET, Audit, audit_one, graph_of


def audit(
    mask: Any, expect: AttentionGraph | PerHead, *, budget: int = BUDGET
) -> Audit | AuditOfHeads:
    """Compare a mask with the graph that it should be, and name the mistake in its wrong entries.

    Args:
        mask: bool (T, S), True where target ``t`` (row) may read source ``s``; or a FlexAttention
            ``mask_mod(b, h, q_idx, kv_idx)``; or a rule ``function(target, source)``; or a graph.
            Of heads, bool (H, T, S), a :class:`PerHead` or a list of masks.
        expect: The graph that was meant. A builder's own graph of a grid lets the mistakes of grids
            be named. Of heads, a :class:`PerHead`: then the answer says which heads are wrong, or
            mixed up.
        budget: Entries of masks and functions that may be looked at in all. An interval of sources
            in a row of a rule weighs as much as 64, a listed edge as 16, and one that each known
            mistake makes anew as 8.
    Raises:
        GraphError: If the mask is none of these, its size differs, or it costs more than
            ``budget``; where only to look for mistakes does, the answer says so.
    Example:
        >>> import torch
        >>> from graphattn.graphs import causal
        >>> mask = torch.ones(8, 8).tril().bool()
        >>> mask[4:6, 6] = True
        >>> print(audit(mask, causal(8)))
        2 of 64 entries differ from causal(8): 2 too many, 0 missing
          no known mistake makes all of them; by kind:
          2 too many in the future (a target reads a later source), all of source 6: 6 -> 4, 6 -> 5
    """
    if not isinstance(expect, AttentionGraph | PerHead):
        raise no_graph(expect, "expect must be an AttentionGraph, the one that was meant")
    if isinstance(mask, PerExample):
        raise no_graph(mask, "mask must be of one example")
    budget = whole(budget, "budget", 1, GraphError)
    for graph in (expect, mask):
        if isinstance(graph, AttentionGraph):
            graph._need_no_images("audit")
    if isinstance(expect, PerHead) or is_of_heads(mask):
        return audit_heads(mask, expect, budget=budget)
    return audit_one(graph_of(mask, expect, budget), expect, budget)
