"""Attention written down target by target, and what the tests of attention share."""

from collections.abc import Iterable, Sequence

import torch
from graph_table import GRAPHS
from torch import Tensor

import graphattn as ga
from graphattn.backends import BACKENDS as registered

BACKENDS = tuple(registered)
WEIGHING = tuple(name for name in BACKENDS if name != "tiles")  # which return weights
EXACT = 1e-12  # float64, relative to the largest number compared
HEADS, KV_HEADS, WIDTH, VALUE_WIDTH = 6, 3, 5, 7


def formula(
    query, key, value, graph, score_bias=None, scale=None, softcap=None
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, weights and lse, one target after the other, from nothing but its edges; copies of an
    edge all count.
    """
    group = query.shape[-2] // key.shape[-2]
    key, value = key.repeat_interleave(group, -2), value.repeat_interleave(group, -2)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    score = scale * (query[..., graph.target, :, :] * key[..., graph.source, :, :]).sum(-1)
    score = score if softcap is None else softcap * torch.tanh(score / softcap)
    score = score if score_bias is None else score + score_bias
    weights, rows, lse = torch.zeros_like(score), [], []
    for t in range(graph.num_targets):
        mine = torch.nonzero(graph.target == t).flatten()
        alpha = torch.softmax(score[..., mine, :], -2)
        weights = weights.index_copy(-2, mine, alpha)
        rows.append(
            torch.einsum("...eh,...ehd->...hd", alpha, value[..., graph.source[mine], :, :])
        )
        lse.append(torch.logsumexp(score[..., mine, :], -2))
    if not rows:
        nothing = 0.0 * (query.sum() + key.sum() + value.sum() + score.sum())
        shape = score.shape[:-2]
        return (
            nothing.expand(*shape, 0, *value.shape[-2:]),
            weights,
            nothing.expand(*shape, 0, query.shape[-2]),
        )
    return torch.stack(rows, -3), weights, torch.stack(lse, -2)


def tensors(
    graph: ga.AttentionGraph,
    lead: Sequence[int] = (),
    heads: int = HEADS,
    kv_heads: int = KV_HEADS,
    width: int = WIDTH,
    value_width: int = VALUE_WIDTH,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    requires_grad: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value that fit the graph."""
    made = torch.Generator().manual_seed(seed)
    shapes = (
        (*lead, graph.num_targets, heads, width),
        (*lead, graph.num_sources, kv_heads, width),
        (*lead, graph.num_sources, kv_heads, value_width),
    )
    found = [torch.randn(shape, generator=made, dtype=torch.float64).to(dtype) for shape in shapes]
    return tuple(x.requires_grad_(requires_grad) for x in found)


def biases(
    graph: ga.AttentionGraph, lead: Sequence[int] = (), heads: int = HEADS, seed: int = 1
) -> Tensor:
    """A score_bias that asks for its gradient."""
    made = torch.Generator().manual_seed(seed)
    return torch.randn(
        *lead, graph.num_edges, heads, generator=made, dtype=torch.float64
    ).requires_grad_()


def gradients(output: Tensor, inputs: Sequence[Tensor], seed: int = 2) -> list[Tensor]:
    """Of a random linear function of the output."""
    made = torch.Generator().manual_seed(seed)
    weight = torch.randn(output.shape, generator=made, dtype=torch.float64).to(output.dtype)
    return list(torch.autograd.grad(output, inputs, weight, retain_graph=True))


def assert_near(found: Tensor, wanted: Tensor, tolerance: float = EXACT) -> None:
    """Equal within ``tolerance``, relative to the largest number; NaN and infinities stand where
    they should.
    """
    assert found.shape == wanted.shape
    found, wanted = found.detach().double(), wanted.detach().double()
    for special in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(special(found), special(wanted))
    both = torch.isfinite(wanted)
    if both.any():
        size = max(1.0, float(wanted[both].abs().max()))
        error = float((found[both] - wanted[both]).abs().max()) / size
        assert error <= tolerance, f"error {error:.3g} > {tolerance:.3g}"


def asked(backend: str, extras: dict) -> dict:
    """Extras of a call without the weights that a backend does not return."""
    if backend in WEIGHING:
        return extras
    return {name: value for name, value in extras.items() if name != "return_weights"}


def may_refuse(graph: ga.AttentionGraph, backend: str, **options: bool) -> bool:
    """What dense products may refuse, and nothing else: copies of an edge told apart, and weights
    of tiles.
    """
    if backend == "tiles" and options.get("return_weights"):
        return True
    told_apart = backend == "tiles" or any(
        options.get(name) for name in ("score_bias", "dropout_p", "return_weights")
    )
    return backend in ("dense", "tiles") and graph.has_repeated_edges and told_apart


def taken(names: Iterable[str], **options: bool) -> list[tuple[str, str]]:
    """(name, backend) wherever the backend takes the graph of the table; one graph's backends in a
    row.
    """
    graphs = {name: GRAPHS[name]() for name in names}
    return [
        (n, b)
        for n, graph in graphs.items()
        for b in BACKENDS
        if not may_refuse(graph, b, **options)
    ]
