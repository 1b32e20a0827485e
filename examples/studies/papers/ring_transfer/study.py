"""Ring transfer: a label travels r steps to the other end of a ring, a crossed ring, a clique path.

*Question.* The distance between two nodes is the same in three graphs, their commute time is not.
Can as many layers as there are steps be trained to carry a label?

*Data.* Ring transfer (Di Giovanni et al. 2023, "On Over-Squashing in Message Passing Neural
Networks: The Impact of Width, Depth, and Topology", section 5 and appendix): one node holds one of
5 labels, one hot, the node r steps away is asked for it and has zeros, all others have ones. As
there, the label is all that differs between samples: what is asked is whether training finds the
way. 400 samples, 100 held out; chance is about 1/5.

*Arms.* On 2 r nodes, with self-loops: a ring; a ring whose opposite places are crossed, too; a
clique of r + 1 nodes with a path, the source in the clique and the target at the end of the path.
All pairs by themselves.

*Model and training.* r layers of width 32, 4 heads, no positions, r of 2, 3 and 4; AdamW, 1e-2,
batches of 16, 800 at most, until the loss is .02. One comparison has 2 layers for 3 steps, one
width 64 at 3 steps.

*Published.* "Over-squashing occurs between nodes at high commute time" (abstract). The clique path
is the hardest of the three, then the ring, then the crossed ring (README of their code,
github.com/lrnzgiusti/on-oversquashing); their numbers are a figure, and none is given here. Rings
and crossed rings are those of their code, edge for edge. Their clique path has r - 1 nodes in the
clique and as many in the path, with the label at the end of the path and the question in the
clique; here it has 2 r nodes, as the rings have, and goes the other way. Commute times of the two
nodes, 2 |E| times the resistance between them, are in the table.

*Predicted before training.* With a layer less than the distance every arm stays at chance, a law.
With r layers all reach. If commute time decides, at r = 3 the ring fits and the clique path does
not. (After a run of seed 0; at r of 4, 5 and 8 no arm but all pairs left chance, within 400 to 800
batches.) Two claims are of the batches until an arm fits, with width 64, of which no run had been
made: the ring takes fewer than the clique path, whose commute time is longer; and on the clique
path width 64 takes fewer than width 32, as "neural network width can mitigate over-squashing"
(abstract). (After 30 seeds of width 32 had been looked at, and five of them had been judged.) Claims
are counted on seeds 30 to 39, of which none had been trained when they were registered anew.
"""

import torch
from published import Published, beside

from graphattn.convert import from_edge_index
from graphattn.graph import AttentionGraph
from graphattn.study import Budget, Claim, Comparison, Data, Model, Report, Study, Training
from graphattn.study.page import Block

LABELS, SAMPLES, HELD = 5, 500, 100
HARDEST = {"clique path": "the hardest", "ring": "the second", "crossed ring": "the easiest"}
"""Order of the three graphs in the README of the authors' code."""


def _both_ways(pairs: list[tuple[int, int]], nodes: int) -> AttentionGraph:
    edges = torch.tensor(pairs).t()
    edges = torch.cat((edges, edges.flip(0)), 1).unique(dim=1)
    return from_edge_index(edges, num_nodes=nodes).with_self_loops()


def arms(r: int) -> dict[str, AttentionGraph]:
    """Graphs of 2 r nodes in which node r is r steps from node 0, which is asked."""
    nodes = 2 * r
    ring = [(i, (i + 1) % nodes) for i in range(nodes)]
    # node i of one side and nodes i - 1, i + 1 steps from the target on the other
    crosses = [(i, nodes - i - 1) for i in range(1, r - 1)]
    crosses += [(i + 1, nodes - i) for i in range(1, r - 1)]
    path = [(i, i + 1) for i in range(r)]
    # nodes r - 1 to 2 r - 1 are the clique; the path ends in node r - 1, and r is one step further
    clique = [(i, j) for i in range(r - 1, nodes) for j in range(i + 1, nodes)]
    return {
        "ring": _both_ways(ring, nodes),
        "crossed ring": _both_ways([*ring, *crosses], nodes),
        "clique path": _both_ways([*path, *clique], nodes),
    }


