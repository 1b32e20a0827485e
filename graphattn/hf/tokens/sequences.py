"""Sequences in the rows of a batch, decided from what a model is called with."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import OptionError
from .frame import Frame, SequencePiece, Span

_LENGTHS = ("cu_seq_lens_q", "cu_seqlens", "cu_seqlens_q", "cu_seq_lens")
_ROW_GRAPH = (
    "or give the graph of the whole row, ga.from_mask(mask) or ga.graphs.ancestors(parents)"
)


@dataclass(frozen=True, eq=False)
class TokenInputs:
    """Inputs of a model that assign the tokens of a row to sequences.

    A sequence starts where position ids return to their first value. Other inputs may repeat that,
    but not contradict it.

    Args:
        positions: int (B or 1, T).
        coordinates: int (3, B or 1, T), positions of M-RoPE, which repeat and skip in images.
        mask: int (B, n) over all tokens so far, where it numbers the documents of a row.
        index: int (B or 1, T), the document of each token.
        lengths: Cumulative lengths of sequences, int (n + 1,), by the name of the input.
        types: int (B or 1, T), token types of sentence pairs.
        is_generated: True if the caller gave no positions. Those that a model or ``generate`` made
            may start at any value, and skip or repeat behind padding.
        starts: First positions of rows, also of the tokens in the cache.
    """

    positions: Tensor | None = None
    coordinates: Tensor | None = None
    mask: Tensor | None = None
    index: Tensor | None = None
    lengths: dict[str, Tensor] = field(default_factory=dict)
    types: Tensor | None = None
    is_generated: bool = False
    starts: set[int] = field(default_factory=set)
    _frames: dict[Any, Frame] = field(default_factory=dict)

    @property
    def has_positions(self) -> bool:
        """True if the model is called with positions."""
        return self.positions is not None or self.coordinates is not None

    def with_generated_positions(self) -> "TokenInputs":
        """Inputs whose positions a model or ``generate`` made.

        Positions that are all equal, with which models turn positions off, are left out.
        """
        positions = self.positions
        if positions is not None and bool((positions == positions[:1, :1]).all()):
            positions = None
        return replace(self, positions=positions, is_generated=True)

    def has_same_positions(self, other: "TokenInputs") -> bool:
        """True if another call has the same positions."""
        pairs = [(self.positions, other.positions), (self.coordinates, other.coordinates)]
        for first, second in pairs:
            if first is None or second is None:
                if first is not second:
                    return False
            elif not torch.equal(first, second):
                return False
        return True

    @property
    def has_claims(self) -> bool:
        """True if an input other than the positions numbers documents or gives their lengths."""
        if self.lengths:
            return True
        return self.mask is not None or self.index is not None

    @cached_property
    def is_trivial(self) -> bool:
        """True if every row is one sequence, as without these inputs."""
        if self.has_claims:
            return False
        numbers = self.positions
        if self.coordinates is not None:
            numbers = self.coordinates
        return numbers is None or bool((numbers.diff(dim=-1) == 1).all())

    def split(self, rows: Frame, batch: int, virtual: int = 0) -> Frame:
        """The frame with a piece for each sequence.

        Args:
            rows: The frame with a piece for each row, without padding.
            batch: Number of rows.
            virtual: Number of virtual tokens at the start of each row; all of its sequences read
                them.

        Raises:
            OptionError: If positions repeat or skip within a sequence, or another input contradicts
                them.
        """
        key = (rows.key, batch, virtual)
        if key not in self._frames:
            self._frames[key] = self._split(rows, batch, virtual)
        return self._frames[key]

    def has_restart(self, rows: Frame, batch: int) -> bool:
        """True if the positions of some row return to their first value."""
        positions = _of_targets(self.positions, rows, batch)
        if positions is None:
            return False
        for piece in _pieces(rows, batch):
            numbers = positions[piece.row][_places(piece)]
            if (numbers[1:] == numbers[:1]).any():
                return True
        return False

    def _split(self, rows: Frame, batch: int, virtual: int) -> Frame:
        positions = _of_targets(self.positions, rows, batch)
        coordinates = _of_targets(self.coordinates, rows, batch)
        if positions is None and coordinates is None and not self.has_claims:
            return rows
        pieces = _pieces(rows, batch)
        for piece in pieces:
            if positions is not None and piece.targets.size and piece.targets.node <= virtual:
                self.starts.add(int(positions[piece.row][piece.targets.places[0]]))
        if positions is not None and not self.has_claims and _is_plain(positions, rows, virtual):
            return rows
        sequences = []
        for piece in pieces:
            starts = []
            if coordinates is not None:
                starts = _starts_of_coordinates(coordinates[piece.row], piece, virtual)
            elif positions is not None:
                starts = self._starts(positions[piece.row], piece, rows, virtual)
            self._check_types(piece, starts, rows, batch)
            self._check_documents(piece, starts, rows)
            sequences += _cut(piece, starts, virtual)
        self._check_lengths(sequences)
        if sequences == pieces:
            return rows
        return replace(rows, pieces=tuple(sequences), alike=False, memo={})

    def _starts(
        self, positions: np.ndarray, piece: SequencePiece, rows: Frame, virtual: int
    ) -> list[int]:
        """Indices of the targets at which a further sequence of a row starts."""
        places = _places(piece)
        numbers = positions[places]
        if not len(numbers):
            return []
        first = int(numbers[0])
        num_cached = piece.targets.node
        if self.is_generated:
            if num_cached > virtual:
                return []
            return (np.flatnonzero(numbers[1:] == first) + 1).tolist()
        if num_cached > virtual:
            place = int(rows.request.get("q_offset", num_cached)) + int(places[0])
            # positions may count padding, and start above 0
            begins = {first - num_cached, first - place} & {0, *self.starts}
            if not begins:
                raise OptionError(
                    f"the cache contradicts position_ids in row {piece.row}: it holds {num_cached} "
                    f"tokens, and the next position is {first}; pass the position after them, "
                    f"{_ROW_GRAPH}"
                )
            first = min(begins)
        return _restarts(numbers, first, places)

    def _check_types(
        self, piece: SequencePiece, starts: list[int], rows: Frame, batch: int
    ) -> None:
        types = _of_targets(self.types, rows, batch)
        if types is None:
            return
        numbers = types[piece.row][_places(piece)]
        for start in starts:
            if numbers[start] != numbers[0]:
                raise OptionError(
                    f"token_type_ids contradict position_ids in row {piece.row}: a sequence starts "
                    f"at token {piece.targets.places[start]}, which is of a second sentence; pass "
                    "position_ids that run on over a pair of sentences"
                )

    def _check_documents(self, piece: SequencePiece, starts: list[int], rows: Frame) -> None:
        """Compare documents that a mask or an index numbers with the sequences of the positions."""
        before = int(rows.request.get("q_offset", 0))
        for name, numbered, first in (
            ("attention_mask", self.mask, before),
            ("seq_idx", self.index, 0),
        ):
            if numbered is None:
                continue
            documents = numbered.expand(max(len(numbered), piece.row + 1), -1)[piece.row]
            numbers = documents.cpu().numpy()[_places(piece) + first]
            changes = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
            if changes != starts:
                raise OptionError(
                    f"{name} contradicts position_ids in row {piece.row}: it numbers "
                    f"{len(changes) + 1} documents, and the positions start {len(starts) + 1}; "
                    f"pass position_ids that return to 0 with each document, {_ROW_GRAPH}"
                )

    def _check_lengths(self, sequences: list[SequencePiece]) -> None:
        """Compare cumulative lengths with the sequences of the positions."""
        ends = [0, *accumulate(sequence.targets.size for sequence in sequences)]
        for name, lengths in self.lengths.items():
            if lengths.flatten().tolist() != ends:
                raise OptionError(
                    f"{name} contradicts position_ids: it ends sequences at tokens "
                    f"{_few(lengths.flatten().tolist()[1:])}, and the positions at "
                    f"{_few(ends[1:])}; pass position_ids that return to 0 with each sequence, "
                    f"{_ROW_GRAPH}"
                )


def token_inputs(arguments: dict[str, Any], *, has_pairs: bool = False) -> TokenInputs:
    """Inputs that number tokens, from the arguments of a model.

    Args:
        arguments: The arguments by name.
        has_pairs: True if token types number the sentences of a pair.
    """
    positions = _integers(arguments.get("position_ids"))
    coordinates = None
    if positions is not None and positions.dim() == 3:
        if positions.shape[0] == 4:  # those of the text before the three of M-RoPE
            positions = positions[0]
        else:
            coordinates = positions
            positions = None
    types = None
    if has_pairs:
        types = _integers(arguments.get("token_type_ids"))
    lengths = {name: _integers(arguments.get(name)) for name in _LENGTHS}
    return TokenInputs(
        positions=positions,
        coordinates=coordinates,
        mask=_numbered(arguments.get("attention_mask")),
        index=_integers(arguments.get("seq_idx")),
        lengths={name: x for name, x in lengths.items() if x is not None},
        types=types,
    )


def _integers(value: Any) -> Tensor | None:
    if not isinstance(value, Tensor) or value.is_floating_point():
        return None
    if value.dtype == torch.bool:
        return None
    return value


def _numbered(mask: Any) -> Tensor | None:
    """A mask of two dimensions that has numbers of documents in place of ones."""
    numbers = _integers(mask)
    if numbers is None or numbers.dim() != 2:
        return None
    if numbers.numel() and int(numbers.max()) > 1:
        return numbers
    return None


def _of_targets(numbers: Tensor | None, rows: Frame, batch: int) -> np.ndarray | None:
    """Numbers of each row's targets, (B, T) or (B, 3, T); ``None`` if they are of other tokens."""
    if numbers is None or numbers.shape[-1] != rows.targets:
        return None
    if numbers.shape[-2:-1] not in ((1,), (batch,)):
        return None
    array: np.ndarray = numbers.detach().expand(*numbers.shape[:-2], batch, -1).cpu().numpy()
    if array.ndim == 3:
        return array.swapaxes(0, 1)
    return array


