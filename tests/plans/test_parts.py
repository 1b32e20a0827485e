"""Parts: which edges the tiles take up, and that with the others they are the graph."""

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.backends.choose import BACKENDS
from graphattn.backends.request import Request
from graphattn.plans import parts as module
from graphattn.plans.blocks import cuts
from graphattn.plans.parts import parts, split


def far_edges(nodes, count):
    draw = torch.Generator().manual_seed(0)
    return ga.from_edge_index(torch.randint(nodes, (2, count), generator=draw), num_nodes=nodes, duplicates="merge")


@pytest.mark.parametrize("name", sorted(name for name in GRAPHS if not GRAPHS[name]().has_repeated_edges))
@pytest.mark.usefixtures("dense_core")
def test_the_parts_are_the_graph(name):
    graph = GRAPHS[name]()
    found = parts(graph)
    order = torch.cat((found.core_edges, found.rest_edges))
    assert torch.equal(order.sort().values, torch.arange(graph.num_edges))
    assert torch.equal(torch.cat((found.core.edge_index, found.rest.edge_index), 1), graph.edge_index[:, order])


def test_a_window_is_the_core_and_far_edges_the_rest():
    window, far = ga.graphs.sliding_window(2000, 65, causal=False), far_edges(2000, 6000)
    found = parts(window | far)
    assert (window & found.core).num_edges > 0.7 * window.num_edges  # the band's corners are thin
    assert (far & found.rest).num_edges > 0.9 * far.num_edges
    estimate = split(window | far)
    assert estimate.rest == pytest.approx(found.rest.num_edges, rel=0.1)


def test_where_nothing_is_dense_all_is_the_rest():
    graph = far_edges(3000, 9000)
    assert parts(graph).core.num_edges == 0
    assert split(graph).cost == pytest.approx(3 * graph.num_edges, rel=0.05)
    q = torch.randn(3000, 2, 4)
    mine, edges = (ga.attention(q, q, q, graph, backend=name) for name in ("parts", "edges"))
    assert torch.allclose(mine, edges, atol=1e-6)


def test_on_a_gpu_the_rest_is_held_by_message_passing():
    graph = ga.graphs.sliding_window(200, 33) | far_edges(200, 300)
    held = {}
    for device in ("cpu", "cuda"):
        request = Request(heads=2, head_dim=8, value_dim=8, device=torch.device(device))
        tiles = BACKENDS["tiles"].bytes_needed(graph, request._replace(lse=True))
        held[device] = BACKENDS["parts"].bytes_needed(graph, request) - tiles
    assert held["cuda"] - held["cpu"] == BACKENDS["message_passing"].bytes_needed(graph, request)
    assert held["cpu"] == 2 * 200 * 2 * (8 + 1) * 4 + 40 * graph.num_edges


@pytest.mark.parametrize(
    ("graph", "more"), [(far_edges(3000, 9000), False), (ga.graphs.sliding_window(2000, 65), True)]
)
def test_taller_tiles_are_tried_only_where_short_ones_take_up_edges(graph, more, monkeypatch):
    tried = []
    monkeypatch.setattr(module, "cuts", lambda *args: (tried.append(cut) or cut for cut in cuts(*args)))
    split(graph)
    assert (len(tried) > 1) is more
    assert len(list(cuts(graph, torch.full((graph.num_targets,), -1)))) > 1
