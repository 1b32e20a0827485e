"""The engine, broken on purpose in one place at a time: it must notice each by the one thing that
is wrong.
"""

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.backends import BACKENDS
from graphattn.errors import ExactnessError
from graphattn.exactness import assert_exact, operator, verify
from graphattn.graph import AttentionGraph
from graphattn.graph.edges import Edges
from graphattn.graph.forms import band
from graphattn.graph.listed import checked
from graphattn.nn import GraphAttention

GRAPH = GRAPHS["listed_random"]()
# what breaks, breaks for all
FEW = {"dtypes": (torch.float64,), "backends": ("dense", "message_passing")}


def broken(monkeypatch, change):
    """``graphattn.attention`` with ``change(right, arguments, output) -> output`` in its way, for
    every backend.
    """
    right = operator.attention

    def wrong(query, key, value, graph, **options):
        result = right(query, key, value, graph, **options)
        output = result if isinstance(result, torch.Tensor) else result.output
        new = change(output, query, key, value, graph)
        return new if isinstance(result, torch.Tensor) else result._replace(output=new)

    monkeypatch.setattr(operator, "attention", wrong)


def failing(report):
    """What failed, and the claims that broke."""
    rows = {row.quantity for row in report.rows if not row.ok}
    return rows, {check.claim for check in report.checks if not check.ok}


class Detached(torch.autograd.Function):
    """Adds something whose gradient is lost on the way, or the other way round."""

    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.by, None


def test_nothing_fails_when_nothing_is_broken(monkeypatch):
    broken(monkeypatch, lambda output, *rest: output)
    report = assert_exact(GRAPH)
    assert failing(report) == (set(), set())
    assert {row.backend for row in report.rows} == set(BACKENDS)


@pytest.mark.parametrize("by", [1e-10, 1e-3])
def test_an_output_alone_is_caught(monkeypatch, by):
    """Wrong by a constant: no gradient, no invariant sees it."""
    broken(monkeypatch, lambda output, *rest: output + by)
    rows, claims = failing(verify(GRAPHS["full"](), **FEW))
    assert rows == {"output"}
    assert claims == set()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("which", "dtype"),
    [
        ("query", torch.float64),
        ("key", torch.float32),
        ("value", torch.bfloat16),
        ("query", torch.float16),
        ("key", torch.bfloat16),
        ("value", torch.float16),
    ],
)
def test_a_detached_path_is_caught_in_every_dtype(monkeypatch, which, dtype):
    right = operator.attention

    def wrong(query, key, value, graph, **options):
        given = {"query": query, "key": key, "value": value}
        given[which] = given[which].detach()
        return right(*given.values(), graph, **options)

    monkeypatch.setattr(operator, "attention", wrong)
    report = verify(GRAPH, dtypes=(dtype,), backends=("dense", "edges"))
    rows, claims = failing(report)
    assert f"grad {which}" in rows
    assert {row for row in rows if not row.startswith("second")} == {f"grad {which}"}
    assert claims == set()
    assert f"grad {which}" in report.diagnosis
    assert "detach" in report.diagnosis


def test_a_gradient_slightly_wrong_is_caught(monkeypatch):
    broken(monkeypatch, lambda output, *rest: Detached.apply(output, 1.0 + 1e-9))
    rows, claims = failing(verify(GRAPH, **FEW))
    assert "output" not in rows
    assert {"grad query", "grad key", "grad value", "grad score_bias"} <= rows
    assert claims == set()


class Once(torch.autograd.Function):
    """The right gradient, which forgets that it depends on the inputs."""

    @staticmethod
    def forward(ctx, output, query):
        ctx.save_for_backward(query)
        return output.clone()

    @staticmethod
    def backward(ctx, grad):
        (query,) = ctx.saved_tensors
        return grad, torch.zeros_like(query) + (query - query.detach())  # 0, with a derivative of 1


COPIES = ga.from_edge_index([[0, 0], [1, 1]], num_nodes=3, duplicates="keep")


@pytest.mark.parametrize("graph", [GRAPH, COPIES], ids=["random", "copies"])
def test_a_second_derivative_alone_is_caught(monkeypatch, graph):
    broken(monkeypatch, lambda output, query, *rest: Once.apply(output, query))
    rows, _ = failing(verify(graph, **FEW))
    assert rows == {"second query"}


@pytest.mark.parametrize("seed", range(3))
def test_second_derivatives_that_are_zero_may_be_noise(seed):
    """Copies of one edge share its weight whatever the score: every second derivative cancels to
    0.
    """
    assert_exact(COPIES, seed=seed, dtypes=(torch.float64,))


