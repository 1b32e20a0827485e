"""The tokens of a call of attention: the nodes of its targets and sources, sequence by sequence."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Span(NamedTuple):
    """Tokens of one sequence in a row of a tensor, with consecutive nodes from ``node`` on.

    Args:
        places: Their positions in the row, ascending.
        node: The node of the first one.
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
    """A sequence in a row of the batch: its targets and sources, and its number of tokens so far."""

    row: int
    targets: Span
    sources: Span
    length: int

    @property
    def is_solid(self) -> bool:
        """True if its tokens are contiguous."""
        return isinstance(self.targets.places, range) and isinstance(self.sources.places, range)


@dataclass(frozen=True, eq=False)
class Frame:
    """The sequences of a call, with derivations shared by all layers.

    Args:
        pieces: Sequences of every row, or of the first row if all rows are alike.
        alike: True if all rows have one sequence at the same positions.
        targets: T, the number of positions of a row in the query; ``sources``, S, that in the key.
        request: The arguments of transformers' request for a mask; empty without one.
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
    """The frame of a mask that transformers requests.

    ``q_length`` new tokens follow ``q_offset`` earlier ones; ``kv_length`` positions in a cache follow ``kv_offset``
    dropped ones; ``attention_mask`` is bool (B, n) over all tokens. Masked tokens are not numbered.
    """
    T, S, past, dropped = (int(request[name]) for name in ("q_length", "kv_length", "q_offset", "kv_offset"))
    present, sequences = request.get("attention_mask"), packed(request.get("mask_function"))
    end = dropped + S if crosses else min(past + T, dropped + S)  # a static cache has unwritten positions
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
    if len(ours) != len(theirs):  # packed sequences have no separate encoder outputs
        return mask
    pieces = tuple(
        Piece(row, own.targets, other.sources, other.length)
        for row, (own, other) in enumerate(zip(ours, theirs, strict=True))
    )
    return Frame(pieces, decoder.alike and mask.alike, mask.targets, mask.sources, mask.request)


def _piece(row: int, there: range | tuple[int, ...], past: int, T: int, dropped: int) -> Piece:
    """The sequence of the unmasked tokens among all positions of a row so far."""
    targets, sources = _within(there, past, past + T), _within(there, dropped, None)
    return Piece(row, targets, sources, len(there))


def _within(there: range | tuple[int, ...], first: int, last: int | None) -> Span:
    """The tokens from a position on, with positions relative to it."""
    before = bisect_left(there, first)
    chosen = there[before : None if last is None else bisect_left(there, last)]
    if isinstance(chosen, range):
        return Span(range(chosen.start - first, chosen.stop - first) if chosen else range(0), before)
    return Span(tuple(place - first for place in chosen), before)


def _present(present: Tensor) -> list[range | tuple[int, ...]]:
    """The positions of the unmasked tokens in each row of bool (B, n)."""
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
    """The sequence of each token, int64 (B, N), if the mask function separates packed sequences."""
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
