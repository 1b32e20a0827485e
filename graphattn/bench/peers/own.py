"""Our own backends, every one that is registered, and the choice among them."""

from torch import Tensor

from ...attention import attention
from ...backends.choose import BACKENDS, candidates
from ..problem import Problem
from .base import Forward, Peer, too_large


class Own(Peer):
    """``graphattn.attention`` with a named backend, or with "auto"."""

    ours = True

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.name = backend
        self.about = f'graphattn.attention(..., backend="{backend}")'

    def reasons_against(self, problem: Problem) -> list[str]:
        request = problem.request()
        if self.backend == "auto":
            rows = candidates(problem.graph, request)
            return [] if any(c.runs for c in rows) else [f"{c.name}: {r}" for c in rows for r in c.reasons]
        backend = BACKENDS[self.backend]
        reasons = backend.reasons_against(problem.graph, request)
        if reasons:
            return reasons
        needed = 2 * backend.bytes_needed(problem.graph, request)  # as much again for the backward pass
        return too_large("both passes", needed, problem.device)

    def prepare(self, problem: Problem, query: Tensor, key: Tensor, value: Tensor) -> Forward:
        graph, backend = problem.graph, self.backend
        return lambda: attention(query, key, value, graph, backend=backend)  # type: ignore[return-value]
