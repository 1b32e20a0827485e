"""A cache holds what one layer made, grows only when a call went well, and refuses what does not
continue it.
"""

import copy
import gc
import pickle
from itertools import pairwise

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
    torch.testing.assert_close(
        layer(X[:, 3:4], CAUSAL, cache=cache), whole[:, 3:], rtol=0, atol=1e-12
    )
    assert cache.length == 4


def test_nor_does_a_block_or_stack_whose_later_part_fails():
    block, cache = TransformerBlock(8, 2, cross=True).double(), KeyValueCache()
    assert cache.length == 0
    block(X, CAUSAL, memory=X, cache=cache)  # not tied by the call that failed
    assert cache.length == 5
    encoder, caches = ga.models.Encoder(2, 8, 2).double(), [KeyValueCache(), KeyValueCache()]
    whole = encoder(X, CAUSAL)
    encoder(X[:, :3], CAUSAL, caches=caches)
    with pytest.raises(ShapeError):
        encoder(X[:, 3:], [CAUSAL, graphs.causal(2, 6)], caches=caches)
    assert [cache.length for cache in caches] == [3, 3]
    torch.testing.assert_close(
        encoder(X[:, 3:], CAUSAL, caches=caches), whole[:, 3:], rtol=0, atol=1e-12
    )


