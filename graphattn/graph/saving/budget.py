"""A limit on what making a graph may compute: a few bytes of a file can ask for hours of work."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...errors import LoaderError

_LEAST = 4096  # bytes that a step counts, however few it computes: it takes the time of so many


class Budget(TorchFunctionMode):
    """While it is entered, the bytes of all tensors that are computed are counted, and more than ``most`` refused.

    Counted rather than timed, so that the same data is refused everywhere or nowhere.
    """

    def __init__(self, most: int, fix: str) -> None:
        super().__init__()
        self.most, self.fix, self.spent = most, fix, 0

    def spend(self, num_bytes: int) -> None:
        """Count some more.

        Raises:
            LoaderError: If these are too many.
        """
        self.spent += num_bytes
        if self.spent > self.most:
            raise LoaderError(f"making this graph computes more than {self.most:,} bytes of numbers. Try: {self.fix}.")

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and tensor.layout == torch.strided and not tensor._is_view():
                self.spend(_LEAST + tensor.nbytes)
        return result
