"""What networkx and plain loops say about a graph."""

import networkx as nx
import torch


def as_networkx(graph):
    found = nx.DiGraph()
    found.add_nodes_from(range(graph.num_targets))
    found.add_edges_from(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    return found


def distances(graph):
    """{source: {target: edges}} of all pairs that are joined."""
    return dict(nx.all_pairs_shortest_path_length(as_networkx(graph)))


def layers_multiplied(graphs, residual=False):
    """Paths from each source of the first layer to each target of the last, int64 (T, S): integer
    matrix products.
    """
    total = torch.eye(graphs[0].num_sources, dtype=torch.int64)
    found = []
    for graph in graphs:
        step = torch.zeros(graph.num_targets, graph.num_sources, dtype=torch.int64)
        for s, t in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
            step[t, s] += 1
        if residual and graph.is_square:
            step += torch.eye(graph.num_targets, dtype=torch.int64)
        total = step @ total
        found.append(total)
    return found
