"""Rows of nodes exchanged among processes, by request or all to all, with gradients."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import ProcessError
from ..graph.sort import offsets
from ..kernels.plain.rows import take
from ..plans.tiles import Slots


class Processes:
    """The processes of a group: rank, size, and the collectives of this package, with errors.

    Args:
        group: A process group, a device mesh of one axis, or None for all processes; a single one
            if there are none.
    """

    def __init__(self, group: Any = None) -> None:
        if hasattr(group, "get_group"):
            group = group.get_group()
        self.alone = group is None and not (dist.is_available() and dist.is_initialized())
        self.group: Any = group if group is not None or self.alone else dist.group.WORLD
        if self.alone:
            self.rank = 0
            self.number = 1
            backend = ""
        else:
            self.rank, self.number = (dist.get_rank(self.group), dist.get_world_size(self.group))
            backend = str(dist.get_backend(self.group))
        if "nccl" in backend:
            self.device = torch.device("cuda", torch.cuda.current_device())
        else:
            self.device = torch.device("cpu")

    def __reduce__(self) -> tuple[Any, ...]:
        """A group belongs to its processes: a pickle is of all those that read it."""
        return Processes, ()

    def __deepcopy__(self, memo: Any) -> "Processes":
        return self

    def gathered(self, fact: Any) -> list[Any]:
        """A fact of every process, by rank."""
        facts = [fact] * self.number
        if self.number > 1:
            self._guarded(
                lambda: dist.all_gather_object(facts, fact, group=self.group), "compare graphs"
            )
        return facts

    def ids(self, ids: Tensor, splits: Sequence[int]) -> tuple[Tensor, list[int]]:
        """All-to-all of counts, then of int64 ids: the requests of others by rank, with counts."""
        if self.number == 1:
            return ids, list(splits)
        counts = torch.tensor(splits, device=self.device)
        received = torch.empty_like(counts)
        self._guarded(
            lambda: dist.all_to_all_single(received, counts, group=self.group), "count rows"
        )
        got = torch.empty(int(received.sum()), dtype=torch.int64, device=self.device)
        sizes = received.tolist(), list(splits)
        self._guarded(
            lambda: dist.all_to_all_single(got, ids.to(self.device), *sizes, group=self.group),
            "ask for rows",
        )
        return got.cpu(), received.tolist()

    def rows(self, x: Tensor, received: list[int], sent: list[int]) -> Tensor:
        """All-to-all of rows (n, W), by rank; gradients go back the same way."""
        if self.number == 1:
            return x
        run = collectives.all_to_all_single_autograd
        x = x.contiguous()
        return self.arrived(
            self._guarded(lambda: run(x, received, sent, self.group), "exchange rows")
        )

    def send(self, x: Tensor, received: list[int], sent: list[int]) -> Tensor:
        """Rows that are still on their way, and without gradients."""
        run = torch.ops._c10d_functional.all_to_all_single
        name = self.group.group_name
        x = x.contiguous()
        rows: Tensor = self._guarded(lambda: run(x, received, sent, name), "exchange rows")
        return rows

    def arrived(self, rows: Tensor) -> Tensor:
        """Rows that were on their way, once they are here."""
        return self._guarded(lambda: collectives.wait_tensor(rows), "exchange rows")

    def every_row(self, x: Tensor) -> Tensor:
        """The rows (n, W) of every process, as many of each, (P n, W)."""
        every = x.new_empty(self.number * x.shape[0], *x.shape[1:])
        x = x.contiguous()
        # its name since torch 2.13
        run = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
        self._guarded(lambda: run(every, x, group=self.group), "gather rows")
        return every

    def first(self, x: Tensor) -> Tensor:
        """The first process's tensor, in every process."""
        if self.number > 1:
            if x.device.type == "cpu":
                x = x.to(self.device)
            self._guarded(lambda: dist.broadcast(x, group=self.group, group_src=0), "share a seed")
        return x

    def sum(self, x: Tensor) -> Tensor:
        """The sum of a tensor over all processes; no gradient."""
        if self.number > 1:
            if x.device.type == "cpu":
                x = x.to(self.device)
            self._guarded(lambda: dist.all_reduce(x, group=self.group), "add up")
        return x

    def _guarded(self, run: Callable[[], Any], action: str) -> Any:
        try:
            return run()
        except (RuntimeError, ValueError) as error:
            raise ProcessError(
                f"process {self.rank} of {self.number} could not {action}: another has ended, or "
                "was later than the timeout of the process group; see its own error "
                f"({str(error).splitlines()[0][:200]})"
            ) from error


