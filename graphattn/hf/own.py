"""A model's own connectivity: the graphs of its masks."""

import torch
from torch import Tensor

from ..convert import from_mask
from ..graph import AttentionGraph
from ..graphs import causal, full, sliding_window
from ..graphs import cross as all_pairs
from .ticket import Ticket


def own_graphs(
    mask: Tensor | None, ticket: Ticket | None, T: int, S: int, *, is_causal: bool
) -> list[AttentionGraph]:
    """The graph of each row of the batch from the model's own masks; one graph if all rows are
    alike.
    """
    if ticket is not None and not ticket.is_given:
        graphs: list[AttentionGraph] = ticket.frame(crosses=False).remember(
            "own", lambda: _of_request(ticket)
        )
        return graphs
    if mask is None:
        return [causal(T) if is_causal and T == S and T > 1 else _all(T, S)]
    return _of_masks(
        (mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2).detach(),
        T,
        S,
    )


def _of_request(ticket: Ticket) -> list[AttentionGraph]:
    request = ticket.request
    windows = [request.get("local_size")]
    windows += [
        getattr(request.get("config"), name, None)
        for name in ("sliding_window", "attention_chunk_size")
    ]
    return _of_masks(
        ticket.dense(),
        request["q_length"],
        request["kv_length"],
        [w for w in windows if isinstance(w, int)],
    )


def _of_masks(
    mask: Tensor, T: int, S: int, windows: list[int] | None = None
) -> list[AttentionGraph]:
    mask = mask.expand(*mask.shape[:2], T, S).any(1)  # (B, T, S)
    if bool((mask == mask[:1]).all()):
        mask = mask[:1]
    return [_named(row, windows or []) for row in mask]


def _named(mask: Tensor, windows: list[int]) -> AttentionGraph:
    """The closed form of a mask, if there is one, which has a name and costs nothing."""
    T, S = mask.shape
    for form in [
        _all(T, S),
        *([causal(T), *(sliding_window(T, w) for w in windows if w > 0)] if T == S else []),
    ]:
        if form.num_edges == int(mask.sum()) and bool((form.mask().to(mask.device) == mask).all()):
            return form
    return from_mask(mask)


def _all(T: int, S: int) -> AttentionGraph:
    if T == S:
        return full(T)
    return all_pairs(T, S)
