"""Features of edges that are added to keys and to values, against the formula edge by edge."""

from functools import partial

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.errors import OptionError, ShapeError

H, D = 4, 3
NAMES = ["causal", "listed_random", "listed_bipartite", "repeated_edges"]


def operands(graph, kv_heads=H, lead=(), seed=0):
    draw = torch.Generator().manual_seed(seed)
    sizes = ((graph.num_targets, H), (graph.num_sources, kv_heads), (graph.num_sources, kv_heads))
    edges = ((graph.num_edges, H), (graph.num_edges, H))
    return [
        torch.randn(*lead, *size, D, generator=draw, dtype=torch.float64, requires_grad=True)
        for size in (*sizes, *edges)
    ]


def by_hand(graph, query, key, value, of_key, of_value):
    """Messages of edges, and a softmax for each target."""
    group = H // key.shape[-2]
    key, value = (x.repeat_interleave(group, -2)[..., graph.source, :, :] for x in (key, value))
    score = (query[..., graph.target, :, :] * (key + of_key)).sum(-1) * D**-0.5
    outputs = []
    for target in range(graph.num_targets):
        edges = graph.target == target
        weight = score[..., edges, :].softmax(-2)[..., None]
        outputs.append((weight * (value + of_value)[..., edges, :, :]).sum(-3))
    return torch.stack(outputs, -3)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kv_heads", [H, 2])