def _pieces(rows: Frame, batch: int) -> list[SequencePiece]:
    """The piece of each row."""
    if rows.alike:
        return [rows.pieces[0]._replace(row=row) for row in range(batch)]
    return list(rows.pieces)


def _places(piece: SequencePiece) -> np.ndarray:
    return np.asarray(piece.targets.places, dtype=np.int64)


def _is_plain(positions: np.ndarray, rows: Frame, virtual: int) -> bool:
    """True if positions (B, T) of rows without padding count on from the tokens in the cache."""
    if not rows.alike or rows.targets == 0:
        return False
    targets = rows.pieces[0].targets
    if targets.size != rows.targets or not (np.diff(positions) == 1).all():
        return False
    return targets.node <= virtual or bool((positions[:, 0] == targets.node).all())


def _starts_of_coordinates(
    coordinates: np.ndarray, piece: SequencePiece, virtual: int
) -> list[int]:
    """Indices at which a further sequence starts by the positions (3, T) of M-RoPE.

    Text has three equal positions. With an image among the tokens, or in the cache, they need not
    be consecutive.
    """
    places = _places(piece)
    numbers = coordinates[:, places]
    if not len(places):
        return []
    has_cache = piece.targets.node > virtual
    if not has_cache and (numbers == numbers[:1]).all():
        return _restarts(numbers[0], numbers[0, 0], places)
    first = numbers[:, :1]
    if has_cache:
        first = np.zeros_like(first)
    return (np.flatnonzero((numbers == first).all(0)[1:]) + 1).tolist()


