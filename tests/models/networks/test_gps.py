"""GPS layers, Exphormer and relative walks, against PyG's GPSConv and formulas written out."""

import networkx
import pytest
import torch
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, GINEConv, GPSConv, TransformerConv

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphError, OptionError, ShapeError
from graphattn.models import GPSBlock, GraphTransformer

F_IN, C, H = 5, 8, 2


def molecule(nodes, seed):
    """A connected graph with features of nodes and edges."""
    random = torch.Generator().manual_seed(seed)
    world = networkx.connected_watts_strogatz_graph(nodes, 4, 0.4, seed=seed)
    edges = torch.tensor(list(world.to_directed().edges)).T
    x, attr = (
        torch.randn(*shape, generator=random).double()
        for shape in ((nodes, F_IN), (edges.shape[1], 4))
    )
    return Data(x=x, edge_index=edges, edge_attr=attr)


DATA = [molecule(nodes, seed) for nodes, seed in ((7, 1), (11, 2), (5, 3))]
BATCH = Batch.from_data_list(DATA)
EDGES, PAIRS = ga.from_pyg(BATCH), graphs.documents(BATCH.batch, causal=False)


def local(name):
    return {
        "gcn": lambda: GCNConv(C, C),
        "gine": lambda: GINEConv(torch.nn.Linear(C, C), edge_dim=4),
        "none": lambda: None,
    }[name]()


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def moved(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module.double()


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    ("name", "norm"), [("gcn", "batch_norm"), ("gine", "layer"), ("none", "batch_norm")]
)
def test_a_block_with_the_weights_of_a_gps_conv_gives_its_outputs(name, norm, train):
    torch.manual_seed(0)
    norms = {"norm": norm, "norm_kwargs": {"mode": "node"} if norm == "layer" else None}
    conv = moved(GPSConv(C, local(name), H, act="gelu", **norms)).train(train)
    if norm == "layer":
        conv.norm1, conv.norm2, conv.norm3 = (moved(torch.nn.LayerNorm(C)) for _ in range(3))
        conv.norm_with_batch = False
    x = torch.randn(23, C).double().requires_grad_()
    attr = {"edge_attr": BATCH.edge_attr} if name == "gine" else {}
    expected = conv(x, BATCH.edge_index, BATCH.batch, **attr)
    given = torch.autograd.grad(expected.sin().sum(), [x, *conv.attn.parameters()])
    running = [buffer.clone() for buffer in conv.buffers()]
    block = GPSBlock.from_pyg(conv)
    found = block(x, PAIRS, BATCH.edge_index, local_attr=attr.get("edge_attr"))
    close(found, expected)
    attention = [block.attention.q_proj.weight, block.attention.out_proj.weight]
    gradients = torch.autograd.grad(found.sin().sum(), [x, *attention])
    close(gradients[0], given[0])
    close(gradients[1], given[1][:C])  # of in_proj_weight
    close(gradients[2], given[3])
    assert float(given[0].abs().max()) > 0.1
    assert (
        train == any(not torch.equal(*pair) for pair in zip(conv.buffers(), running, strict=True))
        or norm == "layer"
    )


def test_a_transformer_with_local_messages_is_a_stack_of_gps_convs():
    torch.manual_seed(0)
    made = moved(
        GraphTransformer(
            F_IN, C, H, 2, encoding="laplacian", encoding_dim=3, local=lambda: GCNConv(C, C)
        )
    )
    made.eval()
    convs = []
    for layer in made.layers:
        conv = GPSConv(C, layer.local, H).double().eval()
        own = layer.attention
        with torch.no_grad():
            conv.attn.in_proj_weight.copy_(
                torch.cat([p.weight for p in (own.q_proj, own.k_proj, own.v_proj)])
            )
            conv.attn.in_proj_bias.copy_(
                torch.cat([p.bias for p in (own.q_proj, own.k_proj, own.v_proj)])
            )
        conv.attn.out_proj, conv.mlp[0], conv.mlp[3] = (
            own.out_proj,
            layer.feed_forward.up,
            layer.feed_forward.down,
        )
        conv.norm1.module, conv.norm2.module = layer.local_norm, layer.attention_norm
        conv.norm3.module = layer.feed_forward_norm
        convs.append(conv)
    x = made.embedding(BATCH.x) + made.encoding(made.encoded(EDGES, (7, 11, 5)).double())
    for conv in convs:
        x = conv(x, BATCH.edge_index, BATCH.batch)
    close(made(BATCH.x, EDGES, PAIRS, batch=BATCH.batch), x)


