"""Gradients of returned weights: those of the tensor that the output is computed from."""

import pytest
import torch
from attention_formula import WEIGHING, assert_near, biases, may_refuse, tensors
from graph_table import GRAPHS

import graphattn as ga
from graphattn.backends import BACKENDS as registered
from graphattn.backends.base import Backend
from graphattn.errors import BackendError
from graphattn.operands import Outputs

NAMES = (
    "listed_bipartite",
    "isolated_targets",
    "causal",
    "longformer",
    "repeated_edges",
    "one_node",
)
CALLS = [(name, backend) for name in NAMES for backend in WEIGHING]


def twin(query, key, value, graph, bias=None, softcap=None, factor=1.0):
    """Output, weights and lse on all pairs: edge by edge columns of a dense product, from weights
    that are returned.
    """
    group = query.shape[-2] // key.shape[-2]
    key, value = (x.repeat_interleave(group, -2) for x in (key, value))
    score = torch.einsum("...thd,...shd->...hts", query, key) * query.shape[-1] ** -0.5
    score = score if softcap is None else softcap * torch.tanh(score / softcap)
    score = score[..., graph.target, graph.source].transpose(-2, -1)  # (..., E, H)
    score = score if bias is None else score + bias
    into = torch.zeros(graph.num_targets, graph.num_edges, dtype=score.dtype)
    into[graph.target, torch.arange(graph.num_edges)] = 1.0
    power = score.exp()
    total = torch.einsum("te,...eh->...th", into, power)
    alpha = power / total[..., graph.target, :].clamp(min=1e-300)
    kept = alpha if bias is None else alpha.masked_fill(bias == -torch.inf, 0.0)
    messages = (kept * factor).unsqueeze(-1) * value[..., graph.source, :, :]
    return torch.einsum("te,...ehd->...thd", into, messages), alpha, total.log()


def losses(output, alpha):
    """Of the output alone, and of both."""
    f = (output.double().sin() * torch.linspace(-1.0, 2.0, output.numel()).view(output.shape)).sum()
    g = (alpha.double().cos() * torch.linspace(0.5, 3.0, alpha.numel()).view(alpha.shape)).sum()
    return f, f + g


def gradients(output, alpha, inputs):
    """Of alpha, of the inputs from both losses, and second ones: of an input from the gradient of
    alpha.
    """
    f, both = losses(output, alpha)
    (of_alpha,) = torch.autograd.grad(f, alpha, create_graph=True)
    first = [torch.autograd.grad(loss, inputs, retain_graph=True) for loss in (f, both)]
    (of_both,) = torch.autograd.grad(both, alpha, retain_graph=True)
    squared = [x.square().sum() for x in torch.autograd.grad(both, inputs, create_graph=True)]
    second = torch.autograd.grad(of_alpha.square().sum() + sum(squared), inputs)
    return [of_alpha, of_both, *first[0], *first[1], *second]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("name", "backend"), CALLS)
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "bias and softcap"])
def test_gradients_of_weights_are_those_of_the_dense_twin(name, backend, biased):
    graph = GRAPHS[name]()
    if may_refuse(graph, backend, return_weights=True):
        pytest.skip("dense products refuse copies of an edge")
    inputs, options = tensors(graph, (2,)), {}
    if biased:
        bias = biases(graph, (2,)).detach()
        bias[:, ::3, ::2] = -torch.inf
        bias[:, graph.target == 1] = -torch.inf  # a target that reads nothing
        inputs, options = (*inputs, bias.requires_grad_()), {"softcap": 1.7}
    result = ga.attention(
        *inputs[:3], graph, *inputs[3:], backend=backend, return_weights=True, **options
    )
    output, alpha, _ = twin(*inputs[:3], graph, *inputs[3:], **options)
    assert_near(result.output, output)
    for found, expected in zip(
        gradients(result.output, result.weights.alpha, inputs),
        gradients(output, alpha, inputs),
        strict=True,
    ):
        assert expected.abs().sum() > 0
        assert_near(found, expected)