def _restarts(numbers: np.ndarray, first: int, places: np.ndarray) -> list[int]:
    """Indices, but 0, at which numbers return to the first one; refuse other steps than 1."""
    starts = numbers[1:] == first
    broken = np.flatnonzero(~starts & (np.diff(numbers) != 1))
    if len(broken):
        before = int(broken[0])
        after = before + 1
        raise OptionError(
            f"position_ids must rise by 1 within a sequence, or return to {int(first)} where the "
            f"next one starts, got {int(numbers[before])} and {int(numbers[after])} at tokens "
            f"{places[before]} and {places[after]} (does attention_mask hide tokens between?); a "
            f"pattern needs consecutive positions: pass such, {_ROW_GRAPH}"
        )
    return (np.flatnonzero(starts) + 1).tolist()


def _cut(piece: SequencePiece, starts: list[int], virtual: int) -> list[SequencePiece]:
    """A piece for each sequence of a row; nodes count from 0 in each, virtual tokens first."""
    if not starts:
        return [piece]
    row, targets, sources, _ = piece
    shift = targets.node - sources.node  # the first target among the sources
    before = Span(sources.places[: shift + starts[0]], sources.node)
    result = [
        SequencePiece(row, Span(targets.places[: starts[0]], targets.node), before, before.end)
    ]
    for first, last in pairwise([*starts, targets.size]):
        read = sources.places[shift + first : shift + last]
        if virtual:
            read = (*sources.places[:virtual], *read)
        written = Span(targets.places[first:last], virtual)
        result.append(SequencePiece(row, written, Span(read, 0), virtual + last - first))
    return result


def _few(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:6]))
    if len(numbers) > 6:
        return f"{shown}, ..."
    return shown
