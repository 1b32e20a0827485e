"""Every refusal of the layer, by its words."""

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import TransformerConv

import graphattn as ga
from graphattn.arguments import probability
from graphattn.errors import BackendError, GraphError, OptionError, ShapeError
from graphattn.nn import DropPath

G = ga.nn.GraphAttention
GRAPH = ga.graphs.cross(5, 7)
X, CONTEXT = torch.randn(5, 12), torch.randn(7, 12)

CONSTRUCTION = {
    "odd": (
        lambda: G(12, 5),
        "embed_dim must be a multiple of num_heads, got 12 and 5; or give head_dim",
    ),
    "kv heads": (lambda: G(12, 6, num_kv_heads=4), "num_kv_heads must divide num_heads = 6, got 4"),
    "out_proj": (
        lambda: G(12, 3, head_dim=5, out_proj=False),
        "without out_proj the output has width H . D_v = 15, but embed_dim=12",
    ),
    "out_proj and value_dim": (
        lambda: G(12, 3, value_dim=5, out_proj=False),
        "without out_proj the output has width H . D_v = 15, but embed_dim=12",
    ),
    "edges and value_dim": (
        lambda: G(12, 3, value_dim=5, edge_dim=2),
        "key and value of one width, got head_dim=4 and value_dim=5",
    ),
    "dropout": (lambda: G(12, 3, dropout=1.5), "dropout.* 1.5"),
    "rotary width": (
        lambda: G(12, 3, rotary=ga.nn.Rotary(6)),
        "rotary has head_dim=6, and the layer head_dim=4",
    ),
}


@pytest.mark.parametrize("name", CONSTRUCTION)
def test_construction(name):
    build, words = CONSTRUCTION[name]
    with pytest.raises(OptionError, match=words):
        build()


def test_sizes_may_be_numpys():
    sizes = {
        "embed_dim": 12,
        "num_heads": 4,
        "qdim": 5,
        "kdim": 7,
        "vdim": 3,
        "head_dim": 2,
        "num_kv_heads": 2,
    }
    made = G(**{name: np.int64(size) for name, size in sizes.items()}, edge_dim=np.int32(11))
    assert repr(made) == repr(G(**sizes, edge_dim=11))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"backend": "fast"},
            'backend must be "auto", "dense", "tiles", .* or "message_passing", got',
        ),
    ],
)
def test_other_options_are_checked_at_construction(options, words):
    with pytest.raises(OptionError, match=words):
        G(12, 3, **options)


