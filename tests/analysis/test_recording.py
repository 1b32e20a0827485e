"""Weights of all layers of a model at once, judged by asking each layer."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.analysis import record_weights
from graphattn.errors import GraphAttnError, OptionError


def test_they_are_what_each_layer_gives_and_rollout_takes_them():
    encoder, x, graph = (
        ga.models.Encoder(2, 8, 2).double(),
        torch.randn(5, 8).double(),
        graphs.causal(5),
    )
    plain = encoder(x, graph)
    with record_weights(encoder) as found:
        torch.testing.assert_close(encoder(x, graph), plain, rtol=0, atol=1e-12)
    first, second = encoder.layers
    for weights, layer, its in zip(
        found.values(), (first, second), (x, first(x, graph)), strict=True
    ):
        _, wanted = layer.attention(layer.attention_norm(its), graph, return_weights=True)
        torch.testing.assert_close(weights.alpha, wanted.alpha, rtol=0, atol=1e-12)
    rolled = ga.viz.rollout(found).dense()
    torch.testing.assert_close(rolled, ga.viz.rollout(found.values()).dense())
    torch.testing.assert_close(rolled.sum(-1), torch.ones(1, 5).double())
    assert isinstance(encoder(x, graph), torch.Tensor), "hooks are gone"
    assert len(first.attention._forward_hooks) == len(first.attention._forward_pre_hooks) == 0


def test_a_caller_who_asks_gets_them_and_the_last_call_stays():
    layer, x = ga.nn.GraphAttention(8, 2), torch.randn(5, 8)
    with record_weights(layer) as found:
        layer(x, graphs.full(5))
        output, weights = layer(x, graphs.causal(5), return_weights=True)
        assert found[""] is weights
        with pytest.raises(GraphAttnError):
            layer(x, graphs.causal(4))
        assert output.shape == layer(x, graphs.full(5)).shape
    with (
        pytest.raises(OptionError, match="GraphAttention, got a Linear"),
        record_weights(torch.nn.Linear(2, 2)),
    ):
        pass


def test_calls_in_other_threads_are_not_recorded():
    encoder, x = ga.models.Encoder(2, 8, 2), torch.randn(5, 8)

    def between(*_):
        with ThreadPoolExecutor(1) as pool:
            _, weights = pool.submit(first, x, graphs.full(5), return_weights=True).result()
        assert weights.graph.num_edges == 25

    first = encoder.layers[0].attention
    with record_weights(encoder) as found:
        encoder.layers[1].attention_norm.register_forward_hook(between)
        encoder(x, graphs.causal(5))
    assert [weights.graph.num_edges for weights in found.values()] == [15, 15]


def test_of_cross_attention_and_of_a_cache():
    model, tokens = ga.models.T5(20, 8, 2, 1).eval(), torch.randint(20, (2, 4))
    with record_weights(model) as found:
        ga.models.generate(
            model.reading(tokens), torch.zeros(2, 1, dtype=torch.int64), max_new_tokens=3
        )
    sizes = {name: (w.graph.num_sources, w.graph.num_targets) for name, w in found.items()}
    assert sizes["decoder.layers.0.cross_attention"] == (4, 1)
    assert sizes["encoder.layers.0.attention"] == (4, 4)
