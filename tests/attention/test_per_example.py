"""Graphs of examples: one call equals a loop over the examples, and torch's SDPA with their masks."""

import copy
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_formula import WEIGHING
from torch import Tensor
from torch_geometric.data import Batch

import graphattn as ga
from graphattn.errors import OptionError, ShapeError
from graphattn.graphs import causal, cross, full, sliding_window

F64 = torch.float64
HEADS = 4
BACKENDS = ("auto", "dense", "tiles", "edges", "message_passing")


def _random(targets: int, sources: int, density: float) -> ga.AttentionGraph:
    made = torch.Generator().manual_seed(targets * sources)
    return ga.from_mask(torch.rand(targets, sources, generator=made) < density)


def _listed(edges: int, nodes: int) -> ga.AttentionGraph:
    """A graph whose edges are in an order of their own."""
    graph = _random(nodes, nodes, 0.5)
    made = torch.Generator().manual_seed(edges)
    order = torch.randperm(graph.num_edges, generator=made)[:edges]
    return ga.from_edge_index(graph.edge_index[:, order], nodes, nodes)


REPEATED = "repeated beside heads"
MANY: dict[str, list[Any]] = {
    "of several sizes": [causal(7), sliding_window(5, 3, causal=False), causal(7), _listed(11, 6)],
    "rectangular": [cross(7, 5), _random(6, 11, 0.4), cross(3, 11)],
    "one for all": [_random(7, 7, 0.5)] * 3,
    "as many edges": [_listed(13, 7), _listed(13, 6), _listed(13, 7)],
    REPEATED: [
        ga.from_edge_index(torch.tensor([[0, 0, 3, 1], [1, 1, 2, 4]]), 5, 5, duplicates="keep"),
        ga.PerHead((causal(7), full(7))),
        _listed(11, 6),
    ],
    "without edges": [_random(5, 7, 0.0), full(5), _random(7, 3, 0.3)],
    "of heads": [
        ga.PerHead((causal(7), full(7))),
        _listed(11, 6),
        ga.PerHead((_listed(7, 5), _listed(9, 5), causal(5), causal(5))),
    ],
    "one example": [_listed(13, 7)],
}


@dataclass
class Call:
    """Operands of a call, and the graphs of its examples."""

    graphs: list[Any]
    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor

    def arguments(self) -> dict[str, Tensor]:
        return {"query": self.query, "key": self.key, "value": self.value, "bias": self.bias}

    def one_by_one(self, **options: Any) -> list[Any]:
        """The output, weights and lse of each example alone."""
        results = []
        first = 0
        for b, graph in enumerate(self.graphs):
            T, S = graph.num_targets, graph.num_sources
            bias = self.bias[..., first : first + graph.num_edges, :]
            first += graph.num_edges
            operands = (self.query[..., b, :T, :, :], self.key[..., b, :S, :, :])
            results.append(
                ga.attention(
                    *operands,
                    self.value[..., b, :S, :, :],
                    graph,
                    score_bias=bias,
                    backend="message_passing",
                    return_weights=True,
                    return_lse=True,
                    **options,
                )
            )
        return results


def _call(name: str, lead: tuple[int, ...] = (3,), dtype: torch.dtype = F64) -> Call:
    graphs = MANY[name]
    B = len(graphs)
    T, S = (max(getattr(g, side) for g in graphs) for side in ("num_targets", "num_sources"))
    shapes = [(*lead, B, T, HEADS, 3), (*lead, B, S, 2, 3), (*lead, B, S, 2, 5)]
    edges = sum(graph.num_edges for graph in graphs)
    shapes.append((edges, HEADS))
    return Call(graphs, *(torch.randn(s, dtype=dtype).requires_grad_() for s in shapes))


def _padded(parts: list[Tensor], rows: int, dim: int, nothing: float) -> Tensor:
    full_size = []
    for part in parts:
        shape = list(part.shape)
        shape[dim] = rows - shape[dim]
        full_size.append(torch.cat((part, part.new_full(shape, nothing)), dim))
    return torch.stack(full_size, dim - 1)


#: A product holds each pair once, and a call with biases and weights has a number of each copy.
CALLS = [
    (name, backend)
    for name in MANY
    for backend in BACKENDS
    if (name, backend) not in ((REPEATED, "dense"), (REPEATED, "tiles"))
]


