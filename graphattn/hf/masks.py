"""Masks of a patched model: the unmasked tokens, and a ticket with the request for the mask."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..errors import OptionError
from ..graph.modes import not_followed
from .state import Patch
from .ticket import Ticket, outside_call
from .tokens.frame import BREAK
from .tokens.rows import mask_of_job


@partial(not_followed, reason=BREAK)
def mask_of(patch: Patch, **request: Any) -> Tensor | None:
    """The mask function of a patched model: bool (B, 1, T, S) of unmasked tokens, with a ticket.

    Models that compute with their mask, such as convolutions that skip padding, find the padding in
    it; eager attention in a model's own code gets floats to add.
    """
    # a static cache counts in place
    offsets = {name: int(request.get(name, 0)) for name in ("q_offset", "kv_offset")}
    here = patch.running
    tokens = None
    if here.tokens:
        tokens = here.tokens[-1][1]
    ticket = Ticket(request | offsets, call=here.call, tokens=tokens)
    if here.call is not None and here.tokens:
        size = (request["q_length"], request["kv_length"])
        here.call.sizes[id(here.tokens[-1][0])].add(size)
    own_layers = patch.has_own_layers or patch.computes_with_masks
    eager = patch.implementation(request.get("config")) == "eager"
    needed = patch.computes_with_masks or _needs(patch, ticket)
    if not eager and not needed and ticket.says_nothing(own_layers=own_layers):
        return None
    slot = patch.slot_of_masks
    view: Tensor | None
    if patch.computes_with_masks and slot is not None and here.call is not None:
        names = ("batch_size", "q_length", "kv_length")
        B, T, S = (int(ticket.request[name]) for name in names)
        device = ticket.request.get("device") or torch.device("cpu")
        job = patch.job(slot, ticket, None, (B, T, S), device, is_causal=slot.is_causal)
        view = mask_of_job(job, B, T, S)
    elif eager:
        view = ticket.mask("eager")
    elif own_layers:
        view = ticket.dense()
    else:
        view = _present(ticket.request)
    if view is None:
        return None
    _keep(patch, replace(ticket, view=view))
    return view


def _needs(patch: Patch, ticket: Ticket) -> bool:
    """True if layers need the ticket of a call, even if it masks no token."""
    if patch.splits_rows and ticket.tokens is not None and not ticket.tokens.is_trivial:
        return True
    if ticket.call is None:
        return False
    return patch.reads_batch or bool(ticket.call.virtual)


def marked(patch: Patch, mask: Any, cache: Any, *, needed: bool) -> Any:
    """A caller's mask (B or 1, 1 or H, T, S) with a ticket, also in a dict; else the mask itself.

    Args:
        patch: The patch of the model.
        mask: The mask, or any other.
        cache: The cache of the call; ``None`` without one.
        needed: True if the ticket is needed whatever the cache.
    """
    if isinstance(mask, dict):
        return {name: marked(patch, x, cache, needed=needed) for name, x in mask.items()}
    if not isinstance(mask, Tensor) or mask.dim() != 4:
        return mask
    here = patch.running
    ticket = ticket_of(patch, mask)
    if ticket is not None:
        if here.call is not None:
            here.call.tickets.insert(0, ticket)
        return mask
    num_cached = _held(mask, cache)
    if not needed and num_cached is None:
        return mask
    view = mask.view_as(mask)
    _keep(patch, Ticket({}, view=view, call=here.call, tokens=here.tokens[-1][1], held=num_cached))
    return view


def _held(mask: Tensor, cache: Any) -> int | None:
    """Tokens in a cache of which the mask covers positions that are not written yet."""
    if not hasattr(cache, "get_seq_length"):
        return None
    num_cached = int(cache.get_seq_length())
    if mask.shape[-1] <= num_cached + mask.shape[-2]:
        return None
    return num_cached


def _keep(patch: Patch, ticket: Ticket) -> None:
    """Find the ticket by its view, and by copies of the view."""
    view = ticket.view
    assert view is not None
    view._graphattn_ticket = ticket  # type: ignore[attr-defined]
    patch.tickets.appendleft(ticket)
    patch.places[view.data_ptr()] = ticket
    if ticket.call is not None:
        ticket.call.tickets.insert(0, ticket)


def _present(request: dict[str, Any]) -> Tensor:
    rows, T, S, dropped = (
        request[name] for name in ("batch_size", "q_length", "kv_length", "kv_offset")
    )
    present = request.get("attention_mask")
    if present is None:
        return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=request.get("device")).expand(
            rows, 1, T, S
        )
    unmasked = present[:, dropped : dropped + S]
    unmasked = torch.nn.functional.pad(unmasked, (0, S - unmasked.shape[1]))
    return unmasked[:, None, None].expand(rows, 1, T, S)


def ticket_of(patch: Patch, mask: Any) -> Ticket | None:
    """The ticket of a mask that :func:`mask_of` made."""
    ticket: Ticket | None = getattr(mask, "_graphattn_ticket", None)
    if ticket is not None or not isinstance(mask, Tensor):
        return ticket
    detached = patch.places.get(mask.data_ptr())  # as checkpointing passes it
    view = getattr(detached, "view", None)
    if view is not None and view.shape == mask.shape:
        return detached
    call = patch.running.call
    if call is None:
        return _outside(patch, mask)
    for candidate in [*call.tickets, *patch.tickets]:
        if candidate.call in (None, call) and _is_copy(mask, candidate.view):
            return candidate
    return None


def _outside(patch: Patch, mask: Tensor) -> Ticket | None:
    """The ticket of a copied mask outside a call, as under checkpointing on several devices."""
    tickets = [ticket for ticket in patch.tickets if _is_copy(mask, ticket.view)]
    if not tickets:
        return None
    if patch.reads_batch and any(ticket.call is not None for ticket in tickets):
        raise outside_call()
    if patch.splits_rows and any(not tickets[0].splits_as(ticket) for ticket in tickets[1:]):
        raise OptionError(
            "several calls have equal masks and different position_ids, so that a layer that runs "
            "again outside of them, under gradient checkpointing, cannot be assigned to one; pass "
            "use_reentrant=False"
        )
    return tickets[0]


def _is_copy(mask: Tensor, view: Tensor | None) -> bool:
    if view is None or (view.shape, view.dtype) != (mask.shape, mask.dtype):
        return False
    return torch.equal(view.to(mask.device), mask)