PATTERNS = {
    "causal": graphs.causal(...),
    "window": graphs.sliding_window(..., 2, causal=True),
    "union": graphs.sliding_window(..., 2, causal=True)
    | (graphs.global_tokens(..., (0,)) & graphs.causal(...)),
    "two sizes": graphs.causal(..., ...),
    "tokens before": graphs.causal(...).with_global_tokens(1) & graphs.causal(...),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("steps", [(3, 4, 5), (2, 5), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_fits_every_step(name, steps):
    layer = GraphAttention(8, 2, rotary=ga.nn.Rotary(4)).double()
    pattern = PATTERNS[name]
    for graph in (pattern, [pattern, pattern], ga.PerExample([pattern, graphs.causal(...)])):
        cache = KeyValueCache()
        parts = []
        for first, last in pairwise((0, *steps)):
            parts.append(layer(X[:, first:last], graph, cache=cache))
        whole = layer(X, graph)
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)


def test_a_pattern_counts_dropped_tokens():
    layer = GraphAttention(8, 2, rotary=ga.nn.Rotary(4)).double()
    graph = graphs.sliding_window(..., 2, causal=True) | (
        graphs.global_tokens(..., (3,)) & graphs.causal(...)
    )
    whole = layer(X, graph)
    cache = KeyValueCache()
    layer(X[:, :4], graph, cache=cache)
    cache.drop(2)
    step = layer(X[:, 4:], graph, cache=cache)
    torch.testing.assert_close(step, whole[:, 4:], rtol=0, atol=1e-12)


def test_stacks_continue_on_a_pattern():
    encoder = ga.models.Encoder(2, 8, 2).double()
    pattern = PATTERNS["union"]
    caches = [KeyValueCache(), KeyValueCache()]
    parts = [encoder(X[:, a:b], pattern, caches=caches) for a, b in ((0, 2), (2, 5))]
    torch.testing.assert_close(torch.cat(parts, 1), encoder(X, pattern), rtol=0, atol=1e-12)


def test_a_cache_is_for_one_layer():
    layer, other = GraphAttention(8, 2).double(), GraphAttention(8, 2).double()
    cache = filled(layer)
    for stranger in (other, copy.deepcopy(layer)):
        with pytest.raises(
            OptionError, match=r"holds 3 tokens of another layer; pass a separate KeyValueCache\(\)"
        ):
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
    torch.testing.assert_close(
        layer(X[:, 3:4], CAUSAL, cache=again), whole[:, 3:], rtol=0, atol=1e-12
    )


def test_a_converted_layer_does_not_continue_its_cache():
    layer = GraphAttention(8, 2).double()
    cache = filled(layer)
    layer.float()
    assert (cache.length, cache.key.dtype) == (3, torch.float64)


def test_caches_of_a_stack_are_one_for_each_layer_all_as_long():
    gpt, caches = (
        ga.models.GPT.gpt2(11, 8, 2, 2, max_len=6).double(),
        [KeyValueCache(), KeyValueCache()],
    )
    tokens, encoder, decoder = (
        torch.zeros(2, 3, dtype=torch.int64),
        gpt.stack,
        ga.models.Decoder(2, 8, 2).double(),
    )
    calls = {
        "gpt": lambda caches: gpt(tokens, CAUSAL, caches=caches),
        "encoder": lambda caches: encoder(X[:, :3], CAUSAL, caches=caches),
        "decoder": lambda caches: decoder(X[:, :3], CAUSAL, X, caches=caches),
    }
    for call in calls.values():
        for wrong in ([], caches[:1], [*caches, KeyValueCache()], [caches[0], None], caches[0]):
            with pytest.raises(
                OptionError,
                match="caches must be a list of 2 KeyValueCache, one for each layer; got",
            ):
                call(wrong)
    gpt(tokens, caches=caches)
    with pytest.raises(ShapeError, match=r"hold the same tokens, got lengths \[3, 0\]"):
        gpt(tokens, caches=[caches[0], KeyValueCache()])
    with pytest.raises(OptionError, match="holds 3 tokens of another layer"):
        gpt(tokens, graphs.causal(..., ...), caches=caches[::-1])
    with pytest.raises(PositionIndexError, match="6"):  # full
        gpt(torch.zeros(2, 4, dtype=torch.int64), graphs.causal(..., ...), caches=caches)
    with pytest.raises(
        ga.errors.GraphError, match="graph must be one, or 2, one for each layer, got 3"
    ):
        gpt(tokens, [CAUSAL] * 3, caches=caches)
    assert [cache.length for cache in caches] == [3, 3]
    layer, cache = GraphAttention(8, 2).double(), KeyValueCache()
    for call in (
        lambda: layer((X, X), CAUSAL, cache=cache),
        lambda: layer(X, CAUSAL, context=X, cache=cache),
    ):
        with pytest.raises(OptionError, match="excludes context and x as a pair"):
            call()
    assert cache.length == 0


def test_a_context_that_is_held():
    layer, new = GraphAttention(8, 2, rotary=ga.nn.Rotary(4)).double(), X[:, :2]
    graph, after = graphs.cross(2, 5), torch.arange(2) + 7
    held = layer.hold(X)
    assert torch.equal(layer(new, graph, context=held), layer(new, graph, context=X))
    assert torch.equal(
        layer(new, graph, context=held, positions=after),
        layer(new, graph, context=X, positions=(after, torch.arange(5))),
    )
    moved = layer.hold(X, positions=torch.arange(5) + 2)
    assert not torch.allclose(layer(new, graph, context=moved), layer(new, graph, context=held))
    with pytest.raises(
        OptionError, match="already have rotary embeddings: pass positions of the targets alone"
    ):
        layer(new, graph, context=held, positions=(after, torch.arange(5)))
    with pytest.raises(OptionError, match=r"an empty KeyValueCache; pass layer.hold\(context\)"):
        layer(new, graph, context=KeyValueCache())
    with pytest.raises(OptionError, match="another layer"):
        copy.deepcopy(layer)(new, graph, context=held)
    with pytest.raises(ShapeError, match="context must have shape"):
        layer.hold(X[..., :7])
    with pytest.raises(ShapeError, match="x has 2 nodes and the sources 5, but the graph"):
        layer(new, graphs.cross(2, 4), context=held)
    decoder = ga.models.Decoder(2, 8, 2).double()
    with pytest.raises(OptionError, match="caches must be a list of 2"):
        decoder(X, CAUSAL, decoder.hold(X)[:1])


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        (
            torch.tensor([0, 2]),
            PositionIndexError,
            r"batch must be in \[0, 2\), the cached examples, got 0 to 2",
        ),
        (torch.tensor([-1]), PositionIndexError, "got -1 to -1"),
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


def token_by_token(layer, cache, numbers, source=X):
    return torch.cat([layer(source[:, i : i + 1], CAUSAL, cache=cache) for i in numbers], 1)


LONG = torch.randn(2, 40, 8, generator=torch.Generator().manual_seed(6), dtype=torch.float64)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_it_grows_in_place(mode):
    layer, cache, storages = (
        GraphAttention(8, 2, num_kv_heads=1, value_dim=3).double(),
        KeyValueCache(),
        [],
    )
    with mode():
        whole, parts = layer(LONG, graphs.causal(40)), []
        for first, last in ((0, 3), *((i, i + 1) for i in range(3, 38)), (38, 40)):
            before = None if cache.key is None else (cache.key, cache.key.clone())
            parts.append(layer(LONG[:, first:last], CAUSAL, cache=cache))
            storages.append(cache.key.untyped_storage())  # kept, so that no address comes again
            assert before is None or torch.equal(*before)  # what was there is not written over
            assert cache.value.shape == (2, last, 1, 3)
        torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    addresses = {storage.data_ptr() for storage in storages}
    assert len(addresses) == 5  # of 3, 8, 18, 38 and 80 tokens


def test_a_cache_of_inference_mode_goes_on_outside_and_back():
    layer, cache = GraphAttention(8, 2).double(), KeyValueCache()
    whole, parts = layer(LONG, graphs.causal(40)).detach(), []
    for number, mode in enumerate([torch.inference_mode, torch.no_grad, torch.enable_grad] * 4):
        with mode():
            parts.append(layer(LONG[:, number : number + 1], CAUSAL, cache=cache))
    torch.testing.assert_close(torch.cat(parts, 1).detach(), whole[:, :12], rtol=0, atol=1e-12)


def test_gradients_go_through_what_is_held():
    layer, cache, inputs = (
        GraphAttention(8, 2).double(),
        KeyValueCache(),
        LONG[:, :6].clone().requires_grad_(),
    )
    with torch.no_grad():
        token_by_token(layer, cache, range(3), LONG)
    later = token_by_token(layer, cache, range(3, 6), inputs)
    [found] = torch.autograd.grad(later.square().sum(), inputs)
    [wanted] = torch.autograd.grad(layer(inputs, graphs.causal(6))[:, 3:].square().sum(), inputs)
    assert not found[:, :3].any()  # they were written without gradients
    torch.testing.assert_close(found[:, 5:], wanted[:, 5:], rtol=0, atol=1e-12)
    assert not torch.allclose(found[:, 3:5], torch.zeros(()).double())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@torch.no_grad()
def test_a_copy_and_its_original_go_separate_ways(copied):
    layer, cache = GraphAttention(8, 2).double(), KeyValueCache()
    token_by_token(layer, cache, range(4), LONG)
    other, text = copied(cache), torch.cat((LONG[:, :4], LONG[:, 20:23]), 1)
    here, there = [], []
    for number in range(4, 7):
        here.append(token_by_token(layer, cache, [number], LONG))
        there.append(token_by_token(layer, other, [number], text))
    for parts, tokens in ((here, LONG[:, :7]), (there, text)):
        torch.testing.assert_close(
            torch.cat(parts, 1), layer(tokens, CAUSAL)[:, 4:], rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_a_call_that_fails_after_it_was_written_leaves_the_cache_as_it_was(mode):
    wrong = []
    layer = GraphAttention(
        8, 2, normalize=lambda s, t, n: s.sum() if wrong else torch.sigmoid(s)
    ).double()
    with mode():
        cache, whole = KeyValueCache(), layer(LONG[:, :8], CAUSAL)
        token_by_token(layer, cache, range(5), LONG)
        wrong.append(True)
        with pytest.raises(
            ShapeError,
            match=r"what normalize returns must have shape \(2, 6, 2\), got a Tensor \(\)",
        ):
            token_by_token(layer, cache, [9], LONG)
        wrong.clear()
        torch.testing.assert_close(
            token_by_token(layer, cache, range(5, 8), LONG), whole[:, 5:], rtol=0, atol=1e-12
        )


@torch.no_grad()
def test_the_graph_of_the_whole_sequence_is_refused_with_the_rows_to_pass():
    layer, cache, whole = (
        GraphAttention(8, 2).double(),
        KeyValueCache(),
        graphs.sliding_window(7, 3, causal=True),
    )
    wanted, rows = layer(LONG[:, :7], whole), []
    for steps in (range(2), range(2, 3), range(3, 7)):
        if steps.start == 3:
            cache.drop(1)
        x = LONG[:, steps.start : steps.stop]
        with pytest.raises(ShapeError, match=f"and x has {len(steps)} more; for the next") as error:
            layer(x, whole, cache=cache)
        call = str(error.value).split("pass ")[1]
        rows.append(layer(x, eval(call, {"graph": whole}), cache=cache))
    torch.testing.assert_close(torch.cat(rows, 1), wanted, rtol=0, atol=1e-12)


@torch.no_grad()
def test_what_a_window_no_longer_reads_may_be_dropped():
    window, layer = (
        graphs.sliding_window(40, 3, causal=True),
        GraphAttention(8, 2, rotary=ga.nn.Rotary(4)).double(),
    )
    cache, whole = KeyValueCache(), layer(LONG, window)
    parts, storages = [layer(LONG[:, :4], window.subgraph(range(4)), cache=cache)], set()
    for number in range(4, 40):
        cache.drop(number - 2)
        parts.append(layer(LONG[:, number : number + 1], graphs.cross(1, 3), cache=cache))
        assert (cache.length, cache.dropped, cache.key.shape[1]) == (number + 1, number - 2, 3)
        storages.add(cache.key.untyped_storage().nbytes())
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    assert max(storages) <= 2 * 3 * 2 * 8 * 8  # twice what is held, however many tokens there were
    cache.reorder(torch.tensor([1, 0]))
    cache.drop(0)  # gone before
    assert (cache.length, cache.dropped) == (40, 37)
    with pytest.raises(OptionError, match="below 41, one more than the tokens so far, got 41"):
        cache.drop(41)
    with pytest.raises(
        ShapeError,
        match="the graph has 4 sources and 2 targets, but the cache holds 3 and x has 2 more; "
        "pass a graph of 5 sources and 2 targets",
    ):
        layer(LONG[:, :2], graphs.cross(2, 4), cache=cache)
    cache.drop(40)
    assert (cache.length, cache.key.shape[1]) == (40, 0)