def check_gradients(output, expected, operands):
    """One gradient passed back through both gives the operands the same."""
    towards = torch.randn_like(output)
    pairs = zip(
        torch.autograd.grad(output, operands, towards),
        torch.autograd.grad(expected, operands, towards),
        strict=True,
    )
    for grad, known in pairs:
        torch.testing.assert_close(grad, known, rtol=0, atol=1e-12)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("name", "backend"), CALLS)
def test_a_call_is_that_of_each_example(name: str, backend: str) -> None:
    """Outputs, weights, lse and every gradient."""
    call = _call(name)
    options = {"scale": 0.7, "softcap": 3.0}
    alone = call.one_by_one(**options)
    rows = call.query.shape[-3]
    output = _padded([x.output for x in alone], rows, -3, 0.0)
    lse = _padded([x.lse for x in alone], rows, -2, -torch.inf)
    alpha = torch.cat([x.weights.alpha for x in alone], -2)
    weighs = backend in (*WEIGHING, "auto")

    together = ga.attention(
        call.query,
        call.key,
        call.value,
        ga.PerExample(call.graphs),
        score_bias=call.bias,
        backend=backend,
        return_lse=True,
        return_weights=weighs,
        **options,
    )
    results, wanted = [together.output], [output]
    if weighs:
        results.append(together.weights.alpha)
        wanted.append(alpha)
    for result, known in zip([*results, together.lse], [*wanted, lse], strict=True):
        torch.testing.assert_close(result, known, rtol=0, atol=1e-12)

    towards = [torch.randn_like(x) for x in wanted]
    arguments = list(call.arguments().values())
    expected = torch.autograd.grad(wanted, arguments, towards)
    grads = torch.autograd.grad(results, arguments, towards)
    for grad, known in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, known, rtol=0, atol=1e-12)
    assert call.bias.numel() == 0 or all(grad.abs().sum() > 0 for grad in expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_is_sdpa_with_a_mask_of_each_example(backend: str) -> None:
    masks = torch.rand(5, 7, 11) < 0.4
    masks[..., 0] = True  # SDPA has NaN where a target has no source
    shapes = [(3, 5, 7, HEADS, 3), (3, 5, 11, HEADS, 3), (3, 5, 11, HEADS, 2)]
    operands = [torch.randn(shape, dtype=F64, requires_grad=True) for shape in shapes]
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(-3, -2) for x in operands), attn_mask=masks[:, None]
    ).transpose(-3, -2)
    output = ga.attention(*operands, [ga.from_mask(mask) for mask in masks], backend=backend)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    check_gradients(output, expected, operands)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_removed_edge_is_seen_in_its_example_alone(backend: str) -> None:
    x = torch.randn(3, 7, HEADS, 5, dtype=F64)
    graphs = [_random(7, 7, 0.5) for _ in range(3)]
    one = graphs[1]
    fewer = ga.from_edge_index(one.edge_index[:, 1:], 7, 7)
    before = ga.attention(x, x, x, graphs, backend=backend)
    after = ga.attention(x, x, x, [graphs[0], fewer, graphs[2]], backend=backend)
    changed = (before != after).flatten(-2).any(-1)
    assert changed.nonzero().tolist() == [[1, int(one.target[0])]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nan_stays_in_its_example(backend: str) -> None:
    graphs = [_random(70, 70, 0.5), _random(67, 67, 0.4)]
    x = torch.randn(2, 70, HEADS, 5)
    clean = ga.attention(x, x, x, graphs, backend=backend)
    broken = x.clone()
    broken[0, 3] = torch.nan
    output = ga.attention(broken, broken, broken, graphs, backend=backend)
    assert output[0].isnan().any()
    torch.testing.assert_close(output[1], clean[1])


def test_padding_reads_nothing_and_is_not_read() -> None:
    x = torch.randn(2, 7, HEADS, 5, requires_grad=True)
    graphs = [full(7), full(4)]
    output = ga.attention(x, x, x, graphs)
    assert not output[1, 4:].any()
    output.sum().backward()
    assert x.grad is not None
    assert x.grad[1, :4].any()
    assert not x.grad[1, 4:].any()


def test_a_bias_may_be_of_each_example() -> None:
    call = _call("as many edges")
    graphs = ga.PerExample(call.graphs)
    operands = (call.query, call.key, call.value)
    expected = ga.attention(*operands, graphs, score_bias=call.bias)
    of_each = call.bias.unflatten(0, (3, 13))
    torch.testing.assert_close(ga.attention(*operands, graphs, score_bias=of_each), expected)
    other = call.bias * torch.arange(1.0, 4.0)[:, None, None]
    stacked = torch.stack(
        [
            ga.attention(*(x[lead] for x in operands), graphs, score_bias=other[lead])
            for lead in range(3)
        ]
    )
    torch.testing.assert_close(ga.attention(*operands, graphs, score_bias=other), stacked)
    many = other.unflatten(1, (3, 13))
    torch.testing.assert_close(ga.attention(*operands, graphs, score_bias=many), stacked)


def test_examples_of_one_graph_run_it_on_the_batch() -> None:
    """A pattern's graph, and graphs of the same call, share a plan."""
    x = torch.randn(3, 67, HEADS, 5)
    graphs = ga.PerExample([causal(67), causal(67), causal(...)])
    torch.testing.assert_close(
        ga.attention(x, x, x, graphs), ga.attention(x, x, x, causal(67)), rtol=0, atol=0
    )
    sized = graphs.at(67)
    assert sized is graphs.at(67)
    assert not hasattr(sized.shelf, "joined")


def test_a_list_that_is_passed_again_is_planned_once() -> None:
    graphs = [causal(7), full(7)]
    x = torch.randn(2, 7, HEADS, 5)
    ga.attention(x, x, x, graphs)
    union = graphs[0]._memo["examples"].union()
    ga.attention(x, x, x, list(graphs))
    assert graphs[0]._memo["examples"].union() is union
    ga.attention(x, x, x, graphs[::-1])
    assert "examples" in graphs[1]._memo


def test_patterns_are_sized_to_the_call() -> None:
    x = torch.randn(2, 11, HEADS, 5)
    graphs = [causal(...), ga.graphs.documents(lengths=(4, 5), causal=False)]
    expected = [
        ga.attention(x[0], x[0], x[0], causal(11)),
        ga.attention(x[1], x[1], x[1], ga.graphs.documents(lengths=(4, 5, 1, 1), causal=False))[:9],
    ]
    output = ga.attention(x, x, x, graphs)
    torch.testing.assert_close(output[0], expected[0])
    torch.testing.assert_close(output[1, :9], expected[1])
    assert not output[1, 9:].any()


def test_dropout_drops_its_share_in_every_example() -> None:
    graphs = [full(41), sliding_window(53, 31, causal=False)]
    x = torch.zeros(2, 53, HEADS, 1)
    ones = torch.ones(2, 53, HEADS, 1)
    for backend in ("edges", "tiles", "dense"):
        torch.manual_seed(0)
        output = ga.attention(x, x, ones, graphs, dropout_p=0.4, backend=backend)
        torch.manual_seed(0)
        again = ga.attention(x, x, ones, graphs, dropout_p=0.4, backend=backend)
        assert torch.equal(output, again)
        for b, nodes in enumerate((41, 53)):
            assert abs(float(output[b, :nodes].mean()) - 1) < 0.1
            assert float(output[b, :nodes].std()) > 0.01


def test_no_backend_of_all_pairs_joins_the_examples() -> None:
    graphs = ga.PerExample([_random(5, 5, 0.5), _random(4, 4, 0.5)])
    chosen = ga.explain(graphs.union())
    assert chosen.chosen != "dense"
    dense = next(c for c in chosen.candidates if c.name == "dense")
    assert dense.reasons == (
        "one product would join all pairs of 2 examples; "
        'a PerExample runs backend="dense" graph by graph',
    )


@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_vmap_over_other_dimensions_equals_the_call(lead: tuple[int, ...]) -> None:
    graphs = ga.PerExample([causal(7), full(5)])
    x = torch.randn(3, *lead, 2, 7, HEADS, 5)
    mapped = torch.vmap(lambda row: ga.attention(row, row, row, graphs))(x)
    torch.testing.assert_close(mapped, ga.attention(x, x, x, graphs))


def test_vmap_over_the_examples_is_refused() -> None:
    graphs = ga.PerExample([causal(7), full(5)])
    x = torch.randn(2, 7, HEADS, 5)
    with pytest.raises(ga.GraphAttnError, match="the graph has 2 examples"):
        torch.vmap(lambda row: ga.attention(row, row, row, graphs))(x)


def test_autocast_casts_as_for_one_graph() -> None:
    x = torch.randn(2, 7, HEADS, 5)
    graphs = [causal(7), full(5)]
    with torch.autocast("cpu", torch.bfloat16):
        output = ga.attention(x, x, x, graphs)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), ga.attention(x, x, x, graphs), rtol=0, atol=0.03)


