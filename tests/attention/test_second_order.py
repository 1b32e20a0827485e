"""Derivatives of higher order and torch's machinery around them: forces, checkpoints, torch.func,
hooks.
"""

import contextlib
import gc
import weakref

import pytest
import torch
from attention_formula import BACKENDS, assert_near, formula, gradients, tensors
from graph_table import GRAPHS
from torch.autograd import forward_ad
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

import graphattn as ga

both = pytest.mark.parametrize("backend", BACKENDS)


def all_gone(kept):
    """True if nothing keeps what is referred to weakly; a collection takes long, and is tried only
    if needed.
    """
    return (
        all(each() is None for each in kept)
        or gc.collect() < 0
        or all(each() is None for each in kept)
    )


def forces_loss(backend, dtype=torch.float64):
    """Loss on the forces of an energy that attends over a point cloud, and its gradient for every
    parameter.
    """
    torch.manual_seed(0)
    layer = ga.nn.GraphAttention(12, 3, qdim=3, kdim=3, vdim=3, backend=backend).to(dtype)
    energy = torch.nn.Linear(12, 1).to(dtype)
    position = torch.randn(23, 3, dtype=dtype, requires_grad=True)
    graph = ga.graphs.knn(position.detach(), k=5)
    (force,) = torch.autograd.grad(
        -energy(layer(position, graph).tanh()).sum(), position, create_graph=True
    )
    loss = (force - torch.linspace(0, 1, 69, dtype=dtype).view(23, 3)).square().mean()
    # softmax cancels a constant of the keys
    parameters = [p for p in layer.parameters() if p is not layer.k_proj.bias]
    return [force, *torch.autograd.grad(loss, [*parameters, energy.weight])]


@pytest.mark.parametrize("backend", ["auto", "dense"])
def test_a_loss_on_forces(backend):
    found, wanted = forces_loss(backend), forces_loss("message_passing")
    for mine, theirs in zip(found, wanted, strict=True):
        assert_near(mine, theirs)
        assert mine.abs().sum() > 1e-12


def test_a_loss_on_forces_in_bfloat16_is_no_worse_than_the_definition():
    """The second derivative of the dense backend keeps its statistics in float32, too."""
    truth = forces_loss("message_passing")
    errors = []
    for backend in BACKENDS:
        pairs = zip((x.detach() for x in forces_loss(backend, torch.bfloat16)), truth, strict=True)
        errors.append(max(float((x.double() - y).abs().max() / y.abs().max()) for x, y in pairs))
    assert errors[0] <= 2 * errors[1]


@both
def test_third_derivatives(backend):
    graph = GRAPHS["listed_random"]()
    inputs = tensors(graph)
    ends = []
    for function in (
        lambda: ga.attention(*inputs, graph, backend=backend),
        lambda: formula(*inputs, graph)[0],
    ):
        value = function()
        for _ in range(3):
            value = torch.autograd.grad(value.square().sum(), inputs[0], create_graph=True)[0]
        ends.append(value)
    assert_near(*ends)
    assert ends[0].abs().sum() > 0


@both
def test_a_second_backward_needs_retain_graph(backend):
    graph = GRAPHS["causal"]()
    inputs = tensors(graph)
    output = ga.attention(*inputs, graph, backend=backend)
    one = torch.autograd.grad(output.sum(), inputs, retain_graph=True)
    two = torch.autograd.grad(output.sum(), inputs)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(output.sum(), inputs)


@both
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}])
def test_backward_lets_go_of_what_it_kept(options, backend):
    """A loss that outlives its step keeps no activations: each step's would stand beside the next
    one's.
    """
    graph = GRAPHS["listed_random"]()
    leaves = tensors(graph, kv_heads=6)
    given = [x.clone() for x in leaves]
    kept = [weakref.ref(x.untyped_storage()) for x in given]
    loss = ga.attention(*given, graph, backend=backend, **options).sum()
    del given
    assert backend in ("tiles", "message_passing") or any(storage() is not None for storage in kept)
    loss.backward()
    assert all_gone(kept)
    assert loss.requires_grad


@both
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_change_in_place_before_backward_is_found_or_harmless(which, backend):
    graph = GRAPHS["causal"]()
    leaves = tensors(graph, kv_heads=6)
    given = [x * 1 for x in leaves]
    wanted = gradients(ga.attention(*given, graph, backend=backend), leaves)
    output = ga.attention(*given, graph, backend=backend)
    with torch.no_grad():
        given[which].mul_(2)
    try:
        found, message = gradients(output, leaves), ""
    except RuntimeError as error:
        found, message = wanted, str(error)
    assert not message or "modified by an inplace operation" in message
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, wanted, strict=True))


@both
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_keeps_nothing_of_what_it_will_compute_again(reentrant, backend):
    graph, kept, calls = GRAPHS["listed_random"](), [], []

    def forward(x):
        calls.append(1)
        given = [x * factor for factor in (1.0, 2.0, 3.0)]
        output = ga.attention(*given, graph, backend=backend)
        kept.extend(weakref.ref(x.untyped_storage()) for x in (*given, output))
        return output * 2

    x = tensors(graph)[0]
    output = checkpoint(forward, x, use_reentrant=reentrant)
    assert all_gone(kept)
    output.sum().backward()
    assert len(calls) == 2
    assert x.grad.abs().sum() > 0


