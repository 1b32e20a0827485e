"""Generation of patched models: with every cache, padded on either side, the tokens of each example
by itself.
"""

import pytest
import torch
from tiny_models import tiny_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    DynamicCache,
    StaticCache,
)

import graphattn as ga
from graphattn.errors import GraphError

N, P, NEW = 3, 9, 8  # examples, tokens of the longest prompt, new tokens
SINKS = ga.graphs.global_tokens(..., (0,)) & ga.graphs.causal(...)
GRAPH = ga.graphs.sliding_window(..., 4, causal=True) | SINKS
WRITE = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def prompts():
    return torch.randint(3, 30, (N, P), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module", params=["llama", "gemma3_text", "gpt2"])
def alone(request):
    """A patched model, and what it writes after prompts of 9, 6 and 5 tokens, each by itself and
    without a cache.
    """
    model = tiny_model(request.param, auto=AutoModelForCausalLM)
    ga.patch(model, GRAPH)
    kept = [prompts()[i : i + 1, : P - drop] for i, drop in enumerate((0, 3, 4))]
    return model, kept, [model.generate(x, use_cache=False, **WRITE)[0, x.shape[1] :] for x in kept]


def padded(kept, side):
    """The prompts as one batch."""
    tokens, mask = torch.zeros(N, P, dtype=torch.int64), torch.zeros(N, P, dtype=torch.int64)
    for i, x in enumerate(kept):
        place = slice(0, x.shape[1]) if side == "right" else slice(P - x.shape[1], P)
        tokens[i, place], mask[i, place] = x[0], 1
    return tokens, mask


@pytest.mark.sample(4)
@pytest.mark.parametrize("cache", ["dynamic", "sliding", "static", "none"])
def test_padded_batches_write_what_each_example_does(alone, cache):
    model, kept, expected = alone
    tokens, mask = padded(kept, "left")
    options = {
        "none": {"use_cache": False},
        "static": {"cache_implementation": "static"},
        "sliding": {},  # that of the model, which has windows in gemma3
        "dynamic": {"past_key_values": DynamicCache()},
    }[cache]
    written = model.generate(tokens, attention_mask=mask, **options, **WRITE)[:, P:]
    assert [row.tolist() for row in written] == [row.tolist() for row in expected]


def test_padding_may_stand_between_the_prompt_and_what_is_written(alone):
    model, kept, expected = alone
    written = written_by_hand(model, *padded(kept, "right"))
    assert [row.tolist() for row in written] == [row.tolist() for row in expected]


def written_by_hand(model, tokens, mask):
    """What follows right-padded prompts, whose new tokens stand after the padding."""
    cache, row, new = DynamicCache(), torch.arange(N), []
    position = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(tokens, attention_mask=mask, position_ids=position, past_key_values=cache).logits
    last = logits[row, mask.sum(1) - 1]
    for _ in range(NEW):
        new.append(last.argmax(-1))
        mask = torch.cat((mask, mask.new_ones(N, 1)), 1)
        position = mask.sum(1, keepdim=True) - 1
        last = model(
            new[-1][:, None], attention_mask=mask, position_ids=position, past_key_values=cache
        ).logits[:, 0]
    return torch.stack(new, 1)


def test_beams_and_chunks(alone):
    model, kept, _ = alone
    beams = WRITE | {"num_beams": 3}
    cached = model.generate(kept[0], **beams)
    assert torch.equal(cached, model.generate(kept[0], use_cache=False, **beams))
    whole, cache = model(kept[0]).logits, DynamicCache()
    parts = [model(x, past_key_values=cache).logits for x in kept[0].split(4, 1)]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-12)


def test_random_edges_are_those_of_the_whole_sequence(alone):
    model, kept, _ = alone
    graph = ga.graphs.random_neighbours(..., 3, seed=5) & ga.graphs.causal(
        ...
    ) | ga.graphs.sliding_window(..., 2, causal=True)
    with ga.patched(model, graph):
        cached = model.generate(kept[0], **WRITE)
        assert torch.equal(cached, model.generate(kept[0], use_cache=False, **WRITE))