def test_second_derivatives_are_those_of_each_example() -> None:
    graphs = ga.PerExample([_random(5, 5, 0.5), causal(4)])
    x = torch.randn(2, 5, 2, 3, dtype=F64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda y: ga.attention(y, y, y, graphs), x)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["auto", "dense", "tiles"])
def test_a_compiled_call_is_exact(backend: str) -> None:
    torch._dynamo.reset()
    for name in ("of several sizes", "of heads", "one for all", "without edges"):
        call = _call(name)
        graphs = ga.PerExample(call.graphs)

        def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
            return ga.attention(query, key, value, graphs, score_bias=bias, backend=backend)  # noqa: B023

        operands = (call.query, call.key, call.value, call.bias)
        expected = attend(*operands)
        output = torch.compile(attend, backend="aot_eager", fullgraph=True)(*operands)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
        check_gradients(output, expected, operands)


# --- refusals

X = torch.zeros(2, 7, HEADS, 5)
GRAPHS = ga.PerExample([causal(7), full(5)])


@pytest.mark.parametrize(
    ("operand", "options", "message"),
    [
        (X.expand(3, 2, 7, HEADS, 5).transpose(0, 1), {}, r"leading dimensions \(2, 3\)"),
        (X[0], {}, r"leading dimensions \(\), of which the last must be 2"),
        (X[:, :6], {}, r"query has 6 nodes .* but the graph has 7 targets"),
        (X, {"score_bias": torch.zeros(26, 1)}, r"\(53,\), \(53, 4\) or \(..., 53, 4\)"),
        (X, {"score_bias": torch.zeros(2, 28, 1)}, r"for 53 edges"),
        (X, {"backend": "quick"}, "backend must be"),
    ],
)
def test_operands_that_do_not_fit_are_refused(
    operand: Tensor, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ga.GraphAttnError, match=message):
        ga.attention(operand, operand, operand, GRAPHS, **options)


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        (causal(4), "a list of graphs, one for each example, got"),
        (7, "one for each example, got 7"),
        ([], "a graph for each example, got none"),
        ([causal(4), None], "holds AttentionGraphs, PerHeads or Patterns, got NoneType"),
        ([torch.zeros(2, 3)], "from_mask"),
        ([ga.graphs.top_k(..., 2)], "chooses its edges by queries and keys"),
        ([ga.graphs.top_k(..., 2)(4)], "every edge that may be chosen"),
        ([ga.nn.EdgeTensors(causal(4))], "pass the graph that they are of"),
        ([GRAPHS], "holds AttentionGraphs, PerHeads or Patterns, got PerExample"),
        ([causal(4).to("meta"), ga.from_mask(torch.ones(2, 2, dtype=torch.bool))], None),
    ],
)
def test_what_is_no_graph_of_an_example_is_refused(graphs: Any, message: str | None) -> None:
    if message is None:
        ga.PerExample(graphs)  # a rule has no tensors
        return
    with pytest.raises(ga.GraphError, match=message):
        ga.PerExample(graphs)


