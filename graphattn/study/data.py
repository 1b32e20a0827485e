"""Data of a study: tensors of samples, and what of them is held out."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import flag, integers, outside, shown, stored, whole
from ..errors import OptionError, ShapeError
from ..graph import AttentionGraph

NOT_ASKED = -100
"""A target that is no question: neither trained on nor counted."""


@dataclass(frozen=True, eq=False)
class Data:
    """Samples of nodes, and what is asked about them.

    Args:
        inputs: Tokens, int64 (M, N), or features, float (M, N, F).
        targets: Classes, int64 (M,), or (M, N) for the readout "node", where -100 is not asked.
        test: Samples held out, drawn anew by each seed; or bool (M,), True for those that every
            seed holds out.
        pos: Places of the nodes, float (M, N, d), for recipes and for distances.
        sizes: Nodes of each sample, int64 (M,), where the rest is padding; N by default.
        needs: The edges ``s -> t`` that the answer at ``t`` cannot do without, a graph (N, N),
            where a law says so: it gives the ceiling of every arm.
        causal: Whether no node may read a later one: "full" is then causal, and rewirings stay
            causal.
        pairs: A class of every pair of nodes, int64 (M, N, N), ``[sample, target, source]``: hops
            between them, or a relation; for the positions "pairs" and for functions of a sample.
    """

    inputs: Tensor
    targets: Tensor
    test: int | Tensor
    pos: Tensor | None = None
    sizes: Tensor | None = None
    needs: AttentionGraph | None = None
    causal: bool = False
    pairs: Tensor | None = None

    def __post_init__(self) -> None:
        inputs = stored(self.inputs, "inputs", ShapeError)
        if inputs.dim() != (3 if inputs.is_floating_point() else 2):
            raise ShapeError(
                "inputs must be tokens, int64 (M, N), or features, float (M, N, F); got "
                f"{shown(inputs)}"
            )
        targets = integers(self.targets, "targets", "(M,) or (M, N)", ShapeError)
        if targets.shape not in ((len(inputs),), inputs.shape[:2]):
            raise ShapeError(
                f"targets must be ({len(inputs)},) or {tuple(inputs.shape[:2])}, got "
                f"{shown(targets)}"
            )
        asked = targets[targets != NOT_ASKED]
        if asked.numel() == 0 or int(asked.min()) < 0:
            raise ShapeError(
                "targets must be classes 0, 1, ..., or -100 where nothing is asked; got "
                f"{shown(targets)}"
            )
        self._set("targets", targets)
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
    def classes(self) -> int:
        """Classes of the targets."""
        return int(self.targets.max()) + 1

    @property
    def of_nodes(self) -> bool:
        """Whether every node has a target of its own."""
        return self.targets.dim() == 2

    @property
    def chance(self) -> float:
        """The share of the most frequent class: what a guess without looking names."""
        asked = self.targets[self.targets != NOT_ASKED]
        return float(asked.bincount().max() / asked.numel())

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
        if examples is not None and examples > len(train):
            raise OptionError(
                f"examples must be at most {len(train)}, what test leaves of {len(self)}; got "
                f"{examples}"
            )
        return train[:examples], test


@dataclass(frozen=True)
class Sample:
    """What a function that makes a graph may look at: never the target.

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
