"""Trees against networkx and against climbing one parent at a time."""

import networkx
import pytest
import torch
from written_rules import assert_mask, mask_of

from graphattn import graphs
from graphattn.errors import GraphError, GraphIndexError

generator = torch.Generator().manual_seed(5)


def random_forest(size, roots):
    """Parents of a forest whose nodes are numbered at random."""
    parent = [
        -1 if i < roots else int(torch.randint(i, (1,), generator=generator)) for i in range(size)
    ]
    number = torch.randperm(size, generator=generator).tolist()
    shuffled = [0] * size
    for i, up in enumerate(parent):
        shuffled[number[i]] = -1 if up < 0 else number[up]
    return shuffled


FORESTS = {
    "no node": [],
    "one node": [-1],
    "roots alone": [-1] * 3,
    "chain": [-1, *range(12)],
    "chain from the end": [*range(1, 13), -1],
    "star": [4, 4, 4, 4, -1, 4],
    "binary": [-1, *((i - 1) // 2 for i in range(1, 31))],
    "tokens": [-1, 0, 1, 2, 3, 3, 5, 5, 7, 2],
    **{
        f"random {size}, {roots}": random_forest(size, roots)
        for size, roots in ((7, 1), (29, 3), (53, 1), (97, 11))
    },
}


def path_to_root(parent, node):
    while node >= 0:
        yield node
        node = parent[node]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", FORESTS)
def test_forests_equal_their_rules(name):
    parent, N = FORESTS[name], len(FORESTS[name])
    given = torch.tensor(parent, dtype=torch.int64)
    loops = torch.eye(N, dtype=torch.bool)
    above = mask_of(N, N, lambda t, s: s in path_to_root(parent, t))
    same = mask_of(N, N, lambda t, s: s == t or parent[s] == parent[t] >= 0)
    up = mask_of(N, N, lambda t, s: parent[t] == s)

    def within(window):
        return mask_of(N, N, lambda t, s: s in [*path_to_root(parent, t)][:window])

    for graph, mask in (
        (graphs.ancestors(given), above),
        (graphs.ancestors(given, self_loops=False), above & ~loops),
        (graphs.ancestors(given).reverse(), above.T),
        (graphs.ancestors(given).reverse().reverse(), above),
        *((graphs.ancestors(given, window=window), within(window)) for window in (1, 2, 5, 101)),
        (graphs.ancestors(given, window=3, self_loops=False), within(3) & ~loops),
        (graphs.siblings(given), same),
        (graphs.siblings(given, self_loops=False), same & ~loops),
        (graphs.tree(given), up | up.T),
        (graphs.tree(given, read="parent"), up),
        (graphs.tree(given, read="children", self_loops=True), up.T | loops),
    ):
        assert_mask(graph, mask, is_rule="tree" not in graph.name)


def test_ancestors_are_networkxs():
    parent = FORESTS["random 97, 11"]
    network = networkx.DiGraph([(up, node) for node, up in enumerate(parent) if up >= 0])
    network.add_nodes_from(range(97))
    graph = graphs.ancestors(torch.tensor(parent), self_loops=False)
    for node in range(97):
        assert set(graph.source[graph.target == node].tolist()) == networkx.ancestors(network, node)
        assert set(graph.target[graph.source == node].tolist()) == networkx.descendants(
            network, node
        )


def test_every_path_from_the_root_is_a_causal_sequence():
    parent = FORESTS["tokens"]
    graph = graphs.ancestors(torch.tensor(parent))
    for leaf in set(range(len(parent))) - set(parent):
        path = [*path_to_root(parent, leaf)][::-1]
        assert graph.subgraph(path).equals(graphs.causal(len(path)))
    chain = torch.arange(1009) - 1
    assert graphs.ancestors(chain).equals(graphs.causal(1009))
    assert graphs.ancestors(chain, window=7).equals(graphs.sliding_window(1009, 7, causal=True))


def test_a_long_chain_is_a_rule():
    graph = graphs.ancestors(torch.arange(200_000) - 1)
    assert graph.num_edges == 20_000_100_000
    assert graph.contains(torch.tensor([199_999, 3]), torch.tensor([0, 4])).tolist() == [
        True,
        False,
    ]


def test_a_window_of_no_sources_is_refused():
    with pytest.raises(GraphError, match="window must be"):
        graphs.ancestors(torch.tensor([-1, 0]), window=0)


@pytest.mark.parametrize("make", [graphs.ancestors, graphs.siblings, graphs.tree])
def test_refusals(make):
    with pytest.raises(
        GraphIndexError,
        match=r"parent must be in \[-1, 3\), the nodes and -1 of a root, got -1 to 3",
    ):
        make(torch.tensor([-1, 3, 0]))
    with pytest.raises(GraphIndexError, match="got -2 to -2"):
        make(torch.tensor([-2]))
    for cycle in ([-1, 2, 1], [0], [-1, 0, 3, 4, 2, 4]):
        with pytest.raises(
            GraphError, match=r"parent must be a forest, got a cycle above node [0-4]"
        ):
            make(torch.tensor(cycle))
    with pytest.raises(GraphError, match="parent must be integer"):
        make(torch.tensor([-1.0, 0.0]))