@pytest.mark.parametrize("name", ["lse", "weights"])
def test_lse_and_weights_are_measured(monkeypatch, name):
    right = operator.attention

    def wrong(*args, **options):
        result = right(*args, **options)
        if isinstance(result, torch.Tensor):
            return result
        if result.lse is not None:
            return result._replace(lse=result.lse + 1e-6) if name == "lse" else result
        if name == "lse":
            return result
        return result._replace(
            weights=type(result.weights)(result.weights.graph, result.weights.alpha * (1 + 1e-6))
        )

    monkeypatch.setattr(operator, "attention", wrong)
    rows, _ = failing(verify(GRAPH, **FEW))
    assert name in rows
    assert "output" not in rows


def test_lse_without_a_gradient_is_caught(monkeypatch):
    right = operator.attention

    def wrong(*args, **options):
        result = right(*args, **options)
        if isinstance(result, torch.Tensor) or result.lse is None:
            return result
        return result._replace(lse=result.lse.detach())

    monkeypatch.setattr(operator, "attention", wrong)
    rows, _ = failing(verify(GRAPH, **FEW))
    assert {"grad query", "grad key"} <= rows
    assert not rows & {"output", "lse"}


# --- wrong by less than any tolerance, and yet wrong


def test_a_trace_of_a_non_neighbour_is_caught(monkeypatch):
    broken(monkeypatch, lambda output, q, k, v, graph: output + 1e-15 * v.detach().sum())
    rows, claims = failing(verify(GRAPH, **FEW))
    assert rows == set()
    assert claims == {"non-neighbours are not read, bit for bit"}


def test_a_gradient_to_a_non_neighbour_is_caught(monkeypatch):
    class Leak(torch.autograd.Function):
        @staticmethod
        def forward(ctx, output, value):
            ctx.shape = value.shape
            return output.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad, grad.new_full(ctx.shape, 1e-20)

    broken(monkeypatch, lambda output, q, k, v, graph: Leak.apply(output, v))
    rows, claims = failing(verify(GRAPH, **FEW))
    assert rows == set()
    assert claims == {"the gradient of a non-neighbour is exactly 0"}


def test_almost_zero_at_an_isolated_target_is_caught(monkeypatch):
    broken(monkeypatch, lambda output, *rest: output + 1e-30 * (output == 0))
    rows, claims = failing(verify(GRAPHS["isolated_targets"](), **FEW))
    assert rows == set()
    assert claims == {"a target without an edge gives exactly 0"}


def test_other_bits_at_every_run_are_caught(monkeypatch):
    runs = iter(range(10**6))
    broken(monkeypatch, lambda output, *rest: output * (1 + next(runs) % 7 * 2.0**-52))
    rows, claims = failing(verify(GRAPHS["full"](), **FEW))
    assert rows == set()
    assert claims == {"the same bits twice"}


def test_a_backend_that_remembers_the_first_graph_is_caught(monkeypatch):
    """A plan cached under the wrong key answers for another graph."""
    right = operator.attention
    monkeypatch.setattr(
        operator,
        "attention",
        lambda q, k, v, graph, **o: right(q, k, v, GRAPH if graph.num_edges == 61 else graph, **o),
    )
    rows, claims = failing(verify(GRAPH, **FEW))
    assert rows == set()
    assert {
        "the order of the edges does not matter",
        "the labels of the nodes do not matter",
    } <= claims


def test_a_finite_stand_in_for_minus_infinity_is_caught(monkeypatch):
    """B3: a row of biases of -1e9 is not a row without edges."""
    right = operator.attention

    def wrong(*args, score_bias=None, **options):
        return right(
            *args, score_bias=None if score_bias is None else score_bias.clamp(min=-1e9), **options
        )

    monkeypatch.setattr(operator, "attention", wrong)
    rows, claims = failing(verify(GRAPH, **FEW))
    assert rows == set()
    assert claims == {"an edge with a bias of -inf is an edge removed"}


class AtMinusInfinity(torch.autograd.Function):
    """Biases whose gradient is something else than 0 where they are -inf."""

    @staticmethod
    def forward(ctx, bias, grad):
        ctx.save_for_backward(bias)
        ctx.grad = grad
        return bias.clone()

    @staticmethod
    def backward(ctx, grad):
        (bias,) = ctx.saved_tensors
        return torch.where(bias == -torch.inf, ctx.grad, grad), None