CONTEXTED = {"context": CONTEXT}
FLOAT64 = (
    r"^x is torch.float64, and the layer's parameters are torch.float32; pass x.to\(torch.float32\), or convert the "
    r"layer with layer.to\(torch.float64\)$"
)
SHAPES = {
    "x": ((torch.randn(5, 11), GRAPH), CONTEXTED, r"x must have shape .* T, 12\), got \(5, 11\)$"),
    "vector": ((torch.randn(12), GRAPH), CONTEXTED, r"x must have shape .* T, 12\), got \(12,\)"),
    "not a tensor": ((X.numpy(), GRAPH), CONTEXTED, r"x must have shape .* T, 12\), got "),
    "context": ((X, GRAPH), {"context": torch.randn(7, 13)}, r"context must have shape .* S, 12\), got \(7, 13\)$"),







    "pair's sources": (((torch.randn(7, 13), X), GRAPH), {}, r"x\[0\], the sources, must have shape .* S, 12\)"),
    "pair's targets": (((CONTEXT, torch.randn(5, 13)), GRAPH), {}, r"x\[1\], the targets, must have shape .* T, 12\)"),
    "no context": ((X, GRAPH), {}, r"7 sources and 5 targets, but x .* pass context=.* 7, 12\), or x as a pair"),
    "sources": ((X, GRAPH), {"context": CONTEXT[1:]}, "x has 5 nodes and the sources 6, but the graph"),
    "targets": ((CONTEXT, GRAPH), CONTEXTED, r"x has 7 nodes .* but the graph has 5 targets"),
    "pair turned round": (((X, CONTEXT), GRAPH), {}, "x has 7 nodes and the sources 5, but the graph"),





    "bias": ((X, GRAPH), {**CONTEXTED, "score_bias": torch.zeros(5, 6)}, r"score_bias must have shape \(35,\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    args, options, words = SHAPES[name]
    with pytest.raises(ShapeError, match=words):
        G(12, 3)(*args, **options)


@pytest.mark.parametrize(
    "options", [{"qdim": 5}, {"kdim": 5, "vdim": 5}, {"kdim": 7, "qdim": 5, "vdim": 5}]
)
def test_without_a_context_keys_and_values_are_made_from_x(options):
    made = G(12, 3, **options)
    x = torch.randn(5, made.qdim)
    words = f"must have width kdim = {made.kdim} .* got {made.qdim}; set .* or pass context="
    with pytest.raises(ShapeError, match=words):
        made(x, ga.graphs.full(5))
    advised = G(12, 3, qdim=made.qdim, kdim=made.qdim, vdim=made.qdim)
    assert advised(x, ga.graphs.full(5)).shape == (5, 12)


def test_a_pair_and_a_context_say_the_same_thing_twice():
    with pytest.raises(
        OptionError, match=r"pass x as a pair \(sources, targets\), or x and context; not both"
    ):
        G(12, 3)((CONTEXT, X), GRAPH, context=CONTEXT)


def test_what_follows_the_graph_is_named():
    """PyG's third argument is edge_attr. As many edges as sources, and as wide: nothing else tells
    them apart.
    """


ADJACENCY = torch.tensor([[0, 1, 0], [0, 0, 0], [1, 1, 0]]).bool()  # a row per target
DIALECTS = {
    "Data": (Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3), r"got a Data; pass graphattn.from_pyg\(data\)"),
    "Batch": (Batch.from_data_list([Data(num_nodes=3)]), r"got a DataBatch; pass graphattn.from_pyg\(data\)"),
    "HeteroData": (HeteroData(), r"got a HeteroData; pass graphattn.from_pyg"),
    "mask": (ADJACENCY, r"a bool mask \(T, S\), True where there is an edge: wrap it with graphattn.from_mask\(mask\)"),
    "array": (ADJACENCY.numpy(), r"wrap it with graphattn.from_mask\(mask\)"),
    "float edges": (torch.tensor([[0.0, 1.0], [1.0, 2.0]]), r"pass edge_index.long\(\) if it is an edge_index"),
    "dense adjacency": (ADJACENCY.float(), r"graphattn.from_mask\(mask != 0\)"),
    "networkx": (networkx.path_graph(3), "graphattn.from_networkx"),
    "scipy": (scipy.sparse.csr_array(ADJACENCY.numpy()), "graphattn.from_scipy"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIALECTS)
def test_what_is_no_graph_is_told_how_to_become_one(name):
    given, words = DIALECTS[name]
    with pytest.raises(GraphError, match=words):
        G(12, 3)(X[:3], given)
    if name != "nowhere":
        with pytest.raises(
            GraphError, match=words.replace(" as edge_index", ".*").replace("got a ", "got ")
        ):
            ga.attention(*torch.randn(3, 3, 1, 2), given)


def test_a_graph_is_always_needed():
    data = Data(x=X, edge_index=torch.tensor([[0], [1]]))
    assert G(12, 3)(data.x, data.edge_index).shape == (5, 12)


def test_a_torch_sparse_tensor_is_told_its_way():
    kind = type("SparseTensor", (), {"__module__": "torch_sparse.tensor"})
    with pytest.raises(GraphError, match=r"got a SparseTensor; .* row, col, _ = adj_t.coo\(\)"):
        G(12, 3)(X, kind())


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_a_sparse_tensor_is_read_as_pygs_transposed_adjacency(layout):
    layer, x = G(12, 3), torch.randn(3, 12)
    adj_t = getattr(ADJACENCY.float(), layout)()
    assert torch.equal(layer(x, adj_t), layer(x, ga.from_mask(ADJACENCY)))
    conv = TransformerConv(12, 4, heads=3, root_weight=False)
    mine = ga.nn.GraphAttention.from_pyg(conv)
    torch.testing.assert_close(mine(x, adj_t), conv(x, adj_t.to_sparse_coo().coalesce()))
    with pytest.raises(
        GraphError,
        match=r"graph as a sparse tensor must have shape \(2, 3\), got a Tensor \(3, 3\)",
    ):
        layer((x, x[:2]), adj_t)
    with pytest.raises(GraphError, match=r"values other than 1: pass .* as edge_attr"):
        layer(x, 2 * adj_t)


def test_positions_of_other_axes_than_edge_dim_are_named():
    graph = ga.graphs.sliding_window(5, 2, causal=True)
    for axes in (2, 4):
        with pytest.raises(ShapeError, match=rf"positions have {axes} axes.*has edge_dim=3"):
            G(12, 3, edge_dim=3)(X, graph, positions=torch.zeros(5, axes))


def test_edge_features_need_an_edge_dim_and_the_other_way_round():
    with pytest.raises(
        OptionError, match="edge_attr was given, but the layer was built without edge_dim"
    ):
        G(12, 3)(X, GRAPH, context=CONTEXT, edge_attr=torch.zeros(35, 4))
    made = G(12, 3, edge_dim=4)
    with pytest.raises(
        OptionError,
        match=r"built with edge_dim=4: pass edge_attr \(\.\.\., 35, 4\), one row per edge",
    ):
        made(X, GRAPH, context=CONTEXT)
    for wrong in (torch.zeros(34, 4), torch.zeros(35, 5), torch.zeros(4)):
        with pytest.raises(
            ShapeError, match=r"edge_attr must have shape \(..., 35, 4\), got a Tensor"
        ):
            made(X, GRAPH, context=CONTEXT, edge_attr=wrong)


def test_a_named_backend_refuses_with_its_reasons():
    made = G(12, 3, edge_dim=4, backend="dense")
    with pytest.raises(BackendError, match="'dense' cannot run") as caught:
        made(X, GRAPH, context=CONTEXT, edge_attr=torch.zeros(35, 4))
    assert "edge features change a key from edge to edge" in caught.value.reasons[0]
    made.backend = "fast"
    with pytest.raises(
        BackendError,
        match=r'backend must be "auto" or one of dense, tiles, edges, message_passing, got \'fast\'',
    ):
        made(X, GRAPH, context=CONTEXT, edge_attr=torch.zeros(35, 4))


def test_edge_index_is_checked_at_every_call():
    made = G(12, 3)
    with pytest.raises(
        GraphError, match=r"repeated edges. ga.from_edge_index\(edge_index, duplicates="
    ):
        made(X, torch.tensor([[0, 0], [1, 1]]))
    with pytest.raises(GraphError, match=r"expected \[2, E\], got \[3, 2\]; pass edge_index.t\(\)"):
        made(X, torch.tensor([[0, 1], [1, 2], [3, 4]]))
    sized = EdgeIndex(torch.tensor([[0, 1], [1, 2]]), sparse_size=(7, 5))
    assert made(X, sized, context=CONTEXT).shape == (5, 12)


def test_a_probability_is_in_its_interval():
    assert (probability(0, "p"), probability(1, "p")) == (0.0, 1.0)
    for wrong, below_one in ((1, True), (1.0, True), (-0.1, False), (1.1, False)):
        with pytest.raises(OptionError, match=r"p must be a number in \[0, 1"):
            probability(wrong, "p", below_one=below_one)
    with pytest.raises(OptionError, match=r"drop_path must be a number in \[0, 1\), got 1.0"):
        DropPath(1.0)


def test_a_list_is_no_graph_where_only_one_will_do():
    graph = ga.graphs.causal(5)
    with pytest.raises(GraphError, match=r"pass one of them, .* PerHead\(graphs\), .* PerExample"):
        ga.convert.to_mask([graph, graph])


def test_a_list_of_graphs_is_one_for_each_example():
    layer, x = G(12, 3), torch.randn(2, 7, 12)
    graphs = [ga.graphs.documents(lengths=lengths, causal=True) for lengths in ((2, 5), (4, 3))]
    found = layer(x, graphs)
    for example in range(2):
        torch.testing.assert_close(
            found[example], layer(x[example], graphs[example]), rtol=0, atol=1e-6
        )
    with pytest.raises(ga.GraphAttnError, match="leading dimensions \\(3,\\)"):
        layer(torch.randn(3, 7, 12), graphs)
