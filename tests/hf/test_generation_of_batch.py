"""Generation along graphs that are a function of the batch writes what the plain model writes that
gets their masks at each step.
"""

import gc

import pytest
import torch
from tiny_models import tiny_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    DynamicCache,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GemmaConfig,
    PaliGemmaForConditionalGeneration,
    SiglipVisionConfig,
)

import graphattn as ga
from graphattn.errors import GraphError, OptionError

P, NEW, IMAGE = 11, 5, 36
WRITE = {
    "max_new_tokens": NEW,
    "do_sample": False,
    "eos_token_id": None,
    "pad_token_id": 0,
    "suppress_tokens": [IMAGE],
}


def prompts():
    """Three prompts with images, padded on the left, and their mask."""
    ids = torch.randint(3, 30, (3, P), generator=torch.Generator().manual_seed(2))
    ids[0, 2:6] = IMAGE
    ids[1, 7:9] = IMAGE
    ids[2, 4:7] = IMAGE
    mask = torch.ones_like(ids)
    for row, padded in enumerate((0, 4, 2)):
        ids[row, :padded] = 0
        mask[row, :padded] = 0
    return ids, mask


def related(input_ids):
    """Earlier tokens of a token's kind, itself, and all tokens of its image."""
    graphs = []
    for x in input_ids:
        is_image = x == IMAGE
        kind = (x[:, None] % 3 == x % 3).tril()
        graphs.append(ga.from_mask(kind | is_image[:, None] & is_image))
    return graphs


def louder(model):
    """The model with larger weights, so that what a token reads changes what is written."""
    for parameter in model.parameters():
        parameter.data.mul_(2.0)
    return model


@pytest.fixture(scope="module")
def llama():
    return louder(tiny_model("llama", auto=AutoModelForCausalLM))


def stock(model, function, *args, **options):
    """What the plain model writes without a cache, called with the masks of the graphs."""

    def with_mask(_, args, given):
        ids, mask = given["input_ids"], given.get("attention_mask")
        dense = torch.stack([graph.mask() for graph in function(ids)])[:, None]
        if mask is not None:
            dense = dense & mask[:, None, None].bool()
        dense = dense | torch.eye(ids.shape[1], dtype=torch.bool)  # padding, which nothing reads
        return args, given | {"attention_mask": dense}

    hook = model.register_forward_pre_hook(with_mask, with_kwargs=True)
    try:
        return model.generate(*args, use_cache=False, **options)
    finally:
        hook.remove()


@pytest.fixture(scope="module")
def written(llama):
    """By way of writing: options, and what the plain model writes."""
    ids, mask = prompts()
    ways = {
        "greedy": {},
        "sampling": {"do_sample": True},
        "beams": {"num_beams": 3},
        "sampled beams": {"num_beams": 2, "do_sample": True, "num_return_sequences": 2},
    }
    result = {}
    for name, options in ways.items():
        torch.manual_seed(3)
        result[name] = (
            options,
            stock(llama, related, ids, attention_mask=mask, **(WRITE | options)),
        )
    return result


@pytest.mark.sample(4)
@pytest.mark.parametrize("way", ["greedy", "sampling", "beams", "sampled beams"])
@pytest.mark.parametrize("cache", ["dynamic", "static", "none", "chunks"])
def test_every_way_of_writing_follows_the_masks(llama, written, way, cache):
    ids, mask = prompts()
    caches = {
        "dynamic": {},
        "static": {"cache_implementation": "static"},
        "none": {"use_cache": False},
        "chunks": {"prefill_chunk_size": 9},
    }
    options, expected = written[way]
    torch.manual_seed(3)
    with ga.patched(llama, related):
        result = llama.generate(ids, attention_mask=mask, **(WRITE | options | caches[cache]))
    assert torch.equal(result, expected)


@pytest.mark.parametrize("cache", ["dynamic", "none"])
def test_padding_may_stand_anywhere(llama, cache):
    """As between the turns of a batch."""
    ids, mask = prompts()
    mask[0, 6:9] = 0
    mask[1, 5] = 0
    options = WRITE | {"attention_mask": mask}
    expected = stock(llama, related, ids, **options)
    with ga.patched(llama, related):
        result = llama.generate(ids, use_cache=cache == "dynamic", **options)
    assert torch.equal(result, expected)


