"""Named patterns: network."""

from functools import partial

from .pattern import Named

_named = partial(Named, "network")
NAMED: tuple[Named, ...] = (
    _named("tree", "a node reads its parent and its children", "tree(parents)"),
    _named("Tree-LSTM", "a node reads its children", 'tree(parents, read="children")', "Tai 2015"),
    _named(
        "ancestors",
        "a node reads itself and everything above it",
        "ancestors(parents)",
        also="tree attention, ancestry",
    ),
    _named(
        "descendants", "a node reads itself and everything below it", "ancestors(parents).reverse()"
    ),
    _named("siblings", "a node reads the nodes of the same parent", "siblings(parents)"),
    _named(
        "DAGformer",
        "a node reads itself (not in their code), what reaches it and what it reaches, in k steps",
        "dag.k_hop(3) | dag.k_hop(3).reverse() | self_loops(24)",
        "Luo 2023",
    ),
    _named("line graph", "an edge reads the edges that lead into it", "line_graph(dag)"),
    _named(
        "line graph, non-backtracking",
        "the same without the way back",
        "line_graph(circulant(24, (-1, 1)), non_backtracking=True)",
        "Chen 2019",
    ),
    _named(
        "line graph, undirected",
        "an edge reads the edges that share an end with it",
        "line_graph(tree(parents), directed=False)",
    ),
    _named(
        "GAT",
        "a node reads its neighbours and itself",
        "karate.with_self_loops()",
        "Velickovic 2018",
    ),
    _named(
        "Graphormer",
        "every node reads every node; a bias for each distance",
        "full(34)",
        "Ying 2021",
    ),
    _named(
        "Graphormer, [VNode]",
        "the same with a virtual node, whose edges have a bias of their own",
        "full(34).with_global_tokens(1)",
        "Ying 2021",
    ),
    _named(
        "SAN, real edges",
        "the edges of the input, with projections of their own",
        "karate",
        "Kreuzer 2021",
    ),
    _named(
        "SAN, fake edges",
        "all other pairs, with other projections",
        "~karate.with_self_loops()",
        "Kreuzer 2021",
    ),
    _named(
        "GraphGPS, local", "the edges of the input, in message passing", "karate", "Rampasek 2022"
    ),
    _named(
        "GraphGPS, global", "all pairs, in attention; both are added", "full(34)", "Rampasek 2022"
    ),
    _named(
        "expander",
        "a few permutations and their inverses: near to all",
        "expander(34, 2)",
        "Shirzad 2023",
    ),
    _named(
        "Exphormer",
        "the edges of the input, an expander, and a virtual node; no node reads itself",
        "(karate | expander(34, 2)).with_global_tokens(1).without_self_loops()",
        "Shirzad 2023",
    ),
    _named(
        "virtual node",
        "a hub that reads all nodes and is read by all",
        "karate.with_global_tokens(1)",
        "Gilmer 2017",
        also="global token, master node, hub",
    ),
    _named(
        "Star-Transformer",
        "a ring and a hub; a node of the ring also reads its own embedding",
        "composite([[circulant(16, (-1, 0, 1)), cross(16, 1), self_loops(16)], [cross(1, 16), "
        "full(1), None]])",
        "Guo 2019",
    ),
    _named(
        "AllSet, nodes to hyperedges",
        "a hyperedge reads its nodes; here the hyperedges are families of a tree",
        "hypergraph(torch.arange(1, 31), (torch.arange(1, 31) - 1) // 2)",
        "Chien 2022",
    ),
    _named(
        "AllSet, hyperedges to nodes",
        "a node reads its hyperedges",
        "hypergraph(torch.arange(1, 31), (torch.arange(1, 31) - 1) // 2).reverse()",
        "Chien 2022",
    ),
    _named(
        "butterfly",
        "a block reads itself and the blocks whose number differs in one binary digit",
        "butterfly(64, 4)",
        "Dao 2022",
    ),
    _named(
        "hypercube",
        "nodes whose numbers differ in one binary digit",
        "butterfly(32).without_self_loops()",
    ),
    _named(
        "chord",
        "the nodes 1, 2, 4, 8, ... steps on along a circle",
        "circulant(48, (0, 1, 2, 4, 8, 16, 32))",
        "Khalitov 2023",
    ),
    _named("ring", "the nodes on both sides along a circle", "circulant(48, (-1, 0, 1))"),
    _named(
        "H-Transformer-1D",
        "near tokens one by one, far ones as means, coarser with distance",
        "coarse_to_fine(32, 4, causal=False)",
        "Zhu 2021",
    ),
    _named(
        "HGT, one relation",
        "every node of one type reads every node of another",
        "between_types(node_types, 0, 1)",
        "Hu 2020",
    ),
    _named(
        "HGT, edges of one relation",
        "the edges of the input between two types",
        "karate & between_types(node_types, 0, 1)",
        "Hu 2020",
    ),
    _named(
        "small world",
        "a ring, some of whose edges are thrown across",
        "small_world(48, 6, 0.15)",
        "Watts 1998",
    ),
    _named(
        "random regular", "every node has as many neighbours, at random", "random_regular(48, 4)"
    ),
    _named(
        "degree-matched random",
        "a control: the in-degrees of a graph, and otherwise chance",
        'degree_matched_random(karate, keep="in-degrees")',
    ),
    _named(
        "degree-preserving swaps",
        "a control: both degrees of a graph, and otherwise chance",
        "degree_matched_random(karate)",
        "Maslov 2002",
    ),
)