@both
def test_a_checkpoint_of_several_layers_computes_each_once_more(backend):
    graph = GRAPHS["listed_random"]()
    layers = [ga.nn.GraphAttention(12, 3, backend=backend).double() for _ in range(3)]
    calls = []
    for layer in layers:
        layer.register_forward_pre_hook(lambda *_: calls.append(1))
    block = torch.nn.Module()
    block.forward = lambda x: layers[2](layers[1](layers[0](x, graph), graph), graph)
    x = torch.randn(17, 12, dtype=torch.float64, requires_grad=True)
    (wanted,) = torch.autograd.grad(block(x).square().sum(), x)
    calls.clear()
    (found,) = torch.autograd.grad(checkpoint(block, x, use_reentrant=False).square().sum(), x)
    assert torch.equal(found, wanted)
    assert len(calls) == 6


@both
def test_second_derivatives_through_a_checkpoint(backend):
    graph = GRAPHS["listed_random"]()
    q, k, v = tensors(graph)
    ends = []
    for run in (lambda f, x: f(x), lambda f, x: checkpoint(f, x, use_reentrant=False)):
        output = run(lambda q: ga.attention(q * 1, k, v, graph, backend=backend), q)
        (first,) = torch.autograd.grad(output.square().sum(), q, create_graph=True)
        ends.append(torch.autograd.grad(first.square().sum(), (q, k, v)))
    for mine, theirs in zip(*ends, strict=True):
        assert_near(mine, theirs)
        assert mine.abs().sum() > 0


@both
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_saved_tensors_kept_elsewhere(dropout, backend):
    graph = GRAPHS["listed_random"]()
    inputs = tensors(graph)
    outputs = []
    for hooks in (contextlib.nullcontext, save_on_cpu):
        torch.manual_seed(1)
        with hooks():
            output = ga.attention(*inputs, graph, dropout_p=dropout, backend=backend)
        outputs.append([output, *gradients(output, inputs)])
    for mine, theirs in zip(*outputs, strict=True):
        assert torch.equal(mine, theirs)


FUNCTIONS = {
    "grad": lambda f, q, u: torch.func.grad(lambda q: f(q).square().sum())(q),
    "vjp": lambda f, q, u: torch.func.vjp(f, q)[1](torch.ones_like(f(q)))[0],
    "jvp": lambda f, q, u: torch.func.jvp(f, (q,), (u,))[1],
    "vmap": lambda f, q, u: torch.func.vmap(f)(torch.stack((q, u))),
    "vmap of grad": lambda f, q, u: torch.func.vmap(torch.func.grad(lambda q: f(q).square().sum()))(
        torch.stack((q, u))
    ),
    "hessian-vector": lambda f, q, u: torch.func.jvp(
        torch.func.grad(lambda q: f(q).square().sum()), (q,), (u,)
    )[1],
    "grad of grad": lambda f, q, u: torch.func.grad(
        lambda q: torch.func.grad(lambda q: f(q).square().sum())(q).square().sum()
    )(q),
}


@both
@pytest.mark.parametrize("transform", FUNCTIONS)
def test_torch_func(transform, backend):
    graph = GRAPHS["listed_random"]()
    q, k, v = tensors(graph, requires_grad=False)
    u = torch.randn_like(q)
    apply = FUNCTIONS[transform]
    found = apply(lambda q: ga.attention(q, k, v, graph, backend=backend), q, u)
    wanted = apply(lambda q: formula(q, k, v, graph)[0], q, u) if "vmap" not in transform else None
    if wanted is None:
        single = FUNCTIONS["grad"] if "grad" in transform else lambda f, q, u: f(q)
        wanted = torch.stack(
            [single(lambda q: formula(q, k, v, graph)[0], x, None) for x in (q, u)]
        )
    assert_near(found, wanted)
    assert found.abs().sum() > 0


@both
@pytest.mark.parametrize("asks", [False, True])
def test_forward_mode(asks, backend):
    graph = GRAPHS["listed_random"]()
    inputs = tensors(graph, requires_grad=asks)
    along = [torch.randn_like(x) for x in inputs]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, u) for x, u in zip(inputs, along, strict=True)]
        found = forward_ad.unpack_dual(ga.attention(*duals, graph, backend=backend)).tangent
        wanted = forward_ad.unpack_dual(formula(*duals, graph)[0]).tangent
        assert_near(found, wanted)
        assert found.abs().sum() > 0


@both
def test_per_sample_gradients_of_a_layer(backend):
    graph = GRAPHS["listed_random"]()
    layer = ga.nn.GraphAttention(12, 3, backend=backend).double()
    batch = torch.randn(5, 17, 12, dtype=torch.float64)
    parameters = dict(layer.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(layer, parameters, (x, graph)).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, batch)
    for i in range(5):
        layer.zero_grad()
        layer(batch[i], graph).square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert_near(found[name][i], parameter.grad)


@both
def test_hooks_and_accumulation_see_usual_gradients(backend):
    graph = GRAPHS["causal"]()
    inputs = tensors(graph)
    seen = []
    inputs[1].register_hook(seen.append)
    output = ga.attention(*inputs, graph, backend=backend)
    wanted = gradients(output, inputs)
    seen.clear()
    for _ in range(2):
        ga.attention(*inputs, graph, backend=backend).sum().backward()
    assert len(seen) == 2
    assert_near(inputs[1].grad, seen[0] * 2)
    assert wanted[1].shape == seen[0].shape
