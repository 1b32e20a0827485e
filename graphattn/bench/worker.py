"""The child process of one peer: it holds the problem, checks the answer, and times what its parent asks for.

A process for each peer, so that its memory is its own, a peer that hangs or dies takes nobody along, and the parent can
take turns: one call of each, round after round.
"""

import gc
import math
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import GraphAttnError
from .clock import MemoryWatch, limit_memory, stream_gb_per_s, timed
from .pairs import PAIRS, taken_in_turn
from .peers import Peer, all_peers
from .problem import BOTH, FORWARD, Problem
from .sample import Choice, choice_on

WARM_UNDER, BLOCK = 0.25, 0.02  # seconds: a quick call is warmed up in its turn, and repeated until it fills a block


class Fresh(NamedTuple):
    """The first call on a fresh graph, in code that is warm."""

    prepare_ms: float
    call_ms: float
    peak_bytes: int | None


class Worker:
    """Commands of the parent, by name."""

    def __init__(self, threads: int | None, device: str) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = device
        limit_memory(device)
        self.calls: dict[str, Callable[[], Any]] = {}
        self.last: dict[str, float] = {}  # seconds of the latest call
        self.inputs: tuple[Tensor, ...] = ()  # node-first
        self.leaves: list[Tensor] = []  # in the peer's own layout

    def about(self) -> dict[str, Any]:
        """Threads and the bandwidth of memory."""
        return {"threads": torch.get_num_threads(), "stream_gb_per_s": stream_gb_per_s(self.device)}

    def open(self, peer: str, problem: Problem) -> tuple[list[str], str]:
        """Take a problem; reasons why the peer cannot run it, or why it has no backward pass."""
        self.close()
        if "torch._dynamo" in sys.modules:  # programs of the last problem
            torch._dynamo.reset()
        self.peer: Peer = all_peers()[peer]
        self.problem = problem = self._here(problem)
        return self.peer.reasons_against(problem), self.peer.no_backward(problem)

    def _here(self, problem: Problem) -> Problem:
        return replace(problem, graph=problem.graph.to(self.device))

    def close(self) -> None:
        """Drop everything of the last problem."""
        self.calls, self.last, self.inputs, self.leaves = {}, {}, (), []
        gc.collect()

    def check(self, modes: tuple[str, ...], path: str, is_reference: bool) -> dict[str, float]:
        """Run once, which also compiles; the largest difference from the reference, which is written to ``path``.

        Output and gradients; relative to the largest number of the reference where that is above 1.
        """
        self.inputs = self.problem.inputs()
        self.leaves = [self.peer.lay_out(x).requires_grad_(BOTH in modes) for x in self.inputs[:3]]
        self.grad = self.peer.lay_out(self.inputs[3])
        self._prepare(self.problem)
        answers: dict[str, list[Tensor]] = {}
        for mode in modes:
            likes = self.inputs[3:] if mode == FORWARD else self.inputs[:3]
            got = self.calls[mode]()
            answers[mode] = [self.peer.put_back(x, like).cpu() for x, like in zip(got, likes, strict=True)]
        if is_reference:
            torch.save(answers, path)
            return dict.fromkeys(modes, 0.0)
        expected = torch.load(path, mmap=True)
        return {mode: max(map(_difference, answers[mode], expected[mode])) for mode in modes}

    def _prepare(self, problem: Problem) -> None:
        forward = self.peer.prepare(problem, *self.leaves)

        def only() -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (forward(),)

        def both() -> tuple[Tensor, ...]:
            out = forward()
            return torch.autograd.grad(out, self.leaves, self.grad.view_as(out))

        self.calls = {FORWARD: only, BOTH: both}

    def fresh(self, mode: str, problem: Problem) -> Fresh:
        """Everything anew on a graph that nothing was derived from yet."""
        self.calls = {}
        self.problem = problem = self._here(problem)
        watch = MemoryWatch(self.device)
        start = time.perf_counter()
        self._prepare(problem)
        prepared = time.perf_counter()
        self.last[mode] = timed(self.calls[mode], 1, self.device)
        return Fresh((prepared - start) * 1e3, self.last[mode] * 1e3, watch.peak_bytes())

    def turn(self, mode: str) -> float:
        """Milliseconds of a call: several in a row if they are quick, after one that is not counted."""
        call, last = self.calls[mode], self.last[mode]
        if last < WARM_UNDER:
            last = timed(call, 1, self.device)
        count = min(100, max(1, math.ceil(BLOCK / max(last, 1e-7))))
        self.last[mode] = timed(call, count, self.device)
        return self.last[mode] * 1e3

    def pair(self, name: str, repeats: int, seconds: float) -> tuple[list[float], list[float]]:
        """Milliseconds of a pair's two calls, each in turn."""
        return taken_in_turn(PAIRS[name].make(), repeats, seconds)

    def choice(self, number: int, seconds: float) -> Choice:
        """What is chosen on a graph of the sample, and what every backend takes."""
        return choice_on(number, seconds)


def _difference(got: Tensor, expected: Tensor) -> float:
    """NaN and inf where the other has none are an infinite difference."""
    if got.numel() == 0:
        return 0.0
    largest = max(1.0, float(expected.abs().max()))
    difference = float((got.double() - expected.double()).abs().max()) / largest
    return difference if math.isfinite(difference) else math.inf


def serve(descriptor: int, threads: int | None, device: str) -> None:
    """Answer commands until the parent goes away."""
    link = Connection(descriptor)
    worker: Worker | None = None
    while True:
        try:
            name, arguments = pickle.loads(link.recv_bytes())
        except (EOFError, KeyboardInterrupt):
            sys.exit(0)
        try:
            worker = worker or Worker(threads, device)
            answer = "done", getattr(worker, name)(*arguments)
        except GraphAttnError as error:
            answer = "refused", str(error)
        except Exception as error:  # of a library that is measured: a reason for the report
            lines = str(error).strip().splitlines() or [""]
            answer = "failed", f"{type(error).__name__}: {lines[0]}"
        link.send_bytes(pickle.dumps(answer))