@pytest.mark.parametrize("backend", WEIGHING)
def test_dropped_weights_have_gradients_of_zero_and_the_others_are_scaled(backend):
    graph, p = GRAPHS["listed_bipartite"](), 0.4
    inputs = tensors(graph, (2,))
    result = ga.attention(*inputs, graph, dropout_p=p, backend=backend, return_weights=True)
    f, _ = losses(result.output, result.weights.alpha)
    of_alpha, of_output = torch.autograd.grad(
        f, (result.weights.alpha, result.output), retain_graph=True
    )
    value = inputs[2].repeat_interleave(2, -2)
    undropped = (of_output[:, graph.target] * value[:, graph.source]).sum(-1)
    factor = (of_alpha / undropped).detach()
    kept = factor != 0
    assert_near(factor[kept], torch.full_like(factor[kept], 1 / (1 - p)))
    assert 0.3 < float(kept.double().mean()) < 0.9
    output, alpha, _ = twin(*inputs, graph, factor=factor)
    assert_near(result.output, output)
    found = torch.autograd.grad(losses(result.output, result.weights.alpha)[1], inputs)
    expected = torch.autograd.grad(losses(output, alpha)[1], inputs)
    for x, y in zip(found, expected, strict=True):
        assert_near(x, y)


@pytest.mark.parametrize("backend", WEIGHING)
def test_heads_of_their_own_graphs(backend):
    graph = ga.PerHead([ga.graphs.causal(13), ga.graphs.sliding_window(13, 5, causal=False)])
    inputs = tensors(graph)
    result = ga.attention(*inputs, graph, backend=backend, return_weights=True)
    union = graph.union()
    bias = torch.full((union.num_edges, 6), -torch.inf, dtype=torch.float64)
    bias[result.weights.present()] = 0.0
    output, alpha, _ = twin(*inputs, union, bias)
    found = gradients(result.output, result.weights.alpha, inputs)
    for x, y in zip(found, gradients(output, alpha, inputs), strict=True):
        assert_near(x, y)


@pytest.mark.parametrize("backend", WEIGHING)
def test_chosen_edges(backend):
    graph = ga.graphs.top_k(..., 3, within=ga.graphs.causal(...))(11)
    inputs = tensors(graph, (2,))
    result = ga.attention(*inputs, graph, backend=backend, return_weights=True)
    union, alpha = result.weights.graph, result.weights.alpha
    bias = torch.zeros_like(alpha).masked_fill(alpha == 0, -torch.inf).detach()
    output, dense, _ = twin(*inputs, union, bias)
    for x, y in zip(
        gradients(result.output, alpha, inputs), gradients(output, dense, inputs), strict=True
    ):
        assert_near(x, y)


