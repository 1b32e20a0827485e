"""Influence of sources: by products of matrices, bounds that measured Jacobians keep, and Jacobians
by autograd.
"""

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn import analysis, graphs
from graphattn.errors import GraphError, OptionError, ShapeError


def weighted(graph, aggregate, residual):
    """Counted edge by edge."""
    step = torch.zeros(graph.num_targets, graph.num_sources, dtype=torch.float64)
    pairs = graph.edge_index.t().tolist()
    into, out = ([pair[side] for pair in pairs] for side in (1, 0))
    for s, t in pairs:
        degree = {"mean": into.count(t), "sum": 1, "gcn": (into.count(t) * out.count(s)) ** 0.5}[
            aggregate
        ]
        step[t, s] += 1 / degree
    return step + torch.eye(graph.num_targets).double() if residual and graph.is_square else step


@pytest.mark.sample(4)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("name", list(GRAPHS))
def test_a_bound_is_the_product_of_weighted_masks(name, residual):
    graph = GRAPHS[name]()
    stack = [graph, graph] if graph.is_square else [graph]
    for aggregate in ("mean", "sum", "gcn"):
        found = analysis.jacobian_bound(
            stack, lipschitz=0.7, aggregate=aggregate, residual=residual
        )
        step = 0.7 * weighted(graph, aggregate, False)
        if residual and graph.is_square:
            step += torch.eye(graph.num_targets).double()
        torch.testing.assert_close(found, step @ step if len(stack) == 2 else step)


@pytest.mark.parametrize("residual", [False, True])
def test_an_influence_is_where_a_walk_is(residual):
    window, ring = graphs.sliding_window(11, 4, causal=True), graphs.circulant(11, (1, 5))
    found = analysis.influence_distribution([window, ring, window], [3, 10], residual=residual)
    steps = [weighted(graph.materialise(), "sum", residual) for graph in (window, ring)]
    first, middle = (step / step.sum(1, keepdim=True) for step in steps)
    torch.testing.assert_close(found, (first @ middle @ first)[[3, 10]])
    torch.testing.assert_close(found.sum(1), torch.ones(2).double())
    counts = analysis.path_counts([window, ring, window], [3, 10], residual=residual)
    assert torch.equal(found > 0, counts > 0)


class MessagePassing(torch.nn.Module):
    """Means of neighbours times a matrix of spectral norm 1.3, with tanh."""

    def __init__(self, graph, layers, residual):
        super().__init__()
        mask = graph.mask().double()
        self.register_buffer("mean", mask / mask.sum(1, keepdim=True).clamp(min=1))
        matrices = [
            torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0] * 1.3 for _ in range(layers)
        ]
        self.matrices, self.residual = matrices, residual

    def forward(self, x):
        for matrix in self.matrices:
            x = torch.tanh(self.residual * x + self.mean @ x @ matrix)
        return x


@pytest.mark.parametrize("residual", [False, True])
def test_a_measured_jacobian_keeps_the_bound_and_reaches_it_where_nothing_saturates(residual):
    torch.manual_seed(0)
    graph = graphs.sliding_window(13, 3, causal=False)
    model = MessagePassing(graph, 3, residual)
    bound = analysis.jacobian_bound([graph] * 3, lipschitz=1.3, residual=residual)
    measured = analysis.jacobian_norms(model, torch.randn(2, 13, 5, dtype=torch.float64))
    assert bool((measured <= bound + 1e-12).all())
    assert torch.equal(measured > 0, bound > 0)
    assert float(measured[6, 6]) < 0.9 * float(bound[6, 6])  # tanh saturates
    if not residual:  # at 0, slopes are 1 and the matrices orthogonal: the bound is the Jacobian
        at_zero = analysis.jacobian_norms(model, torch.zeros(13, 5, dtype=torch.float64))
        torch.testing.assert_close(at_zero, bound)


def test_attention_with_equal_scores_has_the_influence_of_the_graph():
    torch.manual_seed(0)
    graph = graphs.sliding_window(11, 4, causal=True)
    key = torch.zeros(1, 11, 1, 3)

    def model(x):
        for _ in range(3):
            value = x[None, :, None]
            x = ga.attention(key, key, value, graph)[0, :, 0]
        return x

    measured = analysis.jacobian_norms(model, torch.randn(11, 3), [10, 2], norm="sum")
    share = measured / measured.sum(1, keepdim=True)
    expected = analysis.influence_distribution([graph] * 3, [10, 2])
    torch.testing.assert_close(share, expected, atol=1e-6, rtol=1e-5)


def test_an_untrained_relu_model_has_it_in_expectation():
    """Theorem 1 of Xu et al., over draws of weights and inputs."""
    torch.manual_seed(0)
    graph = graphs.circulant(9, (0, 1)) | graphs.circulant(9, (3,))
    mean = graph.mask().double()
    mean /= mean.sum(1, keepdim=True)
    total = torch.zeros(9, dtype=torch.float64)
    for _ in range(40):
        weights = torch.randn(2, 16, 16, dtype=torch.float64) / 4
        total += analysis.jacobian_norms(
            lambda x, w=weights: (mean @ (mean @ x @ w[0]).relu() @ w[1]).relu(),
            torch.randn(16, 9, 16, dtype=torch.float64),
            [4],
            norm="sum",
        )[0]
    expected = analysis.influence_distribution([graph] * 2, [4])[0]
    assert float((total / total.sum() - expected).abs().max()) < 0.03
    assert float(expected.max()) > 0.2


