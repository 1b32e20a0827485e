"""What depends on what, and after how many layers."""

import math

import networkx as nx
import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.models import Encoder
from graphattn.nn import GraphAttention


def chain(n):
    """A recurrent network: a state reads the one before."""
    return ga.from_rule(lambda t, s: s == t - 1, n)


def both_ways(n):
    return chain(n) | chain(n).reverse()


def star(n):
    return graphs.global_tokens(n, (0,))


def conv(n, width):
    return graphs.sliding_window(n, width, causal=False)


PATHS = {
    "self-attention: a constant, whatever n": (graphs.full, lambda n: 1),
    "recurrent: n - 1": (chain, lambda n: n - 1),
    "recurrent both ways: n - 1": (both_ways, lambda n: n - 1),
    "convolution of width 3: n - 1": (lambda n: conv(n, 3), lambda n: n - 1),
    "convolution of width 7: (n - 1) / 3, rounded up": (
        lambda n: conv(n, 7),
        lambda n: math.ceil((n - 1) / 3),
    ),
    "a hub: 2": (star, lambda n: 2),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PATHS)
def test_longest_of_the_shortest_paths(name):
    make, layers = PATHS[name]
    for n in (5, 11, 30):
        graph = make(n)
        assert ga.analysis.hops(graph).layers == layers(n)
        lengths = dict(nx.all_pairs_shortest_path_length(ga.convert.to_networkx(graph)))
        assert max(max(row.values()) for row in lengths.values()) == layers(n)


@pytest.mark.parametrize(("width", "layers"), [(2, 5), (3, 3), (4, 2)])
def test_dilated_convolutions_of_width_k_reach_n_in_log_k_n_layers(width, layers):
    n = width**layers
    stack = [graphs.sliding_window(n, width, causal=True, dilation=width**i) for i in range(layers)]
    fields = ga.analysis.receptive_field(stack, targets=[n - 1])
    assert [int(size) for size in fields.sizes] == [width ** (i + 1) for i in range(layers)]


def dependencies(layers, graphs_of_layers, n, target):
    """Sources on which the output of a target depends: the support of its Jacobian."""
    x = torch.randn(n, 8, dtype=torch.float64, requires_grad=True)
    y = x
    for layer, graph in zip(layers, graphs_of_layers, strict=True):
        y = layer(y, graph)
    (gradient,) = torch.autograd.grad(y[target].sin().sum(), x)
    return gradient.abs().sum(-1).nonzero().flatten().tolist()


def stack_of(num_layers):
    torch.manual_seed(0)
    return [GraphAttention(8, 2).double() for _ in range(num_layers)]


def test_wavenet_depends_on_sixteen():  # dilations 1, 2, 4, 8 of width 2
    dilated = [graphs.sliding_window(23, 2, causal=True, dilation=d) for d in (1, 2, 4, 8)]
    assert dependencies(stack_of(4), dilated, 23, 22) == list(range(22 - 15, 23))


@pytest.mark.parametrize(("layers", "width"), [(1, 5), (3, 3), (2, 7)])
def test_k_layers_of_width_w_depend_on_k_times_w_less_one_plus_one(layers, width):
    found = dependencies(stack_of(layers), [conv(31, width)] * layers, 31, 15)
    assert len(found) == layers * (width - 1) + 1


def test_stacked_attention_mixes_k_hops_pairs_of_pairs():
    made = torch.Generator().manual_seed(1)
    graph = ga.from_mask(torch.rand(17, 17, generator=made) < 0.1).with_self_loops()
    for k in (1, 2, 3):
        mask, product = graph.mask().long(), torch.eye(17, dtype=torch.long)
        for _ in range(k):
            product = (mask @ product).clamp(max=1)
        assert torch.equal(ga.analysis.reach([graph] * k).mask(), product.bool())
        for target in (0, 8, 16):
            assert (
                dependencies(stack_of(k), [graph] * k, 17, target)
                == product[target].nonzero().flatten().tolist()
            )


def test_a_virtual_node_is_label_to_sequence_and_sequence_to_label():
    n, label = 12, 12
    local = graphs.sliding_window(n + 1, 3, causal=False)
    graph = local.without_self_loops() | graphs.global_tokens(n + 1, (label,))
    assert ga.analysis.hops(local).layers == n
    assert ga.analysis.hops(graph).layers == 2
    assert dependencies(stack_of(1), [graph], n + 1, label) == list(range(n + 1))  # seq2label
    assert all(label in dependencies(stack_of(1), [graph], n + 1, t) for t in range(n))  # label2seq
    assert dependencies(stack_of(2), [graph] * 2, n + 1, 0) == list(range(n + 1))
    assert len(dependencies(stack_of(2), [local] * 2, n + 1, 0)) == 3


