"""Layouts of a caller's function: heads grouped or not, behind the nodes or before them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..graph import AttentionGraph
from .operator import CALLABLE, CallableSubject
from .scope import Scope

Function = Callable[[Tensor, Tensor, Tensor], Tensor]
GROUPED, EQUAL = (4, 2), (3, 3)

HEADS_FIRST = (
    "it expects heads first, (H, N, D), and is exact so; wrap it: "
    "lambda q, k, v: f(*(x.transpose(0, 1) for x in (q, k, v))).transpose(0, 1)"
)
UNGROUPED = (
    "with 3 heads on 3 it is exact: head h must read key head h // (H / H_kv), as after "
    "k.repeat_interleave(H // H_kv, 1); for a function that is not meant for grouped heads say heads=(3, 3)"
)


def fitting(
    function: Function, graph: AttentionGraph, dtypes: Sequence[torch.dtype], options: dict[str, Any]
) -> CallableSubject:
    """The function as a subject, with grouped heads if it takes them and no others are requested."""
    if "heads" in options:
        return CallableSubject(function, graph, **options)
    grouped = CallableSubject(function, graph, heads=GROUPED, **options)
    return grouped if _runs(grouped, dtypes) else CallableSubject(function, graph, heads=EQUAL, **options)


def _runs(subject: CallableSubject, dtypes: Sequence[torch.dtype]) -> bool:
    """Whether it gives an output of the right shape in one of the dtypes."""
    for dtype in dtypes:
        try:
            with torch.no_grad():
                subject.run(subject.leaves(subject.cases[0], dtype), subject.cases[0], CALLABLE)
        except Exception:  # whatever it is, measuring meets it again and reports it
            continue
        return True
    return False


def with_layout(diagnosis: str | None, subject: CallableSubject, scope: Scope, any_heads: bool) -> str | None:
    """A diagnosis, and the layout in which the wrong function is right; in other heads too if ``any_heads``."""
    function = subject.function

    def transposed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return function(*(x.transpose(0, 1) for x in (query, key, value))).transpose(0, 1)

    for heads in (GROUPED, EQUAL) if any_heads else (subject.heads,):
        if _exact(subject.like(transposed, heads), scope):
            return HEADS_FIRST  # what else was found is of this
    if any_heads and subject.heads == GROUPED and _exact(subject.like(function, EQUAL), scope):
        return UNGROUPED if diagnosis is None else f"{diagnosis}; {UNGROUPED}"
    return diagnosis


def _exact(subject: CallableSubject, scope: Scope) -> bool:
    """Whether its outputs are right, wherever others were found wrong."""
    if not _runs(subject, scope.dtypes):
        return False
    rows = scope.measure(subject, gradients=False).rows
    return bool(rows) and all(row.ok for row in rows)
