"""Bytes of a training step of attention over edges, on the device that is not there.

``NO_DEVICE=FOLDER python tests/kernels/passes.py`` prints a line of JSON: what edge features, a
bias, a normalisation of one's own and an additive score add to a step without them, forward and backward, in passes
over the nodes, (N, H, D) halves. Every tensor that a kernel or an operation of torch reads or
writes counts once: ``kernels``, ``operations`` and, by name, the largest of these.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))
import no_device
import torch
from torch.utils._pytree import tree_leaves

import graphattn as ga
from graphattn.backends import edges, scored
from graphattn.backends.request import Request
from graphattn.kernels.additive import gpu as additive_triton
from graphattn.kernels.cuda import launches
from graphattn.kernels.softmax import gpu as attention_triton
from graphattn.kernels.softmax import passes as edges_triton
from graphattn.nn.scores import Additive
from graphattn.nn.scores.base import LayerScore

#: As anemoi's processor (h_to_h): 40,962 nodes, 16 heads of 64, 16 features.
N, H, D, F, DEGREE = 40_962, 16, 64, 16, 8
OPERATORS = {
    "graphattn::edge_attention": attention_triton.forward,
    "graphattn::edge_attention_backward": attention_triton.backward,
    "graphattn::edge_products": edges_triton.edge_products,
    "graphattn::edge_sum": edges_triton.edge_sum,
    "graphattn::edge_additive": additive_triton.edge_additive,
    "graphattn::edge_additive_backward": additive_triton.edge_additive_backward,
}
run = no_device.run
moved: Counter[str] = Counter()


def counted(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """An operation; its operands and results count, unless it is a view."""
    name = operator.name()
    if name in OPERATORS:
        return OPERATORS[name](*args)
    result = run(operator, *args, **kwargs)
    is_free = operator.is_view or "detach" in name or "empty" in name
    if not is_free:
        written = _bytes(result)
        if name not in ("aten::zero_", "aten::fill_.Scalar"):
            written += _bytes((args, kwargs))
        moved[name] += written
    return result


def _bytes(tensors: Any) -> int:
    there = [x for x in tree_leaves(tensors) if isinstance(x, no_device.There)]
    return sum(x.numel() * x.element_size() for x in there)


def launched(*given: Any) -> None:
    """A kernel, which does nothing here: its operands count."""
    moved["kernels"] += _bytes([x for x in given if not isinstance(x, dict)])


def step(
    features: bool = False, bias: bool = False, scores: bool = False, additive: bool = False
) -> Counter[str]:
    """The bytes of the second forward and backward; with ``scores`` of a normalisation that keeps
    them, with ``additive`` of that score.
    """
    graph = ga.graphs.random_neighbours(N, DEGREE).to("cuda:0")
    half = {"dtype": torch.float16, "device": "cuda:0"}
    nodes = [torch.empty(N, H, D, **half).requires_grad_() for _ in range(3)]
    operands: dict[str, Any] = {}
    if features:
        operands["edge_attr"] = torch.empty(graph.num_edges, F, **half).requires_grad_()
        operands["edge_weight"] = torch.empty(H, D, F, **half).requires_grad_()
    if bias:
        operands["score_bias"] = torch.empty(graph.num_edges, H, **half).requires_grad_()
    leaves = [*nodes, *operands.values()]
    if scores:
        operands["normalize"] = lambda score, target, num_targets: score
    if additive:
        operands["score"] = LayerScore(Additive(H, D).to(**half))
    inputs = ga.operands.Inputs(*nodes, 0.125, **operands)
    for _ in range(2):
        moved.clear()
        if scores or additive:
            output = scored.scored_run(graph, inputs).output
        else:
            output = edges.edges_run(graph, inputs, Request.of(inputs, False, False)).output
        torch.autograd.grad(output, leaves, torch.empty_like(output))
    return Counter(moved)


def main() -> None:
    """Print what is added."""
    no_device.run = counted
    edges._has_kernels = lambda device: True  # type: ignore[assignment]
    for module in (launches, edges_triton, additive_triton):
        module.launch_rows = launched
    attention_triton._launch = launched
    size = N * H * D * 2
    plain = step()
    told = {}
    for name in ("features", "bias", "scores", "additive"):
        more = step(**{name: True})
        more.subtract(plain)
        kernels = more.pop("kernels") / size
        told[name] = {
            "kernels": kernels,
            "operations": sum(more.values()) / size,
            **{each: count / size for each, count in more.most_common(4)},
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