def test_open_graphs_have_no_sizes() -> None:
    graphs = ga.PerExample([causal(...), causal(4)])
    assert repr(graphs) == "PerExample(causal(...), causal(4): 2 examples of open size)"
    with pytest.raises(AttributeError, match="before it has a size"):
        print(graphs.num_targets)


# --- weights


@pytest.mark.parametrize("name", MANY)
def test_dense_weights_are_those_of_each_example(name: str) -> None:
    call = _call(name)
    graphs = ga.PerExample(call.graphs)
    operands = (call.query, call.key, call.value)
    weights = ga.attention(*operands, graphs, score_bias=call.bias, return_weights=True).weights
    alone = [result.weights for result in call.one_by_one()]
    T, S = graphs.num_targets, graphs.num_sources
    parts = []
    for one in alone:
        dense = one.dense()
        parts.append(
            torch.nn.functional.pad(dense, (0, S - dense.shape[-1], 0, T - dense.shape[-2]))
        )
    expected = torch.stack(parts, 1)
    torch.testing.assert_close(weights.dense(), expected, rtol=0, atol=1e-12)
    assert weights.shape == (3, len(alone), HEADS, T, S)
    last = len(alone) - 1
    for index in ((1,), (slice(0, 2), last), (2, slice(None), 1), (..., 0), (0, last, 2, 1)):
        torch.testing.assert_close(weights[index], expected[index], rtol=0, atol=1e-12)
    for b, one in enumerate(alone):
        own = weights.of_example(b)
        assert own.graph.num_targets == one.graph.num_targets
        torch.testing.assert_close(own.dense(), one.dense(), rtol=0, atol=1e-12)
        nodes = one.graph.num_targets
        mine, top = weights.top(3), one.top(3)
        torch.testing.assert_close(mine.weight[:, b, :nodes], top.weight, rtol=0, atol=1e-12)
        assert torch.equal(mine.source[:, b, :nodes], top.source)
        assert (mine.source[:, b, nodes:] == -1).all()