def test_a_removed_edge_is_seen_and_over_squashing_grows_with_the_tree():
    parent = torch.tensor([-1, 0, 0, 1, 1, 2, 2])
    tree = graphs.tree(parent, read="children")
    cut = tree - ga.from_edge_index(torch.tensor([[5], [2]]), num_nodes=7)
    before, after = (analysis.jacobian_bound([graph] * 2, [0])[0] for graph in (tree, cut))
    assert before.tolist() == [0, 0, 0, 0.25, 0.25, 0.25, 0.25]
    assert after.tolist() == [0, 0, 0, 0.25, 0.25, 0, 0.5]
    virtual = tree | graphs.global_tokens(7, (0,))
    assert float(analysis.jacobian_bound(virtual, [0])[0, 3]) > 0  # one layer reaches a leaf


def test_jacobian_norms_are_autograds_and_leave_the_model_as_it_was():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 7), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(5), torch.nn.Tanh()
    )
    model = model.double().train()
    x, kept = (
        torch.randn(2, 5, 3, dtype=torch.float64),
        {k: v.clone() for k, v in model.state_dict().items()},
    )
    state = torch.random.get_rng_state()
    for norm in ("spectral", "sum"):
        found = analysis.jacobian_norms(model, x, norm=norm)
        assert model.training
        for sample_found in found.unsqueeze(0):
            blocks = []
            for sample in x:
                model.eval()
                # (T, C', S, C)
                whole = torch.autograd.functional.jacobian(model, sample[None])[0, :, :, 0]
                model.train()
                block = whole.movedim(2, 1)
                blocks.append(
                    torch.linalg.matrix_norm(block, 2)
                    if norm == "spectral"
                    else block.abs().sum((-2, -1))
                )
            torch.testing.assert_close(sample_found, torch.stack(blocks).mean(0))
    assert all(torch.equal(kept[key], value) for key, value in model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_cannot_be_measured_or_costs_too_much_is_refused():
    x = torch.randn(5, 3)
    for call, error, words in (
        (
            lambda: analysis.jacobian_norms(lambda x: x.sum(), x),
            ShapeError,
            "result of module must",
        ),
        (
            lambda: analysis.jacobian_norms(lambda x: x, torch.arange(5)),
            ShapeError,
            "x must be floating point",
        ),
        (
            lambda: analysis.jacobian_norms(lambda x: x, x, [5]),
            OptionError,
            "targets must be below 5, the number of targets",
        ),
        (
            lambda: analysis.jacobian_norms(lambda x: x, torch.randn(9000, 2)),
            GraphError,
            "18,000 backward passes",
        ),
        (lambda: analysis.jacobian_norms(lambda x: x, x, norm="max"), OptionError, "norm must be"),
        (
            lambda: analysis.jacobian_bound(graphs.causal(5), lipschitz=0),
            OptionError,
            "lipschitz must be",
        ),
        (
            lambda: analysis.jacobian_bound(graphs.causal(5), aggregate="max"),
            OptionError,
            "aggregate must be",
        ),
        (
            lambda: analysis.influence_distribution(graphs.sliding_window(10**5, 3, causal=True)),
            GraphError,
            r"targets=\[t\]",
        ),
        (lambda: analysis.jacobian_bound(graphs.full(10**6), [0]), GraphError, "smaller size"),
    ):
        with pytest.raises(error, match=words):
            call()
    assert analysis.jacobian_norms(lambda x: x, x, []).shape == (0, 5)


def test_no_nodes_no_edges_and_sides_of_no_nodes():
    for ask in (analysis.influence_distribution, analysis.jacobian_bound):
        assert ask(graphs.full(0)).shape == (0, 0)
        assert ask(graphs.cross(0, 3)).shape == (0, 3)
        assert not ask(graphs.full(5) - graphs.full(5)).any()
        assert torch.equal(
            ask(graphs.full(5) - graphs.full(5), residual=True), torch.eye(5).double()
        )


def test_jacobian_norms_of_constants_are_zero_and_of_no_numbers_refused():
    x, constant = torch.randn(3, 2), torch.zeros(3, 2, requires_grad=True)
    assert analysis.jacobian_norms(lambda x: constant + 0, x).tolist() == [[0.0] * 3] * 3
    for module, given, options, words in (
        (
            lambda x: x * torch.nan,
            x,
            {},
            "the result of module must be finite, got NaN or infinity",
        ),
        (lambda x: x, x[None][:0], {}, "one sample or more"),
        (lambda x: x, x, {"targets": 1}, "targets must be a list of targets"),
    ):
        with pytest.raises((OptionError, ShapeError), match=words):
            analysis.jacobian_norms(module, given, **options)
