"""Attention with options at random on every backend, beside a loop over targets and heads, forward
and backward.

``python tests/fuzz/fuzz_attention.py --seconds 60``; ``--only 17`` runs one case.
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import graphattn as ga
from graphattn.backends import BACKENDS
from graphattn.backends.inputs import inputs_of
from graphattn.backends.run import run
from graphattn.errors import BackendError
from graphattn.graph import AttentionGraph, PerHead
from graphattn.nn.normalizers import NORMALIZERS

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FLOOR = {torch.float64: 1e-12, torch.float32: 4.8e-7, torch.float16: 9.8e-4, torch.bfloat16: 7.9e-3}


@dataclass
class Problem:
    """A call in numbers: leaves by name, and options."""

    graph: AttentionGraph | PerHead
    leaves: dict[str, Tensor]
    normalize: str
    scale: float
    softcap: float | None
    cap_bias: bool
    dropout_p: float
    dtype: torch.dtype

    def __str__(self) -> str:
        shapes = {name: tuple(x.shape) for name, x in self.leaves.items()}
        options = {
            name: x for name, x in vars(self).items() if name not in ("graph", "leaves") and x
        }
        return f"{self.graph!r} {shapes} {options}"


def draw(number: int) -> Problem:
    """The case of a number."""
    chance = torch.Generator().manual_seed(number)

    def one_of(*values: Any) -> Any:
        return values[int(torch.randint(len(values), (), generator=chance))]

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=chance, dtype=torch.float64)

    T = one_of(1, 3, 7, 19, 40)
    S = one_of(T, T, 1, 5, 23)
    groups = one_of(1, 1, 2, 3)

    def graph(repeats: bool) -> AttentionGraph:
        mask = torch.rand(T, S, generator=chance) < one_of(0.0, 0.1, 0.5, 1.0)
        mask[one_of(0, T - 1)] &= one_of(True, False)
        if T == S and one_of(True, False):
            return one_of(
                ga.graphs.causal(T),
                ga.graphs.full(T),
                ga.graphs.sliding_window(T, one_of(1, 3, T), causal=True),
            )
        index = mask.nonzero().t().flip(0)
        index = index[:, torch.randperm(index.shape[1], generator=chance)]
        if repeats:
            index = torch.cat(
                (index, index[:, : index.shape[1] // 2], index[:, : one_of(0, 1, 3)]), 1
            )
        return ga.from_edge_index(index, num_sources=S, num_targets=T, duplicates="keep")

    over = (
        graph(one_of(True, False))
        if groups == 1
        else PerHead(tuple(graph(False) for _ in range(groups)))
    )
    kv_heads, batch = (
        one_of(1, 2) * groups if one_of(True, False) else 1,
        one_of((), (), (2,), (2, 3), (0,)),
    )
    heads = kv_heads * (one_of(1, 2) if kv_heads % groups == 0 else groups)
    dtype, width = one_of(*DTYPES, torch.float64), one_of(1, 4, 8, *range(17, 71))
    dropout_p = one_of(0.0, 0.0, 0.0, 0.0, 0.4)
    leaves = {
        "query": randn(*batch, T, heads, width),
        "key": randn(*batch, S, kv_heads, width),
        "value": randn(*batch, S, kv_heads, one_of(1, 6, width, *range(17, 71))),
    }
    if dropout_p:  # so that an output is a row of weights
        leaves["value"] = (
            torch.eye(S, dtype=torch.float64)[:, None].expand(*batch, S, kv_heads, S).clone()
        )
    E = over.num_edges
    bias = one_of(None, None, (E,), (E, 1), (E, heads), (*batch, E, heads))
    if bias is not None:
        leaves["score_bias"] = randn(*bias)
        leaves["score_bias"][
            torch.rand(bias, generator=chance) < one_of(0.0, 0.0, 0.3)
        ] = -torch.inf
    softcap = one_of(None, None, 1.5)
    smooth = (
        ("none", "sum", "sigmoid")
        if dtype != torch.float64
        else tuple(NORMALIZERS.keys() - {"sink"})
    )
    return Problem(
        over,
        {name: x.to(dtype).requires_grad_() for name, x in leaves.items()},
        # a layer makes sinks of softmax
        "softmax" if dropout_p else one_of(*["softmax"] * 4, *sorted(smooth)),
        one_of(width**-0.5, 0.2, -0.3),
        softcap,
        one_of(True, False) and softcap is not None and "score_bias" in leaves,
        dropout_p,
        dtype,
    )


# --- the judge: a loop


def weights_of(score: Tensor, there: Tensor, name: str) -> Tensor:
    """Weights of the scores (..., H, n) of a target's edges, of which some heads have only some."""
    outside, count = score.masked_fill(~there, -torch.inf), there.sum(-1, keepdim=True)
    if name == "softmax":
        return torch.softmax(torch.where(count > 0, outside, 0.0), -1) * there
    if name == "sigmoid":
        return torch.sigmoid(score - count.clamp(min=1).to(score).log()) * there
    if name == "none":
        return score * there
    if name == "sum":
        return score * there / torch.where(count > 0, (score * there).sum(-1, keepdim=True), 1.0)
    if name == "hard":
        return torch.zeros_like(score).scatter(-1, outside.argmax(-1, keepdim=True), 1.0) * there
    assert name == "sparsemax"
    ordered = outside.sort(descending=True).values
    sizes = torch.arange(1, score.shape[-1] + 1)
    levels = (torch.where(ordered == -torch.inf, 0.0, ordered).cumsum(-1) - 1) / sizes
    support = ((ordered > levels) & (sizes <= count)).sum(-1, keepdim=True)
    return torch.where(
        there, (score - levels.gather(-1, (support - 1).clamp(min=0))).clamp(min=0), 0.0
    )


