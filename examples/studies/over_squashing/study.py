"""Over-squashing: a tree's root asks a leaf, through ways that narrow.

*Question.* All leaves of a binary tree reach its root in as many layers as it is deep, but every
way leads through two nodes. Which graphs can be trained to answer at all, and at what budget?

*Data.* NeighborsMatch (Alon and Yahav 2021, "On the Bottleneck of Graph Neural Networks and its
Practical Implications"), as in their code: the leaves have the keys 0, 1, ... in their order, and a
permutation of values; the root has a key and is asked for the value of that leaf. Depth 2 to 5: 7,
15, 31 and 63 nodes, 4 to 32 classes; 32,000 trees to train on, each with a permutation of its own
(theirs are 32,000 at most, of 1,000 permutations), and 1,000 held out. Chance is one over the
leaves.

*Arms.* The tree, edges from child to parent, with self-loops; the same with its last layer fully
adjacent, their remedy; all pairs in all layers.

*Model and training.* Depth + 1 layers of width 32, 4 heads, no positions (the features say what a
node is), the root is read; AdamW, one cycle up to 3e-3, batches of 32, until the loss is .01 or the
budget is over. 1,000, 3,000, 2,000 and 2,000 batches at depths 2 to 5: what 45 CPU minutes allow.

*Ways.* With a residual, a layer of uniform attention is (I + A) / 2, A the adjacency with rows that
sum to 1: its power says which share of the ways that end at the root begin at leaves. The report
has it beside the share that leaves have in the gradient of the root's answer, of five untrained
networks; no number is fitted.

*Published.* Accuracy in training, figure 3: all four networks fit depths 2 and 3; at depth 4 GGNN
and GAT do, GCN (.70) and GIN (.77) do not; at depth 5 none does (.60, .41, .19 and .29). They train
with batches of 64 (depths 2 and 3) and 1,024, and go on until accuracy in training has stopped to
rise; this study stops far earlier.

*Predicted before training, after runs of one seed.* Every arm reaches all leaves, so reach does not
tell them apart. All pairs fit at all depths; the tree fits at depth 2 and, within these budgets,
not beyond; with its last layer fully adjacent it fits at depth 3 too. Claims are about fitting: an
arm that did not fit at these budgets may at larger ones. (With keys in random places, values drawn
independently and edges both ways, a tree of depth 3 fitted in 1,419 batches, one seed.) After
seeds 0 to 4, claims are counted on seeds 10 to 19, of which none had been trained when they were
registered anew; that all pairs fit at depth 5 was not so in 2 of the first 5.

*What was claimed before.* "Kept: full > tree by more than .1 at depth 4, as sixteen leaves pass two
nodes": a score of .084 against 1.000, after 1,000 batches of 4,000 trees. All ten trees ended
training at the loss of a guess, so that a budget was compared, and no bottleneck.
"""

from collections.abc import Iterator
from typing import Any

import torch
from shared import possible

from graphattn.convert import from_edge_index
from graphattn.graph import AttentionGraph
from graphattn.graphs import full
from graphattn.study import Budget, Claim, Comparison, Data, Model, Report, Study, Training
from graphattn.study.network import Network
from graphattn.study.page import Block, Table

SAMPLES, HELD = 33_000, 1_000
STEPS = {2: 1_000, 3: 3_000, 4: 2_000, 5: 2_000}
"""Batches by depth."""


