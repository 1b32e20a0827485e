"""A cache holds what one layer made, grows only when a call went well, and refuses what does not continue it."""

import copy
import gc
import pickle

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.errors import GraphAttnError, OptionError, PositionIndexError, ShapeError
from graphattn.nn import GraphAttention, KeyValueCache, TransformerBlock

CAUSAL = graphs.causal(..., ...)
X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def filled(layer, size=3):
    cache = KeyValueCache()
    with torch.no_grad():
        layer(X[:, :size], CAUSAL, cache=cache)
    return cache


WRONG = {
    "score_bias": ({}, {"score_bias": torch.zeros(99, dtype=torch.float64)}),
    "edge features": ({}, {"edge_attr": torch.zeros(4, 2, dtype=torch.float64)}),
    "positions": ({"rotary": ga.nn.Rotary(4)}, {"positions": torch.arange(7)}),
    "graph": ({}, {"graph": graphs.causal(1, 7)}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_failed_call_leaves_the_cache_as_it_was(name):
    options, wrong = WRONG[name]
    layer = GraphAttention(8, 2, **options).double()
    cache, whole = filled(layer), layer(X[:, :4], CAUSAL)
    with pytest.raises(GraphAttnError):
        layer(X[:, 3:4], **{"graph": CAUSAL, **wrong}, cache=cache)
    assert cache.length == 3
    torch.testing.assert_close(layer(X[:, 3:4], CAUSAL, cache=cache), whole[:, 3:], rtol=0, atol=1e-12)
    assert cache.length == 4


def test_nor_does_a_score_or_normalisation_that_fails_late():
    wrong = []
    layer = GraphAttention(8, 2, normalize=lambda s, t, n: s.sum() if wrong else torch.sigmoid(s)).double()
    cache = filled(layer)
    wrong.append(True)
    with pytest.raises(ShapeError, match="normalize must return"):
        layer(X[:, 3:4], CAUSAL, cache=cache)
    wrong.clear()
    found = layer(X[:, 3:4], CAUSAL, cache=cache)
    torch.testing.assert_close(found, layer(X[:, :4], CAUSAL)[:, 3:], rtol=0, atol=1e-12)


def test_nor_does_a_block_or_stack_whose_later_part_fails():
    block, cache = TransformerBlock(8, 2, cross=True).double(), KeyValueCache()
    with pytest.raises(ShapeError, match="context must have shape"):
        block(X, CAUSAL, memory=X[..., :7], cache=cache)
    assert cache.length == 0
    block(X, CAUSAL, memory=X, cache=cache)  # not tied by the call that failed
    assert cache.length == 5
    encoder, caches = ga.models.Encoder(2, 8, 2).double(), [KeyValueCache(), KeyValueCache()]
    whole = encoder(X, CAUSAL)
    encoder(X[:, :3], CAUSAL, caches=caches)
    with pytest.raises(ShapeError):
        encoder(X[:, 3:], [CAUSAL, graphs.causal(2, 6)], caches=caches)
    assert [cache.length for cache in caches] == [3, 3]
    torch.testing.assert_close(encoder(X[:, 3:], CAUSAL, caches=caches), whole[:, 3:], rtol=0, atol=1e-12)


def test_a_cache_is_for_one_layer():
    layer, other = GraphAttention(8, 2).double(), GraphAttention(8, 2).double()
    cache = filled(layer)
    for stranger in (other, copy.deepcopy(layer)):
        with pytest.raises(OptionError, match=r"holds 3 tokens of another layer.* KeyValueCache\(\) of its own"):
            stranger(X[:, 3:4], CAUSAL, cache=cache)
    layer(X[:, 3:4], CAUSAL, cache=cache)
    assert cache.length == 4
    orphan = filled(GraphAttention(8, 2).double())
    gc.collect()
    with pytest.raises(OptionError, match="of another layer"):
        layer(X[:, 3:4], CAUSAL, cache=orphan)
    with pytest.raises(OptionError, match="of another layer"):
        ga.models.Encoder(2, 8, 2).double()(X, CAUSAL, caches=[KeyValueCache()] * 2)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_a_copied_or_saved_cache_goes_on(copied):
    layer = GraphAttention(8, 2).double()
    again = copied(filled(layer))
    whole = layer(X[:, :4], CAUSAL)
    torch.testing.assert_close(layer(X[:, 3:4], CAUSAL, cache=again), whole[:, 3:], rtol=0, atol=1e-12)


def test_a_converted_layer_does_not_continue_its_cache():
    layer = GraphAttention(8, 2).double()
    cache = filled(layer)
    layer.float()
    with pytest.raises(ShapeError, match=r"key of torch.float64 on cpu, which torch.float32 on cpu does not continue"):
        layer(X[:, 3:4].float(), CAUSAL, cache=cache)
    assert (cache.length, cache.key.dtype) == (3, torch.float64)


@pytest.mark.parametrize("wrong", [{}, [], KeyValueCache, True, 3])
def test_what_is_no_cache(wrong):
    with pytest.raises(OptionError, match=r"cache must be a KeyValueCache\(\), made once for each layer.* got"):
        GraphAttention(8, 2).double()(X, CAUSAL, cache=wrong)
    with pytest.raises(OptionError, match=r"cache must be a KeyValueCache\(\)"):
        ga.models.Encoder(1, 8, 2).double()(X, CAUSAL, caches=[wrong])


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        (torch.tensor([0, 2]), PositionIndexError, r"batch must be in \[0, 2\), the examples held; got 0 to 2"),
        (torch.tensor([-1]), PositionIndexError, "got -1 to -1"),
        (torch.tensor([0.0]), ShapeError, r"batch must be int64 \(B',\).*; got \(1,\) torch.float32"),
        (torch.tensor([True, False]), ShapeError, r"got \(2,\) torch.bool"),
        (torch.tensor(0), ShapeError, r"got \(\) torch.int64"),
        ([0, 1], ShapeError, "got list"),
        (torch.tensor([0], device="meta"), ShapeError, "batch is on meta and the cache on cpu"),
    ],
)
def test_reorder_refuses(batch, error, words):
    cache = filled(GraphAttention(8, 2).double())
    with pytest.raises(error, match=words):
        cache.reorder(batch)
    assert cache.key.shape[0] == 2


def test_reorder_keeps_the_examples_named_and_needs_a_batch():
    layer = GraphAttention(8, 2).double()
    cache = filled(layer)
    cache.reorder(torch.tensor([1, 1, 0]))
    new = X[[1, 1, 0]]
    found = layer(new[:, 3:4], CAUSAL, cache=cache)
    torch.testing.assert_close(found, layer(new[:, :4], CAUSAL)[:, 3:], rtol=0, atol=1e-12)
    alone = KeyValueCache()
    alone.reorder(torch.tensor([0]))  # nothing held yet
    layer(X[0], CAUSAL, cache=alone)
    with pytest.raises(ShapeError, match="without a batch to reorder"):
        alone.reorder(torch.tensor([0]))
