"""Data of a study: tensors of samples, and what of them is held out."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import flag, integers, outside, shown, stored, whole
from ..errors import OptionError, ShapeError
from ..graph import AttentionGraph
from .metrics import CLASSES, LABELS, VALUES

NOT_ASKED = -100
"""A target that is no question: neither trained on nor counted."""


@dataclass(frozen=True, eq=False)
class Data:
    """Samples of nodes, and what is asked about them.

    Args:
        inputs: Tokens, int64 (M, N), or features, float (M, N, F).
        targets: Of each sample; or of each node, (M, N); or of each edge that is asked, (M, E).
            Classes, int64, where -100 is not asked; labels of which any may hold, bool with one
            more axis (..., K); or numbers, float with that axis, where NaN is not asked: of one
            number for each sample (M, 1), ``targets[:, None]``.
        test: Samples held out, drawn anew by each seed; or bool (M,), True for those that every
            seed holds out. Nodes of one graph are split by two copies of it, each of which asks
            its own part: -100 elsewhere.
        pos: Places of the nodes, float (M, N, d), for recipes and for distances.
        sizes: Nodes of each sample, int64 (M,), where the rest is padding; N by default.
        needs: The edges ``s -> t`` that the answer at ``t`` cannot do without, a graph (N, N),
            where a law says so: it gives the ceiling of every arm.
        causal: Whether no node may read a later one: "full" is then causal, and rewirings stay
            causal.
        pairs: A class of every pair of nodes, int64 (M, N, N), ``[sample, target, source]``: hops
            between them, or a relation; for the positions "pairs" and for functions of a sample.
        asked_edges: Edges that are asked, int64 (M, E, 2), ``[target, source]``, for the readout
            "edge".
        validation: bool (M,), samples by which one of several rates is chosen, neither trained on
            nor tested; a fifth of the training examples by default.
        groups: Parts of a fixed test by name, bool (M,): lengths or depths, each scored apart.
    """

    inputs: Tensor
    targets: Tensor
    test: int | Tensor
    pos: Tensor | None = None
    sizes: Tensor | None = None
    needs: AttentionGraph | None = None
    causal: bool = False
    pairs: Tensor | None = None
    asked_edges: Tensor | None = None
    validation: Tensor | None = None
    groups: dict[str, Tensor] | None = None

    def __post_init__(self) -> None:
        inputs = stored(self.inputs, "inputs", ShapeError)
        if inputs.dim() != (3 if inputs.is_floating_point() else 2):
            raise ShapeError(
                "inputs must be tokens, int64 (M, N), or features, float (M, N, F); got "
                f"{shown(inputs)}"
            )
        self._check_targets()
        self._set(
            "inputs",
            inputs
            if inputs.is_floating_point()
            else integers(inputs, "inputs", "(M, N)", ShapeError),
        )
        if not inputs.is_floating_point() and outside(self.inputs, 1 << 20):
            raise ShapeError(
                f"inputs must be tokens 0, 1, ..., got {outside(self.inputs, 1 << 20)}"
            )
        flag(self.causal, "causal")
        self._check_test()
        self._check_places()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_targets(self) -> None:
        targets = stored(self.targets, "targets", ShapeError)
        if self.asked_edges is not None:
            M = len(self)
            edges = integers(self.asked_edges, "asked_edges", f"({M}, E, 2)", ShapeError)
            self._set("asked_edges", edges)
            wrong = edges.dim() != 3 or len(edges) != M or edges.shape[-1:] != (2,)
            if wrong or outside(edges, self.num_nodes):
                raise ShapeError(
                    f"asked_edges must be ({M}, E, 2) of nodes 0 to {self.num_nodes - 1}, got "
                    f"{shown(edges)}"
                )
            places = [edges.shape[:2]]
        else:
            places = [self.inputs.shape[:1], self.inputs.shape[:2]]
        if targets.is_floating_point() or targets.dtype == torch.bool:
            shapes = [(*place, "K") for place in places]
            fits = targets.shape[:-1] in places and targets.shape[-1:] != (0,)
        else:
            targets = integers(targets, "targets", "(M,) or (M, N)", ShapeError)
            shapes = [tuple(place) for place in places]
            fits = targets.shape in places
        if not fits:
            raise ShapeError(
                f"targets must be {' or '.join(map(str, shapes))}, got {shown(targets)}"
            )
        self._set("targets", targets)
        asked = targets[self.asked]
        if asked.numel() == 0 or (self.kind == CLASSES and int(asked.min()) < 0):
            raise ShapeError(
                "targets must be classes 0, 1, ..., or -100 where nothing is asked; got "
                f"{shown(targets)}"
            )

    def _check_test(self) -> None:
        if isinstance(self.test, Tensor):
            if self.test.dtype != torch.bool or self.test.shape != (len(self),):
                raise ShapeError(f"test must be bool ({len(self)},), got {shown(self.test)}")
            held = int(self.test.sum())
        else:
            held = whole(self.test, "test", 1)
        if not 0 < held < len(self):
            raise OptionError(
                f"test must hold out at least 1 of {len(self)} samples, and leave one; got {held}"
            )
        if self.validation is None and self.groups is None:
            return
        if not isinstance(self.test, Tensor):
            raise OptionError("validation and groups need a fixed test: bool, one for each sample")
        if self.validation is not None:
            self._check_mask("validation", self.validation)
            free = ~(self.validation | self.test)
            if bool((self.validation & self.test).any()) or not bool(free.any()):
                raise OptionError("validation must be apart from test, and leave training samples")
        for name, group in (self.groups or {}).items():
            self._check_mask(f"group {name!r}", group)
            if bool((group & ~self.test).any()) or not bool(group.any()):
                raise OptionError(f"group {name!r} must be a part of test, and not empty")

    def _check_mask(self, name: str, mask: Tensor) -> None:
        if stored(mask, name, ShapeError).dtype != torch.bool or mask.shape != (len(self),):
            raise ShapeError(f"{name} must be bool ({len(self)},), got {shown(mask)}")

    def _check_places(self) -> None:
        if (
            self.pos is not None
            and stored(self.pos, "pos", ShapeError).shape[:2] != self.inputs.shape[:2]
        ):
            raise ShapeError(
                f"pos must be {(*self.inputs.shape[:2], 'd')}, as the inputs; got {shown(self.pos)}"
            )
        if self.sizes is not None:
            self._set("sizes", integers(self.sizes, "sizes", f"({len(self)},)", ShapeError))
            if self.sizes.shape != (len(self),) or outside(self.sizes - 1, self.num_nodes):
                raise ShapeError(
                    f"sizes must be ({len(self)},) of 1 to {self.num_nodes}, got "
                    f"{shown(self.sizes)}"
                )
        M = len(self)
        N = self.num_nodes
        if self.pairs is not None:
            self._set("pairs", integers(self.pairs, "pairs", f"({M}, {N}, {N})", ShapeError))
            if self.pairs.shape != (M, N, N) or outside(self.pairs, 1 << 20):
                raise ShapeError(
                    f"pairs must be classes 0, 1, ..., of shape {(M, N, N)}; got "
                    f"{shown(self.pairs)}"
                )
        if self.needs is not None and (self.needs.num_targets, self.needs.num_sources) != (N, N):
            raise ShapeError(
                f"needs must be a graph of {N} nodes, as the samples have; got {self.needs!r}"
            )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.inputs.shape[1]

    @property
    def kind(self) -> str:
        """The kind of the targets: "classes", "labels" or "values"."""
        if self.targets.dtype == torch.bool:
            return LABELS
        if self.targets.is_floating_point():
            return VALUES
        return CLASSES

    @property
    def classes(self) -> int:
        """Numbers that an answer has: classes, labels or values."""
        if self.kind != CLASSES:
            return self.targets.shape[-1]
        return int(self.targets.max()) + 1

    @property
    def asked(self) -> Tensor:
        """True where something is asked: bool (M,), (M, N) or (M, E)."""
        if self.kind == CLASSES:
            return self.targets != NOT_ASKED
        if self.kind == VALUES:
            return ~self.targets.isnan().any(-1)
        asked = torch.ones(self.targets.shape[:-1], dtype=torch.bool)
        if self.sizes is not None and self.of == "node":
            asked &= torch.arange(self.num_nodes) < self.sizes.unsqueeze(-1)
        return asked

    @property
    def of(self) -> str:
        """Unit that is asked: "sample", "node" or "edge"."""
        if self.asked_edges is not None:
            return "edge"
        if self.targets.dim() - (self.kind != CLASSES) == 2:
            return "node"
        return "sample"

    @property
    def of_nodes(self) -> bool:
        """True if every node has a target of its own."""
        return self.of == "node"

    @property
    def chance(self) -> float:
        """The score of a guess without looking: the share of the most frequent class.

        Of labels its mean over labels, each of them there or not; of values R2, 0.
        """
        if self.kind == VALUES:
            return 0.0
        asked = self.targets[self.asked]
        if self.kind == LABELS:
            shares = asked.double().mean(0)
            return float(torch.maximum(shares, 1 - shares).mean())
        return float(asked.bincount().max() / asked.numel())

    def standardised(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Targets, and what a deviation is: of values, in deviations of the training samples."""
        if self.kind != VALUES:
            return self.targets.clone(), torch.ones(1)
        known = self.targets[seen][self.asked[seen]]
        deviation = known.std(0, correction=0)
        deviation = torch.where(deviation > 0, deviation, 1.0)
        return (self.targets - known.mean(0)) / deviation, deviation

    def split(self, seed: int, examples: int | None) -> tuple[Tensor, Tensor]:
        """Indices of the training and the held-out samples; fewer examples are the first of more.

        Raises:
            OptionError: If there are fewer examples than asked.
        """
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        if isinstance(self.test, Tensor):
            held = self.test[order]
        else:
            held = torch.arange(len(self)) < self.test
        train = order[~held]
        test = order[held]
        if self.validation is not None:
            train = train[~self.validation[train]]
        if examples is not None and examples > len(train):
            raise OptionError(
                f"examples must be at most {len(train)}, what test leaves of {len(self)}; got "
                f"{examples}"
            )
        return train[:examples], test


@dataclass(frozen=True)
class Sample:
    """The part of a sample that a function which makes a graph may read: never the target.

    Args:
        inputs: (N,) or (N, F).
        pos: (N, d), or None.
        index: Its number.
        pairs: (N, N), or None.
    """

    inputs: Tensor
    pos: Tensor | None
    index: int
    pairs: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        """Nodes of this sample."""
        return len(self.inputs)


def samples(data: Data) -> list[Sample]:
    """Every sample without its padding."""
    if data.sizes is None:
        sizes = [data.num_nodes] * len(data)
    else:
        sizes = data.sizes.tolist()
    if data.pos is None:
        pos = [None] * len(data)
    else:
        pos = [p[:n] for p, n in zip(data.pos, sizes, strict=True)]
    if data.pairs is None:
        pairs = [None] * len(data)
    else:
        pairs = [p[:n, :n] for p, n in zip(data.pairs, sizes, strict=True)]
    given = zip(data.inputs, sizes, pos, pairs, strict=True)
    return [Sample(x[:n], p, i, of_pairs) for i, (x, n, p, of_pairs) in enumerate(given)]