def rows_of_new(input_ids, new):
    """The last rows of the graphs."""
    n = input_ids.shape[1]
    return [
        graph.subgraph(targets=range(n - new, n), sources=range(n)) for graph in related(input_ids)
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize("way", ["greedy", "beams"])
@pytest.mark.parametrize("cache", ["dynamic", "static", "chunks"])
def test_a_function_may_return_the_rows_of_new_tokens(llama, written, way, cache):
    ids, mask = prompts()
    sizes = []

    def counted(input_ids, new):
        sizes.append((input_ids.shape[1], new))
        return rows_of_new(input_ids, new)

    caches = {
        "dynamic": {},
        "static": {"cache_implementation": "static"},
        "chunks": {"prefill_chunk_size": 9},
    }
    options, expected = written[way]
    with ga.patched(llama, counted):
        result = llama.generate(ids, attention_mask=mask, **(WRITE | options | caches[cache]))
    assert torch.equal(result, expected)
    steps = [(P + step, 1) for step in range(1, NEW)]
    if cache == "chunks":
        assert sizes == [(9, 9), (P, 2), *steps]
    else:
        assert sizes == [(P, P), *steps]


@pytest.mark.parametrize("graph", [related, rows_of_new])
@pytest.mark.parametrize("drafts", ["of the prompt", "of a model"])
def test_drafts_change_nothing(llama, written, graph, drafts):
    ids, _ = prompts()
    options = WRITE | {"prompt_lookup_num_tokens": 3}
    if drafts == "of a model":
        assistant = louder(tiny_model("llama", auto=AutoModelForCausalLM, num_hidden_layers=1))
        ga.patch(assistant, graph)
        options = WRITE | {"assistant_model": assistant}
    with ga.patched(llama, graph):
        result = llama.generate(ids[:1], **options)
    assert torch.equal(result, written["greedy"][1][:1])


def test_a_token_that_reads_a_draft_is_refused(llama):
    """A later token would not be there when it is written by itself."""

    def ahead(input_ids):
        n = input_ids.shape[1]
        graph = ga.graphs.causal(n)
        if n > P + 1:
            graph = graph | ga.from_edge_index(torch.tensor([[P + 1], [P]]), num_nodes=n)
        return graph

    ids = torch.arange(3, 6).repeat(4)[None, :P]
    with (
        ga.patched(llama, ahead),
        pytest.raises(GraphError, match=rf"token {P} of example 0 reads token {P + 1}, a draft"),
    ):
        llama.generate(ids, prompt_lookup_num_tokens=3, **WRITE)


def prefix_of_all(input_ids):
    return ga.graphs.prefix(input_ids.shape[1], input_ids.shape[1] - 2)


def shrinking(input_ids):
    n = input_ids.shape[1]
    graphs = [ga.graphs.causal(n)] * len(input_ids)
    if n > P + 1:
        graphs[2] = graphs[2] - ga.from_edge_index(torch.tensor([[4, 3], [P, P]]), num_nodes=n)
    return graphs


def second_head(input_ids):
    n = input_ids.shape[1]
    return ga.PerHead((ga.graphs.causal(n), ga.graphs.sliding_window(n, 20 - n, causal=True)))


def twice(input_ids):
    """A repeated edge counts twice."""
    n = input_ids.shape[1]
    graph = ga.graphs.causal(n)
    edges = torch.stack((graph.source, graph.target))
    if n > P:
        edges = torch.cat((edges, torch.tensor([[5], [7]])), 1)
    return ga.from_edge_index(edges, num_nodes=n, duplicates="keep")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (prefix_of_all, "token 0 of example 0, which is in the cache: added 9, removed none"),
        (shrinking, f"token {P} of example 2, which is in the cache: added none, removed 3, 4;"),
        (second_head, "token 8 of example 0, which is in the cache: added none, removed 0;"),
        (twice, "token 7 of example 0, which is in the cache: added 5, removed none;"),
    ],
)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_change_of_a_token_in_the_cache_is_refused(llama, graph, words, cache):
    """Without a cache it is computed anew, along its new sources."""
    ids, mask = prompts()
    with ga.patched(llama, graph):
        with pytest.raises(GraphError, match=f"changed the sources of {words}"):
            llama.generate(ids, attention_mask=mask, cache_implementation=cache, **WRITE)
        llama.generate(ids, attention_mask=mask, use_cache=False, **WRITE)


