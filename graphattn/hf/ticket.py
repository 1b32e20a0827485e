"""Tickets of masks: the requests of transformers for them, and the calls in which they were made."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor

from ..errors import OptionError
from .tokens.frame import Frame, frame_of
from .tokens.sequences import TokenInputs

MOST_TICKETS = 8  # tickets kept to recognise a mask that was copied to another device
_NO_SKIPS = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}


@dataclass(frozen=True, eq=False)
class ModelCall:
    """A call of the model, or a direct call of a model in it, as ``generate`` calls encoders."""

    inputs: dict[str, Any]
    """Inputs of functions that return graphs."""
    has_all: bool = False
    """True if they are of all tokens so far, as ``generate`` has them."""
    graphs: dict[int, Any] = field(default_factory=dict)
    """Graphs that the functions returned."""
    weights: bool = False
    """True if the caller requests attention weights."""
    virtual: dict[str, int] = field(default_factory=dict)
    """Numbers of virtual tokens before the text, by role."""
    tickets: list["Ticket"] = field(default_factory=list)
    """Tickets of the masks of this call."""
    sizes: dict[int, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    """Numbers of targets and sources of the masks that a model in it, by its id, asked for."""


@dataclass(eq=False)
class Generation:
    """A run of ``generate``, or none by default."""

    virtual: dict[str, int] = field(default_factory=dict)
    """Numbers of virtual tokens of an adapter around the model, by role."""
    makes_positions: bool = False
    """True if its caller passed no position ids."""
    encoded: dict[str, Tensor] = field(default_factory=dict)
    """The input of the encoder by name, in an encoder-decoder."""
    prompt: int | None = None
    """Number of tokens that it starts with."""
    prompt_ids: int = 0
    """Number of those that are given as ids; the others are given as embeddings."""
    length: int | None = None
    """Final number of tokens."""
    ids: Tensor | None = None
    """int64 (B, N), the tokens so far; ``None`` if some are given as embeddings."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """Inputs of all tokens so far, for functions of the batch."""
    is_prepared: bool = False
    """True between the preparation of a call and its start."""
    written: dict[Any, Any] | None = None
    """What the tokens in the cache read, by function and stack; ``None`` without a cache."""
    caches: list[Any] = field(default_factory=list)
    """Caches that are followed while it runs."""

    def of_encoder(self, batch: int) -> dict[str, Tensor]:
        """The input of the encoder, repeated for each beam."""
        return {name: x.repeat_interleave(batch // len(x), 0) for name, x in self.encoded.items()}


@dataclass(frozen=True, eq=False)
class Ticket:
    """A request of transformers for a mask, with the derivations of layers."""

    request: dict[str, Any]
    view: Tensor | None = None
    call: ModelCall | None = None
    """The call of the request."""
    tokens: TokenInputs | None = None
    """Inputs that assign tokens to sequences, of the model that requests the mask."""
    held: int | None = None
    """Tokens in a cache with unwritten positions, which a mask of the caller covers."""
    frames: dict[bool, Frame] = field(default_factory=dict)
    masks: dict[str, Tensor | None] = field(default_factory=dict)

    @property
    def past(self) -> int:
        """The number of tokens before the new ones.

        Encoders do not count the keys of prefix tuning, which their mask covers.
        """
        request = self.request
        past: int = request["q_offset"]
        hidden = request["kv_length"] - request["q_length"]
        present = request.get("attention_mask")
        if past or present is None or self.call is None:
            return past
        if present.shape[1] == request["kv_length"] and hidden in self.call.virtual.values():
            return hidden
        return past

    @property
    def is_given(self) -> bool:
        """True if the caller passed the mask, which transformers was not asked for."""
        return not self.request

    def frame(self, *, crosses: bool) -> Frame:
        """The sequences of the call."""
        if crosses not in self.frames:
            self.frames[crosses] = frame_of(self.request, past=self.past, crosses=crosses)
        return self.frames[crosses]

    def splits_as(self, other: "Ticket") -> bool:
        """True if the rows of another call are split into the same sequences."""
        if self.tokens is None or other.tokens is None:
            return self.tokens is other.tokens
        return self.tokens.has_same_positions(other.tokens)

    def mask(self, implementation: str) -> Tensor | None:
        """The mask of the model without a patch."""
        if implementation not in self.masks:
            from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

            self.masks[implementation] = ALL_MASK_ATTENTION_FUNCTIONS[implementation](
                **self.request
            )
        return self.masks[implementation]

    def dense(self) -> Tensor:
        """The mask as bool (B, 1, T, S), even if it is trivial."""
        from transformers.masking_utils import sdpa_mask

        mask: Any = sdpa_mask(**{**self.request, **_NO_SKIPS})
        return cast(Tensor, mask)

    def says_nothing(self, *, own_layers: bool) -> bool:
        """True if no token is masked, and with ``own_layers`` if the model's layers need no mask."""
        request = self.request
        if request["q_offset"] or request["kv_offset"]:
            return False
        if request["q_length"] != request["kv_length"]:
            return False
        if own_layers and not self._skips_mask:
            return False
        present = request.get("attention_mask")
        return present is None or bool(present.all())

    @property
    def _skips_mask(self) -> bool:
        """True if the model's own layers need no mask where all tokens are unmasked."""
        request = self.request
        window = request.get("local_size")
        if window is not None and request["kv_length"] >= window:
            return False
        if request.get("allow_is_causal_skip", True):
            return True
        return bool(request.get("allow_is_bidirectional_skip", False))


def outside_call() -> OptionError:
    """The error for a layer on a function of the batch that runs outside a call of the model."""
    return OptionError(
        "the graph is a function of the model's inputs, which are unknown to a layer that runs "
        "outside a call of the model, such as under gradient checkpointing in a model that passes "
        "no masks to its layers; pass a graph or a function of the length, or turn checkpointing "
        "off"
    )
