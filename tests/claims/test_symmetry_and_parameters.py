"""What attention does not know (order, names, numbers of nodes) and what it has to learn with."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphattn as ga
from graphattn import graphs
from graphattn.models import Encoder
from graphattn.nn import GraphAttention, LearnedPosition, SinusoidalPosition, TransformerBlock

ORDER = torch.tensor([3, 0, 6, 4, 1, 2, 5])
few = settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))


def wild(module, seed=0):
    """The module in float64 with all parameters random, none at its tame start."""
    made = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=made) * 0.4)
    return module.eval()


@pytest.mark.slow
@few
@given(st.integers(1, 9), st.sampled_from([1, 2, 4]), st.integers(0, 999), st.floats(0, 1))
# p(sa(X)) = sa(p(X))
def test_relabelling_nodes_and_edges_relabels_the_output(n, heads, seed, density):
    made = torch.Generator().manual_seed(seed)
    x, order = (
        torch.randn(n, 8, generator=made, dtype=torch.float64),
        torch.randperm(n, generator=made),
    )
    mask = torch.rand(n, n, generator=made) < density
    encoder = wild(Encoder(2, 8, heads), seed)
    output = encoder(x, ga.from_mask(mask))
    relabelled = ga.from_mask(mask[order][:, order])
    torch.testing.assert_close(encoder(x[order], relabelled), output[order], rtol=1e-9, atol=1e-9)


def test_on_a_full_graph_nodes_may_be_permuted_alone_and_on_a_causal_one_not():
    encoder, x, order = wild(Encoder(2, 8, 2)), torch.randn(7, 8).double(), ORDER
    full, causal = graphs.full(7), graphs.causal(7)
    torch.testing.assert_close(encoder(x[order], full), encoder(x, full)[order])
    assert (encoder(x[order], causal) - encoder(x, causal)[order]).abs().max() > 1e-3


def test_a_node_is_invariant_to_the_order_of_what_it_reads():
    layer, x, memory = (
        wild(GraphAttention(8, 2)),
        torch.randn(3, 8).double(),
        torch.randn(7, 8).double(),
    )
    graph = graphs.cross(3, 7)
    torch.testing.assert_close(
        layer(x, graph, context=memory[ORDER]), layer(x, graph, context=memory)
    )


def test_transformer_and_average_pool_are_permutation_invariant():
    encoder, x, order = wild(Encoder(2, 8, 2)), torch.randn(7, 8).double(), ORDER
    pooled = [encoder(y, graphs.full(7)).mean(0) for y in (x, x[order])]
    torch.testing.assert_close(*pooled, rtol=0, atol=1e-12)
    for position in (SinusoidalPosition(8), wild(LearnedPosition(7, 8))):  # the control
        pooled = [encoder(position(y), graphs.full(7)).mean(0) for y in (x, x[order])]
        assert (pooled[0] - pooled[1]).abs().max() > 1e-3


def test_pointnet_is_a_graph_of_self_loops_and_a_pool_by_the_largest():
    encoder, cloud, order = (
        wild(Encoder(2, 8, 2)),
        torch.randn(11, 8).double(),
        torch.arange(11) * 3 % 11,
    )
    alone = graphs.self_loops(...)
    features = encoder(cloud, alone)
    # shared
    torch.testing.assert_close(
        features, torch.cat([encoder(point[None], alone) for point in cloud])
    )
    torch.testing.assert_close(
        encoder(cloud[order], alone).amax(0), features.amax(0), rtol=0, atol=1e-12
    )
    ordered = [encoder(points, graphs.causal(...)).amax(0) for points in (cloud, cloud[order])]
    assert (ordered[0] - ordered[1]).abs().max() > 1e-3


WORDS = {word: i for i, word in enumerate(["mary", "gave", "roses", "to", "susan"])}
GAVE = 1


def sentence(text, seed=0):
    table = torch.randn(
        len(WORDS), 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return table[[WORDS[word] for word in text.split()]]


MARY, SUSAN = sentence("mary gave roses to susan"), sentence("susan gave roses to mary")


@pytest.mark.sample(3)
@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_heads_do_not_tell_mary_from_susan_whatever_their_weights(heads):
    # Source C implies that several heads can. They cannot: every head is equivariant.
    for seed in range(3):
        block, graph = wild(TransformerBlock(8, heads), seed), graphs.full(5)
        torch.testing.assert_close(
            block(MARY, graph)[GAVE], block(SUSAN, graph)[GAVE], rtol=0, atol=1e-12
        )


def test_positions_edge_types_or_another_graph_tell_mary_from_susan():
    block = wild(TransformerBlock(8, 2))
    for position in (SinusoidalPosition(8), wild(LearnedPosition(5, 8))):
        told = (
            block(position(MARY), graphs.full(5))[GAVE]
            - block(position(SUSAN), graphs.full(5))[GAVE]
        )
        assert told.abs().max() > 1e-2
    typed, full = wild(GraphAttention(8, 2, edge_dim=3)), graphs.full(5)
    role = torch.zeros(full.num_edges, 3, dtype=torch.float64)  # subject of, object of, neither
    kind = torch.tensor([0, 2, 2, 2, 1])[full.source]
    role[torch.arange(full.num_edges), torch.where(full.target == GAVE, kind, 2)] = 1.0
    told = typed(MARY, full, edge_attr=role)[GAVE] - typed(SUSAN, full, edge_attr=role)[GAVE]
    assert told.abs().max() > 1e-2
    causal = block(MARY, graphs.causal(5))[GAVE] - block(SUSAN, graphs.causal(5))[GAVE]
    # "gave" reads its subject only: connectivity in place of positions
    assert causal.abs().max() > 1e-2


def test_too_tired_or_too_wide_is_not_a_matter_of_position():
    # "the animal did not cross the street because it was too tired / wide". Weights that know
    # positions only are the same in both sentences; by content, with positions or without, one
    # layer moves the weights but not the odds of animal and street. It takes a second layer, in
    # which "it" queries after it has read "tired".
    animal, street, it, n = 1, 5, 7, 11
    tired = torch.randn(n, 8).double()
    wide = torch.cat((tired[:-1], torch.randn(1, 8).double()))
    place = SinusoidalPosition(8)(torch.zeros(n, 8).double())
    layer, graph = wild(GraphAttention(8, 1)), graphs.full(n)

    def of_it(where, words):
        return layer(where, graph, context=(where, words), return_weights=True)[1].dense()[0, it]

    assert torch.equal(of_it(place, tired), of_it(place, wide))
    # by content, and by content and position
    for placed in (lambda words: words, lambda words: words + place):
        by_content = [of_it(placed(words), placed(words)) for words in (tired, wide)]
        assert not torch.allclose(*by_content)
        odds = [row[animal] / row[street] for row in by_content]
        torch.testing.assert_close(*odds)
    deeper = [of_it(made, made) for made in (layer(words, graph) for words in (tired, wide))]
    assert abs(deeper[0][animal] / deeper[0][street] - deeper[1][animal] / deeper[1][street]) > 1e-3


def test_parameters_do_not_grow_with_the_number_of_nodes_and_the_attention_matrix_does():
    layer = GraphAttention(8, 2)
    genotype = sum(p.numel() for p in layer.parameters())
    for n in (3, 30, 300):
        assert layer(torch.randn(n, 8), graphs.full(n)).shape == (n, 8)
        assert sum(p.numel() for p in layer.parameters()) == genotype == 4 * (8 * 8 + 8)
        assert graphs.full(n).num_edges == n * n
        assert graphs.sliding_window(n, 3, causal=True).num_edges == 3 * n - 3


def test_any_number_of_heads_has_the_same_parameters():
    assert {sum(p.numel() for p in GraphAttention(24, h).parameters()) for h in (1, 2, 3, 8)} == {
        4 * 24 * 25
    }
    assert GraphAttention(512, 8).head_dim == 64  # h = d_model / d_k = 512 / 64 = 8


def test_attention_is_linear_in_the_values_and_not_in_its_input():
    layer, graph = wild(GraphAttention(8, 2, bias=False)), graphs.sliding_window(7, 3, causal=True)
    x, one, other = torch.randn(3, 7, 8).double()

    def of_values(values):
        return layer(x, graph, context=(x, values))

    torch.testing.assert_close(
        of_values(2 * one - 3 * other), 2 * of_values(one) - 3 * of_values(other)
    )
    # softmax is all the non-linearity
    assert (layer(2 * one, graph) - 2 * layer(one, graph)).abs().max() > 1e-2


def test_attention_has_fast_weights_and_a_linear_layer_slow_ones():
    """On one graph, attention's weights are made of the input; a linear layer's are parameters of
    the edges.

    The control is the same layer whose score is constant: what it learns for each edge is all there
    is to its weights.
    """
    graph, inputs = graphs.sliding_window(5, 3, causal=False), torch.randn(2, 5, 8).double()
    fast = wild(GraphAttention(8, 2))
    fixed = wild(GraphAttention(8, 2, score=lambda q, k, e: k.new_zeros(q.shape[:-1])))
    # slow: theta of every edge and head
    learned = torch.nn.Parameter(torch.randn(graph.num_edges, 2).double())

    def weights(layer, x, **options):
        return layer(x, graph, return_weights=True, **options)[1].dense()

    one, other = (weights(fast, x) for x in inputs)
    assert (one - other).abs().max() > 1e-2
    one, other = (weights(fixed, x, score_bias=learned) for x in inputs)
    assert torch.equal(one, other)
    theta = torch.full((2, 5, 5), -torch.inf).double()
    theta[:, graph.target, graph.source] = learned.detach().t()
    torch.testing.assert_close(one, torch.softmax(theta, -1))
    mixed = torch.einsum("hts,nshd->nthd", one, fixed.v_proj(inputs).unflatten(-1, (2, 4))).flatten(
        2
    )
    # linear in its input
    torch.testing.assert_close(fixed(inputs, graph, score_bias=learned), fixed.out_proj(mixed))
    changed = [
        torch.autograd.functional.jacobian(lambda y: fixed(y, graph, score_bias=learned), x)
        for x in inputs
    ]
    torch.testing.assert_close(*changed)
    changed = [torch.autograd.functional.jacobian(lambda y: fast(y, graph), x) for x in inputs]
    assert (changed[0] - changed[1]).abs().max() > 1e-2
    fixed(inputs, graph, score_bias=learned).sum().backward()
    assert learned.grad.abs().min() > 0


def test_heads_attend_differently_and_their_mean_is_none_of_them():
    weights = wild(GraphAttention(8, 4))(
        torch.randn(6, 8).double(), graphs.full(6), return_weights=True
    )[1].dense()
    assert (weights - weights.mean(0)).abs().amax((1, 2)).min() > 1e-2


def test_keys_and_values_are_decoupled():  # what is found and what is handed over
    q, k, v = torch.randn(3, 6, 1, 4).double()
    order, graph = torch.tensor([3, 0, 5, 4, 1, 2]), graphs.full(6)
    plain, moved = (
        ga.attention(q, k, values, graph, return_weights=True) for values in (v, v[order])
    )
    assert torch.equal(plain.weights.alpha, moved.weights.alpha)
    alpha = plain.weights.dense()[0]
    torch.testing.assert_close(moved.output[:, 0], alpha @ v[order, 0])


def test_without_attention_a_block_is_its_residual():
    for norm_first in (True, False):
        block, x = TransformerBlock(8, 2, norm_first=norm_first), torch.randn(5, 8)
        torch.nn.init.zeros_(block.attention.out_proj.weight)
        torch.nn.init.zeros_(block.feed_forward.down.weight)
        torch.nn.init.zeros_(block.feed_forward.down.bias)
        expected = x if norm_first else block.feed_forward_norm(block.attention_norm(x))
        assert torch.equal(block(x, graphs.full(5)), expected)


def test_a_row_of_an_embedding_is_a_one_hot_vector_times_its_matrix():
    table, index = torch.randn(5, 3), torch.tensor([4, 0, 4])
    assert torch.equal(torch.nn.functional.one_hot(index, 5).float() @ table, table[index])
