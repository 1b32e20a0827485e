"""Transformers on plain graphs, against PyG, networkx and torch; batches, relabelling; and
Longformer's layers.
"""

import networkx
import pytest
import torch
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.nn import TransformerConv
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError, OptionError, ShapeError
from graphattn.models import GraphTransformer

F_IN, C, H, OUT = 5, 8, 2, 3


def molecule(nodes, seed):
    """A connected graph as PyG's Data, whose edges stand in no order, with features of nodes and
    edges.
    """
    world = networkx.connected_watts_strogatz_graph(nodes, min(4, nodes - 1), 0.4, seed=seed)
    torch.manual_seed(seed)
    edges = torch.tensor(list(world.to_directed().edges)).T
    edges = edges[:, torch.randperm(edges.shape[1])]
    features = torch.randn(nodes, F_IN).double(), torch.randn(edges.shape[1], 4).double()
    return world, Data(x=features[0], edge_index=edges, edge_attr=features[1])


def model(**options):
    torch.manual_seed(6)
    made = GraphTransformer(
        F_IN, C, H, **{"num_layers": 2, "out_dim": OUT, "encoding_dim": 3, **options}
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return made.eval()


def close(found, wanted, atol=1e-12):
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=atol)


WALKS = 1e-6  # PyG counts random walks in float32


def twin(made, data, attend):
    """The model with torch's operations alone: ``attend(layer, x)`` gives what a block adds."""
    pe = AddRandomWalkPE(3, attr_name="pe")(data).pe.double()
    x = made.embedding(data.x) + made.encoding(pe)
    for block in made.encoder.layers:
        x = x + attend(block.attention, block.attention_norm(x))
        y = block.feed_forward_norm(x)
        x = x + block.feed_forward.down(F.gelu(block.feed_forward.up(y)))
    return made.head(made.encoder.norm(x))


def same(made, output, wanted):
    close(output, wanted)
    names, parameters = zip(*made.named_parameters(), strict=True)
    mine, theirs = (
        torch.autograd.grad((result * result.detach().cos()).sum(), parameters)
        for result in (output, wanted)
    )
    for name, found, other in zip(names, mine, theirs, strict=True):
        torch.testing.assert_close(found, other, rtol=1e-10, atol=1e-11)
        # softmax does not depend on the keys' bias
        assert name.endswith("k_proj.bias") or other.abs().max() > 1e-4


