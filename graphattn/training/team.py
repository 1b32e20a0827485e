"""Processes of ``torchrun`` that train one model: each has shapes of every batch, rank 0 writes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..distributed.exchange import Processes
from ..distributed.shards import Shard, shard
from ..errors import GraphAttnError, ProcessError
from ..graph.runs import hashed
from ..graphs import Hierarchy
from ..versions import VERSION


class Team:
    """The processes that train one model; a single one without a launcher.

    Attributes:
        processes: Their group.
        first: True in the process that writes and speaks.
        number: How many they are.
    """

    def __init__(self) -> None:
        self.processes = Processes()
        self.first = self.processes.rank == 0
        self.number = self.processes.number

    def first_does(self, act: Callable[[], object], unless: Path | None = None) -> None:
        """Let the first process do what one must do, unless a file is there; all go on after it.

        Raises:
            ProcessError: In the others, if it could not, with its words.
        """
        error = None
        if self.first:
            try:
                if unless is None or not unless.is_file():
                    act()
            except GraphAttnError as raised:
                error = raised
        words = self.processes.told(error and str(error))[0]
        if error is not None:
            raise error
        if words is not None:
            raise ProcessError(f"process 0: {words}")

    def agree(self, key: str, model: nn.Module, position: Any) -> None:
        """Refuse processes of another run, other parameters, another position or version.

        Raises:
            ProcessError: If one differs.
        """
        if self.number == 1:
            return
        state = model.state_dict().values()
        hashes = [hashed(x.detach().cpu().contiguous().view(-1).view(torch.uint8)) for x in state]
        every = self.processes.told((VERSION, torch.__version__, key, hashes, position))
        odd = [rank for rank, told in enumerate(every) if told != every[0]]
        if odd:
            raise ProcessError(
                f"process {odd[0]} has other files, parameters or versions than process 0; give "
                "all processes one "
                "folder of shapes, one folder of the run and one environment"
            )

    def add_up(self, model: nn.Module, loss: Tensor, mass: Tensor) -> Tensor:
        """Mean loss of a batch from its shares, weighted by ``mass``; sets the gradients.

        Gradients are those of ``loss * mass``.
        """
        params = [p for p in model.parameters() if p.requires_grad]
        facts = torch.stack((loss.detach() * mass, mass))
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
        wide = torch.promote_types(facts.dtype, torch.float32)
        every = torch.cat([x.to(wide).flatten() for x in (facts, *grads)])
        every = self.processes.sum(every).to(every.device)
        (total, mass), *parts = every.split([2, *(p.numel() for p in params)])
        mass = mass.where(mass > 0, 1)
        for p, grad in zip(params, parts, strict=True):
            p.grad = (grad / mass).view_as(p).to(p.dtype)
        return total / mass


def own_points(shape: Hierarchy, readout: str) -> tuple[Hierarchy, Shard, Shard]:
    """This process's points of some shapes, and the shards of features and answers."""
    shape = shard(shape, partition="rcb")
    finest, *coarser = shape.levels
    points: Any = finest.graphs[0] if finest.graphs else coarser[0].up
    answers: Any = points if readout == "node" else shape.clouds
    return shape, points, answers


@contextmanager
def team(device: str) -> Iterator[Team]:
    """The processes that a launcher started, joined if they are not yet, or this one alone."""
    many = os.environ.get("WORLD_SIZE", "1") not in ("", "1")
    joins = many and not dist.is_initialized()
    if many and device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if joins:
        dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    yield Team()
    if joins:  # after an error the others may never answer
        dist.barrier()
        dist.destroy_process_group()
