"""Functions of one pair of 0-d tensors, evaluated on many pairs: how FlexAttention calls a ``mask_mod``."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

_ASKED_AT_ONCE = 1 << 18
_TORCH_FUNC = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode

PairRule = Callable[[Tensor, Tensor], Tensor]  # (target, source) -> bool


def by_pair(function: PairRule, target: Tensor, source: Tensor) -> Tensor:
    """``function`` of every pair of two index tensors that broadcast, each pair as 0-d tensors under ``torch.vmap``.

    Example:
        >>> ends = torch.tensor([[0, 2], [1, 3]])  # the first and the last target of each source
        >>> by_pair(lambda t, s: (ends[s][0] <= t) & (t <= ends[s][1]), torch.arange(3)[:, None], torch.arange(2))
        tensor([[ True, False],
                [ True,  True],
                [ True,  True]])
    """
    shape = torch.broadcast_shapes(target.shape, source.shape)
    if 0 in shape:
        return torch.zeros(shape, dtype=torch.bool, device=target.device)
    target, source = (x.reshape((1,) * (len(shape) - x.dim()) + x.shape) for x in (target, source))
    mapped = [(m > 1 or n == 1, k > 1 or n == 1) for m, k, n in zip(target.shape, source.shape, shape, strict=True)]
    target = target.reshape([n for n, (here, _) in zip(target.shape, mapped, strict=True) if here])
    source = source.reshape([n for n, (_, here) in zip(source.shape, mapped, strict=True) if here])
    for depth, (of_target, of_source) in reversed(list(enumerate(mapped))):
        rows = max(1, _ASKED_AT_ONCE // max(1, shape[1:].numel())) if depth == 0 else None
        dims = (0 if of_target else None, 0 if of_source else None)
        function = torch.vmap(function, dims, chunk_size=rows)
    switched_off = mapped and torch._C._dispatch_tls_is_dispatch_key_excluded(_TORCH_FUNC)
    return _in_a_thread(lambda: function(target, source)) if switched_off else function(target, source)


def _in_a_thread(ask: Callable[[], Tensor]) -> Tensor:
    """``ask()`` in another thread: graphs are derived outside of torch.func, which is active per thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(ask).result()
