"""The tokens of a call of attention: the nodes of its targets and sources, sequence by sequence."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from torch import Tensor

from ...graph.modes import keep

#: The reason for a graph break of torch.compile, which an error of fullgraph=True shows.
BREAK = (
    "a patched model makes its graphs from the tokens of each call: compile without "
    "fullgraph, do not export"
)


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


class SequencePiece(NamedTuple):
    """A sequence in a row of the batch: its targets and sources, and its number of tokens so
    far.
    """

    row: int
    targets: Span
    sources: Span
    length: int


@dataclass(frozen=True, eq=False)
class Frame:
    """The sequences of a call, with derivations shared by all layers.

    Args:
        pieces: Sequences of every row, or of the first row if all rows are alike.
        alike: True if all rows have one sequence at the same positions.
        targets: T, the number of positions of a row in the query; ``sources``, S, that in the key.
        past: Positions of a row before the first target.
        dropped: Positions before the first source, which a cache holds no more.
        request: The arguments of transformers' request for a mask; empty without one.
    """

    pieces: tuple[SequencePiece, ...]
    alike: bool
    targets: int
    sources: int
    past: int = 0
    dropped: int = 0
    request: dict[str, Any] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for frames of the same sequences."""
        return self.pieces, self.alike, self.targets, self.sources

    def remember(self, key: Any, make: Callable[[], Any]) -> Any:
        return keep(self.memo, key, make)


def all_tokens(T: int, S: int, *, crosses: bool, num_cached: int | None = None) -> Frame:
    """All tokens of all rows; the targets of self-attention are the last of the sources.

    Args:
        T: Number of targets.
        S: Number of sources.
        crosses: True of cross-attention.
        num_cached: Number of tokens before the targets in a cache; the positions after them are
            unwritten.
    """
    first = 0
    last = S
    if num_cached is not None and not crosses:
        first = num_cached
        last = num_cached + T
    elif not crosses:
        first = max(S - T, 0)
    piece = SequencePiece(0, Span(range(T), first), Span(range(last), 0), last)
    return Frame((piece,), True, T, S, first)


def frame_of(request: dict[str, Any], *, past: int, crosses: bool) -> Frame:
    """The frame of a mask that transformers requests, with a piece for each row.

    ``q_length`` new tokens follow ``past`` earlier ones; ``kv_length`` positions in a cache follow
    ``kv_offset`` dropped ones; ``attention_mask`` is bool (B, n) over all tokens. Masked tokens are
    not numbered.
    """
    T, S, dropped = (int(request[name]) for name in ("q_length", "kv_length", "kv_offset"))
    present = request.get("attention_mask")
    # a static cache has unwritten positions
    if crosses:
        end = dropped + S
    else:
        end = min(past + T, dropped + S)
    if present is None or bool(present.all()):
        return Frame((_piece(0, range(end), past, T, dropped),), True, T, S, past, dropped, request)
    there = _present(present[:, :end])
    alike = isinstance(there[0], range) and all(places == there[0] for places in there)
    if alike:
        there = there[:1]
    pieces = tuple(_piece(row, x, past, T, dropped) for row, x in enumerate(there))
    return Frame(pieces, alike, T, S, past, dropped, request)


def of_cross(decoder: Frame | None, mask: Frame) -> Frame:
    """Targets of the decoder's last self-attention, sources of the mask."""
    if decoder is None or decoder.targets != mask.targets:
        return mask
    rows = max(len(decoder.pieces), len(mask.pieces))
    of_decoder, of_mask = (
        list(frame.pieces) * (rows if frame.alike else 1) for frame in (decoder, mask)
    )
    pieces = tuple(
        SequencePiece(row, piece.targets, other.sources, other.length)
        for row, (piece, other) in enumerate(zip(of_decoder, of_mask, strict=True))
    )
    return replace(
        mask, pieces=pieces, alike=decoder.alike and mask.alike, past=decoder.past, memo={}
    )


def _piece(
    row: int, there: range | tuple[int, ...], past: int, T: int, dropped: int
) -> SequencePiece:
    """The sequence of the unmasked tokens among all positions of a row so far."""
    targets = _within(there, past, past + T)
    sources = _within(there, dropped, None)
    return SequencePiece(row, targets, sources, len(there))


def _within(there: range | tuple[int, ...], first: int, last: int | None) -> Span:
    """The tokens from a position on, with positions relative to it."""
    before = bisect_left(there, first)
    chosen = there[before : None if last is None else bisect_left(there, last)]
    if isinstance(chosen, range):
        return Span(
            range(chosen.start - first, chosen.stop - first) if chosen else range(0), before
        )
    return Span(tuple(place - first for place in chosen), before)


def _present(present: Tensor) -> list[range | tuple[int, ...]]:
    """The positions of the unmasked tokens in each row of bool (B, n)."""
    n = present.shape[1]
    number = present.sum(1).tolist()
    first = present.int().argmax(1).tolist()
    last = (n - present.flip(1).int().argmax(1)).tolist()
    solid = [
        range(a, b) if size and b - a == size else None
        for a, b, size in zip(first, last, number, strict=True)
    ]
    return [
        tuple(present[row].nonzero().flatten().tolist()) if places is None else places
        for row, places in enumerate(solid)
    ]