def test_weights_of_examples_are_pickled_and_cast() -> None:
    call = _call("of heads")
    operands = (call.query, call.key, call.value)
    weights = ga.attention(*operands, call.graphs, return_weights=True).weights
    for other in (pickle.loads(pickle.dumps(weights.detach())), weights.float().detach()):
        torch.testing.assert_close(other.dense().double(), weights.dense(), rtol=0, atol=1e-6)
    edge_index, alpha = weights
    assert edge_index.shape == (2, alpha.shape[-2])


def test_weights_of_an_example_that_is_not_there_are_refused() -> None:
    x = torch.randn(2, 7, HEADS, 5)
    of_two = ga.attention(x, x, x, GRAPHS, return_weights=True).weights
    with pytest.raises(OptionError, match="one of 2 examples, got 2"):
        of_two.of_example(2)
    of_one = ga.attention(x, x, x, causal(7), return_weights=True).weights
    with pytest.raises(OptionError, match="one graph for all examples"):
        of_one.of_example(0)


@pytest.mark.parametrize("backend", ["auto", *WEIGHING])
def test_weights_have_gradients_of_their_own(backend: str) -> None:
    x = torch.randn(2, 7, HEADS, 5, dtype=F64, requires_grad=True)
    result = ga.attention(x, x, x, GRAPHS, backend=backend, return_weights=True)
    (grad,) = torch.autograd.grad(result.output.square().sum(), result.weights.alpha)
    first = 0
    for b, graph in enumerate(GRAPHS.graphs):
        row = x[b, : graph.num_targets]
        alone = ga.attention(row, row, row, graph, backend=backend, return_weights=True)
        (expected,) = torch.autograd.grad(alone.output.square().sum(), alone.weights.alpha)
        own = grad[first : first + graph.num_edges]
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-12)
        first += graph.num_edges


# --- saving


@pytest.mark.parametrize("name", MANY)
def test_a_saved_batch_of_graphs_is_the_same(name: str, tmp_path: Path) -> None:
    graphs = ga.PerExample([*MANY[name], cross(..., ...)])
    ga.save(graphs, tmp_path / "graphs.json")
    saved = [
        ga.load(tmp_path / "graphs.json"),
        pickle.loads(pickle.dumps(graphs)),
        ga.convert.graph_from_dict(ga.convert.graph_to_dict([graphs, causal(3)]))[0],
    ]
    size = (7, 11)
    for other in saved:
        assert isinstance(other, ga.PerExample)
        assert repr(other) == repr(graphs)
        pairs = zip(other.at(*size).graphs, graphs.at(*size).graphs, strict=True)
        for one, known in pairs:
            assert torch.equal(one.union().edge_index, known.union().edge_index)
    torch.save(graphs, tmp_path / "graphs.pt")
    assert repr(torch.load(tmp_path / "graphs.pt", weights_only=True)) == repr(graphs)


def test_graphs_of_examples_move_between_devices() -> None:
    graphs = ga.PerExample([causal(3), causal(...), GRAPHS.graphs[0]])
    moved = graphs.to("cpu")
    assert repr(moved) == repr(graphs)
    assert copy.deepcopy(graphs) is graphs


# --- refusals


