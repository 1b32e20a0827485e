"""What a module reads, by moving its inputs: right modules are accused of nothing, and wrong ones
are caught.
"""

from functools import partial

import pytest
import torch

import graphattn as ga
from graphattn import GraphAttnError, analysis, graphs


class Stack(torch.nn.Module):
    """Layers of attention with residual connections, dropout between them."""

    def __init__(self, layers):
        super().__init__()
        torch.manual_seed(0)
        self.graphs = layers
        self.blocks = torch.nn.ModuleList(
            ga.nn.GraphAttention(embed_dim=8, num_heads=2) for _ in layers
        )
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x):
        for block, graph in zip(self.blocks, self.graphs, strict=True):
            x = x + self.dropout(block(x, graph))
        return x


LAYERS = [
    graphs.sliding_window(13, 3, causal=True),
    graphs.sliding_window(13, 3, causal=True, dilation=4),
]
X = torch.randn(2, 13, 8, generator=torch.Generator().manual_seed(1))


def test_a_right_module_reads_exactly_its_receptive_field():
    module = Stack(LAYERS).train()
    module.dropout.eval()
    found = analysis.measure_leaks(module, X, LAYERS)
    field = analysis.receptive_field(LAYERS, residual=True).graphs[-1]
    assert (found.ok, found.num_silent, found.num_dependent) == (True, 0, field.num_edges)
    assert str(found) == "no leak (13 of 13 sources moved, 13 targets compared)"
    assert module.training  # left as it was
    assert not module.dropout.training
    assert analysis.measure_leaks(module, X).ok


def test_a_module_with_a_window_too_wide_is_caught():
    wide = [LAYERS[0], graphs.sliding_window(13, 5, causal=True, dilation=4)]
    found = analysis.measure_leaks(Stack(wide), X, LAYERS)
    expected = (
        analysis.receptive_field(wide, residual=True).graphs[-1]
        - analysis.receptive_field(LAYERS, residual=True).graphs[-1]
    )
    assert not found.ok
    assert found.num_leaks == expected.num_edges
    assert all(bool(expected.contains(t, s)) for s, t in found.leaks)
    assert found.to_dict()["num_leaks"] == expected.num_edges
    narrow = analysis.measure_leaks(Stack(LAYERS), X, wide)
    assert narrow.ok
    assert narrow.num_silent == expected.num_edges
    assert "1 pair may depend and did not" in str(narrow)


def test_the_future_is_read_where_the_graphs_say_so():
    layers = [LAYERS[0], graphs.sliding_window(13, 3, causal=False)]
    found = analysis.measure_leaks(Stack(layers), X)
    assert found.leaks[0] == (1, 0)
    assert bool(ga.leaks(layers)) == (not found.ok)


