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
    """The graph of each row of the batch from the model's own masks; one graph if all are equal."""
    if ticket is not None and not ticket.is_given:
        return _of_request(ticket)
    if mask is None:
        if is_causal and T == S and T > 1:
            return [causal(T)]
        return [_all(T, S)]
    if mask.dtype != torch.bool:
        mask = mask > torch.finfo(mask.dtype).min / 2
    return _of_masks(mask.detach(), T, S)


def _of_request(ticket: Ticket) -> list[AttentionGraph]:
    """The graphs of the masks that transformers asked for, one per row of the batch."""
    frame = ticket.frame(crosses=False)
    if "own" in frame.memo:
        return frame.memo["own"]
    request = ticket.request
    mask = ticket.dense()  # by transformers' functions, which need the caller's modes
    config = request.get("config")
    windows = [request.get("local_size")]
    windows += [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    widths = [window for window in windows if isinstance(window, int)]
    size = (request["q_length"], request["kv_length"])
    graphs: list[AttentionGraph] = frame.remember("own", lambda: _of_masks(mask, *size, widths))
    return graphs


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
    forms = [_all(T, S)]
    if T == S:
        forms += [
            causal(T),
            *(sliding_window(T, window, causal=True) for window in windows if window > 0),
        ]
    for form in forms:
        if form.num_edges == int(mask.sum()) and bool((form.mask().to(mask.device) == mask).all()):
            return form
    return from_mask(mask)


def _all(T: int, S: int) -> AttentionGraph:
    if T == S:
        return full(T)
    return all_pairs(T, S)
