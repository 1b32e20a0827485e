"""Masks of a patched model: the unmasked tokens, and a ticket with the request for the mask."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from ..errors import OptionError
from .frame import Frame, frame_of, packed

if TYPE_CHECKING:
    from .state import Call, Patch

KEPT = 8  # tickets kept to recognise a mask that was copied to another device
_WHOLE = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}


@dataclass(frozen=True, eq=False)
class Ticket:
    """A request of transformers for a mask, with the derivations of layers."""

    request: dict[str, Any]
    view: Tensor | None = None
    call: "Call | None" = None
    """The call of the request."""
    frames: dict[bool, Frame] = field(default_factory=dict)
    masks: dict[str, Tensor | None] = field(default_factory=dict)

    def frame(self, *, crosses: bool) -> Frame:
        """The sequences of the call."""
        if crosses not in self.frames:
            self.frames[crosses] = frame_of(self.request, crosses=crosses)
        return self.frames[crosses]

    def mask(self, implementation: str) -> Tensor | None:
        """The mask of the model without a patch."""
        if implementation not in self.masks:
            from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

            self.masks[implementation] = ALL_MASK_ATTENTION_FUNCTIONS[implementation](**self.request)
        return self.masks[implementation]

    def dense(self) -> Tensor:
        """The mask as bool (B, 1, T, S), even if it is trivial."""
        from transformers.masking_utils import sdpa_mask

        mask: Any = sdpa_mask(**{**self.request, **_WHOLE})
        return cast(Tensor, mask)

    def says_nothing(self, *, own: bool) -> bool:
        """True if all tokens are unmasked, as without a mask; with ``own`` also if its layers need no mask."""
        request, window = self.request, self.request.get("local_size")
        present = request.get("attention_mask")
        if request["q_offset"] or request["kv_offset"] or request["q_length"] != request["kv_length"]:
            return False
        skips = request.get("allow_is_causal_skip", True) or request.get("allow_is_bidirectional_skip", False)
        if own and not (skips and (window is None or request["kv_length"] < window)):
            return False
        return (present is None or bool(present.all())) and packed(request.get("mask_function")) is None


@torch.compiler.disable
def mask_of(patch: "Patch", **request: Any) -> Tensor | None:
    """The mask function of a patched model: bool (B, 1, T, S) of the unmasked tokens, with a ticket.

    Models that compute with their mask, such as convolutions that skip padding, find the padding in it; eager attention
    in a model's own code gets floats to add.
    """
    offsets = {name: int(request.get(name, 0)) for name in ("q_offset", "kv_offset")}  # a static cache counts in place
    ticket = Ticket(request | offsets, call=patch.running.call)
    own, eager = patch.has_own_layers, patch.implementation(request.get("config")) == "eager"
    if ticket.says_nothing(own=own) and not eager and not (ticket.call and patch.reads_batch):
        return None
    view = ticket.mask("eager") if eager else ticket.dense() if own else _present(ticket.request)
    if view is None:
        return None
    ticket = view._graphattn_ticket = replace(ticket, view=view)  # type: ignore[attr-defined]
    patch.tickets.appendleft(ticket)
    patch.places[view.data_ptr()] = ticket
    if ticket.call is not None:
        ticket.call.tickets.insert(0, ticket)
    return view


def _present(request: dict[str, Any]) -> Tensor:
    rows, T, S, dropped = (request[name] for name in ("batch_size", "q_length", "kv_length", "kv_offset"))
    present = request.get("attention_mask")
    if present is None:
        return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=request.get("device")).expand(rows, 1, T, S)
    held = present[:, dropped : dropped + S]
    held = torch.nn.functional.pad(held, (0, S - held.shape[1]))
    return held[:, None, None].expand(rows, 1, T, S)


def ticket_of(patch: "Patch", mask: Any) -> Ticket | None:
    """The ticket of a mask that :func:`mask_of` made."""
    ticket: Ticket | None = getattr(mask, "_graphattn_ticket", None)
    if ticket is not None or not isinstance(mask, Tensor):
        return ticket
    detached = patch.places.get(mask.data_ptr())  # as checkpointing passes it
    if detached is not None and detached.view is not None and detached.view.shape == mask.shape:
        return detached
    call = patch.running.call
    for known in [*(call.tickets if call else ()), *patch.tickets]:
        view = known.view
        if view is None or (view.shape, view.dtype) != (mask.shape, mask.dtype):
            continue
        if not torch.equal(view.to(mask.device), mask):
            continue
        if call is None and known.call is not None and patch.reads_batch:
            raise outside_call()
        if call is None or known.call in (None, call):
            return known
    return None


def outside_call() -> OptionError:
    """The error for a layer on a function of the batch that runs outside a call of the model."""
    return OptionError(
        "the graph is a function of the model's inputs, which are unknown to a layer that runs outside a call of the "
        "model, such as under gradient checkpointing in a model that passes no masks to its layers; pass a graph or a "
        "function of the length, or turn checkpointing off"
    )