class RequestedRows:
    """The rows that others own and this process reads; readers send owners their indices.

    Args:
        slots: Local rows that the others read, by reader.
        sent: Number of rows for each process; ``received``: number from each.
    """

    def __init__(
        self, processes: Processes, slots: Tensor, sent: list[int], received: list[int], rows: int
    ) -> None:
        self.processes = processes
        self.sent = sent
        self.received = received
        by_row = torch.argsort(slots, stable=True)
        self.slots = Slots(slots, offsets(torch.bincount(slots, minlength=rows)), by_row)

    def __call__(self, x: Tensor) -> Tensor:
        """(n, W) -> (received, W). Gradients are summed in one order, in float32 or wider."""
        return self.processes.rows(self._taken(x), self.received, self.sent)

    def start(self, x: Tensor) -> Callable[[], Tensor]:
        """Send the rows now; the returned function gives the received ones.

        In a backward, gradients go back as soon as they are computed, and are awaited at the place
        of this call.
        """
        back: list[Tensor] = []  # gradients on their way
        coming = _Start.apply(self._taken(x), self, back)
        return lambda: _Arrive.apply(coming, self, back)

    def _taken(self, x: Tensor) -> Tensor:
        slots = Slots(*(part.to(x.device) for part in self.slots))
        return take(x[None], [sum(self.sent)], slots)[0][0]

    def back(self, x: Tensor) -> Tensor:
        """(received, W) -> (sent, W): results of the others for these rows."""
        return self.processes.rows(x, self.sent, self.received)


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, requested: RequestedRows, back: list[Tensor]) -> Tensor:
        ctx.held = requested.processes, back
        return requested.processes.send(x, requested.received, requested.sent)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        processes, back = ctx.held
        return processes.arrived(back.pop()), None, None


class _Arrive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, coming: Tensor, requested: RequestedRows, back: list[Tensor]) -> Tensor:
        ctx.held = requested, back
        return requested.processes.arrived(coming)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        requested, back = ctx.held
        back.append(requested.processes.send(grad, requested.sent, requested.received))
        return grad, None, None


class Every:
    """All rows of all processes, in one collective of parts padded to the largest.

    Args:
        processes: The processes.
        part: The owner of each node (N,).

    Attributes:
        sizes: Number of rows of each process.
        by_owner: The nodes by owner, then by number, int64 (N,); ``place_by_owner``, where each
            node stands there.
    """

    def __init__(self, processes: Processes, part: Tensor) -> None:
        self.processes = processes
        self.by_owner = torch.argsort(part, stable=True)
        self.place_by_owner = torch.argsort(self.by_owner)
        self.sizes = torch.bincount(part.long(), minlength=processes.number).tolist()
        owner = part[self.by_owner].long()
        first = offsets(torch.tensor(self.sizes))[owner]
        # in the padded parts
        self._row = owner * max(self.sizes) + torch.arange(part.numel()) - first

    def ordered(self, x: Tensor) -> Tensor:
        """Own rows (n, W) -> those of all nodes (N, W), in their order."""
        if self.processes.number == 1:
            padded = x
        else:
            padded = _Gather.apply(
                torch.nn.functional.pad(x, (0, 0, 0, max(self.sizes) - x.shape[0])), self.processes
            )
        return padded.index_select(0, self._row[self.place_by_owner].to(x.device))

    def place_in_part(self, part: Tensor) -> Tensor:
        """The place of each node among its owner's, int64 (N,)."""
        return self.place_by_owner - offsets(torch.tensor(self.sizes))[part.long()]


class _Gather(torch.autograd.Function):
    """All rows at every process; owners sum their gradients in float32 or wider, unlike torch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes.every_row(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        number = ctx.processes.number
        size = grads[0].shape[0] // number
        parts = ctx.processes.rows(grads[0], [size] * number, [size] * number).unflatten(
            0, (number, size)
        )
        return parts.sum(0, dtype=torch.promote_types(parts.dtype, torch.float32)).to(
            parts.dtype
        ), None


def along(dim: int, exchange: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """An exchange of rows (n, W) -> (m, W), for a tensor whose nodes are along ``dim``."""
    rows = x.movedim(dim, 0)
    shape = rows.shape[1:]
    return exchange(rows.reshape(rows.shape[0], shape.numel())).unflatten(1, shape).movedim(0, dim)
