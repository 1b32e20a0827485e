"""Over-squashing: a tree's root asks a leaf, through ways that narrow.

*Question.* All leaves of a binary tree reach its root in as many layers as it is deep, but every
way leads through two nodes. Does a graph with wider ways learn what the tree, which reaches as
much, does not?

*Data.* Tree-neighbours-match (Alon and Yahav 2021, "On the Bottleneck of Graph Neural Networks"):
every leaf has a key, a permutation, and a value; the root has a key and is asked for the value of
its leaf. Depth 2, 3 and 4: 7, 15 and 31 nodes, 4, 8 and 16 classes; 4,000 trees and 500 held out.
Chance is one over the leaves.

*Arms.* The tree with its edges both ways and self-loops; the same with a node that all read and
that reads all (the root's first child, in place of a virtual node); the same with Exphormer's
expander, which is complete at depth 2. Self, full and rewirings by themselves.

*Model and training.* Depth + 1 layers of width 32, 4 heads, no positions (the features say what a
node is), the root is read; AdamW, one cycle up to 3e-3, 1,000 batches of 32.

*Ways.* With a residual, a layer of uniform attention is (I + A) / 2, A the adjacency with rows that
sum to 1: its power says which share of the ways that end at the root begin at leaves. The report
has it beside the share that leaves have in the gradient of the root's answer, of five untrained
networks; no number is fitted.

*Predicted before training.* Every arm but self reaches all leaves, so reach does not tell them
apart. At depth 2 all learn alike; at depth 4 full is above the tree by more than .1. Baseline: the
value that most leaves have (.52, .31 and .19).
"""

from collections.abc import Iterator
from typing import Any

import torch
from shared import chosen, possible

from graphattn.convert import from_edge_index
from graphattn.graph import AttentionGraph
from graphattn.graphs import expander, full, global_tokens
from graphattn.study import Budget, Claim, Comparison, Data, Model, Report, Study, Training
from graphattn.study.network import Network
from graphattn.study.page import Block, Table

SAMPLES, HELD = 4_500, 500


def tree(depth: int) -> AttentionGraph:
    """Node ``i`` and its children ``2 i + 1, 2 i + 2``, both ways, with self-loops."""
    child = torch.arange(1, 2 ** (depth + 1) - 1)
    parent = (child - 1) // 2
    both = torch.stack((torch.cat((child, parent)), torch.cat((parent, child))))
    return from_edge_index(both, num_nodes=len(child) + 1).with_self_loops()


def data(depth: int) -> Data:
    """Features: a leaf's key and value, or the root's key, as 0 and 1; a target is the value of the
    root's key.
    """
    leaves, random = 2**depth, torch.Generator().manual_seed(depth)
    keys = torch.rand(SAMPLES, leaves, generator=random).argsort(-1)
    values, asked = (
        torch.randint(leaves, size, generator=random) for size in ((SAMPLES, leaves), (SAMPLES,))
    )
    features = torch.zeros(SAMPLES, 2 * leaves - 1, 3 * leaves)
    hot = torch.nn.functional.one_hot
    features[:, leaves - 1 :, :leaves] = hot(keys, leaves).float()
    features[:, leaves - 1 :, leaves : 2 * leaves] = hot(values, leaves).float()
    features[:, 0, 2 * leaves :] = hot(asked, leaves).float()
    return Data(features, values[keys == asked.unsqueeze(1)], HELD)


def arms(depth: int) -> dict[str, Any]:
    """Graphs on the nodes of the tree."""
    narrow = tree(depth)
    n = narrow.num_targets
    return {
        "tree": narrow,
        "tree and hub": narrow | global_tokens(n, (1,)),
        "tree and expander": narrow | expander(n, 2),
    }


def baselines(trees: Data) -> dict[str, float]:
    """What is named without a look at the keys."""
    leaves = (trees.num_nodes + 1) // 2
    values = trees.inputs[:, leaves - 1 :, leaves : 2 * leaves].sum(1).argmax(-1)
    return {"the most frequent value": float((values == trees.targets).double().mean())}


