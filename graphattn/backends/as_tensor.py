"""The protocol of a tensor for weights of edges: code that reads a tensor reads ``dense()``."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..errors import OptionError

#: Attributes that :attr:`alpha` has in common with the dense tensor.
_SHARED = (
    "device",
    "dtype",
    "grad_fn",
    "is_cpu",
    "is_cuda",
    "is_leaf",
    "itemsize",
    "layout",
    "requires_grad",
)
#: Methods that read sizes alone.
_OF_SIZES = (
    "dim",
    "element_size",
    "is_complex",
    "is_floating_point",
    "ndimension",
    "nelement",
    "numel",
    "size",
)
#: Methods that give other weights of the same edges.
_OF_EDGES = (
    "bfloat16",
    "clone",
    "contiguous",
    "cpu",
    "cuda",
    "detach",
    "double",
    "float",
    "half",
    "pin_memory",
    "to",
)
_OPERATORS = """add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul rmatmul neg pos
    abs eq ne lt le gt ge"""


class AsTensor:
    """An object that stands for the tensor ``dense()`` in calls of torch and NumPy; read-only.

    A class with weights ``alpha`` (..., E, H) inherits it, and defines ``shape``, ``dense`` and two
    helpers.
    """

    alpha: Tensor

    @property
    def shape(self) -> torch.Size:
        """The shape of ``dense()``."""
        raise NotImplementedError

    @property
    def _leading(self) -> int:
        """The number of dimensions that :attr:`alpha` and the dense tensor have in common."""
        return self.ndim - 2

    def dense(self) -> Tensor:
        """The tensor."""
        raise NotImplementedError

    def _pairs(self, alpha: Tensor) -> Tensor:
        """``dense()`` of the weights (..., E) of some heads."""
        raise NotImplementedError

    def _with(self, alpha: Tensor) -> Self:
        """Other weights of the same edges."""
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def grad(self) -> Self | None:
        """The gradient of :attr:`alpha`, if ``retain_grad`` was called, as weights of its edges."""
        if self.alpha.grad is None:
            return None
        return self._with(self.alpha.grad)

    def retain_grad(self) -> None:
        """Keep the gradient of :attr:`alpha` in the next backward."""
        self.alpha.retain_grad()

    def register_hook(self, hook: Callable[[Self], Any]) -> Any:
        """A hook on the gradient of :attr:`alpha`, which it gets as weights of the same edges.

        Raises:
            OptionError: In the backward, if the hook returns something else than ``None`` or such
                weights.
        """

        def of_edges(grad: Tensor) -> Tensor | None:
            result = hook(self._with(grad))
            if result is None:
                return None
            if not isinstance(result, AsTensor):
                raise OptionError(
                    "a hook of weights must return None or weights of the same edges, got "
                    f"{type(result).__name__}; for tensors of edges use "
                    "weights.alpha.register_hook(hook)"
                )
            return result.alpha

        return self.alpha.register_hook(of_edges)

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> Tensor:
        """``dense()[index]``; only the examples and heads that it starts with are made dense."""
        if isinstance(index, tuple):
            parts = index
        else:
            parts = (index,)
        front: list[Any] = []
        for part in parts[: self._leading]:
            if type(part) not in (int, slice):
                break
            front.append(part)
        remaining_axes = [slice(None) for part in front if isinstance(part, slice)]
        pairs = self._pairs(self.alpha.transpose(-2, -1)[tuple(front)])
        return pairs[(*remaining_axes, *parts[len(front) :])]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.dense().numpy(), dtype=dtype)

    @classmethod
    def __torch_function__(
        cls,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if kwargs is None:
            kwargs = {}
        if function is torch.autograd.grad:
            return _gradients(*args, **kwargs)
        if function is torch.autograd.backward:
            # gradients of weights accumulate in their tensors of edges
            inputs = _of_edges(kwargs.pop("inputs", None))
            return torch.autograd.backward(*_dense(args), **_dense(kwargs), inputs=inputs)
        written = kwargs.get("out")
        if _is_in_place(getattr(function, "__name__", "")) and args:
            written = args[0]
        if isinstance(written, AsTensor):
            raise OptionError(
                f"{type(written).__name__} are read-only; write to weights.dense() or weights.alpha"
            )
        return function(*_dense(args), **_dense(kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if _is_in_place(name):
            raise AttributeError(
                f"weights are read-only: call {name} of weights.dense() or of weights.alpha"
            )
        if name in _SHARED:
            return getattr(self.alpha, name)
        if not callable(getattr(Tensor, name)):
            return getattr(self.dense(), name)

        def method(*args: Any, **kwargs: Any) -> Any:
            if name in _OF_EDGES:
                return self._with(getattr(self.alpha, name)(*args, **kwargs))
            if name in _OF_SIZES:
                sizes = torch.empty(self.shape, dtype=self.alpha.dtype, device="meta")
                return getattr(sizes, name)(*args, **kwargs)
            return getattr(self.dense(), name)(*_dense(args), **_dense(kwargs))

        return method


def _operator(name: str) -> Callable[..., Any]:
    def method(self: AsTensor, *others: Any) -> Any:
        return getattr(self.dense(), name)(*_dense(others))

    method.__name__ = name
    return method


for _name in _OPERATORS.split():
    setattr(AsTensor, f"__{_name}__", _operator(f"__{_name}__"))
AsTensor.__hash__ = object.__hash__  # type: ignore[method-assign]  # as of tensors, though == is elementwise


def _is_in_place(name: str) -> bool:
    """True if a function of this name writes to its first argument."""
    return name.endswith("_") and not name.endswith("__")


def _dense(values: Any) -> Any:
    """Values with dense tensors in place of weights."""
    if isinstance(values, AsTensor):
        return values.dense()
    if type(values) in (list, tuple):
        return type(values)(_dense(value) for value in values)
    if type(values) is dict:
        return {name: _dense(value) for name, value in values.items()}
    return values


def _of_edges(values: Any) -> Any:
    """Values with tensors of edges in place of weights."""
    if isinstance(values, AsTensor):
        return values.alpha
    if isinstance(values, list | tuple):
        return tuple(_of_edges(value) for value in values)
    return values


def _gradients(outputs: Any, inputs: tuple[Any, ...], **options: Any) -> tuple[Any, ...]:
    """``torch.autograd.grad``; gradients of weights are weights of the same edges."""
    grads = torch.autograd.grad(_dense(outputs), _of_edges(inputs), **_dense(options))
    results = []
    for operand, grad in zip(inputs, grads, strict=True):
        if isinstance(operand, AsTensor) and grad is not None:
            results.append(operand._with(grad))
        else:
            results.append(grad)
    return tuple(results)
