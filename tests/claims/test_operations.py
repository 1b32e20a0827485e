"""How many operations attention takes, counted by torch and by edges."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import graphattn as ga
from graphattn import analysis, graphs
from graphattn.errors import GraphError, OptionError
from graphattn.models import Encoder
from graphattn.nn import FeedForward, GraphAttention, MixtureOfExperts


def counted(run, *given, **options):
    with FlopCounterMode(display=False) as counter:
        run(*given, **options)
    return counter.get_total_flops(), counter.get_flop_counts()["Global"]


@pytest.mark.parametrize("heads", [1, 2, 6])
def test_multi_head_attention_is_four_matrix_products(heads):
    torch.manual_seed(0)
    n, width = 7, 12
    layer, x = (
        GraphAttention(width, heads, backend="dense").double(),
        torch.randn(n, width).double(),
    )
    weight = torch.cat([p.weight for p in (layer.q_proj, layer.k_proj, layer.v_proj)])
    bias = torch.cat([p.bias for p in (layer.q_proj, layer.k_proj, layer.v_proj)])

    def four():
        # 1: (H, N, D)
        q, k, v = (x @ weight.t() + bias).unflatten(-1, (3, heads, -1)).permute(1, 2, 0, 3)
        alpha = torch.softmax(q @ k.transpose(1, 2) / (width // heads) ** 0.5, -1)  # 2
        together = (alpha @ v).transpose(0, 1).flatten(1)  # 3
        return q, k, v, together, together @ layer.out_proj.weight.t() + layer.out_proj.bias  # 4

    total, kinds = counted(four)
    assert len(kinds) == 2  # mm twice, bmm twice
    assert total == counted(layer, x, graphs.full(n), return_weights=True)[0]
    assert total == 2 * (n * width * 3 * width + n * n * width + n * n * width + n * width * width)
    q, k, v, together, output = four()
    torch.testing.assert_close(layer(x, graphs.full(n)), output)
    # a head does not know the others
    one_by_one = [
        ga.attention(*(y[h, :, None] for y in (q, k, v)), graphs.full(n)).squeeze(1)
        for h in range(heads)
    ]
    torch.testing.assert_close(torch.cat(one_by_one, -1), together)


@pytest.mark.slow
def test_flops_are_those_that_torch_counts():
    """Dense products count every pair; those of the blocks of a graph exactly its edges."""
    n, width, heads = 96, 8, 2
    x = torch.randn(n, width)
    for size, graph in (
        (96, graphs.full(n)),
        (32, graphs.block_local(n, 32, causal=False)),
        (24, graphs.window_partition((8, 12), (4, 6))),
    ):
        for options in ({}, {"num_kv_heads": 1}, {"head_dim": 5}):
            layer = GraphAttention(width, heads, backend="dense", **options)
            found = analysis.flops(graph, width, heads, hidden=0, **options)
            blocks = x.view(-1, size, width)
            torch_counts, _ = counted(layer, blocks, graphs.full(size), return_weights=True)
            assert found.total == torch_counts
            assert found.all_pairs == 4 * n * n * heads * layer.head_dim
    memory, read = torch.randn(7, width), graphs.cross(n, 7)
    layer = GraphAttention(width, heads, backend="dense")
    assert (
        analysis.flops(read, width, heads, hidden=0).total
        == counted(layer, x, read, context=memory, return_weights=True)[0]
    )
    # on edges torch sees no product
    without = analysis.flops([graphs.full(n)] * 3, width, heads, hidden=9)
    assert (
        without.total - without.attention
        == counted(Encoder(3, width, heads, 9, backend="message_passing"), x, graphs.full(n))[0]
    )


def test_flops_of_a_sparse_graph_are_those_of_its_edges():
    graph = ga.from_mask(torch.rand(9, 9, generator=torch.Generator().manual_seed(0)) < 0.3)
    edges = int(graph.mask().sum())
    q, k = torch.randn(9, 4), torch.randn(9, 4)
    one = sum(
        counted(torch.matmul, q[t : t + 1], k[s : s + 1].t())[0]
        for s, t in graph.edge_index.t().tolist()
    )
    assert analysis.flops(graph, 4, 1, hidden=0).attention == 2 * one == 2 * 2 * edges * 4
    heads = ga.PerHead((graph, graphs.causal(9)))
    both = [analysis.flops(g, 8, 4, hidden=0).attention for g in (graph, graphs.causal(9))]
    assert analysis.flops(heads, 8, 4, hidden=0).attention == sum(both) / 2
    assert analysis.flops((g for g in (graph, heads)), 8, 4).attention == both[0] + sum(both) / 2
    window, full = (
        analysis.flops(make(1_000_000), 64, 4)
        for make in (lambda n: graphs.sliding_window(n, 9, causal=True), graphs.full)
    )
    assert full.attention == full.all_pairs == window.all_pairs > 1e5 * window.attention
    assert (full.projections, full.feed_forward) == (window.projections, window.feed_forward)
    assert str(
        analysis.flops(graphs.full(0))
    ) == "0 FLOP: attention 0 FLOP (0.000% of all pairs'), " + (
        "projections 0 FLOP, feed-forwards 0 FLOP"
    )
    assert window.to_dict()["total"] == window.attention + window.projections + window.feed_forward
    for name, value in (("embed_dim", 0), ("hidden", -1), ("head_dim", 2.0)):
        with pytest.raises(GraphError, match=name):
            analysis.flops(graph, **{name: value})
    for sizes in ({"embed_dim": 4}, {"embed_dim": 20}, {"num_kv_heads": 3}):
        with pytest.raises(OptionError, match="must be a multiple of num_heads"):
            analysis.flops(graph, **sizes)


def test_experts_that_are_not_chosen_cost_nothing():  # active parameters
    experts, x = [FeedForward(8, 16) for _ in range(6)], torch.randn(20, 8)
    router = 2 * 20 * 8 * 6
    for top_k in (1, 2, 6):
        moe = MixtureOfExperts(experts, 8, top_k)
        assert counted(moe, x)[0] == router + top_k * counted(experts[0], x)[0]
        assert moe.graph(x).in_degree.tolist() == [top_k] * 20
    moe = MixtureOfExperts(experts, 8, 1)
    moe(x[:1]).sum().backward()
    active = [
        expert.up.weight.grad is not None and bool(expert.up.weight.grad.any())
        for expert in experts
    ]
    assert active == [number == int(moe.graph(x[:1]).source) for number in range(6)]


def test_a_separable_convolution_costs_what_attention_and_a_shared_perceptron_cost():
    """Vaswani et al. 2017, section 4: O(k n d + n d^2), which for k = n is self-attention and a
    perceptron.

    So it is in order of growth. Counted, attention takes twice the depth-wise part, for it has
    scores beside the sum, and four more products of n d^2 if it projects, which the source leaves
    out. "n is usually smaller than d" decides between n^2 d and n d^2: with the projections and a
    perceptron of 4 d the two are equal where n = 6 d.
    """
    n, d = 33, 10
    x = torch.randn(1, d, n)
    depth_wise, point_wise = nn.Conv1d(d, d, n, padding=n // 2, groups=d), nn.Conv1d(d, d, 1)
    separable = [counted(conv, x)[0] for conv in (depth_wise, point_wise)]
    assert separable == [2 * n * n * d, 2 * n * d * d]
    y, full = x[0].t(), graphs.full(n)
    layer = GraphAttention(d, 1, bias=False, backend="dense")
    attention = counted(layer, y, full, return_weights=True)[0] - 4 * counted(layer.q_proj, y)[0]
    perceptron = counted(F.linear, y, torch.randn(d, d))[0]  # the same weights for every token
    assert attention == 2 * separable[0] == analysis.flops(full, d, 1).attention
    assert perceptron == separable[1]
    whole = counted(nn.Conv1d(d, d, n, padding=n // 2), x)[0]
    assert whole == d * separable[0]  # the control: n^2 d^2, of another order
    for width in (1, 10, 64):
        less, equal, more = (
            analysis.flops(graphs.full(m), width, 1) for m in (width, 6 * width, 7 * width)
        )
        assert less.attention < less.projections + less.feed_forward
        assert equal.attention == equal.projections + equal.feed_forward
        assert more.attention > more.projections + more.feed_forward
