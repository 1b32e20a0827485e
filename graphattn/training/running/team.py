"""Processes of ``torchrun`` that train one model: each has shapes of every batch, rank 0 writes."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...distributed.exchange import Processes
from ...distributed.shards import Shard, shard
from ...errors import GraphAttnError, ProcessError
from ...graph.runs import hashed
from ...graphs import Hierarchy
from ...versions import VERSION
from .signals import Signals

LATE = 10.0  # seconds until the first process reports the number of missing ones
TIMEOUT = 1800.0  # seconds in which all must have come, as in a group of torch on gloo
_AGAIN = 0.05  # seconds between two looks


class Team:
    """The processes that train one model; a single one without a launcher.

    Attributes:
        processes: Their group.
        first: True in the process that writes and reports.
        number: Number of processes.
        signals: Signals sent to this process.
        ends: Sum over processes of the steps at which a signal had been sent.
    """

    def __init__(self, signals: Signals | None = None) -> None:
        self.signals = signals or Signals()
        self.ends = torch.zeros(())
        self.processes = Processes()
        self.first = self.processes.rank == 0
        self.number = self.processes.number

    def first_does(self, act: Callable[[], Any], unless: Path | None = None) -> Any:
        """Let the first process do what one must do, unless a file is there; all go on after it.

        Returns:
            In all processes what the first one's ``act`` returned.
        Raises:
            ProcessError: In the others, if it could not, with its words.
        """
        error = None
        result = None
        if self.first:
            try:
                if unless is None or not unless.is_file():
                    result = act()
            except GraphAttnError as raised:
                error = raised
        words, result = self.processes.gathered((error and str(error), result))[0]
        if error is not None:
            raise error
        if words is not None:
            raise ProcessError(f"process 0: {words}")
        return result

    def agree(self, key: str, model: nn.Module, position: Any) -> None:
        """Refuse processes of another run, other parameters, another position or version.

        Raises:
            ProcessError: If one differs.
        """
        if self.number == 1:
            return
        state = model.state_dict().values()
        hashes = [hashed(x.detach().cpu().contiguous().view(-1).view(torch.uint8)) for x in state]
        all_facts = self.processes.gathered((VERSION, torch.__version__, key, hashes, position))
        differing = [rank for rank, facts in enumerate(all_facts) if facts != all_facts[0]]
        if differing:
            raise ProcessError(
                f"process {differing[0]} has other files, parameters or versions than process 0; "
                "give all processes one folder of shapes, one folder of the run and one environment"
            )

    def add_up(self, model: nn.Module, loss: Tensor, mass: Tensor) -> Tensor:
        """Mean loss of a batch from its shares, weighted by ``mass``; sets the gradients.

        Gradients are those of ``loss * mass``. Signals travel along: all end after the same step.
        """
        params = [p for p in model.parameters() if p.requires_grad]
        is_sent = torch.full_like(mass, bool(self.signals.number))
        facts = torch.stack((loss.detach() * mass, mass, is_sent))
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
        dtype = torch.promote_types(facts.dtype, torch.float32)
        sums = torch.cat([x.to(dtype).flatten() for x in (facts, *grads)])
        sums = self.processes.sum(sums).to(sums.device)
        (total, mass, is_sent), *parts = sums.split([3, *(p.numel() for p in params)])
        self.ends = self.ends.to(is_sent) + is_sent
        mass = mass.where(mass > 0, 1)
        for p, grad in zip(params, parts, strict=True):
            p.grad = (grad / mass).view_as(p).to(p.dtype)
        return total / mass

    def must_end(self, reads: bool) -> bool:
        """True in all processes once a signal was sent to one of them.

        Args:
            reads: True to wait for the device for that, at the same steps in all processes.
        """
        if self.number == 1:
            return self.signals.number > 0
        if self.ends.is_cuda and not reads:
            return False
        return bool(self.ends)


def own_points(shape: Hierarchy, readout: str) -> tuple[Hierarchy, Shard, Shard]:
    """This process's points of some shapes, and the shards of features and answers."""
    shape = shard(shape, partition="rcb")
    finest, *coarser = shape.levels
    points: Any = finest.graphs[0] if finest.graphs else coarser[0].up
    answers: Any = points if readout == "node" else shape.clouds
    return shape, points, answers


def _join(backend: str) -> None:
    """Join the processes of a launcher, and name the number of those that are late."""
    if "MASTER_ADDR" not in os.environ:  # torch names what is missing
        dist.init_process_group(backend)
        return
    rank = int(os.environ["RANK"])
    number = int(os.environ["WORLD_SIZE"])
    host = os.environ["MASTER_ADDR"]
    port = int(os.environ["MASTER_PORT"])
    reminder = threading.Timer(LATE, _say, (f"waiting for process 0 at {host}:{port}",))
    reminder.daemon = True
    reminder.start()
    try:
        store = dist.TCPStore(
            host,
            port,
            is_master=rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            wait_for_workers=False,
            multi_tenant=True,
        )
    finally:
        reminder.cancel()
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    shared = dist.PrefixStore(f"graphattn/{attempt}", store)
    _wait_for_all(shared, rank, number)
    dist.init_process_group(backend, store=shared, rank=rank, world_size=number)


def _wait_for_all(store: dist.Store, rank: int, number: int) -> None:
    """Wait until all processes have joined; the first one reports the number of late ones.

    Raises:
        ProcessError: If one does not come within torch's timeout of a group.
    """
    began = time.monotonic()
    next_report = LATE
    missing = number - store.add("come", 1)
    while missing > 0:
        waited = time.monotonic() - began
        if waited > TIMEOUT:
            raise ProcessError(
                f"{missing} of {number} processes did not come in {TIMEOUT:g} s; see their own "
                "errors, and start all of them"
            )
        if rank == 0 and waited > next_report:
            _say(f"waiting for {missing} of {number} processes")
            next_report += 6 * LATE
        time.sleep(_AGAIN)
        missing = number - store.add("come", 0)


def _say(words: str) -> None:
    """A line on stderr, if there is one."""
    if sys.stderr is not None:
        print(words, file=sys.stderr, flush=True)


@contextmanager
def team(device: str, signals: Signals | None = None) -> Iterator[Team]:
    """The processes that a launcher started, joined if they are not yet, or this one alone."""
    is_distributed = os.environ.get("WORLD_SIZE", "1") not in ("", "1")
    joins = is_distributed and not dist.is_initialized()
    if is_distributed and device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if joins:
        _join("nccl" if device.startswith("cuda") else "gloo")
    yield Team(signals)
    if joins:  # after an error the others may never answer
        dist.barrier()
        dist.destroy_process_group()