def test_tokens_that_read_all_so_far_are_written_without_a_cache(llama):
    def full(input_ids):
        return [ga.graphs.full(input_ids.shape[1])] * len(input_ids)

    ids, mask = prompts()
    expected = stock(llama, full, ids, attention_mask=mask, **WRITE)
    with ga.patched(llama, full):
        options = {"attention_mask": mask, "use_cache": False}
        assert torch.equal(llama.generate(ids, **options, **WRITE), expected)


def test_a_cache_may_be_continued(llama):
    """What its tokens read is compared also with the generate before."""
    prompt = P

    def to_prompt(input_ids):
        return ga.graphs.prefix(input_ids.shape[1], prompt)

    ids = prompts()[0][:1]
    cache = DynamicCache()
    with ga.patched(llama, to_prompt):
        first = llama.generate(ids, past_key_values=cache, **WRITE)
        longer = torch.cat((first, torch.tensor([[5, 6, 7]])), 1)
        mask = torch.ones_like(longer)
        options = WRITE | {"attention_mask": mask, "past_key_values": cache}
        with pytest.raises(OptionError, match=r"input_ids, which generate has of 4 of 19 tokens"):
            llama.generate(longer[:, -4:], **options)
        second = llama.generate(longer, **options)
        assert torch.equal(second, llama.generate(longer, attention_mask=mask, **WRITE))
        prompt = second.shape[1]
        with pytest.raises(GraphError, match=r"the sources of token 0 of .* added 11, 12, 13, 14"):
            llama.generate(torch.cat((second, longer[:, -2:]), 1), past_key_values=cache, **WRITE)
    assert "reorder_cache" not in vars(cache)


def test_a_reordered_cache_is_of_other_tokens(llama):
    ids = prompts()[0]
    cache = DynamicCache()
    with ga.patched(llama, related):
        first = llama.generate(ids, past_key_values=cache, **WRITE)
        order = torch.tensor([2, 0, 1])
        cache.reorder_cache(order)
        longer = torch.cat((first[order], torch.full((3, 1), 5)), 1)
        second = llama.generate(longer, past_key_values=cache, **WRITE)
        assert torch.equal(second, llama.generate(longer, **WRITE))


def test_nothing_is_kept_of_a_cache_that_is_gone(llama):
    with ga.patched(llama, related) as patch:
        llama.generate(prompts()[0], num_beams=2, **WRITE)
        gc.collect()
        assert not patch.written
        assert not patch.starts


def windows(count, *shape):
    return [ga.graphs.sliding_window(shape[1], 3, causal=True)] * count


@pytest.mark.sample(4)
@pytest.mark.parametrize("cache", ["dynamic", "static", "none"])
@pytest.mark.parametrize(
    "graph",
    [
        lambda attention_mask: windows(3, *attention_mask.shape),
        lambda position_ids: windows(3, *position_ids.shape),
        lambda input_ids: ga.PerExample(windows(3, *input_ids.shape)),
        lambda input_ids: ga.graphs.sliding_window(input_ids.shape[1], 3, causal=True),
        lambda input_ids: ga.graphs.sliding_window(..., 3, causal=True),
        lambda input_ids: ga.graphs.sliding_window(40, 3, causal=True),
        lambda input_ids: ga.PerHead(
            (ga.graphs.sliding_window(input_ids.shape[1], 3, causal=True),) * 2
        ),
    ],
)
def test_whatever_it_takes_and_returns(llama, graph, cache):
    ids, mask = prompts()
    caches = {"none": {"use_cache": False}, "static": {"cache_implementation": "static"}}
    options = {**WRITE, **caches.get(cache, {})}
    with ga.patched(llama, ga.graphs.sliding_window(..., 3, causal=True)):
        expected = [
            llama.generate(ids, attention_mask=mask, **options),
            llama.generate(ids, attention_mask=torch.ones_like(mask), **options),
        ]
    with ga.patched(llama, graph):
        results = [
            llama.generate(ids, attention_mask=mask, **options),
            # transformers drops a mask of ones
            llama.generate(ids, attention_mask=torch.ones_like(mask), **options),
        ]
    assert all(map(torch.equal, results, expected))


