"""Named patterns of networks: each from its written rule, by loops over pairs and by networkx."""

import math

import networkx
import pytest
import torch
from written_rules import mask_of

from graphattn import graphs
from graphattn.graphs.catalogue.inputs import dag, karate, node_types, parents
from graphattn.graphs.catalogue.network import NAMED

UP = parents.tolist()
CLUB = networkx.karate_club_graph()
MET = torch.tensor(networkx.to_numpy_array(CLUB, weight=None)) > 0
DAG = networkx.DiGraph([(t // d, t) for t in range(1, 24) for d in (2, 3)])
DAG_EDGES = sorted(DAG.edges, key=lambda edge: edge[::-1])


def rule(T, reads, S=None):
    return mask_of(T, S or T, reads)


def eye(N):
    return torch.eye(N, dtype=torch.bool)


def above(t):
    return {t} if UP[t] < 0 else {t} | above(UP[t])


def reach():
    lengths = dict(networkx.all_pairs_shortest_path_length(DAG, 3))
    return rule(24, lambda t, s: s in lengths[t] or t in lengths[s])


def line_of_ring():
    edges = sorted(
        ((s, t) for t in range(24) for s in ((t - 1) % 24, (t + 1) % 24)),
        key=lambda edge: edge[::-1],
    )
    return rule(48, lambda a, b: edges[b][1] == edges[a][0] and edges[b][0] != edges[a][1])


def line_of_tree():
    ends = sorted({(UP[t], t) for t in range(1, 31)}, key=lambda edge: edge[::-1])
    assert ends == [(s, t) for s, t in graphs.tree(parents).edge_index.t().tolist() if s < t]
    return rule(30, lambda a, b: a != b and set(ends[a]) & set(ends[b]))


def with_hub(mask):
    grown = torch.ones(mask.shape[0] + 1, mask.shape[1] + 1, dtype=torch.bool)
    grown[1:, 1:] = mask
    return grown


def star():
    def reads(t, s):
        if t == 16:
            return s <= 16
        return s == 16 or s == 17 + t or (s < 16 and (s - t) % 16 in (0, 1, 15))

    return rule(17, reads, 33)


def means():
    nodes = [(level, j) for level, size in enumerate((32, 16, 8)) for j in range(size)]

    def reads(t, s):
        level, j = nodes[s]
        near = abs(t // (4 << level) - j // 4) <= 1
        return near and not (level and abs(t // (2 << level) - j // 2) <= 1)

    return rule(32, reads, 56)


def power_of_two(x):
    return x > 0 and x & (x - 1) == 0


FULL = torch.ones(34, 34, dtype=torch.bool)
RULES = {
    "tree": lambda: rule(31, lambda t, s: UP[t] == s or UP[s] == t),
    "Tree-LSTM": lambda: rule(31, lambda t, s: UP[s] == t),
    "ancestors": lambda: rule(31, lambda t, s: s in above(t)),
    "descendants": lambda: rule(31, lambda t, s: t in above(s)),
    "siblings": lambda: rule(31, lambda t, s: UP[t] == UP[s]),
    "DAGformer": reach,
    "line graph": lambda: rule(44, lambda a, b: DAG_EDGES[b][1] == DAG_EDGES[a][0]),
    "line graph, non-backtracking": line_of_ring,
    "line graph, undirected": line_of_tree,
    "GAT": lambda: MET | eye(34),
    "Graphormer": lambda: FULL,
    "Graphormer, [VNode]": lambda: with_hub(FULL),
    "SAN, real edges": lambda: MET,
    "SAN, fake edges": lambda: ~MET & ~eye(34),
    "GraphGPS, local": lambda: MET,
    "GraphGPS, global": lambda: FULL,
    "expander": None,
    "Exphormer": lambda: with_hub(MET | graphs.expander(34, 2).mask()) & ~eye(35),
    "virtual node": lambda: with_hub(MET),
    "Star-Transformer": star,
    "AllSet, nodes to hyperedges": lambda: rule(15, lambda h, s: UP[s] == h, 31),
    "AllSet, hyperedges to nodes": lambda: rule(31, lambda t, h: UP[t] == h, 15),
    "butterfly": lambda: rule(64, lambda t, s: t // 4 == s // 4 or power_of_two(t // 4 ^ s // 4)),
    "hypercube": lambda: rule(32, lambda t, s: power_of_two(t ^ s)),
    "chord": lambda: rule(48, lambda t, s: t == s or power_of_two((s - t) % 48)),
    "ring": lambda: rule(48, lambda t, s: (s - t) % 48 in (0, 1, 47)),
    "H-Transformer-1D": means,
    "HGT, one relation": lambda: rule(34, lambda t, s: node_types[s] == 0 and node_types[t] == 1),
    "HGT, edges of one relation": lambda: MET & (node_types[:, None] == 1) & (node_types == 0),
    "small world": lambda: (
        torch.tensor(networkx.to_numpy_array(networkx.watts_strogatz_graph(48, 6, 0.15, 0))) > 0
    ),
    "random regular": None,
    "degree-matched random": None,
    "degree-preserving swaps": None,
}


@pytest.mark.parametrize(
    "named", [named for named in NAMED if RULES[named.name]], ids=lambda named: named.name
)
def test_named_patterns_equal_their_rules(named):
    assert torch.equal(named.graph().mask(), RULES[named.name]())


def test_named_random_graphs_keep_what_they_promise():
    zoo = graphs.zoo()
    assert zoo["random regular"].graph().in_degree.tolist() == [4] * 48
    gap = torch.linalg.eigvalsh(laplacian(zoo["expander"].graph()))[1]
    assert float(gap) >= 4 - 2 * math.sqrt(3) - 0.1
    assert torch.equal(zoo["degree-matched random"].graph().in_degree, MET.sum(1))
    swapped = zoo["degree-preserving swaps"].graph()
    assert torch.equal(swapped.in_degree, MET.sum(1))
    assert torch.equal(swapped.out_degree, MET.sum(0))
    assert not torch.equal(swapped.mask(), MET)


def laplacian(graph):
    mask = graph.mask().double()
    return torch.diag(mask.sum(1)) - mask


def test_inputs():
    assert torch.equal(karate.mask(), MET)
    assert set(map(tuple, dag.edge_index.t().tolist())) == set(DAG.edges)
    assert networkx.is_directed_acyclic_graph(
        networkx.DiGraph([edge for edge in DAG.edges if edge[0] != edge[1]])
    )