def test_all_pairs_with_shortest_paths():
    world, data = molecule(11, seed=1)
    made = model(max_distance=2)
    far = dict(networkx.all_pairs_shortest_path_length(world))
    rows = torch.tensor([[min(far[s][t], 3) for s in range(11)] for t in range(11)]).clamp(max=2)
    assert {0, 1, 2} == set(rows.flatten().tolist())

    def attend(layer, x):
        q, k, v = (
            p(x).view(11, H, -1).transpose(0, 1) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        bias = made.paths.table.weight[rows].permute(2, 0, 1)
        return layer.out_proj(
            F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(0, 1).flatten(1)
        )

    output = made(data.x, ga.from_pyg(data), graphs.full(...))
    # along the edges it is another
    assert not torch.allclose(made(data.x, ga.from_pyg(data)), output, atol=1e-3)
    same(made, output, twin(made, data, attend))


def test_own_edges_with_features_as_pyg():
    _, data = molecule(13, seed=2)
    made = model(edge_dim=4)

    def attend(layer, x):
        conv = TransformerConv(C, C // H, heads=H, edge_dim=4, root_weight=False).double()
        for name, mine in (("query", "q"), ("key", "k"), ("value", "v"), ("edge", "edge")):
            linear, own = getattr(conv, f"lin_{name}"), getattr(layer, f"{mine}_proj")
            linear.weight = own.weight
            if own.bias is not None:
                linear.bias = own.bias
        return layer.out_proj(conv(x, data.edge_index, data.edge_attr))

    output = made(data.x, ga.from_pyg(data), edge_attr=data.edge_attr)
    same(made, output, twin(made, data, attend))
    with pytest.raises(OptionError, match="built with edge_dim=4: pass edge_attr"):
        made(data.x, ga.from_pyg(data))


@pytest.mark.sample(3)
@pytest.mark.parametrize("encoding", ["random_walk", "laplacian", None])
@pytest.mark.parametrize("readout", ["node", "mean", "sum"])
def test_a_batch_is_its_graphs(encoding, readout):
    made = model(encoding=encoding, readout=readout, max_distance=3)
    tolerance = WALKS if encoding == "random_walk" else 1e-12
    several = [molecule(nodes, seed)[1] for nodes, seed in ((7, 3), (3, 4), (11, 5))]
    several.insert(
        1, Data(x=torch.randn(1, F_IN).double(), edge_index=torch.empty(2, 0, dtype=torch.int64))
    )
    several[1].edge_attr = torch.empty(0, 4).double()
    batch = Batch.from_data_list(several)
    edges = ga.from_pyg(batch)
    for reads, alone in (
        (None, None),
        (graphs.documents(batch.batch, causal=False), graphs.full(...)),
    ):
        output = made(batch.x, edges, reads, batch=batch.batch)
        close(
            output,
            torch.cat([made(data.x, ga.from_pyg(data), alone) for data in several]),
            tolerance,
        )
    assert len(output) == (22 if readout == "node" else 4)
    if encoding == "laplacian":
        pe = made.encoded(edges, (7, 1, 3, 11))
        assert torch.equal(pe[7], torch.zeros(3))
        # three nodes, two eigenvectors
        assert [bool(column.any()) for column in pe[8:11].T] == [True, True, False]
        theirs = AddLaplacianEigenvectorPE(3, attr_name="pe", is_undirected=True)(several[0]).pe
        torch.testing.assert_close((pe[:7].T @ theirs).abs(), torch.eye(3), rtol=0, atol=1e-4)


def test_readouts_are_means_and_sums_of_nodes():
    _, data = molecule(7, seed=3)
    nodes, mean, total = (
        model(readout=readout)(data.x, ga.from_pyg(data)) for readout in ("node", "mean", "sum")
    )
    close(mean, nodes.mean(0, keepdim=True))
    bias = model().head.bias
    close(total - bias, 7 * (mean - bias))


def test_relabelled_nodes():
    _, data = molecule(11, seed=7)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)
    moved = Data(x=data.x[order], edge_index=place[data.edge_index])
    for encoding, tolerance in ((None, 1e-12), ("random_walk", WALKS)):
        for reads in (None, graphs.full(...)):
            made = model(max_distance=3, encoding=encoding)
            wanted = made(data.x, ga.from_pyg(data), reads)[order]
            close(made(moved.x, ga.from_pyg(moved), reads), wanted, tolerance)
            made = model(readout="sum", encoding=encoding)
            close(
                made(moved.x, ga.from_pyg(moved), reads),
                made(data.x, ga.from_pyg(data), reads),
                tolerance,
            )
    moved.x[0] += 1.0
    assert not torch.allclose(made(moved.x, ga.from_pyg(moved)), made(data.x, ga.from_pyg(data)))


def test_walks_tell_two_triangles_from_a_hexagon():
    """Colour refinement, and so message passing without an encoding, does not."""
    rings = [
        networkx.cycle_graph(6),
        networkx.disjoint_union(networkx.cycle_graph(3), networkx.cycle_graph(3)),
    ]
    edges = [ga.from_networkx(ring.to_directed()) for ring in rings]
    x = torch.ones(6, F_IN).double()
    plain, walks = model(encoding=None), model(encoding="random_walk")
    close(plain(x, edges[0]), plain(x, edges[1]))
    assert not torch.allclose(walks(x, edges[0]), walks(x, edges[1]), atol=1e-3)


def test_a_removed_edge_changes_only_what_depends_on_it():
    _, data = molecule(11, seed=8)
    edges, made = ga.from_pyg(data), model()
    source, target = data.edge_index[:, 4].tolist()
    less = edges - ga.from_edge_index([[source], [target]], num_nodes=11)
    whole = made(data.x, edges)

    def changed(*layers):
        return ((made(data.x, edges, layers) - whole).abs().amax(-1) > 1e-9).tolist()

    assert changed(edges, less) == [node == target for node in range(11)]
    depends = edges.mask()[:, target] | (torch.arange(11) == target)
    assert changed(less, edges) == depends.tolist()


def test_signs_of_eigenvectors_are_random_in_training_alone():
    _, data = molecule(11, seed=9)
    made, edges = model(encoding="laplacian"), ga.from_pyg(data)
    pe = made.encoded(edges, (11,))
    assert torch.equal(made.encoded(edges, (11,)), pe)
    made.train()
    torch.manual_seed(0)
    drawn = torch.stack([made.encoded(edges, (11,)) for _ in range(20)])
    assert torch.equal(drawn.abs(), pe.abs().expand(20, 11, 3))
    assert len({tuple(signs) for signs in (drawn[:, 0] / pe[0]).tolist()}) > 3


def test_kinds_of_nodes_by_an_embedding():
    made = GraphTransformer(torch.nn.Embedding(4, C), C, H, 1)
    ring = graphs.circulant(6, (1, 5))
    assert made(torch.tensor([0, 1, 2, 3, 0, 1]), ring).shape == (6, C)
    assert GraphTransformer(F_IN, C, H, 1, readout="mean")(torch.randn(7, 6, F_IN), ring).shape == (
        7,
        1,
        C,
    )


RING, X = graphs.circulant(6, (1, 5)), torch.randn(6, F_IN).double()
BATCH = torch.tensor([0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: model(encoding="degree"),
            OptionError,
            'encoding must be "random_walk" or "laplacian", or None',
        ),
        (
            lambda: model(readout="max"),
            OptionError,
            'readout must be "node", "mean" or "sum", got .max',
        ),
        (
            lambda: model()(X, Data(edge_index=RING.edge_index)),
            GraphError,
            "edges needs an AttentionGraph, got Data",
        ),
        (
            lambda: model()(X, RING, batch=BATCH.flip(0)),
            ShapeError,
            "batch must be int64, ascending, as PyG's",
        ),
        (
            lambda: model()(X, RING, [graphs.full(...)] * 2, batch=BATCH),
            GraphError,
            "would join the graphs of a batch",
        ),
        (lambda: model()(X, graphs.cross(6, 5)), GraphError, "needs a square graph"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_batches_and_sizes_that_do_not_fit_are_refused():
    made, x, ring = (
        model(readout="mean"),
        torch.randn(5, F_IN).double(),
        graphs.circulant(5, (1, 4)),
    )
    apart = ga.from_edge_index([[0, 1, 2, 3], [1, 0, 3, 4]], num_nodes=5)
    batch = torch.tensor([0, 0, 1, 1, 1])
    assert made(x, apart, batch=batch).shape == (2, OUT)
    for call, error, words in (
        (lambda: made(x, ring, batch=batch), GraphError, "edges must not join graphs of batch"),
        (
            lambda: made(x, apart, batch=batch - 1),
            ShapeError,
            r"batch must be in \[0, 5\) \(there are no more graphs than nodes\), got -1 to 0",
        ),
        (
            lambda: made(x, apart, batch=batch * 10**9),
            ShapeError,
            "no more graphs than nodes.*, got 0 to 10",
        ),
    ):
        with pytest.raises(error, match=words):
            call()
