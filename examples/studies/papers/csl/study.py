"""Graphs that colour refinement cannot tell apart: skip links on a circle, and three pairs.

*Question.* Messages along edges tell no more of a graph than colour refinement (1-WL). What has to
be added until attention along a graph's edges names it?

*Data.* Circular skip links, CSL (Murphy et al. 2019, "Relational Pooling for Graph
Representations"): circles of 41 nodes with skips of 2, 3, 4, 5, 6, 9, 11, 12, 13 or 16, ten classes,
all nodes of degree 4; here 600 graphs, nodes in random order, 200 held out (theirs: 150, five
folds). And three pairs of graphs, each alike to 1-WL: a hexagon and two triangles, decalin and
bicyclopentyl, the rook's graph and Shrikhande's (which 2-WL cannot tell apart either): 300 graphs,
100 held out.

*Comparisons.* What a node is given: nothing (a constant; of the pairs its degree), its number
(learned positions, for nodes in random order: one draw of relational pooling), the first 20
eigenvectors of the normalised Laplacian, with random signs (Dwivedi et al. 2023, "Benchmarking
Graph Neural Networks"), or the probabilities of 1 to 16 steps of a random walk to end where they
began, in their deviations.

*Model and training.* 4 layers of width 32, 4 heads, the mean of the nodes; AdamW, one cycle up to
3e-3, 300 batches of 32. Arm: a graph's own edges, with self-loops; of some
comparisons all pairs, too.

*Published.* Message passing without positional encodings has 10.0 (Choi et al. 2026, "Are Graph
Transformers Necessary?", table 1: GINE and GatedGCN), which is what theory says. From memory, not
checked: with Laplacian eigenvectors 99 to 100 (Dwivedi et al., table of CSL), with relational
pooling 37.6 (Murphy et al., table 1, RP-GIN).

*Predicted before training.* CSL with nothing: attention of equal nodes gives equal nodes, along any
graph: all graphs have one output, and .1 is the ceiling (chance). Pairs with degrees: 1/2. Pairs
with random walks: 5/6, as rook's and Shrikhande's graph have one spectrum. CSL with random walks:
solved. With Laplacian eigenvectors along own edges: better than with nothing. Chance is drawn
with the test, so within 4 standard deviations. (After runs of seeds 0 to 4: claims are counted on
seeds 10 to 19, of which none had been trained when they were registered.)
"""

import networkx as nx
import torch
from published import Published, beside

from graphattn.convert import from_edge_index
from graphattn.graph import AttentionGraph
from graphattn.study import Budget, Claim, Comparison, Data, Model, Report, Sample, Study, Training
from graphattn.study.page import Block

SKIPS = (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)
NODES, EIGENVECTORS, STEPS = 41, 20, 16
EDGES = "own edges"


def circles() -> list[nx.Graph]:
    """The ten graphs of CSL."""
    return [nx.circulant_graph(NODES, [1, skip]) for skip in SKIPS]


def pairs() -> list[nx.Graph]:
    """Three pairs, each of graphs that 1-WL gives the same colours."""
    decalin = nx.cycle_graph(10)
    decalin.add_edge(0, 5)
    bicyclopentyl = nx.disjoint_union(nx.cycle_graph(5), nx.cycle_graph(5))
    bicyclopentyl.add_edge(0, 5)
    rook = nx.convert_node_labels_to_integers(nx.line_graph(nx.complete_bipartite_graph(4, 4)))
    shrikhande = nx.Graph()
    for i in range(4):
        for j in range(4):
            for a, b in ((0, 1), (1, 0), (1, 1)):
                shrikhande.add_edge(4 * i + j, 4 * ((i + a) % 4) + (j + b) % 4)
    triangles = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    return [nx.cycle_graph(6), triangles, decalin, bicyclopentyl, rook, shrikhande]


def features(adjacency: torch.Tensor, kind: str, random: torch.Generator) -> torch.Tensor:
    """What the nodes of one graph are given, (N, F)."""
    degree = adjacency.sum(-1, keepdim=True)
    if kind == "nothing":
        return torch.ones(len(adjacency), 1)
    if kind == "degrees":
        return degree / 4
    if kind == "random walk":
        walk = adjacency / degree
        power = torch.eye(len(adjacency), dtype=adjacency.dtype)
        columns = []
        for _ in range(STEPS):
            power = power @ walk
            columns.append(power.diagonal())
        return torch.cat((degree / 4, torch.stack(columns, 1)), 1)
    scale = degree.rsqrt()
    vectors = torch.linalg.eigh(torch.eye(len(adjacency)) - scale * adjacency * scale.T)[1]
    signs = torch.randint(2, (1, EIGENVECTORS), generator=random) * 2 - 1
    return (vectors[:, 1 : EIGENVECTORS + 1] * signs * len(adjacency) ** 0.5).float()