def test_prompts_may_be_embeddings(llama):
    ids, mask = prompts()
    options = {"inputs_embeds": llama.get_input_embeddings()(ids), "attention_mask": mask, **WRITE}
    sizes = []

    def of_embeddings(inputs_embeds):
        sizes.append(inputs_embeds.shape[1])
        return [ga.graphs.sliding_window(len(x), 3, causal=True) for x in inputs_embeds]

    with ga.patched(llama, ga.graphs.sliding_window(..., 3, causal=True)):
        expected = llama.generate(**options)
    with ga.patched(llama, of_embeddings):
        assert torch.equal(llama.generate(**options), expected)
        assert sizes == [P + step for step in range(NEW)]
        with pytest.raises(OptionError, match="pass inputs_embeds by name"):
            llama.generate(ids, **WRITE)
    with ga.patched(llama, related):
        expected = llama.generate(ids, attention_mask=mask, **WRITE)
        assert torch.equal(llama.generate(ids, **options), expected)
        with pytest.raises(OptionError, match=r"input_ids, which generate has of 0 of 11 tokens"):
            llama.generate(**options)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (lambda input_ids: ga.graphs.causal(P), rf"of 12 targets and 12 sources, .*causal\({P}\)"),
        (lambda input_ids, new: ga.graphs.cross(2, input_ids.shape[1]), "of 11 targets and 11"),
        (lambda input_ids: related(input_ids)[:2], "one for each of 3 examples; got 2"),
        (lambda input_ids: None, "must return a graph, got NoneType"),
        (lambda input_ids: torch.ones(3, P, P).bool(), r"must return a graph, got Tensor"),
        (lambda input_ids: [x[:, None] >= x for x in input_ids], "must return a graph, got Tensor"),
    ],
)
def test_what_fits_no_row_is_refused(llama, graph, words):
    with ga.patched(llama, graph), pytest.raises(GraphError, match=words):
        llama.generate(prompts()[0], **WRITE)


def test_a_graph_of_new_tokens_alone_is_refused_over_a_cache(llama):
    ids = prompts()[0]
    cache = DynamicCache()
    with ga.patched(llama, related):
        llama(ids, past_key_values=cache)
        with pytest.raises(
            GraphError,
            match="must return graphs of 12 targets and 12 sources, the tokens so far",
        ):
            llama(ids[:, :1], past_key_values=cache)


def test_an_input_that_the_model_lacks_is_refused(llama):
    with pytest.raises(OptionError, match="function of token_type_ids, but the model has no input"):
        ga.patch(llama, lambda token_type_ids: related(token_type_ids))


def test_layers_on_functions_and_on_graphs(llama):
    """A leak of a fixed graph has its path, beside functions that are checked step by step."""
    ids, mask = prompts()
    with ga.patched(llama, [related, ga.graphs.sliding_window(..., 4, causal=True)]):
        options = {"attention_mask": mask, **WRITE}
        cached = llama.generate(ids, **options)
        assert torch.equal(cached, llama.generate(ids, use_cache=False, **options))
    both = [related, ga.graphs.sliding_window(..., 3, causal=False)]
    with ga.patched(llama, both), pytest.raises(GraphError, match=r"layer 1: 11 -> 10"):
        llama.generate(ids, **WRITE)


def of_kind(ids, others):
    return ga.from_mask((ids[:, None] % 2 == others % 2) | (torch.arange(len(others)) < 1))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["t5", "bart"])
