"""torch's operators of ``varlen_attn`` on the CPU, which lacks them: what its documentation says,
sequence by sequence.

All around them, the public function and its derivative, is torch's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch.nn.attention import varlen  # noqa: F401 (makes the operators)


def _sequences(ends, window, *tensors):
    """Of each sequence which pairs count, bool, and its rows of tensors (N, H, D), heads first."""
    for a, b in pairwise(ends.tolist()):
        ahead = torch.arange(b - a) - torch.arange(b - a).unsqueeze(1)
        allowed = ((ahead >= -window[0]) | (window[0] < 0)) & (
            (ahead <= window[1]) | (window[1] < 0)
        )
        yield allowed, [x[a:b].transpose(0, 1) for x in tensors]


def _weights(query, key, allowed, scale):
    return (query @ key.mT * scale).masked_fill(~allowed, -torch.inf).softmax(-1)


def _joined(parts):
    return torch.cat([x.transpose(0, 1) for x in parts]).contiguous()


def _check(tensors, ends, others, longest):
    """What the kernels ask of their operands."""
    assert ends.dtype == others.dtype == torch.int32
    assert (int(ends[0]), int(ends[-1]), others.tolist()) == (0, len(tensors[0]), ends.tolist())
    assert set(longest) == {int(ends.diff().max())}
    for x in tensors:
        assert x.stride(-1) == 1
        assert all(number % 8 == 0 for number in (*x.stride()[:-1], x.storage_offset()))


def forward(query, key, value, ends, others, *rest):
    """Of ``_varlen_attn``: longest of both, is_causal, scale, window, ..."""
    longest, scale, window = rest[:2], rest[3], rest[4]
    _check((query, key, value), ends, others, longest)
    every = _sequences(ends, window, query, key, value)
    output = _joined([_weights(q, k, allowed, scale) @ v for allowed, (q, k, v) in every])
    lse = torch.zeros(query.shape[1], len(query))
    return output, lse, torch.zeros(2, dtype=torch.uint64)


def backward(grad, query, key, value, output, lse, ends, others, *rest):
    """Of ``_varlen_attn_backward``: longest of both, is_causal, state, scale, window."""
    longest, scale, window = rest[:2], rest[4], rest[5]
    _check((grad, query, key, value, output), ends, others, longest)
    grads = []
    for allowed, (g, q, k, v) in _sequences(ends, window, grad, query, key, value):
        alpha = _weights(q, k, allowed, scale)
        by_weight = g @ v.mT
        by_score = alpha * (by_weight - (alpha * by_weight).sum(-1, keepdim=True)) * scale
        grads.append((by_score @ k, by_score.mT @ q, alpha.mT @ g))
    return tuple(map(_joined, zip(*grads, strict=True)))


@contextmanager
def registered() -> Iterator[None]:
    """Within it the operators run on the CPU."""
    library = torch.library.Library("torch_attn", "IMPL")
    library.impl("_varlen_attn", forward, "CPU", allow_override=True)
    library.impl("_varlen_attn_backward", backward, "CPU", allow_override=True)
    try:
        yield
    finally:
        library._destroy()