@pytest.mark.parametrize(
    ("grad", "words"),
    [
        (1e-20, "such an edge is sent a gradient"),
        (torch.nan, "the gradient of score_bias is not finite"),
    ],
)
def test_a_gradient_of_a_bias_of_minus_infinity_is_caught(monkeypatch, grad, words):
    right = operator.attention

    def wrong(*args, score_bias=None, **options):
        bias = None if score_bias is None else AtMinusInfinity.apply(score_bias, grad)
        return right(*args, score_bias=bias, **options)

    monkeypatch.setattr(operator, "attention", wrong)
    report = verify(GRAPH, dtypes=(torch.float64,), backends=("message_passing",))
    assert {(check.claim, check.detail) for check in report.checks if not check.ok} == {
        ("an edge with a bias of -inf is an edge removed", words)
    }


def test_a_removed_edge_that_stays_is_caught(monkeypatch):
    """A plan kept from the graph as it was: edge 60 comes back whenever an edge is missing."""
    right = operator.attention

    def wrong(query, key, value, graph, score_bias=None, **options):
        if graph.num_edges == 60:
            missing = (GRAPH - graph).edge_index
            index = torch.cat((graph.edge_index, missing), 1)
            graph = AttentionGraph(checked(index, 17, 17), "restored")
            score_bias = torch.cat((score_bias, operator_bias(missing)))
        return right(query, key, value, graph, score_bias=score_bias, **options)

    def operator_bias(missing):
        place = ((GRAPH.source == missing[0]) & (GRAPH.target == missing[1])).nonzero().flatten()
        return (
            operator.GraphSubject(GRAPH)
            .leaves(operator.Case("score_bias", bias=True), torch.float64)["score_bias"]
            .detach()[place]
        )

    monkeypatch.setattr(operator, "attention", wrong)
    rows, claims = failing(verify(GRAPH, **FEW))
    assert rows == set()
    assert claims == {"a removed edge is seen"}


def test_a_lost_edge_is_caught():
    """One edge among 61 is dropped by the code under test."""
    fewer = AttentionGraph(GRAPH.edges.keep(torch.arange(61) != 17), "one lost")
    report = verify(lambda q, k, v: operator.attention(q, k, v, fewer), GRAPH, heads=6, kv_heads=3)
    assert "output" in failing(report)[0]
    assert "1 of 17 targets is wrong" in report.diagnosis


def test_a_rule_that_disagrees_with_itself_is_caught():
    """C14: the closed form of ``contains`` says one thing, the runs of its rows another."""

    right = band(11, 11, 0, 3)

    def wrong(target, source):
        return right.contains(target, source) & ~((target == 7) & (source == 5))

    report = verify(AttentionGraph(Edges(11, 11, right.rows, contains=wrong), "liar"))
    _, claims = failing(report)
    assert "the rule's closed form agrees with its edges" in claims
    assert "contains(7, 5)" in str(report)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["k_proj.weight", "edge_proj.weight", "skip.root.weight"])
def test_a_detached_parameter_of_a_layer_is_caught(monkeypatch, name):
    torch.manual_seed(0)
    layer = GraphAttention(12, 3, edge_dim=5, root_weight=True)
    right = GraphAttention.forward

    def wrong(self, *args, **options):
        owner = self.get_submodule(name.rpartition(".")[0])
        kept = owner._parameters[name.rpartition(".")[2]]
        owner._parameters[name.rpartition(".")[2]] = kept.detach()
        try:
            return right(self, *args, **options)
        finally:
            owner._parameters[name.rpartition(".")[2]] = kept

    monkeypatch.setattr(GraphAttention, "forward", wrong)
    rows, _ = failing(verify(layer, GRAPH, dtypes=(torch.float32,), backends=FEW["backends"]))
    assert rows == {f"grad {name}"}


def test_a_layer_that_forgets_its_edge_features_is_caught(monkeypatch):
    right = GraphAttention.forward

    def forgetful(self, x, graph, context=None, edge_attr=None, score_bias=None):
        return right(
            self, x, graph, context=context, edge_attr=edge_attr * 0, score_bias=score_bias
        )

    monkeypatch.setattr(GraphAttention, "forward", forgetful)
    rows, _ = failing(verify(GraphAttention(12, 3, edge_dim=5), GRAPH, **FEW))
    assert "output" in rows


def test_assert_exact_raises_with_the_report():
    with pytest.raises(ExactnessError, match="NOT EXACT") as caught:
        assert_exact(lambda q, k, v: v, GRAPH)
    assert isinstance(caught.value, AssertionError)
    assert "diagnosis" in str(caught.value)