@pytest.mark.parametrize("beams", [1, 3])
def test_an_encoder_decoder(name, beams):
    model = louder(tiny_model(name, auto=AutoModelForSeq2SeqLM))
    model.generation_config.decoder_start_token_id = 1
    ids = torch.randint(3, 30, (3, P), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    mask[1, -3:] = 0
    mask[2, :2] = 0
    graphs = {
        "encoder": lambda input_ids: [of_kind(x, x) for x in input_ids],
        "decoder": lambda decoder_input_ids: [
            of_kind(x, x) & ga.graphs.causal(len(x)) for x in decoder_input_ids
        ],
        "cross": lambda input_ids, decoder_input_ids: list(
            map(of_kind, decoder_input_ids, input_ids)
        ),
    }
    options = {"attention_mask": mask, "num_beams": beams, **WRITE}
    options |= {"return_dict_in_generate": True, "output_logits": True}

    def logits(**more):
        return torch.stack(model.generate(ids, **options, **more).logits)

    with ga.patched(model, graphs):
        expected = logits(use_cache=False)
        assert torch.allclose(logits(), expected, rtol=0, atol=1e-5)
    graphs["cross"] = lambda input_ids, decoder_input_ids, new: [
        of_kind(x[-new:], y) for x, y in zip(decoder_input_ids, input_ids, strict=True)
    ]
    with ga.patched(model, graphs):
        assert torch.allclose(logits(), expected, rtol=0, atol=1e-5)
    graphs["cross"] = lambda decoder_input_ids: ga.graphs.cross(..., ...)
    with ga.patched(model, graphs):
        assert not torch.allclose(logits(), expected, rtol=0, atol=1e-2)


VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 4,
}
TEXT = {
    "vocab_size": IMAGE + 1,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def with_vision(kind, text, **options):
    """A tiny model that reads images in both directions, without a patch."""
    vision = SiglipVisionConfig(**VISION, vision_use_head=False, projection_dim=32)
    config = kind.config_class(
        text_config=text.to_dict(),
        vision_config=vision.to_dict(),
        image_token_id=IMAGE,
        eos_token_id=None,
        pad_token_id=0,
        **options,
    )
    torch.manual_seed(0)
    model = kind(config).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model


def images_of(types):
    """The image of each token, or -1."""
    is_image = types == 1
    starts = is_image & ~torch.nn.functional.pad(is_image, (1, 0))[:-1]
    return torch.where(is_image, starts.cumsum(0) - 1, -1)


def whole_images(token_type_ids):
    return [ga.graphs.bidirectional_segments(images_of(x)) for x in token_type_ids]


def near_images(token_type_ids):
    """The same within a window of five tokens before each."""
    distance = torch.arange(token_type_ids.shape[1])[:, None] - torch.arange(
        token_type_ids.shape[1]
    )
    graphs = []
    for x in token_type_ids:
        image = images_of(x)
        same = (image[:, None] == image) & (image >= 0)
        graphs.append(ga.from_mask((distance < 5) & ((distance >= 0) | same)))
    return graphs


def prefixes(token_type_ids):
    """PaliGemma marks the tokens after the prefix."""
    return [ga.graphs.prefix(len(x), int((x == 0).sum())) for x in token_type_ids]


def gemma3():
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    text = Gemma3TextConfig(**TEXT, sliding_window=5, layer_types=kinds)
    model = with_vision(Gemma3ForConditionalGeneration, text, mm_tokens_per_image=4)
    ids = prompts()[0][:2]
    ids[ids == IMAGE] = 1
    ids[0, 1:5] = IMAGE
    ids[0, 6:10] = IMAGE
    ids[1, 5:9] = IMAGE
    mask = prompts()[1][:2]
    images = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1)).double()
    inputs = {"input_ids": ids, "attention_mask": mask, "pixel_values": images}
    graphs = {"language_model": [near_images, whole_images, near_images]}
    return model, inputs | {"token_type_ids": (ids == IMAGE).long()}, graphs


def paligemma():
    model = with_vision(
        PaliGemmaForConditionalGeneration, GemmaConfig(**TEXT), projection_dim=32, hidden_size=32
    )
    ids = torch.randint(3, 30, (2, 16 + P), generator=torch.Generator().manual_seed(2))
    ids[:, :16] = IMAGE
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1)).double()
    types = torch.zeros_like(ids)
    inputs = {"input_ids": ids, "pixel_values": images, "token_type_ids": types}
    return model, inputs, {"language_model": prefixes}


@pytest.mark.slow
@pytest.mark.parametrize("make", [gemma3, paligemma])
def test_models_that_read_images_both_ways(make):
    """Their own masks, as graphs, give their own tokens."""
    model, inputs, graphs = make()
    options = WRITE | inputs | {"return_dict_in_generate": True, "output_logits": True}
    expected = model.generate(**options)
    beams = model.generate(**options, num_beams=2)
    causal = {"language_model": lambda token_type_ids: ga.graphs.causal(token_type_ids.shape[1])}
    with ga.patched(model, causal):
        first = model.generate(**options).logits[0]
        assert not torch.allclose(first, expected.logits[0], rtol=0, atol=1e-2)
    with ga.patched(model, graphs):
        for cache in ({}, {"use_cache": False}, {"cache_implementation": "static"}):
            result = model.generate(**options, **cache)
            assert torch.equal(result.sequences, expected.sequences)
            logits = torch.stack(result.logits)
            assert torch.allclose(logits, torch.stack(expected.logits), rtol=0, atol=1e-5)
        result = model.generate(**options, num_beams=2)
        assert torch.equal(result.sequences, beams.sequences)