def test_distance_in_the_input_is_distance_in_the_features_for_convolutions_and_not_for_attention():
    n = 14
    for graph, far in ((graphs.full(n), lambda d: 1), (conv(n, 5), lambda d: math.ceil(d / 2))):
        lengths = dict(nx.all_pairs_shortest_path_length(ga.convert.to_networkx(graph)))
        assert all(lengths[s][t] == far(abs(s - t)) for s in range(n) for t in range(n) if s != t)


def test_the_graphs_of_encoder_and_decoder():
    n, m = 7, 4
    assert graphs.full(n).mask().all()
    assert graphs.cross(n, m).mask().all()
    causal = graphs.causal(n)
    assert causal.num_edges == n * (n + 1) // 2
    # the loops that the picture of source A leaves out
    assert int(causal.mask().diagonal().sum()) == n
    assert nx.is_directed_acyclic_graph(ga.convert.to_networkx(causal.without_self_loops()))
    assert not nx.is_directed_acyclic_graph(ga.convert.to_networkx(causal))
    assert graphs.prefix(n, 0).equals(causal)  # between left-to-right and both directions
    assert graphs.prefix(n, n).equals(graphs.full(n))


def test_rows_are_queries_and_the_other_layout_is_the_transpose():
    # Sources C and D write softmax(K Q^T) with columns that sum to 1: keys x queries.
    q, k, v = torch.randn(3, 6, 1, 4).double()
    graph = graphs.causal(6)
    ours = ga.attention(q, k, v, graph, return_weights=True).weights.dense()[0]
    scores = (k[:, 0] @ q[:, 0].T / 2).masked_fill(~graph.mask().T, -torch.inf)  # (keys, queries)
    torch.testing.assert_close(ours.T, torch.softmax(scores, 0))
    torch.testing.assert_close(ours.sum(1), torch.ones(6).double())
    assert (ours.sum(0) - 1).abs().max() > 0.1


@pytest.mark.slow
def test_a_decoder_does_not_read_the_future():  # by edges left out, not by large negative numbers
    torch.manual_seed(0)
    decoder, x = Encoder(3, 8, 2).double(), torch.randn(9, 8, dtype=torch.float64)
    for t in range(9):
        later = x.clone()
        later[t] += 1e3
        same = (decoder(later, graphs.causal(9)) == decoder(x, graphs.causal(9))).all(-1)
        assert same.tolist() == [i < t for i in range(9)]
    jacobian = (
        torch.autograd.functional.jacobian(lambda y: decoder(y, graphs.causal(9)), x)
        .abs()
        .sum((1, 3))
    )
    # exactly 0 above the diagonal, and nowhere below
    assert torch.equal(jacobian > 0, graphs.causal(9).mask())


def test_attention_alone_averages_everything_away_and_residuals_keep_it():
    torch.manual_seed(0)
    x = torch.randn(16, 32, dtype=torch.float64)
    layers = [GraphAttention(32, 4, bias=False).double() for _ in range(8)]
    alone, added, local = x, x, x
    cells = graphs.block_local(16, 4, causal=False)
    with torch.no_grad():
        for layer in layers:
            alone, local = layer(alone, graphs.full(16)), layer(local, cells)
            added = added + layer(added, graphs.full(16))
    torch.testing.assert_close(ga.analysis.spread(x), (x - x.mean(0)).norm() / x.norm())
    assert ga.analysis.spread(x) > 0.9
    assert ga.analysis.spread(alone) < 1e-4
    assert ga.analysis.spread(added) > 0.3
    # rank falls to one in each component of the graph, and no further
    assert ga.analysis.spread(local) > 0.3
    assert max(ga.analysis.spread(part) for part in local.split(4)) < 1e-4


def test_without_residuals_nothing_is_learned_from_what_nodes_differ_in():
    """ "skip connections promote learning": in eight layers without them the first layer's gradient
    is lost.

    Measured, of the part of the output in which nodes differ: 1e-15 without, 300 with them.
    """
    torch.manual_seed(0)
    x, wanted = torch.randn(2, 16, 32, dtype=torch.float64)
    layers = [GraphAttention(32, 4, bias=False).double() for _ in range(8)]

    def learned(skip):
        y = x
        for layer in layers:
            y = skip * y + layer(y, graphs.full(16))
        loss = ((y - y.mean(0)) * wanted).sum()
        return [float(g.norm()) for g in torch.autograd.grad(loss, list(layers[0].parameters()))]

    assert max(learned(0.0)) < 1e-9
    assert min(learned(1.0)) > 1.0


@pytest.mark.slow
def test_convolution_recurrence_and_attention_are_layers_of_one_model():
    n = 9
    layers = [conv(n, 3), chain(n).with_self_loops(), graphs.causal(n)]
    torch.manual_seed(0)
    encoder, x = Encoder(3, 8, 2).double(), torch.randn(n, 8, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda y: encoder(y, layers), x)
    assert torch.equal(jacobian.abs().sum((1, 3)) > 0, ga.analysis.reach(layers).mask())
    assert ga.analysis.reach(layers).num_edges < n * n