LAYERS = {
    "edge features": {"edge_dim": 5},
    "edge features of the value": {"edge_dim": 5, "edge_to": "value"},
    "sink": {"normalize": "sink"},
    "sigmoid": {"normalize": "sigmoid"},
    "sparsemax": {"normalize": "sparsemax"},
    "additive": {"score": "additive"},
    "offsets": {"score": "subtraction", "edge_dim": 5},
    "linear": {"score": ga.nn.FeatureScore("elu"), "normalize": "sum"},
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", WEIGHING)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_weights_are_what_values_are_multiplied_with(name, backend):
    """A change of a weight changes the output by the value of its edge: alpha . gradient is
    <gradient, output>.
    """
    torch.manual_seed(0)
    graph, options = GRAPHS["listed_bipartite"](), LAYERS[name]
    layer = ga.nn.GraphAttention(12, 3, out_proj=False, backend=backend, **options).double()
    attr = torch.randn(graph.num_edges, 5).double() if "edge_dim" in options else None
    x, context = (torch.randn(2, n, 12).double() for n in (graph.num_targets, graph.num_sources))
    try:
        output, weights = layer(x, graph, context=context, edge_attr=attr, return_weights=True)
    except BackendError:
        assert backend == "dense"
        return
    direction = torch.randn_like(output)
    (of_alpha,) = torch.autograd.grad(output, weights.alpha, direction, retain_graph=True)
    products = (
        torch.zeros(2, graph.num_targets, 3)
        .double()
        .index_add(1, graph.target, of_alpha * weights.alpha)
    )
    assert of_alpha.abs().min() > 0
    assert_near(products, (direction * output).unflatten(-1, (3, 4)).sum(-1))
    parameters = [p for p in layer.parameters() if p.requires_grad]
    found = torch.autograd.grad((output * direction).sum(), parameters, allow_unused=True)
    alone = layer(x, graph, context=context, edge_attr=attr)
    expected = torch.autograd.grad((alone * direction).sum(), parameters, allow_unused=True)
    assert_near(output, alone)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert_near(one, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("backend", WEIGHING)
def test_weights_of_narrow_dtypes_have_gradients(backend, dtype):
    graph = GRAPHS["listed_bipartite"]()
    inputs = tensors(graph, dtype=dtype)
    result = ga.attention(*inputs, graph, backend=backend, return_weights=True)
    found = torch.autograd.grad(
        losses(result.output, result.weights.alpha)[0], (result.weights.alpha, *inputs)
    )
    wide = [x.detach().double().requires_grad_() for x in inputs]
    output, alpha, _ = twin(*wide, graph)
    expected = torch.autograd.grad(losses(output, alpha)[0], (alpha, *wide))
    for x, y in zip(found, expected, strict=True):
        assert_near(x, y, 1e-5 if dtype == torch.float32 else 3e-2)


@pytest.mark.parametrize("backend", WEIGHING)
def test_a_hook_and_retained_gradients_see_it_also_under_checkpointing(backend):
    graph = GRAPHS["longformer"]()
    layer = ga.nn.GraphAttention(12, 6, backend=backend).double()
    x, seen = torch.randn(graph.num_targets, 12).double(), []
    for checkpointed in (False, True):
        if checkpointed:
            output, weights = torch.utils.checkpoint.checkpoint(
                layer, x, graph, return_weights=True, use_reentrant=False
            )
        else:
            output, weights = layer(x, graph, return_weights=True)
        weights.alpha.retain_grad()
        weights.alpha.register_hook(seen.append)
        output.sin().sum().backward()
        assert torch.equal(seen[-1], weights.alpha.grad)
        assert seen[-1].abs().min() > 0
    assert_near(*seen)


def test_edges_as_tensors():
    graph = GRAPHS["listed_bipartite"]()
    inputs = tensors(graph, (2,))
    found = []
    for edges in (graph, ga.nn.EdgeTensors(graph)):
        result = ga.attention(*inputs, edges, backend="edges", return_weights=True)
        found.append(gradients(result.output, result.weights.alpha, inputs))
    for x, y in zip(*found, strict=True):
        assert_near(x, y)


def test_empty_graphs_have_gradients_of_no_edges():
    graph = GRAPHS["no_edges"]()
    for backend in WEIGHING:
        inputs = tensors(graph)
        result = ga.attention(*inputs, graph, backend=backend, return_weights=True)
        (of_alpha,) = torch.autograd.grad(result.output.sum(), result.weights.alpha)
        assert of_alpha.shape == (0, 6)


def test_a_backend_without_them_is_refused_with_one_that_has_them():
    class Whole(Backend):
        name = "whole"
        call_ms, training_factor, ns = 0.1, 3.0, {"pair": 1.0}

        def reasons_against(self, graph, request):
            return []

        def run(self, graph, inputs, *, weights=False, lse=False):
            outputs = registered["dense"].run(graph, inputs, weights=weights, lse=lse)
            return Outputs(outputs.output, outputs.alpha)

    try:
        graph = ga.graphs.causal(5)
        inputs = tensors(graph)
        with pytest.raises(
            BackendError, match=r"weights without gradients:\n.*backend=.message_passing"
        ):
            ga.attention(*inputs, graph, backend="whole", return_weights=True)
        with torch.no_grad():
            assert (
                ga.attention(*inputs, graph, backend="whole", return_weights=True).weights
                is not None
            )
    finally:
        del registered["whole"]