def by_loop(problem: Problem, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """Output, weights and lse, target by target."""
    query, key, value = (leaves[name] for name in ("query", "key", "value"))
    *batch, T, H, _ = query.shape
    graph, bias = problem.graph, leaves.get("score_bias")
    union = graph.union() if isinstance(graph, PerHead) else graph
    graphs = graph.graphs if isinstance(graph, PerHead) else (graph,)
    key, value = (x.repeat_interleave(H // key.shape[-2], -2) for x in (key, value))
    if bias is not None:
        bias = (bias.unsqueeze(-1) if bias.dim() == 1 else bias).expand(*batch, union.num_edges, H)
    output, lse, weights = [], [], query.new_zeros(*batch, union.num_edges, H)
    for t in range(T):
        edges = (union.target == t).nonzero().flatten()
        near = union.source[edges]
        score = problem.scale * torch.einsum(
            "...hd,...nhd->...hn", query[..., t, :, :], key[..., near, :, :]
        )
        there = torch.stack([g.contains(torch.full_like(near, t), near) for g in graphs])
        there = there.repeat_interleave(H // len(graphs), 0).expand(score.shape)
        added = torch.zeros_like(score)
        if bias is not None:
            here = bias[..., edges, :].transpose(-2, -1)
            there = there & (here != -torch.inf)
            added = torch.where(there, here, 0.0)
        if problem.softcap is not None:
            inside = score + added if problem.cap_bias else score
            score = problem.softcap * torch.tanh(inside / problem.softcap)
        score = score if problem.cap_bias else score + added
        weight = weights_of(score, there, problem.normalize) if len(edges) else score
        output.append(torch.einsum("...hn,...nhd->...hd", weight, value[..., near, :, :]))
        lse.append(torch.logsumexp(score.masked_fill(~there, -torch.inf), -1))
        weights = weights.index_copy(-2, edges, weight.transpose(-2, -1))
    return {"output": torch.stack(output, -3), "weights": weights, "lse": torch.stack(lse, -2)}


# --- the judgement


def with_gradients(values: dict[str, Tensor], leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """The values, and the gradients of a fixed mix of the output."""
    output = values["output"]
    mix = torch.randn(
        output.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64
    ).to(output)
    mixed = (output * mix).sum() + 0.0 * sum(x.flatten()[:0].sum() for x in leaves.values())
    grads = torch.autograd.grad(mixed, list(leaves.values()), allow_unused=True)
    found = {
        f"grad {name}": torch.zeros_like(x) if g is None else g
        for (name, x), g in zip(leaves.items(), grads, strict=True)
    }
    return values | found


def called(problem: Problem, backend: str, weights: bool, lse: bool) -> dict[str, Tensor]:
    """What a backend gives."""
    leaves = problem.leaves
    normalize = None if problem.normalize == "softmax" else NORMALIZERS[problem.normalize].of
    normalize = normalize() if isinstance(normalize, type) else normalize
    tensors = (
        leaves["query"],
        leaves["key"],
        leaves["value"],
        problem.graph,
        leaves.get("score_bias"),
    )
    inputs = inputs_of(
        *tensors, problem.scale, problem.softcap, problem.dropout_p, normalize=normalize
    )
    result = run(problem.graph, replace(inputs, cap_bias=problem.cap_bias), backend, weights, lse)
    values = {
        "output": result.output,
        "weights": result.alpha if weights else None,
        "lse": result.lse if lse else None,
    }
    return {name: x for name, x in values.items() if x is not None}


def wrong(problem: Problem, number: int, tally: Counter[str]) -> list[str]:
    """Where answers are not the loop's, within twice (gradients: 3 times) the error of a loop in
    the dtype.
    """
    wide = {name: x.detach().double().requires_grad_() for name, x in problem.leaves.items()}
    truth, plain = with_gradients(by_loop(problem, wide), wide), None
    if problem.dtype != torch.float64:
        plain = with_gradients(by_loop(problem, problem.leaves), problem.leaves)
    growth = 1.0
    if problem.normalize == "sum" and truth["weights"].numel():
        growth = max(1.0, size(truth["weights"])) ** 2
    faults = []
    for backend in (*BACKENDS, "auto"):
        weights, lse = bool(number & 1), bool(number & 2) and problem.normalize == "softmax"
        try:
            values = called(problem, backend, weights, lse)
        except BackendError:
            tally[f"{backend} refused"] += 1
            continue
        tally[backend] += 1
        if problem.dropout_p:
            faults += [f"{backend}: {fault}" for fault in dropped(problem, values, truth)]
            continue
        values = with_gradients(values, problem.leaves)
        largest = max([1e-30, *(size(x) for name, x in truth.items() if name.startswith("grad"))])
        for name, x in values.items():
            if x.shape != truth[name].shape:
                faults.append(
                    f"{backend}: {name} has shape {tuple(x.shape)}, not {tuple(truth[name].shape)}"
                )
                continue
            scale = (
                largest
                if name.startswith("grad")
                else max(size(truth[name]), float(name != "output"), 1e-30)
            )
            error = apart(x, truth[name]) / scale
            ours = 0.0 if plain is None else apart(plain[name], truth[name]) / scale
            limit = (3.0 if name.startswith("grad") else 2.0) * ours + FLOOR[problem.dtype] * growth
            if not error <= limit:
                faults.append(f"{backend}: {name} is off by {error:.2g} (limit {limit:.2g})")
    return faults


def dropped(problem: Problem, values: dict[str, Tensor], truth: dict[str, Tensor]) -> list[str]:
    """Dropout: each weight is 0 or 1 / (1 - p) of itself, and the value's gradient is by the same
    ones.
    """
    output, kept = values["output"].double(), truth["output"] / (1 - problem.dropout_p)
    union = problem.graph.union() if isinstance(problem.graph, PerHead) else problem.graph
    room = 8 * FLOOR[problem.dtype]
    whole = ((output - kept).abs() <= room) | (output.abs() <= room)
    faults = (
        []
        if union.has_repeated_edges or bool(whole.all())
        else ["a weight is neither dropped nor kept"]
    )
    mix = torch.randn(output.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    (grad,) = torch.autograd.grad(
        (values["output"] * mix.to(values["output"])).sum(), problem.leaves["value"]
    )
    group = output.shape[-2] // grad.shape[-2]
    expected = (
        torch.einsum("...ths,...thd->...shd", output.detach(), mix)
        .unflatten(-2, (-1, group))
        .sum(-2)
    )
    if apart(grad, expected) > room * (size(expected) + 1.0) * 8:
        faults.append(f"the gradient of value is off by {apart(grad, expected):.2g} under dropout")
    if "weights" in values and apart(values["weights"], truth["weights"]) > room:
        faults.append("weights are not those before dropout")
    return faults


def size(x: Tensor) -> float:
    """The largest finite absolute value."""
    return float(x.detach().abs().nan_to_num(0.0, 0.0, 0.0).max()) if x.numel() else 0.0


def apart(x: Tensor, y: Tensor) -> float:
    """The largest difference; infinite at a NaN."""
    x, y = x.detach().double(), y.detach().double()
    return (
        float(torch.where(x == y, 0.0, (x - y).abs()).nan_to_num(torch.inf).max())
        if x.numel()
        else 0.0
    )


def main() -> int:
    """0 if no case is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    number, tally, failed, end = (
        asked.seed * 1_000_000,
        Counter[str](),
        0,
        time.monotonic() + asked.seconds,
    )
    numbers = (
        iter([asked.only]) if asked.only is not None else iter(range(number, number + 1_000_000))
    )
    for number in numbers:
        if time.monotonic() > end:
            break
        problem = draw(number)
        tally["per head" if isinstance(problem.graph, PerHead) else "one graph"] += 1
        faults = wrong(problem, number, tally)
        failed += bool(faults)
        for fault in faults:
            print(f"--only {number}: {fault}\n    {problem}")
    print(f"attention: {failed} wrong; {dict(sorted(tally.items()))}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
