"""Atlas: properties of small graphs, read along their edges, all pairs, or all pairs that know
their hops.

*Question.* Degrees alone tell much about a graph. What does attention add along its edges, and what
does it add to attention over all pairs to know how many hops apart two nodes are?

*Data.* The 1,252 graphs of up to 7 nodes of networkx' atlas (Read and Wilson 1998). A node's token
is its degree; two properties are asked, each in a comparison: the diameter (a class of its own
where there is none, as the graph is not connected) and the number of triangles (0, 1, 2, more). 252
graphs are held out, drawn anew by each seed.

*Arms.* 1-hop (a graph's own edges, with self-loops) and a random graph of degree 4, which knows
nothing of the edges (Exphormer's expander is complete on so few nodes). Self, full and random
graphs of the same in-degrees by themselves.

*Model and training.* Two layers of width 32, 4 heads, the mean of the nodes; AdamW, one cycle up to
3e-3, 600 batches of 32. Without positions, and with a table of hops ("pairs": 0 to 6, and no way),
as of Graphormer (Ying et al. 2021).

*Ceilings.* Without positions, full attention is a function of the degrees: of all 1,252 graphs the
best such function names .851 of the diameters and .821 of the triangles. Two rounds of colour
refinement (Xu et al. 2019: no more for messages along edges) name .996 and .985.

*Predicted before training.* Of diameters: without positions 1-hop > full; with hops full > full
without them, and 1-hop = full within .05. Of triangles: without positions 1-hop > full, and 1-hop >
random edges of its in-degrees.

*What cannot be said.* Anything of the random graph of degree 4 but its scores: it was added after
the others had been looked at, and no claim is about it. And whether edges tell more than degrees in
general: 1,000 graphs of 7 nodes at most, in 600 batches.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import networkx as nx
import torch
from shared import chosen, possible

from graphattn.convert import from_mask, from_networkx
from graphattn.graph import AttentionGraph
from graphattn.graphs import full
from graphattn.study import Budget, Claim, Comparison, Data, Model, Sample, Study, Training

HELD, MOST, NO_WAY = 252, 7, 7
PROPERTIES: dict[str, Callable[[nx.Graph], int]] = {
    "diameter": lambda graph: nx.diameter(graph) if nx.is_connected(graph) else NO_WAY,
    "triangles": lambda graph: min(3, sum(nx.triangles(graph).values()) // 3),
}


@cache
def atlas() -> list[nx.Graph]:
    """All but the graph of no nodes."""
    return nx.graph_atlas_g()[1:]


def data(name: str) -> Data:
    """Degrees as tokens, hops of all pairs, and a property as the target."""
    tokens, pairs = (
        torch.zeros(len(atlas()), MOST, dtype=torch.int64),
        torch.zeros(len(atlas()), MOST, MOST).long(),
    )
    for number, graph in enumerate(atlas()):
        n = len(graph)
        tokens[number, :n] = torch.tensor([degree for _, degree in graph.degree()])
        hops = dict(nx.all_pairs_shortest_path_length(graph))
        pairs[number, :n, :n] = torch.tensor(
            [[hops[t].get(s, NO_WAY) for s in graph] for t in graph]
        )
    targets = torch.tensor([PROPERTIES[name](graph) for graph in atlas()])
    sizes = torch.tensor([len(graph) for graph in atlas()])
    return Data(tokens, targets, HELD, sizes=sizes, pairs=pairs)


def one_hop(sample: Sample) -> AttentionGraph:
    """A graph's edges, and self-loops."""
    assert sample.pairs is not None
    return from_mask(sample.pairs <= 1)


def four_regular(sample: Sample) -> AttentionGraph:
    """A random graph in which every node reads 4 others and itself; all pairs where there are
    fewer.
    """
    n = sample.num_nodes
    return (
        from_networkx(nx.random_regular_graph(4, n, seed=sample.index)).with_self_loops()
        if n > 5
        else full(n)
    )


def ceiling(name: str, rounds: int) -> float:
    """The share of graphs that the best function of refined colours names: of degrees, after no
    round.
    """
    by_colour: defaultdict[Hashable, Counter[int]] = defaultdict(Counter)
    for graph in atlas():
        colour: dict[Any, Hashable] = dict(graph.degree())
        for _ in range(rounds):
            colour = {
                v: (colour[v], tuple(sorted(map(repr, (colour[u] for u in graph[v])))))
                for v in graph
            }
        by_colour[tuple(sorted(map(repr, colour.values())))][PROPERTIES[name](graph)] += 1
    return sum(max(counts.values()) for counts in by_colour.values()) / len(atlas())


def study(quick: bool = False, names: list[str] | None = None) -> Study:
    """A comparison for each property; quick, to see that it runs: diameters, 1-hop and full with
    hops, 20 batches.
    """
    given = chosen(
        {"1-hop": one_hop, "4-regular": four_regular},
        ["1-hop"] if quick and names is None else names,
    )
    comparisons = [
        Comparison(
            name,
            given,
            data(name),
            model=Model(layers=2, width=32, heads=4, hidden=64),
            training=Training(rate=3e-3, batch=32),
            budgets=[Budget(None, 20 if quick else 600)],
            positions=("pairs",) if quick else ("none", "pairs"),
            controls=("full",) if quick else ("self", "full", "in-degrees", "shuffled"),
        )
        for name in list(PROPERTIES)[: 1 if quick else None]
    ]
    if quick:
        return Study("atlas", comparisons, seeds=1)
    lines = {"the best function of degrees": 0, "of two rounds of refinement": 2}
    baselines = {
        c.name: {label: ceiling(c.name, rounds) for label, rounds in lines.items()}
        for c in comparisons
    }
    hops, more = "hops tell how far the farthest are", "its edges tell more than degrees"
    near = "two layers reach 2 hops, and degrees tell most of the rest"
    claims = [
        Claim("full", "full", "pairs", comparison="diameter", because=hops, worse_positions="none"),
        Claim("1-hop", "full", "none", comparison="diameter", because=more),
        Claim(
            "1-hop", "full", "pairs", comparison="diameter", margin=0.05, equal=True, because=near
        ),
        Claim("1-hop", "full", "none", comparison="triangles", because=more),
        Claim(
            "1-hop",
            "in-degrees of 1-hop",
            "none",
            comparison="triangles",
            because="triangles are made of edges",
        ),
    ]
    return Study("atlas", comparisons, possible(claims, comparisons), baselines, seeds=10)