def tree(depth: int) -> AttentionGraph:
    """Node ``i`` reads its children ``2 i + 1, 2 i + 2``, and itself."""
    child = torch.arange(1, 2 ** (depth + 1) - 1)
    edges = torch.stack((child, (child - 1) // 2))
    return from_edge_index(edges, num_nodes=len(child) + 1).with_self_loops()


def data(depth: int, samples: int = SAMPLES, held: int = HELD) -> Data:
    """Features: a leaf's key and value, or the root's key, as 0 and 1; a target is the value of the
    root's key.
    """
    leaves = 2**depth
    random = torch.Generator().manual_seed(depth)
    values = torch.rand(samples, leaves, generator=random).argsort(-1)
    asked = torch.randint(leaves, (samples,), generator=random)
    features = torch.zeros(samples, 2 * leaves - 1, 2 * leaves)
    hot = torch.nn.functional.one_hot
    features[:, leaves - 1 :, :leaves] = torch.eye(leaves)
    features[:, leaves - 1 :, leaves:] = hot(values, leaves).float()
    features[:, 0, :leaves] = hot(asked, leaves).float()
    return Data(features, values.gather(1, asked.unsqueeze(1)).squeeze(1), held)


def arms(depth: int) -> dict[str, Any]:
    """Graphs on the nodes of the tree, one for each of ``depth + 1`` layers where they differ."""
    narrow = tree(depth)
    return {
        "tree": narrow,
        "tree, last layer full": [narrow] * depth + [full(narrow.num_targets)],
        "full": full(narrow.num_targets),
    }


def comparisons(depths: tuple[int, ...], steps: dict[int, int]) -> Iterator[Comparison]:
    """One for each depth."""
    for depth in depths:
        yield Comparison(
            f"depth {depth}",
            arms(depth),
            data(depth),
            readout="token",
            model=Model(layers=depth + 1, width=32, heads=4, hidden=64),
            training=Training(rate=3e-3, batch=32, stop=0.01),
            budgets=[Budget(None, steps[depth])],
            controls=(),
        )


def uniform(graph: AttentionGraph) -> torch.Tensor:
    """Weights (N, N) of attention whose scores are all 0."""
    mask = graph.mask().double()
    return mask / mask.sum(1, keepdim=True)


def stack(arm: Any, layers: int) -> list[AttentionGraph]:
    """The graphs of all layers."""
    if isinstance(arm, list):
        return arm
    return [arm] * layers


def ways(graphs: list[AttentionGraph]) -> float:
    """The share of leaves in the ways to the root, a step in each layer."""
    share = torch.eye(graphs[0].num_targets, dtype=torch.float64)[:1]
    for graph in reversed(graphs):
        share = (share + share @ uniform(graph)) / 2
    return float(share[0, _first_leaf(graphs[0]) :].sum())


def gradient(graphs: list[AttentionGraph], model: Model, trees: Data, seeds: int = 5) -> float:
    """The share of leaves in the gradient of the root's answer, of untrained networks."""
    shares = []
    nodes = torch.arange(graphs[0].num_targets)
    inputs = trees.inputs[:32]
    for seed in range(seeds):
        torch.manual_seed(seed)
        network = Network(model, trees, "token", "none").eval()
        embedded = network.embedding(inputs).detach().requires_grad_()
        hook = network.embedding.register_forward_hook(lambda *call, x=embedded: x)
        network(inputs, tuple(graphs), nodes).square().sum().backward()
        hook.remove()
        assert embedded.grad is not None
        size = embedded.grad.norm(dim=-1)
        shares.append(size[:, _first_leaf(graphs[0]) :].sum() / size.sum())
    return float(torch.stack(shares).mean())


def _first_leaf(graph: AttentionGraph) -> int:
    return graph.num_targets // 2


def summary(report: Report) -> list[Block]:
    """Ways from the leaves, and what the root's answer depends on before training."""
    rows = []
    for name, about in report.plan["comparisons"].items():
        depth = int(name.split()[1])
        model = Model(layers=depth + 1, width=32, heads=4, hidden=64)
        trees = data(depth, 64, 1)
        for arm, graphs in arms(depth).items():
            if arm not in about["arms"]:
                continue
            layers = stack(graphs, depth + 1)
            fit = report.row(arm, name).fit
            rows.append(
                [
                    name,
                    arm,
                    f"{ways(layers):.3f}",
                    f"{gradient(layers, model, trees):.3f}",
                    fit.word or "-",
                ]
            )
    head = ["comparison", "arm", "leaves' share of ways", "of the gradient, untrained", "runs"]
    return ["## Ways to the root", Table(head, rows)]


def study(quick: bool = False) -> Study:
    """Depths 2 to 5; quick: depth 2 with 200 batches."""
    depths = tuple(STEPS)
    steps = STEPS
    seeds = range(10, 20)
    if quick:
        depths = (2,)
        steps = {2: 200}
        seeds = range(2)
    reason = "one layer of all pairs, or more, need not pass two nodes"
    pairs = [(3, "tree, last layer full"), *((depth, "full") for depth in (3, 4, 5))]
    claims = [
        Claim(arm, "tree", comparison=f"depth {depth}", because=reason, of="fitting")
        for depth, arm in pairs
    ]
    every = list(comparisons(depths, steps))
    claims = possible(claims, every)
    return Study("over_squashing", every, claims, seeds=seeds, summary=summary, looked_at=range(5))
