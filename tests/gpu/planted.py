"""Faults that are planted, to rehearse what ``make gpu`` says of them:
``GPU_PLANTED=tests/gpu/planted.py``."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import gpu_cases
import torch
from gpu_cases import Case, judged
from graph_table import GRAPHS

from graphattn.exactness.operator import GraphSubject

Results = list[dict[str, Any]]
RUNS = [0]


def cases() -> list[Case]:
    """A fault each, and what is right between them."""
    return [
        Case("planted: right", _right, "planted"),
        Case("planted: killed", _killed, "planted"),
        Case("planted: right after it", _right, "planted"),
        Case("planted: hangs", _hangs, "planted"),
        Case(
            "planted: wrong result", lambda device: _broken(device, lambda x: x * 1.01), "planted"
        ),
        Case("planted: NaN", lambda device: _broken(device, _with_nan), "planted"),
        Case("planted: other bits", lambda device: _broken(device, _other_bits), "planted"),
        Case("planted: raises", _raises, "planted"),
        Case("planted: loses its context", _loses_context, "planted"),
        Case("planted: right in a new context", _right, "planted"),
        Case("planted: right, and prints", _prints, "planted"),
    ]


def _right(device: torch.device) -> Results:
    return judged(GraphSubject(GRAPHS["causal"]().to(device)), torch.float32, ("dense", "edges"))


def _killed(device: torch.device) -> Results:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def _hangs(device: torch.device) -> Results:
    time.sleep(3600)
    return []


def _raises(device: torch.device) -> Results:
    raise RuntimeError("raised by the plant")


def _loses_context(device: torch.device) -> Results:
    """In one of four backends, as a CUDA error does: nothing runs in this process after it."""
    gpu_cases.context_lost = lambda device: True
    subject = GraphSubject(GRAPHS["causal"]().to(device))

    def lost(*rest: Any) -> Any:
        raise RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")

    subject.run = lost  # type: ignore[method-assign]
    return judged(subject, torch.float32, ("dense", "edges"))


def _prints(device: torch.device) -> Results:
    os.write(1, b'\n{"this is": no JSON\n[1]\n{}\n')
    return _right(device)


def _broken(device: torch.device, change: Callable[[torch.Tensor], torch.Tensor]) -> Results:
    """The edges backend with outputs that are changed."""
    subject = GraphSubject(GRAPHS["causal"]().to(device))
    run = subject.run

    def changed(leaves: Any, case: Any, backend: str, *rest: Any) -> Any:
        result = run(leaves, case, backend, *rest)
        if backend != "edges":
            return result
        return result._replace(output=change(result.output))

    subject.run = changed  # type: ignore[method-assign]
    return judged(subject, torch.float32, ("dense", "edges"))


def _with_nan(x: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros_like(x, dtype=torch.bool)
    mask[..., 3, :, :] = True
    return x.masked_fill(mask, torch.nan)


def _other_bits(x: torch.Tensor) -> torch.Tensor:
    RUNS[0] += 1
    if RUNS[0] == 1:  # the first case of the first of two runs
        return x
    return torch.nextafter(x.detach(), torch.full_like(x, torch.inf)) + (x - x.detach())