EDGES = torch.tensor([[0, 1], [1, 2]])
MASK = torch.ones(7, 7, dtype=torch.bool)
WRONG: dict[str, tuple[Any, str]] = {
    "an empty list": ([], "it is empty: pass a graph for each example"),
    "edge indices": (
        [EDGES, EDGES],
        r"\[graphattn.from_edge_index\(e, num_nodes=N\) for e in edge_indices\]",
    ),
    "masks": ([MASK, MASK], r"from_mask\(torch.stack\(masks\)\)"),
    "lists": ([[causal(7)], [full(7)]], "a list has one graph for each example"),
    "relations": (
        [ga.graphs.Relations(a=causal(7))] * 2,
        "pass its .graph for each example",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_list_of_other_things_is_refused_with_advice(name: str) -> None:
    graphs, message = WRONG[name]
    layer = ga.nn.GraphAttention(8, 2)
    x = torch.randn(2, 7, 2, 4)
    with pytest.raises(ga.GraphError, match=message):
        layer(x.flatten(-2), graphs)
    with pytest.raises(ga.GraphError, match=message):
        ga.attention(x, x, x, graphs)


def test_lists_of_rows_are_still_an_edge_index() -> None:
    layer = ga.nn.GraphAttention(8, 2)
    x = torch.randn(2, 7, 8)
    assert torch.equal(layer(x, EDGES.tolist()), layer(x, EDGES))


def test_graphs_of_examples_are_one_ordered_list() -> None:
    for graphs in ({causal(3), full(3)}, frozenset({causal(3)})):
        with pytest.raises(ga.GraphError, match="in the order of the examples, got a"):
            ga.PerExample(graphs)
    for kind in (ga.PerExample, ga.PerHead):
        with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
            kind(causal(3), full(3))
    assert len(ga.PerExample(graphs=[causal(3), full(2)])) == 2


def test_graphs_of_examples_are_read_as_their_list() -> None:
    first, second = causal(3), ga.PerHead((full(2), causal(2)))
    graphs = ga.PerExample([first, second])
    assert list(graphs) == [first, second]
    assert graphs[1] is second
    assert graphs[-2] is first
    twice = ga.PerHead((full(2), full(2), causal(2), causal(2)))
    same = ga.PerExample([ga.from_mask(first.mask()), twice])
    assert graphs.equals(same)
    assert not graphs.equals(ga.PerExample([first, full(2)]))
    assert not graphs.equals(ga.PerExample([first]))
    with pytest.raises(AttributeError, match="before it has a size"):
        graphs.equals(ga.PerExample([causal(...), second]))


def test_a_bias_of_other_shapes_is_refused_with_those_of_examples() -> None:
    x = torch.randn(2, 7, HEADS, 3)
    same = [_listed(13, 7), _listed(13, 6)]
    with pytest.raises(ShapeError, match=r"\(\.\.\., 26, 4\) or \(2, 13, 4\) for 26 edges"):
        ga.attention(x, x, x, same, score_bias=torch.zeros(5, 4))
    with pytest.raises(ShapeError, match="got all 26 edges for each of 2"):
        ga.attention(x, x, x, same, score_bias=torch.zeros(2, 26, 4))
    copies = ga.attention(x.expand(2, *x.shape), x, x, same, score_bias=torch.zeros(2, 26, 4))
    assert copies.shape == (2, *x.shape)


def test_masks_and_batches_that_are_not_of_examples_are_refused() -> None:
    with pytest.raises(ga.GraphError, match=r"mask must be a tensor \(T, S\), got a list: only"):
        ga.from_mask([MASK, MASK])
    batch = Batch(edge_index=EDGES, batch=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ga.GraphError, match=r"must be a Batch of Batch.from_data_list"):
        ga.from_pyg(batch, per_example=True)
    with pytest.raises(ga.GraphError, match=r"must have a size.*graphs.at\(num_nodes\)"):
        ga.explain([full(...)] * 4)


def test_a_list_is_read_outside_of_a_whole_program() -> None:
    layer = ga.nn.GraphAttention(8, 2)
    x = torch.randn(2, 7, 8)
    graphs = [causal(7), full(4)]
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"pass graphattn\.PerExample\(graphs\)"):
        compiled(x, graphs)
    torch.testing.assert_close(compiled(x, ga.PerExample(graphs)), layer(x, graphs))
