"""PyG's explainers on our layer, and its hooks."""

import pytest
import torch
from attention_formula import assert_near
from graph_table import GRAPHS
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer
from torch_geometric.nn import TransformerConv

import graphattn as ga
from graphattn.errors import BackendError, OptionError

C, H = 12, 3


class Model(torch.nn.Module):
    """Two layers and a readout, called as PyG calls its models."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def models():
    torch.manual_seed(0)
    convs = [TransformerConv(C, C // H, heads=H), TransformerConv(C, C // H, heads=H)]
    return Model(*convs), Model(*map(ga.nn.GraphAttention.from_pyg, convs))


def explain(model, algorithm, graph, x, **options):
    explainer = Explainer(
        model,
        algorithm=algorithm,
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
        **options,
    )
    return explainer(x, graph.edge_index, index=3)


def test_attention_explainer_sees_what_it_sees_in_pyg():
    graph, x = GRAPHS["listed_random"](), torch.randn(17, C)
    theirs, ours = (explain(model, AttentionExplainer(), graph, x) for model in models())
    assert ours.edge_mask.shape == (graph.num_edges,)
    assert_near(ours.edge_mask, theirs.edge_mask, 1e-6)
    assert ours.edge_mask.std() > 0.01


def test_gnn_explainer_learns_the_mask_it_learns_in_pyg():
    graph, x = GRAPHS["listed_random"](), torch.randn(17, C)
    masks = []
    for model in models():
        torch.manual_seed(1)
        options = {"node_mask_type": "attributes"}
        masks.append(explain(model, GNNExplainer(epochs=30), graph, x, **options))
    theirs, ours = masks
    assert_near(ours.edge_mask, theirs.edge_mask, 1e-4)
    assert_near(ours.node_mask, theirs.node_mask, 1e-4)
    assert ours.edge_mask.std() > 0.01


def test_a_layer_made_after_the_operator_ran_can_be_explained():
    """PyG replaces methods of a class at its first use; neither ours nor a user's subclass may
    inherit that.
    """
    graph, x = GRAPHS["listed_random"](), torch.randn(17, C)
    ga.attention(*[x.unflatten(-1, (H, -1))] * 3, graph, backend="message_passing")
    ga.nn.GraphAttention(C, H)(x, graph)

    class Mine(ga.nn.GraphAttention):
        pass

    found = explain(Mine(C, H), GNNExplainer(epochs=3), graph, x)
    assert found.edge_mask.shape == (graph.num_edges,)
    assert found.edge_mask.std() > 0


def test_after_an_explanation_the_layer_is_as_before():
    graph, x = GRAPHS["listed_random"](), torch.randn(17, C)
    _, model = models()
    before = model(x, graph.edge_index)
    explain(model, AttentionExplainer(), graph, x)
    explain(model, GNNExplainer(epochs=2), graph, x)
    assert torch.equal(model(x, graph.edge_index), before)
    assert model.first._alpha is None
    assert not model.first.is_observed()


def test_hooks_on_messages_are_called_and_may_change_them():
    graph, x = GRAPHS["causal"](), torch.randn(2, 13, C)
    layer = ga.nn.GraphAttention(C, H)
    plain, weights = layer(x, graph, return_weights=True)
    seen = []
    with torch.no_grad():
        handle = layer.register_message_forward_hook(
            lambda module, inputs, out: seen.append((module._alpha, out))
        )
        found, observed = layer(x, graph, return_weights=True)
    handle.remove()
    assert_near(found, plain, 1e-5)
    assert_near(seen[0][0], weights.alpha, 1e-5)
    assert_near(observed.alpha, weights.alpha, 1e-5)
    assert seen[0][1].shape == (2, graph.num_edges, H, C // H)
    silenced = layer.register_message_forward_hook(lambda module, inputs, out: out * 0)
    assert_near(layer(x, graph), layer.out_proj.bias.expand(2, 13, -1))
    silenced.remove()
    assert len(seen) == 1


def test_a_backend_that_passes_no_messages_cannot_be_observed():
    graph, x = GRAPHS["causal"](), torch.randn(13, C)
    layer = ga.nn.GraphAttention(C, H, backend="dense")
    layer(x, graph)
    handle = layer.register_message_forward_hook(lambda *_: None)
    with pytest.raises(BackendError, match="'dense' cannot run an observed layer") as caught:
        layer(x, graph)
    assert 'only "auto" and "message_passing" pass' in caught.value.reasons[0]
    handle.remove()
    layer(x, graph)


def test_explaining_an_edge_that_matters():
    """One edge carries the whole difference; its mask must end above the others'."""
    graph = ga.from_edge_index([[0, 1, 2], [3, 3, 3]], num_nodes=4)
    layer = ga.nn.GraphAttention(2, 1, out_proj=False, bias=False)
    with torch.no_grad():
        layer.q_proj.weight.zero_()
        layer.v_proj.weight.copy_(torch.eye(2))
    x = torch.tensor([[9.0, -9.0], [0.1, 0.0], [0.0, 0.1], [0.0, 0.0]])
    torch.manual_seed(0)
    found = explain(layer, GNNExplainer(epochs=100, lr=0.1), graph, x)
    assert found.edge_mask.argmax() == 0


def test_explain_of_a_layer_names_the_function_that_explains():
    """PyG keeps a flag of this name, None while no explainer runs, which is no function."""
    graph, layer = GRAPHS["listed_random"](), ga.nn.GraphAttention(C, H)
    with pytest.raises(OptionError, match=r"graphattn\.explain\(graph, heads=layer\.num_heads"):
        layer.explain(graph)
    assert ga.explain(graph, heads=layer.num_heads, head_dim=layer.head_dim).chosen


@pytest.mark.parametrize("algorithm", [AttentionExplainer, lambda: GNNExplainer(epochs=2)])
def test_the_flag_that_pyg_sets_is_kept_and_cleared(algorithm):
    graph, x = GRAPHS["listed_random"](), torch.randn(17, C)
    _, ours = models()
    seen = []
    ours.second.register_message_forward_hook(lambda *_: seen.append(ours.second.explain))
    ours.first.explain = False  # PyG's own way to leave a layer out
    explain(ours, algorithm(), graph, x)
    is_masked = algorithm is not AttentionExplainer
    assert any(flag is True for flag in seen) == is_masked
    assert ours.first.explain is False
    assert not ours.second.explain
    assert ours.second.explain is not False  # or the next explainer would leave it out
    ours.second.decomposed_layers = 2
    ours.second.decomposed_layers = 1
    assert ours(x, graph.edge_index).isfinite().all()


def test_a_layer_whose_flag_is_asked_is_one_program():
    graph, layer, x = GRAPHS["listed_random"](), ga.nn.GraphAttention(C, H), torch.randn(17, C)

    def run(x):
        if layer.explain:
            return x
        return layer(x, graph)

    assert_near(torch.compile(run, backend="eager", fullgraph=True)(x), layer(x, graph), 1e-6)