@pytest.mark.parametrize("backend", ["auto", "edges", "message_passing"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("terms", ["key", "value", "both"])
def test_terms_are_those_of_the_formula(name, backend, terms, kv_heads):
    graph = GRAPHS[name]()
    query, key, value, of_key, of_value = operands(graph, kv_heads, (2,))
    given = {"edge_key": of_key, "edge_value": of_value}
    if terms != "both":
        given = {f"edge_{terms}": given[f"edge_{terms}"]}
    found = ga.attention(query, key, value, graph, backend=backend, **given)
    zero = torch.zeros_like(of_key)
    expected = by_hand(
        graph, query, key, value, given.get("edge_key", zero), given.get("edge_value", zero)
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    inputs = [query, key, value, *given.values()]
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(1)).double()
    grads = [torch.autograd.grad((y * weight).sum(), inputs) for y in (found, expected)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)
    plain = ga.attention(query, key, value, graph, backend=backend)
    assert not torch.allclose(found, plain)


def test_terms_of_examples_and_of_heads_are_in_the_order_of_edges():
    examples = ga.PerExample([ga.graphs.causal(5), ga.graphs.sliding_window(5, 3, causal=False)])
    parts = [operands(graph, seed=seed) for seed, graph in enumerate(examples.graphs)]
    query, key, value = (torch.stack([part[i] for part in parts]) for i in range(3))
    terms = {
        "edge_key": torch.cat([part[3] for part in parts]),
        "edge_value": torch.cat([part[4] for part in parts]),
    }
    found = ga.attention(query, key, value, examples, **terms)
    for number, (graph, part) in enumerate(zip(examples.graphs, parts, strict=True)):
        expected = by_hand(graph, *part)
        torch.testing.assert_close(found[number], expected, rtol=1e-12, atol=1e-12)
    heads = ga.PerHead([ga.graphs.causal(5), ga.graphs.full(5)])
    query, key, value, of_key, of_value = operands(heads)
    found = ga.attention(query, key, value, heads, edge_key=of_key, edge_value=of_value)
    union = heads.union()
    for number, graph in enumerate(heads.graphs):
        rows = graph.contains(union.target, union.source)
        of_heads = slice(2 * number, 2 * number + 2)
        given = (x[..., of_heads, :] for x in (query, key, value, of_key[rows], of_value[rows]))
        query_of, *rest = given
        alone = ga.attention(query_of, *rest[:2], graph, edge_key=rest[2], edge_value=rest[3])
        torch.testing.assert_close(found[:, of_heads], alone, rtol=1e-12, atol=1e-12)


def test_terms_of_examples_have_leading_dimensions_before_them():
    examples = ga.PerExample([ga.graphs.causal(5), ga.graphs.full(5)])
    query, key, value, of_key, of_value = operands(examples, lead=(3,))
    query, key, value = (torch.stack((x, -x.flip(0)), 1) for x in (query, key, value))
    bias = of_key.sum(-1)
    found = ga.attention(query, key, value, examples, bias, edge_key=of_key, edge_value=of_value[0])
    counts = [graph.num_edges for graph in examples.graphs]
    terms = [x.split(counts, -3) for x in (of_key, of_value[0], bias[..., None])]
    for number, (graph, *own) in enumerate(zip(examples.graphs, *terms, strict=True)):
        edge_key, edge_value, of_scores = own
        alone = ga.attention(
            *(x[:, number] for x in (query, key, value)),
            graph,
            of_scores.squeeze(-1),
            edge_key=edge_key,
            edge_value=edge_value,
        )
        torch.testing.assert_close(found[:, number], alone, rtol=1e-12, atol=1e-12)


def test_terms_shared_by_heads_and_those_of_as_many_edges_in_each_example():
    examples = ga.PerExample([ga.graphs.causal(5), ga.graphs.causal(5).reverse()])
    query, key, value, of_key, of_value = operands(examples, lead=(2,))
    of_key = of_key[0]
    of_value = of_value[0, :, :1]
    expected = ga.attention(
        query, key, value, examples, edge_key=of_key, edge_value=of_value.expand(-1, H, -1)
    )
    terms = {"edge_key": of_key.unflatten(0, (2, 15)), "edge_value": of_value.unflatten(0, (2, 15))}
    assert torch.equal(ga.attention(query, key, value, examples, **terms), expected)


def test_a_nan_in_the_terms_of_a_removed_edge_changes_nothing():
    graph = ga.graphs.causal(5)
    query, key, value, of_key, of_value = operands(graph)
    bias = torch.zeros(graph.num_edges, 1).masked_fill(torch.arange(15)[:, None] == 4, -torch.inf)
    results = []
    for number in (0.0, torch.nan):
        with torch.no_grad():
            of_key[4] = of_value[4] = number
        y = ga.attention(query, key, value, graph, bias, edge_key=of_key, edge_value=of_value)
        results.append((y, *torch.autograd.grad(y.sum(), (query, key, value))))
    for zero, nan in zip(*results, strict=True):
        assert torch.equal(zero, nan)


@pytest.mark.parametrize("backend", ["edges", "message_passing"])
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}])
def test_one_tensor_for_keys_and_values(backend, options):
    """As in a layer; a NaN in the term of a removed edge changes nothing."""
    graph = ga.graphs.causal(5)
    query, key, value, term, _ = operands(graph)
    bias = torch.zeros(graph.num_edges, 1, dtype=term.dtype)
    bias = bias.masked_fill(torch.arange(15)[:, None] == 4, -torch.inf)
    call = partial(ga.attention, query, key, value, graph, bias, backend=backend, **options)
    found = call(edge_key=term, edge_value=term)
    if not options:
        apart = call(edge_key=term, edge_value=term * 1.0)
        inputs = (query, key, value, term)
        torch.testing.assert_close(found, apart, rtol=1e-12, atol=1e-12)
        cotangent = torch.randn_like(found)
        both = [torch.autograd.grad(y, inputs, cotangent) for y in (found, apart)]
        torch.testing.assert_close(*both, rtol=1e-11, atol=1e-12)
    with torch.no_grad():
        term[4] = torch.nan
    assert torch.equal(call(edge_key=term, edge_value=term), found)


def test_what_does_not_fit_is_named():
    graph = ga.graphs.causal(5)
    query, key, value, of_key, of_value = operands(graph)
    for wrong in (of_key[1:], of_key[:, :3], of_key[..., :2], of_key.flatten(1), "x"):
        with pytest.raises(ShapeError, match=r"edge_key must be a tensor \(..., 15, 4, 3\)"):
            ga.attention(query, key, value, graph, edge_key=wrong)
    with pytest.raises(ShapeError, match="do not broadcast"):
        ga.attention(
            *(x.expand(2, *x.shape) for x in (query, key, value)),
            graph,
            edge_key=of_key.expand(3, *of_key.shape),
            edge_value=of_value,
        )
    with pytest.raises(ShapeError, match="edge_value needs values of the width of keys, 3, got 2"):
        ga.attention(query, key, value[..., :2], graph, edge_value=of_value)
    with pytest.raises(OptionError, match="softcap bounds scores with edge_key"):
        ga.attention(query, key, value, graph, softcap=2.0, edge_key=of_key, edge_value=of_value)
    with pytest.raises(ga.errors.BackendError, match="edge features change a key"):
        ga.attention(query, key, value, graph, edge_key=of_key, backend="dense")
