"""Steps as CUDA graphs: all launches of a step as one, where its graphs of attention are fixed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...distributed.exchange import Processes
from ...errors import BackendError, ShapeError

WARM = 3  # calls that run as they are: plans are made, kernels compiled, moments of AdamW allocated


class Captured:
    r"""A step that is captured as a CUDA graph at its fourth call, and replayed from then on.

    The first three calls run as they are, so that a run has the same steps as without. A graph
    replays launches, with their shapes and addresses: graphs of attention, parameters and the
    optimizer's moments are those of the capture, and only the tensors that are passed change.

    Args:
        step: A function of tensors to a tensor or a tuple of them, such as one of features and
            labels that trains a model once and returns the loss. Graphs of attention are constants
            in it. It synchronizes nowhere: no ``.item()``, no ``print`` of a tensor. Its optimizer
            is ``capturable=True``.

    A result is overwritten by the next call: ``loss.clone()`` keeps it.

    :func:`graphattn.training.train` captures nothing, since each of its batches has a graph of its
    own: it is for meshes and grids that stay the same, as of weather models.

    Example:
        >>> import torch, graphattn as ga
        >>> step = ga.training.Captured(lambda x: (x * x).sum())
        >>> step(torch.ones(3))
        Traceback (most recent call last):
        graphattn.errors.BackendError: Captured needs tensors on a CUDA device, got cpu; call the step itself there
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self.calls = 0
        self.inputs: tuple[Tensor, ...] = ()
        self.output: Any = None
        self.graph: Any = None

    def __call__(self, *inputs: Tensor) -> Any:
        """The step on these tensors.

        Raises:
            BackendError: If the step cannot be captured, with the reason.
            ShapeError: If a tensor has another shape, dtype or device than at the first call.
        """
        self._check(inputs)
        self.calls += 1
        if self.calls <= WARM:
            return self._warmed(inputs)
        for buffer, tensor in zip(self.inputs, inputs, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        if self.graph is None:
            self._capture()
        self.graph.replay()
        return self.output

    def _check(self, inputs: tuple[Any, ...]) -> None:
        for value in inputs:
            if not value.is_cuda:
                raise BackendError(
                    f"Captured needs tensors on a CUDA device, got {value.device}; call the step "
                    "itself there"
                )
        if not self.inputs:
            if Processes().number > 1:
                raise BackendError(
                    "Captured is for one process, got several; call the step itself there"
                )
            self.inputs = tuple(value.detach().clone() for value in inputs)
        new_specs = [(tuple(x.shape), x.dtype, x.device) for x in inputs]
        old_specs = [(tuple(x.shape), x.dtype, x.device) for x in self.inputs]
        if new_specs != old_specs:
            raise ShapeError(
                f"a captured step must be called with tensors of the same shapes, dtypes and "
                f"devices, got {new_specs} after {old_specs}; make another Captured for them"
            )

    def _warmed(self, inputs: tuple[Tensor, ...]) -> Any:
        """The step as it is, on a side stream, as torch asks; the last must not synchronize."""
        device = inputs[0].device
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        mode = torch.cuda.get_sync_debug_mode()
        if self.calls == WARM:
            torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.cuda.stream(stream):
                output = self.step(*inputs)
        except RuntimeError as error:
            if "synchronizing" not in str(error):
                raise
            raise BackendError(
                "a captured step must not synchronize with the device, as .item(), .tolist() and "
                "boolean masks do; return tensors, and read them after the call"
            ) from error
        finally:
            torch.cuda.set_sync_debug_mode(mode)
        torch.cuda.current_stream(device).wait_stream(stream)
        return output

    def _capture(self) -> None:
        """Record the launches, which compute nothing yet; other threads may go on copying."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.output = self.step(*self.inputs)
        except RuntimeError as error:
            message = next(iter(str(error).strip().splitlines()), "")[:200]
            raise BackendError(
                f"the step cannot be captured: {message}; make its graphs of attention before, and "
                "its optimizer with capturable=True"
            ) from error
        self.graph = graph
