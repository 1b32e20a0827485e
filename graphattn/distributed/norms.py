"""Batch norms over the rows of all processes."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import ShapeError
from ..graph.modes import lru_cache
from .exchange import Processes


def sync_batch_norms(model: nn.Module, group: Any = None) -> nn.Module:
    """Compute batch-norm statistics over the rows of all processes in training.

    Outputs, gradients and running statistics are those of one process that has all rows, to
    rounding. Every process calls the model as often as the others; it may have no rows.
    ``torch.nn.SyncBatchNorm`` is for CUDA alone. A pickle of the model has no group: where it is
    read, statistics are of all processes there, until another call.

    Args:
        model: Any model. It is changed in place, and keeps its parameters, buffers and their names.
        group: A device mesh of one axis, or a process group; all processes by default.

    Returns:
        The model.

    Raises:
        ShapeError: In training, if all processes together have a single row.

    Example:
        >>> norm, x = sync_batch_norms(nn.BatchNorm1d(3)), torch.randn(5, 3)
        >>> torch.allclose(norm(x), nn.BatchNorm1d(3)(x), atol=1e-6)
        True
    """
    processes = Processes(group)
    for norm in model.modules():
        if isinstance(norm, _BatchNorm) and not isinstance(norm, nn.SyncBatchNorm):
            kind: Any = type(norm)
            if isinstance(norm, SyncedNorm):
                kind = norm.kind
            norm.__class__ = _synced(kind)
            vars(norm)["processes"] = processes
    return model


class SyncedNorm(_BatchNorm):
    """A batch norm over the rows of all processes.

    Attributes:
        kind: The class of the batch norm that it was.
        processes: Those that share the statistics.
        counts: False if the statistics leave out the rows of this process.
    """

    kind: type[_BatchNorm]
    processes: Processes
    counts = True

    def __reduce__(self) -> tuple[Any, ...]:
        return _blank, (self.kind,), self.__dict__

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, ...) of own rows."""
        if not self.training:
            return super().forward(x)
        self._check_input_dim(x)
        upcast = x.to(torch.promote_types(x.dtype, torch.float32))
        counted = upcast
        if not self.counts:
            counted = upcast[:0]
        dims = [0, *range(2, x.dim())]
        sums = counted.sum(dims)
        number = sums.new_tensor([counted.numel() // sums.numel()])
        total = _Total.apply(torch.cat((sums, number)), self.processes)
        count = float(total[-1].detach())
        if count < 2:
            raise ShapeError(
                f"batch norms in training need 2 rows in all processes, got {count:.0f}; use "
                "layer norms"
            )
        mean = total[:-1] / count
        centred = upcast - _column(mean, x)
        squares = centred.square()
        if not self.counts:
            squares = squares[:0]
        variance = _Total.apply(squares.sum(dims), self.processes) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1))
        scale = torch.rsqrt(variance + self.eps)
        if self.affine:
            return (centred * _column(scale * self.weight, x) + _column(self.bias, x)).to(x.dtype)
        return (centred * _column(scale, x)).to(x.dtype)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if (
            self.running_mean is None
            or self.running_var is None
            or self.num_batches_tracked is None
        ):
            return
        self.num_batches_tracked.add_(1)
        if self.momentum is None:
            share = 1 / int(self.num_batches_tracked)
        else:
            share = self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


@lru_cache(None)
def _synced(kind: Any) -> type[SyncedNorm]:
    return type(f"Synced{kind.__name__}", (SyncedNorm, kind), {"kind": kind})


def _blank(kind: Any) -> SyncedNorm:
    """A norm without a state, which a pickle has beside it."""
    norm_class = _synced(kind)
    return norm_class.__new__(norm_class)


class _Total(torch.autograd.Function):
    """The sum of a tensor over all processes; its gradients are summed likewise."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes.sum(x.clone())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.processes.sum(grads[0].clone()), None


def _column(x: Tensor, like: Tensor) -> Tensor:
    """(C,) beside (N, C, ...)."""
    return x.view(-1, *(1,) * (like.dim() - 2))
