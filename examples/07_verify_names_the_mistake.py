"""Proof is a feature: verify finds a wrong mask, in the output or in a gradient, and names the
mistake.
"""

import torch

import graphattn as ga

torch.manual_seed(0)
graph = ga.graphs.sliding_window(13, window=4, causal=True)


def off_by_one(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Somebody's window attention: "4 tokens back" sees 5 tokens, since it forgets to count
    itself.
    """
    token = torch.arange(13)
    distance = token[:, None] - token
    mask = (distance >= 0) & (distance <= 4)
    heads_first = (x.transpose(0, 1) for x in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=mask).transpose(
        0, 1
    )


report = ga.verify(off_by_one, graph)
print(report)
assert not report.ok
assert "window" in str(report)

right = ga.verify(graph)  # the library itself, every backend, against dense attention in float64
print(right)

x = torch.randn(13, 2, 8)
heads_first = x.transpose(0, 1)
theirs = torch.nn.functional.scaled_dot_product_attention(
    *(heads_first,) * 3, attn_mask=graph.mask()
).transpose(0, 1)
assert right.ok
assert (ga.attention(x, x, x, graph) - theirs).abs().max() < 1e-6