def data(r: int) -> Data:
    """Features (M, 2 r, 5): zeros at node 0, the label at node r, ones elsewhere."""
    labels = torch.arange(SAMPLES) % LABELS
    features = torch.ones(SAMPLES, 2 * r, LABELS)
    features[:, 0] = 0
    features[:, r] = torch.nn.functional.one_hot(labels, LABELS).float()
    needs = from_edge_index(torch.tensor([[r], [0]]), num_nodes=2 * r)
    return Data(features, labels, HELD, needs=needs)


def commute_time(graph: AttentionGraph, one: int, other: int) -> float:
    """Expected steps of a random walk from a node to another and back; self-loops apart."""
    edges = graph.edge_index[:, graph.source != graph.target]
    adjacency = torch.zeros(graph.num_targets, graph.num_targets, dtype=torch.float64)
    adjacency[edges[0], edges[1]] = 1
    inverse = torch.linalg.pinv(torch.diag(adjacency.sum(0)) - adjacency)
    resistance = inverse[one, one] + inverse[other, other] - 2 * inverse[one, other]
    return float(adjacency.sum() * resistance)


WIDTH, WIDE = 32, 64
AT_WIDTH, AT_WIDE = "r = 3, 3 layers", f"r = 3, 3 layers, width {WIDE}"


def comparison(r: int, layers: int, steps: int, width: int = WIDTH) -> Comparison:
    """The three graphs, read through ``layers``."""
    name = f"r = {r}, {layers} layers"
    if width != WIDTH:
        name = f"{name}, width {width}"
    return Comparison(
        name,
        dict(arms(r)),
        data(r),
        readout="token",
        model=Model(layers=layers, width=width, heads=4, hidden=2 * width),
        training=Training(1e-2, schedule="constant", batch=16, stop=0.02),
        budgets=[Budget(None, steps)],
        controls=("full",),
    )


def summary(report: Report) -> list[Block]:
    """Published statements beside ours, with the commute time of each graph."""
    lines = []
    for comparison in report.plan["comparisons"]:
        r = int(comparison.split()[2].rstrip(","))
        if comparison != f"r = {r}, {r} layers":
            continue
        for arm, graph in arms(r).items():
            why = "-"
            if r == 2:
                why = "two steps are near enough for all"
            if r == 4:
                why = "800 batches: what all pairs learn in 100 is not begun along edges"
            what = f"{arm}, {r} steps, commute time {commute_time(graph, 0, r):.1f}"
            number = f"{HARDEST[arm]} of three"
            where = {"arm": arm, "comparison": comparison}
            lines.append(Published(what, "README of the authors' code", number, where, why))
    return beside(report, lines)


def study(quick: bool = False) -> Study:
    """Distances 2 to 4, and 3 with twice the width; quick: 2."""
    if quick:
        return Study("ring_transfer", [comparison(2, 2, 50)], seeds=2, summary=summary)
    every = [comparison(r, r, 800) for r in (2, 3, 4)]
    every.append(comparison(3, 2, 100))
    every.append(comparison(3, 3, 800, WIDE))
    longer = "its commute time is longer"
    law = {arm: -commute_time(graph, 0, 3) for arm, graph in arms(3).items()}
    claims = [
        Claim("ring", "clique path", comparison=AT_WIDTH, because=longer, of="fitting", law=law),
        Claim("ring", "clique path", comparison=AT_WIDE, because=longer, of="steps", law=law),
        Claim(
            "clique path",
            "clique path",
            comparison=AT_WIDE,
            worse_comparison=AT_WIDTH,
            because="width lifts the bound on what passes",
            of="steps",
        ),
    ]
    fresh = range(30, 40)
    return Study("ring_transfer", every, claims, seeds=fresh, summary=summary, looked_at=range(30))
