"""A virtual node replaces depth: a claim of an interaction.

*Question.* One node more, joined to all others, brings any two nodes within two steps. Does it stand
in for the layers that a long graph needs without it? That it helps says little; that it helps more
where there are fewer layers is an interaction, and is claimed as one.

*Data.* A path of six cliques of 5 nodes. Every node has one of 8 values, one node is marked, and
each is asked for the value of the marked one; one node more is blank and not asked. No positions.
4,080 samples, a quarter held out, all nodes marked equally often; chance is 1/8.

*Arms.* *Base*: the blank node reads itself alone. *Virtual node*: it reads all, and all read it, 30
edges more. *Control*: as many *random edges* between the others, of 999 drawings the one of median
reach in two layers.

*Model and training.* 2, 6 and 11 layers (the diameter) of width 24, 2 heads; Adam, constant, batches
of 32, 150 of them; every arm tries the same two rates, 3e-3 and 1e-2, and takes the better one on a
fifth of its training examples. Scores are bits, of which no fit is asked.

*Published.* Gilmer et al. 2017, "Neural Message Passing for Quantum Chemistry": a master node, joined
to all, lets information travel far (from memory, not checked; no number of theirs is given).

*Predicted before training.* The virtual node gains more over the base with 2 layers, where the base
reaches a quarter of the pairs of nodes, than with 11, where it reaches all; so it does beyond 6. With
2 layers it is better than as many random edges, which do not reach all, and better than the base
with 11 layers, which does: what is far is learned later, though it is within reach. (Seed 1000 of
base and virtual node was looked at while budgets were set, and had these signs.)

*What cannot be said.* That depth is of no use: after longer training, 11 layers may answer all, and
tasks that compute more than one value need layers for other reasons.
"""

import itertools
import random
from typing import Any

import networkx as nx
import numpy as np
import torch

from graphattn import from_networkx
from graphattn.graph import AttentionGraph
from graphattn.study import Budget, Claim, Comparison, Data, Model, Report, Study, Training
from graphattn.study.data import NOT_ASKED
from graphattn.study.page import Block, Table

NODES, VALUES, SAMPLES, DRAWINGS = 30, 8, 4_080, 999
BASE, VIRTUAL, RANDOM = "base", "virtual node", "random edges"
DEPTHS = (2, 6, 11)


def base() -> nx.Graph:
    """A path of cliques, and a node by itself, the last one."""
    graph = nx.Graph()
    for first in range(0, NODES, 5):
        graph.add_edges_from(itertools.combinations(range(first, first + 5), 2))
        if first:
            graph.add_edge(first - 1, first)
    graph.add_node(NODES)
    return graph


def joined(graph: nx.Graph, edges: list[tuple[int, int]]) -> nx.Graph:
    """The graph with more edges."""
    result = graph.copy()
    result.add_edges_from(edges)
    return result


def reach(graph: nx.Graph, layers: int) -> float:
    """The share of pairs of nodes, the blank one apart, within so many steps."""
    near = nx.to_numpy_array(graph, nodelist=range(NODES + 1)) + np.eye(NODES + 1)
    within = np.linalg.matrix_power(near, layers) > 0
    return float(within[:NODES, :NODES].mean())


def arms() -> dict[str, nx.Graph]:
    """The graph, with a virtual node, and with as many random edges."""
    graph = base()
    free = [p for p in itertools.combinations(range(NODES), 2) if not graph.has_edge(*p)]
    drawings = [joined(graph, random.Random(seed).sample(free, NODES)) for seed in range(DRAWINGS)]
    median = sorted(drawings, key=lambda drawn: reach(drawn, DEPTHS[0]))[DRAWINGS // 2]
    virtual = joined(graph, [(NODES, node) for node in range(NODES)])
    return {BASE: graph, VIRTUAL: virtual, RANDOM: median}


def of_edges(graph: nx.Graph) -> AttentionGraph:
    """Both directions of each edge, nodes by number, with self-loops."""
    plain = nx.DiGraph()
    plain.add_nodes_from(range(len(graph)))
    plain.add_edges_from(graph.to_directed().edges)
    return from_networkx(plain).with_self_loops()


def data() -> Data:
    """Values 0 to 7; the marked node has 8 more; 16 is the blank one."""
    draw = torch.Generator().manual_seed(7)
    tokens = torch.randint(VALUES, (SAMPLES, NODES + 1), generator=draw)
    tokens[:, NODES] = 2 * VALUES
    each = torch.arange(SAMPLES)
    place = each % NODES
    answers = tokens[each, place].unsqueeze(1).repeat(1, NODES + 1)
    answers[:, NODES] = NOT_ASKED
    tokens[each, place] += VALUES
    return Data(tokens, answers, each // NODES % 4 == 3)


def name_of(layers: int) -> str:
    """The comparison of a depth."""
    return f"{layers} layers"


def summary(report: Report) -> list[Block]:
    """Reach beside accuracy, by depth."""
    graphs = arms()
    rows = []
    for row in report.rows:
        if row.records:
            layers = int(row.comparison.split()[0])
            accuracy = float(np.mean([record["accuracy"] for record in row.records]))
            share = reach(graphs[row.arm], layers)
            rows.append([row.comparison, row.arm, f"{share:.3f}", f"{accuracy:.3f}"])
    head = ["depth", "arm", "pairs in reach", "accuracy"]
    return ["## Reach, and accuracy", Table(head, rows)]


def comparison(layers: int, steps: int, graphs: dict[str, nx.Graph]) -> Comparison:
    """The arms at a depth."""
    return Comparison(
        name_of(layers),
        {arm: of_edges(graph) for arm, graph in graphs.items()},
        data(),
        readout="node",
        model=Model(layers=layers, width=24, heads=2, hidden=48),
        training=Training((3e-3, 1e-2), schedule="constant", weight_decay=0.0),
        budgets=Budget(None, steps),
        controls=(),
        metric="bits",
    )


def study(quick: bool = False) -> Study:
    """Three depths; quick: two, 2 batches."""
    graphs = arms()
    few, some, many = DEPTHS
    if quick:
        every = [comparison(layers, 2, graphs) for layers in (few, some)]
        return Study("virtual_node", every, seeds=2, summary=summary)
    shares = {layers: reach(graphs[BASE], layers) for layers in DEPTHS}
    less = f"the base reaches {shares[few]:.3f} of pairs with {few} layers"
    shallow: dict[str, Any] = {"comparison": name_of(few)}
    claims = [
        Claim(VIRTUAL, BASE, beyond=name_of(many), because=f"{less}, and all with 11", **shallow),
        Claim(
            VIRTUAL,
            BASE,
            beyond=name_of(some),
            because=f"{less}, and {shares[some]:.3f} with 6",
            **shallow,
        ),
        Claim(
            VIRTUAL,
            BASE,
            worse_comparison=name_of(many),
            because="within reach of 11 layers, what is far is learned later",
            **shallow,
        ),
        Claim(
            VIRTUAL,
            RANDOM,
            because=f"random edges reach {reach(graphs[RANDOM], few):.3f} of pairs",
            **shallow,
        ),
    ]
    every = [comparison(layers, 150, graphs) for layers in DEPTHS]
    return Study("virtual_node", every, claims, seeds=8, summary=summary)