def comparisons(
    depths: tuple[int, ...], steps: int, names: list[str] | None
) -> Iterator[Comparison]:
    """One for each depth."""
    for depth in depths:
        yield Comparison(
            f"depth {depth}",
            chosen(arms(depth), names),
            data(depth),
            readout="token",
            model=Model(layers=depth + 1, width=32, heads=4, hidden=64),
            training=Training(rate=3e-3, batch=32),
            budgets=[Budget(None, steps)],
            controls=("self", "full", "rewired", "shuffled"),
        )


def uniform(graph: AttentionGraph) -> torch.Tensor:
    """Weights (N, N) of attention whose scores are all 0."""
    mask = graph.mask().double()
    return mask / mask.sum(1, keepdim=True)


def ways(graph: AttentionGraph, layers: int) -> float:
    """The share of leaves in the ways of so many steps to the root."""
    layer = (torch.eye(graph.num_targets, dtype=torch.float64) + uniform(graph)) / 2
    return float(torch.linalg.matrix_power(layer, layers)[0, _first_leaf(graph) :].sum())


def gradient(graph: AttentionGraph, comparison: Comparison, seeds: int = 5) -> float:
    """The share of leaves in the gradient of the root's answer, of untrained networks."""
    shares, nodes, inputs = [], torch.arange(graph.num_targets), comparison.data.inputs[:32]
    assert isinstance(comparison.model, Model)
    for seed in range(seeds):
        torch.manual_seed(seed)
        network = Network(comparison.model, comparison.data, "token", "none").eval()
        embedded = network.embedding(inputs).detach().requires_grad_()
        hook = network.embedding.register_forward_hook(lambda *call, x=embedded: x)
        network(inputs, (graph,), nodes).square().sum().backward()
        hook.remove()
        assert embedded.grad is not None
        size = embedded.grad.norm(dim=-1)
        shares.append(size[:, _first_leaf(graph) :].sum() / size.sum())
    return float(torch.stack(shares).mean())


def _first_leaf(graph: AttentionGraph) -> int:
    return graph.num_targets // 2


def summary(report: Report) -> list[Block]:
    """Ways from the leaves, and what the root's answer depends on before training."""
    rows = []
    for name, about in report.plan["comparisons"].items():
        depth = int(name.split()[1])
        graphs = {**arms(depth), "full": full(2 ** (depth + 1) - 1)}
        (comparison,) = comparisons((depth,), 1, None)
        for arm, graph in graphs.items():
            if arm in about["arms"]:
                of_ways, of_gradient = ways(graph, depth + 1), gradient(graph, comparison)
                rows.append(
                    [
                        name,
                        arm,
                        f"{of_ways:.3f}",
                        f"{of_gradient:.3f}",
                        str(report.row(arm, name).interval or "-"),
                    ]
                )
    head = [
        "comparison",
        "arm",
        "leaves' share of ways",
        "of the gradient, untrained",
        "accuracy [95 %]",
    ]
    return ["## Ways to the root", Table(head, rows)]


def study(quick: bool = False, names: list[str] | None = None) -> Study:
    """Depths 2, 3 and 4; quick: depth 2 with 200 batches."""
    depths, steps = ((2,), 200) if quick else ((2, 3, 4), 1000)
    claims = [
        Claim(
            "full",
            "tree",
            comparison=f"depth {depth}",
            margin=0.1,
            equal=depth == 2,
            because=because,
        )
        for depth, because in (
            (2, "four leaves pass two nodes"),
            (4, "sixteen leaves pass two nodes"),
        )
    ]
    every = list(comparisons(depths, steps, names))
    return Study(
        "over_squashing",
        every,
        possible(claims, every),
        {one.name: baselines(one.data) for one in every},
        seeds=2 if quick else 10,
        summary=summary,
    )
