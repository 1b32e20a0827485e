"""The tokens of a call of attention: the nodes of its targets and sources, sequence by sequence."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Span(NamedTuple):
    """Tokens of one sequence in a row of a tensor, from node ``node`` on.

    Args:
        places: Where they stand, ascending.
        node: The number of the first one; the others follow.
    """

    places: range | tuple[int, ...]
    node: int

    @property
    def size(self) -> int:
        return len(self.places)

    @property
    def end(self) -> int:
        """The node after the last one."""
        return self.node + self.size

    @property
    def nodes(self) -> range:
        return range(self.node, self.end)


class Piece(NamedTuple):
    """A sequence in a row of the batch: its targets and sources, and how many tokens it has so far."""

    row: int
    targets: Span
    sources: Span
    length: int

    @property
    def is_solid(self) -> bool:
        """True if its tokens stand side by side."""
        return isinstance(self.targets.places, range) and isinstance(self.sources.places, range)


@dataclass(frozen=True, eq=False)
class Frame:
    """The sequences of a call; what all its layers derive from them is kept here.

    Args:
        pieces: Of every row; of the first row alone where all rows are alike.
        alike: True if all rows have one sequence of the same places.
        targets: T, the places of a row in the query; ``sources``, S, those in the key.
        request: What transformers asked a mask for; empty where it did not.
    """

    pieces: tuple[Piece, ...]
    alike: bool
    targets: int
    sources: int
    request: dict[str, Any] = field(default_factory=dict)
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for frames of the same sequences."""
        return self.pieces, self.alike, self.targets, self.sources

    def remember(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]


def all_tokens(T: int, S: int, *, crosses: bool) -> Frame:
    """All tokens of all rows; the targets of self-attention are the last of the sources."""
    first = 0 if crosses else max(S - T, 0)
    piece = Piece(0, Span(range(T), first), Span(range(S), 0), S)
    return Frame((piece,), True, T, S)


def frame_of(request: dict[str, Any], *, crosses: bool) -> Frame:
    """The frame of a mask that transformers asked for.

    Of ``q_length`` new tokens, ``q_offset`` came before; of ``kv_length`` places in a cache, ``kv_offset`` were dropped
    before; ``attention_mask`` is bool (B, n) over all tokens. Tokens are numbered without those that are masked.
    """
    T, S, past, dropped = (int(request[name]) for name in ("q_length", "kv_length", "q_offset", "kv_offset"))
    present, sequences = request.get("attention_mask"), packed(request.get("mask_function"))
    end = dropped + S if crosses else min(past + T, dropped + S)  # a static cache has places that are not written yet
    if sequences is not None:
        pieces = [piece for row, ids in enumerate(sequences.tolist()) for piece in _runs_of(row, ids)]
        return Frame(tuple(pieces), False, T, S, request)
    if present is None or bool(present.all()):
        return Frame((_piece(0, range(end), past, T, dropped),), True, T, S, request)
    there = _present(present[:, :end])
    if isinstance(there[0], range) and all(places == there[0] for places in there):
        return Frame((_piece(0, there[0], past, T, dropped),), True, T, S, request)
    return Frame(tuple(_piece(row, x, past, T, dropped) for row, x in enumerate(there)), False, T, S, request)


def of_cross(decoder: Frame | None, mask: Frame) -> Frame:
    """Targets of the decoder's last self-attention, sources of the mask."""
    if decoder is None or decoder.targets != mask.targets:
        return mask
    rows = max(len(decoder.pieces), len(mask.pieces))
    ours, theirs = (list(frame.pieces) * (rows if frame.alike else 1) for frame in (decoder, mask))
    if len(ours) != len(theirs):  # packed sequences have no encoder of their own
        return mask
    pieces = tuple(
        Piece(row, own.targets, other.sources, other.length)
        for row, (own, other) in enumerate(zip(ours, theirs, strict=True))
    )
    return Frame(pieces, decoder.alike and mask.alike, mask.targets, mask.sources, mask.request)


def _piece(row: int, there: range | tuple[int, ...], past: int, T: int, dropped: int) -> Piece:
    """The sequence of the tokens that are there, of all places that a row has had."""
    targets, sources = _within(there, past, past + T), _within(there, dropped, None)
    return Piece(row, targets, sources, len(there))


def _within(there: range | tuple[int, ...], first: int, last: int | None) -> Span:
    """The tokens from a place on, as places from there."""
    before = bisect_left(there, first)
    chosen = there[before : None if last is None else bisect_left(there, last)]
    if isinstance(chosen, range):
        return Span(range(chosen.start - first, chosen.stop - first) if chosen else range(0), before)
    return Span(tuple(place - first for place in chosen), before)


def _present(present: Tensor) -> list[range | tuple[int, ...]]:
    """The places of the tokens that are there in each row of bool (B, n)."""
    n = present.shape[1]
    number = present.sum(1).tolist()
    first = present.int().argmax(1).tolist()
    last = (n - present.flip(1).int().argmax(1)).tolist()
    solid = [range(a, b) if size and b - a == size else None for a, b, size in zip(first, last, number, strict=True)]
    return [
        tuple(present[row].nonzero().flatten().tolist()) if places is None else places
        for row, places in enumerate(solid)
    ]


def _runs_of(row: int, ids: list[int]) -> list[Piece]:
    starts = [0, *(i for i in range(1, len(ids)) if ids[i] != ids[i - 1]), len(ids)]
    spans = [Span(range(first, last), 0) for first, last in pairwise(starts)]
    return [Piece(row, span, span, span.size) for span in spans]


def packed(function: Any) -> Tensor | None:
    """The number of each token's sequence, int64 (B, N), if the mask function keeps packed sequences apart."""
    if not callable(function) or getattr(function, "__closure__", None) is None:
        return None
    for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
        value = cell.cell_contents
        if name == "packed_sequence_mask" and isinstance(value, torch.Tensor):
            return value
        for inner in value if isinstance(value, tuple) else (value,):
            ids = packed(inner)
            if ids is not None:
                return ids
    return None
