"""Data of a study: tensors of samples, what of them is held out, and the scores of answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import check_range, check_shape, integers, shown
from ..errors import OptionError, ShapeError, need_extra
from ..graph import AttentionGraph

Scores = dict[str, float]
"""Scores by name: of metrics, methods, positions or seeds."""
CLASSES, LABELS, VALUES = "classes", "labels", "values"
"""Kinds of targets: one class of several, any of several labels, numbers."""


@dataclass(frozen=True)
class Metric:
    """A score.

    Args:
        words: On an axis.
        kinds: Targets that have it.
        sign: 1 if more is better, else -1.
        is_share: True if it is from 0 to 1.
    """

    words: str
    kinds: tuple[str, ...]
    sign: float = 1.0
    is_share: bool = False


METRICS = {
    "accuracy": Metric("accuracy", (CLASSES, LABELS), is_share=True),
    "bits": Metric("bits per answer (lower is better)", (CLASSES, LABELS), -1.0),
    "macro_f1": Metric("macro F1", (CLASSES, LABELS), is_share=True),
    "ap": Metric("average precision, the mean of labels", (LABELS,), is_share=True),
    "mae": Metric("mean absolute error (lower is better)", (VALUES,), -1.0),
    "r2": Metric("R2", (VALUES,)),
}
CONTROL = {CLASSES: "accuracy", LABELS: "accuracy", VALUES: "r2"}
"""Scores of shuffled labels, of which chance is known."""
FITS = ("r2", "ap", "accuracy")
"""Scores that say whether a run fitted or solved; the first that a record has."""
FIT_METRIC = {VALUES: "r2", LABELS: "ap", CLASSES: "accuracy"}
"""The same by kind of targets."""


def macro_f1(guesses: Tensor, targets: Tensor) -> float:
    """F1 of classes (M,), or of labels, bool (M, K): the mean over classes that occur."""
    metrics = _sklearn()
    return float(
        metrics.f1_score(targets.numpy(), guesses.numpy(), average="macro", zero_division=0)
    )


def of_labels(logits: Tensor, targets: Tensor) -> Scores:
    """Accuracy, AP and macro F1 of labels; AP is of labels that occur, NaN if a logit is."""
    metrics = _sklearn()
    right = float(((logits > 0) == targets).double().mean())
    occurring = targets.any(0)
    precision = float("nan")
    if bool(logits.isfinite().all()) and bool(occurring.any()):
        precision = float(
            metrics.average_precision_score(
                targets[:, occurring].numpy(), logits[:, occurring].numpy(), average="macro"
            )
        )
    return {"accuracy": right, "ap": precision, "macro_f1": macro_f1(logits > 0, targets)}


def of_values(values: Tensor, targets: Tensor, unit: Tensor) -> Scores:
    """MAE in the units of the targets, and R2, of standardised values (M, K): means over K.

    Args:
        values: Predictions.
        targets: Targets.
        unit: (K,), what a deviation is.
    """
    if not bool(values.isfinite().all()):
        return {"mae": float("nan"), "r2": float("nan")}
    metrics = _sklearn()
    given = (targets.double().numpy(), values.double().numpy())
    errors = metrics.mean_absolute_error(*given, multioutput="raw_values")
    mae = float((torch.as_tensor(errors) * unit.double()).mean())
    return {"mae": mae, "r2": float(metrics.r2_score(*given))}


def _sklearn() -> Any:
    try:
        from sklearn import metrics
    except ImportError as error:
        raise need_extra("scikit-learn", "study") from error
    return metrics


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
        inputs = self.inputs
        if inputs.dim() != (3 if inputs.is_floating_point() else 2):
            raise ShapeError(
                "inputs must be tokens, int64 (M, N), or features, float (M, N, F); got "
                f"{shown(inputs)}"
            )
        if not inputs.is_floating_point():
            self._read_integers("inputs", inputs.shape, 1 << 20)
        if self.targets.dtype != torch.bool and not self.targets.is_floating_point():
            self._read_integers("targets", self.targets.shape, None)
        M, N = inputs.shape[:2]
        self._read_integers("sizes", (M,), N + 1)
        self._read_integers("pairs", (M, N, N), 1 << 20)
        if self.asked_edges is not None:
            self._read_integers("asked_edges", (M, self.asked_edges.shape[1], 2), N)
        self._check_targets()
        self._check_test()
        if self.pos is not None and (self.pos.dim() != 3 or self.pos.shape[:2] != (M, N)):
            raise ShapeError(f"pos must be {(M, N, 'd')}, as the inputs; got {shown(self.pos)}")
        if self.needs is not None and (self.needs.num_targets, self.needs.num_sources) != (N, N):
            raise ShapeError(
                f"needs must be a graph of {N} nodes, as the samples have; got {self.needs!r}"
            )

    def _read_integers(self, name: str, shape: Sequence[int], below: int | None) -> None:
        """Make an argument int64, and refuse other shapes and, with ``below``, other numbers."""
        value = getattr(self, name)
        if value is None:
            return
        value = integers(value, name, f"{tuple(shape)}", ShapeError)
        check_shape(value, name, tuple(shape))
        if below is not None:
            check_range(value, name, below, error=ShapeError)
        object.__setattr__(self, name, value)

    def _check_targets(self) -> None:
        """Refuse targets of neither samples, nodes nor asked edges."""
        targets = self.targets
        places = [self.inputs.shape[:1], self.inputs.shape[:2]]
        if self.asked_edges is not None:
            places = [self.asked_edges.shape[:2]]
        shape = targets.shape
        if self.kind != CLASSES:
            shape = targets.shape[:-1]
        if shape not in places:
            expected = " or ".join(str(tuple(place)) for place in places)
            more = ", and an axis of numbers or labels" * (self.kind != CLASSES)
            raise ShapeError(f"targets must be {expected}{more}; got {shown(targets)}")
        asked = targets[self.asked]
        if asked.numel() == 0 or (self.kind == CLASSES and int(asked.min()) < 0):
            raise ShapeError(
                "targets must be classes 0, 1, ..., or -100 where nothing is asked; got "
                f"{shown(targets)}"
            )

    def _check_test(self) -> None:
        """Refuse splits that overlap, or leave nothing."""
        M = len(self)
        masks = {"test": self.test, "validation": self.validation, **(self.groups or {})}
        for name, mask in masks.items():
            if isinstance(mask, Tensor) and (mask.dtype != torch.bool or mask.shape != (M,)):
                raise ShapeError(f"{name} must be bool ({M},), got {shown(mask)}")
        held = int(self.test.sum()) if isinstance(self.test, Tensor) else self.test
        if not 0 < held < M:
            raise OptionError(
                f"test must hold out at least 1 of {M} samples, and leave one; got {held}"
            )
        if self.validation is None and self.groups is None:
            return
        if not isinstance(self.test, Tensor):
            raise OptionError("validation and groups need a fixed test: bool, one for each sample")
        if self.validation is not None:
            free = ~(self.validation | self.test)
            if bool((self.validation & self.test).any()) or not bool(free.any()):
                raise OptionError("validation must be apart from test, and leave training samples")
        for name, group in (self.groups or {}).items():
            if bool((group & ~self.test).any()) or not bool(group.any()):
                raise OptionError(f"group {name!r} must be a part of test, and not empty")

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.inputs.shape[1]

    @property
    def nodes(self) -> Tensor:
        """Nodes of each sample without its padding, int64 (M,)."""
        if self.sizes is None:
            return torch.full((len(self),), self.num_nodes)
        return self.sizes

    def there(self, chosen: Any = ...) -> Tensor:
        """True for nodes of some samples that are no padding, bool (S, N)."""
        return torch.arange(self.num_nodes) < self.nodes[chosen].unsqueeze(-1)

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
        if self.of == "node":
            return self.there()
        return torch.ones(self.targets.shape[:-1], dtype=torch.bool)

    @property
    def of(self) -> str:
        """Unit that is asked: "sample", "node" or "edge"."""
        if self.asked_edges is not None:
            return "edge"
        if self.targets.dim() - (self.kind != CLASSES) == 2:
            return "node"
        return "sample"

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
    results = []
    for index, size in enumerate(data.nodes.tolist()):
        pos = None
        if data.pos is not None:
            pos = data.pos[index, :size]
        pairs = None
        if data.pairs is not None:
            pairs = data.pairs[index, :size, :size]
        results.append(Sample(data.inputs[index, :size], pos, index, pairs))
    return results


def check_data(data: Data, readout: str, token: int, floats: torch.dtype | None) -> None:
    """Refuse data of which no trial could answer.

    Args:
        data: What passed the checks of its own.
        readout: "mean", "token", "node" or "edge".
        token: Which node, of "token".
        floats: What features must be; None where the model is the user's, and may take others.
    Raises:
        ShapeError: If a number is not finite, a sample asks nothing, or padding is asked or read
            out.
    """
    for name in ("inputs", "targets", "pos"):
        value: Tensor | None = getattr(data, name)
        if value is None or not value.is_floating_point():
            continue
        if name == "targets":  # NaN is not asked
            value = value.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)
        if not bool(value.isfinite().all()):
            bad = int((~value.isfinite()).flatten(1).any(1).nonzero()[0])
            raise ShapeError(
                f"{name} must be finite, sample {bad} is not; leave such samples out, or fill them "
                "in"
            )
    if data.inputs.is_floating_point() and data.inputs.dtype != (floats or data.inputs.dtype):
        raise ShapeError(
            f"inputs must be float32, as the model's parameters are, got {shown(data.inputs)}; "
            ".float()"
        )
    is_asked = data.asked
    if data.of == "node":
        of_padding = (is_asked & ~data.there()).any(1)
        if bool(of_padding.any()):
            bad = int(of_padding.nonzero()[0])
            raise ShapeError(
                f"targets of padding must be -100, sample {bad} asks nodes beyond its "
                f"{int(data.nodes[bad])}, which have no logits"
            )
    has_question = is_asked.view(len(data), -1).any(1)
    if not bool(has_question.all()):
        bad = int((~has_question).nonzero()[0])
        raise ShapeError(
            f"targets must ask something of every sample, sample {bad} has -100 alone; leave it out"
        )
    least = int(data.nodes.min())
    if readout == "token" and token >= least:
        raise ShapeError(
            f"token {token} is padding in samples of {least} nodes; give one that all have"
        )
