"""The scope of a comparison: which targets, in which dtypes and with which backends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from .cover import pieces
from .measure import Measures, Progress, measure, measure_outputs
from .sample import Sample
from .subject import Subject


@dataclass(frozen=True, eq=False)
class Scope:
    """How far a comparison goes.

    Args:
        piece: The targets of the sample; all of a small graph.
        everything: Pieces of all targets, where everything is compared at all of them.
        outputs: Whether one output is compared at all of them instead.
        dtypes: Measured in each.
        backends: Their names.
        most_bytes: What a backend may hold; None lifts the limit.
        progress: Told what comes next.
    """

    piece: Sample
    everything: Sequence[Sample] | None
    outputs: bool
    dtypes: tuple[torch.dtype, ...]
    backends: tuple[str, ...]
    most_bytes: Callable[[], int] | None
    progress: Progress

    def measure(self, subject: Subject, gradients: bool) -> Measures:
        """The errors of a subject, on the graph that the scope was made for."""
        run, limits = (self.dtypes, self.backends), (self.most_bytes, self.progress)
        report = measure(subject, self.piece, self.everything, *run, gradients, *limits)
        if self.outputs:
            report.rows.extend(
                measure_outputs(subject, lambda: pieces(subject.graph, subject.floats_per_pair), *run, *limits)
            )
        return report
