"""Normalisations that dense products make of their rows, against the definition, edge by edge."""

import pytest
import torch
from graph_table import GRAPHS, KINDS

import graphattn as ga
from graphattn.backends import BACKENDS
from graphattn.backends.inputs import inputs_of
from graphattn.backends.request import Request
from graphattn.nn.normalizers import Sigmoid, by_sum, none


def inputs(graph, normalize, bias):
    draw = torch.Generator().manual_seed(0)
    shapes = [
        (2, graph.num_targets, 6, 5),
        (2, graph.num_sources, 3, 5),
        (2, graph.num_sources, 3, 7),
    ]
    leaves = [
        torch.rand(shape, generator=draw, dtype=torch.float64).requires_grad_() for shape in shapes
    ]
    if bias:
        of_edges = torch.rand(graph.num_edges, 6, generator=draw, dtype=torch.float64)
        of_edges[::3, ::2] = -torch.inf
        leaves.append(of_edges.requires_grad_())
    return leaves, inputs_of(
        *leaves[:3], graph, *leaves[3:], scale=0.3, softcap=1.7, normalize=normalize
    )


def results(name, graph, normalize, bias, weights=True):
    """Weights if requested, output and gradients."""
    leaves, given = inputs(graph, normalize, bias)
    if BACKENDS[name].reasons_against(graph, Request.of(given, weights=weights)):
        return []
    outputs = BACKENDS[name].run(graph, given, weights=weights)
    grads = torch.autograd.grad(outputs.output.sin().sum(), leaves, allow_unused=True)
    return [*[outputs.alpha] * weights, outputs.output, *grads]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("normalize", "bias"),
    [(Sigmoid(), True), (Sigmoid(-0.5), False), (none, True), (none, False), (by_sum, False)],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
# "dense" refuses the first on copies
@pytest.mark.parametrize("weights", [True, False], ids=["weights", "output"])
def test_products_are_the_definition_on_every_graph(normalize, bias, weights):
    ran, names = (
        set(),
        GRAPHS if bias and not weights else (*KINDS, "no_edges", "zero_targets", "zero_sources"),
    )
    for name in names:
        graph = GRAPHS[name]()
        wanted = results("message_passing", graph, normalize, bias, weights)
        for backend in ("dense", "tiles"):
            found = results(backend, graph, normalize, bias, weights)
            ran |= {(backend, name)} if found else set()
            for x, y in zip(found, wanted, strict=bool(found)):
                y = torch.zeros_like(x) if y is None else y
                torch.testing.assert_close(x, y, rtol=0, atol=1e-12, msg=f"{backend} on {name}")
    assert len(ran) > (0.6 if weights else 1.2) * len(names)  # tiles return no weights


class Doubled(Sigmoid):
    """Another function of edges under the same roof."""

    def forward(self, score, target, num_targets):
        return 2 * super().forward(score, target, num_targets)


@pytest.mark.slow
def test_what_may_do_something_else_is_run_edge_by_edge():
    graph, hooked = ga.graphs.full(5), Sigmoid()
    hooked.register_forward_hook(lambda module, given, output: 2 * output)
    own = Sigmoid()
    own.forward = lambda score, target, num_targets: (
        2 * Sigmoid.forward(own, score, target, num_targets)
    )
    for normalize in (Doubled(), hooked, own):
        assert results("dense", graph, normalize, False) == []
        assert torch.equal(
            results("edges", graph, normalize, False)[0],
            2 * results("edges", graph, Sigmoid(), False)[0],
        )


def test_explain_and_the_choice_know_it():
    crowded, sparse = (
        ga.graphs.sliding_window(2048, 257, causal=False),
        ga.graphs.sliding_window(8192, 17, causal=True),
    )
    for normalize in ("sigmoid", Sigmoid(1.0), none):
        assert ga.explain(crowded, heads=4, head_dim=32, normalize=normalize).chosen == "tiles"
    assert ga.explain(sparse, heads=4, head_dim=32, normalize=none).chosen == "edges"
    for normalize in ("sigmoid", Sigmoid(1.0)):  # the block kernel's, as softmax
        found, softmax = (
            next(c for c in ga.explain(sparse, **options).candidates if c.name == "tiles")
            for options in ({"normalize": normalize}, {})
        )
        assert found.cost == softmax.cost
    assert ga.explain(crowded, heads=4, head_dim=32, normalize="sparsemax").chosen == "edges"