def test_exphormer_by_its_formula():
    """Local messages, and attention along the edges, an expander and a virtual node of each graph,
    with masks.
    """
    torch.manual_seed(0)
    made = moved(
        GraphTransformer(F_IN, C, H, 2, encoding=None, local=lambda: GCNConv(C, C), virtual_nodes=1)
    ).eval()
    expanders = [graphs.expander(data.num_nodes, 2) for data in DATA]
    reads = EDGES | ga.disjoint_union(expanders)
    mask = torch.zeros(26, 26, dtype=torch.bool)
    mask[:23, :23] = EDGES.mask() | torch.block_diag(*(graph.mask() for graph in expanders))
    for node, graph in enumerate(BATCH.batch.tolist()):
        mask[node, 23 + graph] = mask[23 + graph, node] = True
    x = torch.cat((made.embedding(BATCH.x), made.virtual.expand(3, -1)))
    for layer in made.layers:
        own = layer.attention
        q, k, v = (
            p(x).view(26, H, -1).transpose(0, 1) for p in (own.q_proj, own.k_proj, own.v_proj)
        )
        read = own.out_proj(
            F.scaled_dot_product_attention(q, k, v, mask).transpose(0, 1).flatten(1)
        )
        y = layer.local_norm(x + layer.local(x, BATCH.edge_index)) + layer.attention_norm(x + read)
        x = layer.feed_forward_norm(y + layer.feed_forward.down(F.relu(layer.feed_forward.up(y))))
    found = made(BATCH.x, EDGES, reads, batch=BATCH.batch)
    close(found, x[:23])
    # no expander
    assert not torch.allclose(made(BATCH.x, EDGES, EDGES, batch=BATCH.batch), found, atol=1e-2)
    # a graph alone
    close(made(DATA[1].x, ga.from_pyg(DATA[1]), ga.from_pyg(DATA[1]) | expanders[1]), found[7:18])


def test_relative_walks_are_powers_of_the_matrix_of_a_walk():
    data = DATA[1]
    edges = ga.from_pyg(data)
    adjacency = edges.mask().double().T  # [start, end]
    step = adjacency / adjacency.sum(1, keepdim=True)
    wanted = torch.stack([torch.linalg.matrix_power(step, k) for k in range(4)], -1)
    close(ga.nn.relative_walk_pe(edges, 4, graphs.full(11)), wanted.flatten(0, 1))
    close(ga.nn.relative_walk_pe(edges, 4, edges), wanted[edges.target, edges.source])
    one_way = ga.from_edge_index(torch.tensor([[0], [1]]), num_nodes=3)
    # 0 walks to 1
    assert ga.nn.relative_walk_pe(one_way, 2, graphs.full(3))[:, 1].tolist() == [0, 1, 0] + [0] * 6
    with pytest.raises(
        GraphError, match="graph, as along, must have 11 targets and 11 sources, got AttentionGraph"
    ):
        ga.nn.relative_walk_pe(edges, 4, graphs.full(5))


@pytest.mark.parametrize("given", [0, 4])
def test_a_transformer_with_relative_walks_reads_them_as_features_of_edges(given):
    torch.manual_seed(0)
    data, edges, extra = DATA[1], ga.from_pyg(DATA[1]), torch.randn(121, given).double()
    options = {"edge_dim": given} if given else {}
    made = moved(
        GraphTransformer(
            F_IN, C, H, 1, encoding=None, relative_walks=3, norm_first=False, **options
        )
    ).eval()
    block, pairs = made.encoder.layers[0], graphs.full(11)
    conv = TransformerConv(C, C // H, H, edge_dim=3 + given, root_weight=False).double()
    own = block.attention
    conv.lin_query, conv.lin_key, conv.lin_value, conv.lin_edge = (
        own.q_proj,
        own.k_proj,
        own.v_proj,
        own.edge_proj,
    )
    walks = torch.cat((ga.nn.relative_walk_pe(edges, 3, pairs), extra), 1)
    x = made.embedding(data.x)
    x = block.attention_norm(x + own.out_proj(conv(x, pairs.edge_index, walks)))
    x = block.feed_forward_norm(x + block.feed_forward.down(F.gelu(block.feed_forward.up(x))))
    close(made(data.x, edges, graphs.full(...), edge_attr=extra if given else None), x)
    with_virtual = moved(
        GraphTransformer(F_IN, C, H, 1, encoding_dim=3, relative_walks=3, virtual_nodes=2)
    ).eval()
    assert with_virtual(data.x, edges).shape == (11, C)


def test_what_has_no_counterpart_is_refused():
    with pytest.raises(OptionError, match='expected a GPSConv of attn_type="multihead"'):
        GPSBlock.from_pyg(GPSConv(C, None, H, attn_type="performer"))
    with pytest.raises(OptionError, match="a norm that needs batch, or none"):
        GPSBlock.from_pyg(GPSConv(C, None, H, norm="graph_norm"))
    with pytest.raises(OptionError, match="pass edge_index"):
        GPSBlock(C, H, local=GATConv(C, C))(torch.randn(5, C), graphs.full(...))
    ring = graphs.circulant(5, (1, 4))
    with pytest.raises(OptionError, match="needs rows of all nodes, got a shard"):
        GPSBlock(C, H, local=GATConv(C, C))(
            torch.randn(5, C), ga.distributed.shard(ring), ring.edge_index
        )
    made = GraphTransformer(F_IN, C, H, 2, encoding=None, local=lambda: GCNConv(C, C))
    with pytest.raises(GraphError, match="2 layers need as many graphs, got 3"):
        made(torch.randn(5, F_IN), graphs.circulant(5, (1, 4)), [graphs.full(...)] * 3)


def test_local_modules_of_another_width_one_node_and_patterns_of_walks_are_refused():
    # 1 would be spread
    with pytest.raises(
        ShapeError, match=r"local must return as many channels as it is given, \(5, 8\)"
    ):
        GPSBlock(C, H, local=GCNConv(C, 1))(
            torch.randn(5, C), graphs.full(...), graphs.circulant(5, (1, 4)).edge_index
        )
    assert GPSBlock(C, H).eval()(torch.randn(1, C), graphs.full(...)).shape == (1, C)
    with pytest.raises(GraphError, match="give it a size"):
        ga.nn.relative_walk_pe(graphs.circulant(5, (1, 4)), 2, graphs.full(...))