def test_repeated_edges_count_in_each_step(alone):
    model, kept, _ = alone
    causal = ga.graphs.causal(P + NEW)
    edges = torch.stack((causal.source, causal.target))
    twice = torch.cat((edges, edges[:, ::2]), 1)
    graph = ga.from_edge_index(twice, num_nodes=P + NEW, duplicates="keep")
    tokens, mask = padded(kept, "left")
    options = {"return_dict_in_generate": True, "output_logits": True, **WRITE}
    with ga.patched(model, graph):
        written = [
            model.generate(tokens, attention_mask=mask, use_cache=use_cache, **options)
            for use_cache in (True, False)
        ]
    cached, anew = (torch.stack(one.logits) for one in written)
    assert torch.allclose(cached, anew, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_decoder_writes_the_same_with_and_without_a_cache(name):
    model = tiny_model(name, auto=AutoModelForSeq2SeqLM)
    model.generation_config.decoder_start_token_id = 1
    near = ga.from_rule(lambda t, s: (s - t).abs() < 3, 64)
    band = lambda targets, sources: near.subgraph(targets=range(targets), sources=range(sources))  # noqa: E731
    ga.patch(
        model,
        {
            "encoder": ga.graphs.sliding_window(..., 5, causal=False),
            "decoder": GRAPH,
            "cross": band,
        },
    )
    tokens, mask = prompts(), torch.ones(N, P, dtype=torch.int64)
    mask[1, -3:] = 0
    cached = model.generate(tokens, attention_mask=mask, **WRITE)
    assert torch.equal(
        cached, model.generate(tokens, attention_mask=mask, use_cache=False, **WRITE)
    )
    short = model.generate(tokens[1:2, :-3], **WRITE)
    assert torch.equal(cached[1], short[0])


def test_a_leak_is_refused_with_its_path(alone):
    model, kept, _ = alone
    with ga.patched(model, ga.graphs.sliding_window(..., 3, causal=False)):
        with pytest.raises(
            GraphError, match=r"not written yet .*\nleak: 8 depends on 9, .*\n  layer 0: 9 -> 8"
        ):
            model.generate(kept[0], **WRITE)
        cache = DynamicCache()
        model(kept[0], past_key_values=cache)
        with pytest.raises(GraphError, match="token 8 reads token 9, which was not written"):
            model(kept[0][:, :3], past_key_values=cache)


def test_a_cache_that_dropped_what_is_read_is_refused():
    model = tiny_model("gemma3_text", auto=AutoModelForCausalLM)
    with (
        ga.patched(model, GRAPH),
        pytest.raises(GraphError, match="reads token 0, which the cache has dropped"),
    ):
        model.generate(prompts()[:1], past_key_values=DynamicCache(config=model.config), **WRITE)


def test_a_static_cache_by_hand():
    model, tokens = tiny_model("llama", auto=AutoModelForCausalLM), prompts()
    ga.patch(model, GRAPH)
    cache = StaticCache(config=model.config, max_cache_len=16)
    first = model(tokens[:, :5], past_key_values=cache).logits
    rest = model(tokens[:, 5:], past_key_values=cache).logits
    assert torch.allclose(torch.cat((first, rest), 1), model(tokens).logits, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_decoder_reads_beyond_the_window_of_its_model(cache):
    """T5Gemma keeps caches of its window, 5 tokens, in layers of a decoder beside an encoder."""
    model = tiny_model("t5gemma", auto=AutoModelForSeq2SeqLM)
    given = prompts()
    options = {**WRITE, "cache_implementation": cache}
    with ga.patched(model, {"decoder": ga.graphs.causal(...)}):
        written = model.generate(given, **options)
        logits = model(input_ids=given, decoder_input_ids=written, use_cache=False).logits
    assert torch.equal(logits[:, :-1].argmax(-1), written[:, 1:])


@pytest.mark.parametrize("graph", [GRAPH, lambda input_ids: GRAPH])
def test_a_layer_may_compute_a_mask_of_its_own(graph):
    """Doge does, so that the mask of a layer is not the one that was made for the call."""
    model = tiny_model("doge", auto=AutoModelForCausalLM, keep_window_size=64)
    tokens, mask = padded(
        [prompts()[i : i + 1, : P - drop] for i, drop in enumerate((0, 3, 4))], "left"
    )
    options = {"return_dict_in_generate": True, "output_logits": True, **WRITE}
    with ga.patched(model, graph):
        expected = torch.stack(
            model.generate(tokens, attention_mask=mask, use_cache=False, **options).logits
        )
        for cache in ("dynamic", "static"):
            written = model.generate(
                tokens, attention_mask=mask, cache_implementation=cache, **options
            )
            assert torch.allclose(torch.stack(written.logits), expected, rtol=0, atol=1e-5)