def test_plain_torch_modules_and_token_ids():
    torch.manual_seed(0)
    body = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    embedding = torch.nn.Embedding(11, 8)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(7)
    ids = torch.randint(0, 11, (2, 7))
    assert analysis.measure_leaks(lambda x: body.eval()(embedding(x), src_mask=mask), ids).ok
    assert analysis.measure_leaks(lambda x: body.eval()(embedding(x)), ids).num_leaks == 21
    means = torch.nn.AvgPool1d(2, 2)  # five targets of ten sources

    def pooled(x):
        return means(x.transpose(-1, -2)).transpose(-1, -2)

    assert analysis.measure_leaks(pooled, torch.randn(10, 3), graphs.cross(5, 10)).num_silent == 40
    pairs = ga.from_edge_index(torch.stack((torch.arange(10), torch.arange(10) // 2)), 10, 5)
    found = analysis.measure_leaks(pooled, torch.randn(10, 3), pairs)
    assert (found.ok, found.num_silent, found.num_dependent) == (True, 0, 10)


def encoder(**options):
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options).train()


def test_dropout_is_no_leak():
    body = encoder(dropout=0.3)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(13)
    before = torch.get_rng_state()
    found = analysis.measure_leaks(lambda x: body(x, src_mask=mask), X, graphs.causal(13))
    assert (found.ok, found.random, found.num_leaks) == (True, True, 0)
    assert "may hide a leak: call .eval()" in str(found)
    assert torch.equal(torch.get_rng_state(), before)
    assert body.training
    asked = analysis.measure_leaks(lambda x: body.eval()(x, src_mask=mask), X, graphs.causal(13))
    assert (asked.ok, asked.random, asked.num_silent) == (True, False, 0)
    assert "random" not in str(asked)
    assert body.training  # put back, though the function changed it
    # no mask: the future is read in training, too
    wrong = analysis.measure_leaks(lambda x: body(x), X, graphs.causal(13))
    assert not wrong.ok
    # a module is asked in eval mode
    assert not analysis.measure_leaks(body.train(), X, graphs.causal(13)).random


def test_what_a_module_holds_is_left_as_it_was():
    norm = torch.nn.BatchNorm1d(13).train()  # nodes are its channels
    kept = {name: buffer.clone() for name, buffer in norm.state_dict().items()}
    for function in (
        norm,
        norm.forward,
        lambda x: norm(x),
        partial(torch.nn.Module.__call__, norm),
    ):
        assert analysis.measure_leaks(function, X).ok
        assert all(torch.equal(buffer, kept[name]) for name, buffer in norm.state_dict().items())
        assert norm.training
    norm(X)
    assert not torch.equal(norm.running_mean, kept["running_mean"])  # as a call alone does


def test_batch_statistics_are_a_leak():
    norm = torch.nn.BatchNorm1d(8).train()
    found = analysis.measure_leaks(lambda x: norm(x.flatten(0, 1)).view_as(x), X)
    assert (found.num_dependent, found.num_leaks) == (13 * 13, 78)
    assert (
        analysis.measure_leaks(lambda x: norm.eval()(x.flatten(0, 1)).view_as(x), X).num_dependent
        == 13
    )


def test_random_and_stateful_functions_are_refused():
    generator = torch.Generator().manual_seed(0)
    calls = []

    def counts(x):
        calls.append(x)
        return x + len(calls)

    def later(x):
        calls.append(x)
        return x + (len(calls) > 20)

    for wrong in (counts, later, lambda x: x + torch.rand((), generator=generator)):
        calls.clear()
        with pytest.raises(
            GraphAttnError, match=r"random by other means or stateful.*deterministic function"
        ):
            analysis.measure_leaks(wrong, X)
    assert analysis.measure_leaks(lambda x: x + torch.rand(()), X).random  # by torch's own state


def test_a_sample_of_the_sources():
    found = analysis.measure_leaks(lambda x: x.flip(-2), torch.randn(50, 2), at_most=7)
    assert (found.sources, found.num_sources) == (7, 50)
    assert (49, 0) in found.leaks


def test_what_cannot_be_asked_is_refused():
    same = torch.nn.Identity()
    cases = {
        "13 sources and 5 targets are other nodes: pass layers=": lambda: analysis.measure_leaks(
            lambda x: x[..., :5, :], X
        ),
        "layers lead from 13 sources": lambda: analysis.measure_leaks(same, X[:, :5], LAYERS),
        "result of module must": lambda: analysis.measure_leaks(lambda x: (x, None), X),
        "must have shape \\(..., S, C\\)": lambda: analysis.measure_leaks(same, torch.randn(3)),
        "one id alone": lambda: analysis.measure_leaks(
            lambda x: x[..., None], torch.zeros(4, dtype=torch.int64)
        ),
    }
    for words, call in cases.items():
        with pytest.raises(GraphAttnError, match=words):
            call()


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8, 1e20, 1e38])
def test_no_input_is_too_large_for_a_step(size):
    found = analysis.measure_leaks(lambda x: x.flip(-2).clone(), torch.full((5, 3), size))
    assert found.num_leaks == 2  # 4 -> 0 and 3 -> 1
    half = analysis.measure_leaks(lambda x: x.flip(-2).clone(), torch.full((5, 3), 3e4).half())
    assert half.num_leaks == 2


def test_a_module_may_write_into_its_input():
    x = torch.randn(5, 3)
    before = x.clone()
    assert analysis.measure_leaks(lambda x: x.add_(1), x).ok
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: analysis.measure_leaks(torch.cumsum, x.fill_(torch.inf)), "x must be finite"),
        (lambda x: analysis.measure_leaks(lambda y: y * torch.nan, x), "output holds NaN"),
        (
            lambda x: analysis.measure_leaks(lambda y: y, x, at_most=0),
            "at_most must be a whole number >= 1, got 0",
        ),
    ],
)
def test_what_cannot_be_asked(make, message):
    with pytest.raises(GraphAttnError, match=message):
        make(torch.randn(5, 3))
