"""A layer is copied, pickled, saved, and put into models of PyG."""

import copy
import io
import pickle

import fresh_python
import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga

C, H = 12, 3


def case(backend="auto", **options):
    torch.manual_seed(0)
    return (
        ga.nn.GraphAttention(C, H, backend=backend, **options),
        GRAPHS["listed_random"](),
        torch.randn(2, 17, C),
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_layer_and_graph(copied):
    layer, graph, x = case()
    wanted = layer(x, graph)
    for g in (graph, copied(graph)):
        assert torch.equal(copied(layer)(x, g), wanted)
        assert g.equals(graph)
    twin = copied(layer)
    with torch.no_grad():
        twin.v_proj.weight.zero_()
    assert torch.equal(layer(x, graph), wanted)


@pytest.mark.parametrize("feature_map", ["elu", "softmax", "identity"])
def test_a_layer_of_features_is_pickled(feature_map):
    layer, graph, x = case(score=ga.nn.FeatureScore(feature_map), normalize="sum")
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x, graph), layer(x, graph))


@pytest.mark.slow
def test_a_pickle_opens_in_a_fresh_process(tmp_path):
    layer, graph, x = case()
    file = tmp_path / "layer.pickle"
    file.write_bytes(pickle.dumps((layer, graph, x, layer(x, graph))))
    code = (
        f"import pickle, torch; layer, graph, x, y = pickle.load(open({str(file)!r}, 'rb'));"
        "print(torch.allclose(layer(x, graph), y, atol=1e-6), repr(layer))"
    )
    done = fresh_python.run(code)
    assert done.stdout.strip() == "True GraphAttention(embed_dim=12, num_heads=3)", done.stderr


def test_state_dict_round_trip():
    layer, graph, x = case(edge_dim=5, root_weight=True)
    edge_attr = torch.randn(graph.num_edges, 5)
    wanted = layer(x, graph, edge_attr=edge_attr)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    torch.manual_seed(9)
    other = ga.nn.GraphAttention(C, H, edge_dim=5, root_weight=True)
    assert not torch.allclose(other(x, graph, edge_attr=edge_attr), wanted)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x, graph, edge_attr=edge_attr), wanted)
    names = ["edge_proj.weight"]
    names += [
        f"{p}.{n}"
        for p in ("k_proj", "out_proj", "q_proj", "skip.root", "v_proj")
        for n in ("bias", "weight")
    ]
    assert sorted(layer.state_dict()) == sorted(names)


def test_it_sits_in_pyg_models():
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import Sequential, global_mean_pool

    torch.manual_seed(0)
    model = Sequential(
        "x, edge_index, batch",
        [
            (ga.nn.GraphAttention(C, H), "x, edge_index -> x"),
            torch.nn.ReLU(),
            (ga.nn.GraphAttention(C, H), "x, edge_index -> x"),
            (global_mean_pool, "x, batch -> x"),
        ],
    )
    parts = [Data(torch.randn(n, C), torch.randperm(n * n)[: 2 * n].unsqueeze(0)) for n in (5, 7)]
    for part in parts:
        n = part.num_nodes
        part.edge_index = torch.cat((part.edge_index // n, part.edge_index % n))
    batch = Batch.from_data_list(parts)
    together = model(batch.x, batch.edge_index, batch.batch)
    alone = [model(p.x, p.edge_index, torch.zeros(p.num_nodes, dtype=torch.int64)) for p in parts]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)