def data(graphs: list[nx.Graph], kind: str, copies: int) -> tuple[Data, list[AttentionGraph]]:
    """Copies of every graph with their nodes in random order, and the graphs of all samples."""
    random = torch.Generator().manual_seed(11)
    most = max(map(len, graphs))
    inputs = []
    own = []
    sizes = []
    targets = []
    for sample in range(copies * len(graphs)):
        label = sample % len(graphs)
        adjacency = torch.from_numpy(nx.to_numpy_array(graphs[label]))
        order = torch.randperm(len(adjacency), generator=random)
        adjacency = adjacency[order][:, order]
        given = features(adjacency, kind, random).float()
        inputs.append(torch.nn.functional.pad(given, (0, 0, 0, most - len(given))))
        edges = adjacency.nonzero().t()
        own.append(from_edge_index(edges, num_nodes=len(given)).with_self_loops())
        sizes.append(len(given))
        targets.append(label)
    count = torch.tensor(sizes)
    held = len(own) // 3
    padded = None
    if int(count.min()) < most:
        padded = count
    stacked = torch.stack(inputs)
    if kind == "random walk":  # returns differ by hundredths
        there = torch.arange(most) < count.unsqueeze(1)
        deviation = stacked[there].std(0)
        deviation[deviation < 1e-6] = 1.0
        stacked = (stacked - stacked[there].mean(0)) / deviation * there.unsqueeze(-1)
    return Data(stacked, torch.tensor(targets), held, sizes=padded), own


def comparison(
    name: str, graphs: list[nx.Graph], kind: str, copies: int, steps: int, positions: str = "none"
) -> Comparison:
    """Own edges, and all pairs, of nodes that are given something."""
    samples, own = data(graphs, kind, copies)

    def edges(sample: Sample) -> AttentionGraph:
        return own[sample.index]

    controls: tuple[str, ...] = ()
    if name in ("CSL, nothing", "CSL, laplacian", "pairs, degrees"):
        controls = ("full",)
    return Comparison(
        name,
        {EDGES: edges},
        samples,
        model=Model(layers=4, width=32, heads=4, hidden=64),
        training=Training(3e-3, batch=32),
        budgets=[Budget(None, steps)],
        controls=controls,
        positions=(positions,),
    )


def summary(report: Report) -> list[Block]:
    """Published numbers beside ours."""
    table = "Dwivedi et al. 2023, from memory, not checked"
    few = "600 graphs and 300 batches; eigenvalues are double, so that vectors are drawn anew"
    settings = {
        "CSL, nothing": Published(
            "CSL, no encoding", "Choi et al. 2026, table 1 (GINE, GatedGCN)", "10.0", {}
        ),
        "CSL, laplacian": Published("CSL, Laplacian eigenvectors", table, "99 to 100", {}, few),
        "CSL, numbers": Published(
            "CSL, numbers of nodes",
            "Murphy et al. 2019 (RP-GIN, several orders a graph), from memory, not checked",
            "37.6",
            {},
            "one order of each graph is seen, theirs average over many",
        ),
    }
    lines = []
    for name, line in settings.items():
        if name in report.plan["comparisons"]:
            where = {"arm": EDGES, "comparison": name}
            lines.append(Published(line.what, line.source, line.number, where, line.why))
    return beside(report, lines)


def study(quick: bool = False) -> Study:
    """CSL with four kinds of features, pairs with two; quick: CSL with nothing and with walks."""
    steps = 300
    copies = 60
    if quick:
        steps = 20
        copies = 6
    every = [
        comparison("CSL, nothing", circles(), "nothing", copies, steps),
        comparison("CSL, random walk", circles(), "random walk", copies, steps),
    ]
    if quick:
        return Study("csl", every, seeds=2, summary=summary)
    every += [
        comparison("CSL, numbers", circles(), "nothing", copies, steps, "learned"),
        comparison("CSL, laplacian", circles(), "laplacian", copies, steps),
        comparison("pairs, degrees", pairs(), "degrees", 50, steps),
        comparison("pairs, random walk", pairs(), "random walk", 50, steps),
    ]
    claims = [
        Claim(
            EDGES,
            EDGES,
            comparison="CSL, random walk",
            worse_comparison="CSL, nothing",
            because="equal nodes stay equal; walks return with other probabilities",
            of="solving",
        ),
        Claim(
            EDGES,
            EDGES,
            comparison="CSL, laplacian",
            worse_comparison="CSL, nothing",
            because="equal nodes stay equal; eigenvectors differ",
            of="fitting",
        ),
    ]
    return Study("csl", every, claims, seeds=range(10, 20), summary=summary, looked_at=range(5))
