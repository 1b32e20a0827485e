"""Rows of several sequences: a patched model beside the stock model with the same edges as a 4-D
mask.
"""

import gc
import itertools

import pytest
import torch
from tiny_models import tiny_config, tiny_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    DynamicCache,
    StaticCache,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import graphattn as ga
from graphattn.errors import GraphError, OptionError
from graphattn.graphs import ancestors, causal, documents, sliding_window
from graphattn.hf.ticket import MOST_TICKETS

N = 13
DECODERS = ["llama", "qwen2", "gpt2", "gemma3_text"]
MORE = [
    "mistral",
    "phi",
    "olmo2",
    "cohere",
    "starcoder2",
    "gpt_neox",
    "qwen3",
    "granite",
    "smollm3",
    "helium",
]
DOCUMENTS = (6, 1, 4, 2)
# a prompt of 4 and three completions
PARENTS = torch.tensor([-1, 0, 1, 2, 3, 4, 5, 3, 7, 8, 3, 10, 11])
TREE = torch.tensor([0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6])
PACKED = torch.cat([torch.arange(length) for length in DOCUMENTS])
GAP = torch.cat((torch.arange(5), torch.arange(40, 48)))
ROWS = {
    "documents": (PACKED, documents(lengths=DOCUMENTS, causal=True)),
    "edges across documents": (PACKED, sliding_window(N, 5, causal=True)),
    "prefix tree": (TREE, ancestors(PARENTS)),
    "gap": (GAP, sliding_window(N, 5, causal=True)),
}
PATTERN = sliding_window(..., 3, causal=True)
OF_PATTERN = ga.disjoint_union([sliding_window(length, 3, causal=True) for length in DOCUMENTS])
MROPE = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [2, 1, 1]}
CACHES = [{}, {"use_cache": True}, {"use_cache": False}]
CHECKPOINTING = [None, True, False]  # off, reentrant, not reentrant


def tokens(rows=2, seed=1):
    return torch.randint(3, 30, (rows, N), generator=torch.Generator().manual_seed(seed))


def model_of(name):
    return tiny_model(name, auto=AutoModelForCausalLM)


def with_checkpointing(model, use_reentrant):
    """Checkpointing without dropout."""
    if use_reentrant is None:
        model.gradient_checkpointing_disable()
        return model.eval()
    model.train().gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    for part in model.modules():
        part.train(hasattr(part, "gradient_checkpointing"))
    return model


def measured(model, **given):
    """Logits and the gradients of all parameters."""
    model.zero_grad()
    logits = model(tokens(), **given).logits
    logits.square().sum().backward()
    return logits.detach(), [x.grad.clone() for x in model.parameters() if x.grad is not None]


def expected(model, positions, graph):
    mask = torch.zeros(1, 1, N, N, dtype=torch.float64)
    mask = mask.masked_fill(~graph.mask(), torch.finfo(torch.float64).min).expand(2, -1, -1, -1)
    return measured(
        model, position_ids=positions.expand(2, -1), attention_mask=mask, use_cache=False
    )


def compare(name, use_reentrant):
    model = model_of(name)
    cases = [(positions, graph, graph) for positions, graph in ROWS.values()]
    cases.append((PACKED, PATTERN, OF_PATTERN))
    for positions, given, edges in cases:
        wanted, wanted_gradients = expected(with_checkpointing(model, None), positions, edges)
        with ga.patched(with_checkpointing(model, use_reentrant), given):
            for cache, mask in itertools.product(
                CACHES, ({}, {"attention_mask": torch.ones(2, N).long()})
            ):
                logits, gradients = measured(
                    model, position_ids=positions.expand(2, -1), **cache, **mask
                )
                assert torch.allclose(logits, wanted, rtol=0, atol=1e-10), (given, cache, mask)
                for ours, theirs in zip(gradients, wanted_gradients, strict=True):
                    assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9), (given, cache, mask)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", DECODERS)
def test_a_row_is_its_mask_whatever_the_cache_and_the_mask(name):
    compare(name, None)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_row_is_its_mask_under_checkpointing(use_reentrant):
    compare("llama", use_reentrant)


@pytest.mark.slow
@pytest.mark.parametrize("use_reentrant", CHECKPOINTING)
@pytest.mark.parametrize("name", DECODERS + MORE)
def test_rows_of_many_architectures(name, use_reentrant):
    compare(name, use_reentrant)


@torch.no_grad()
def logits(model, x, **given):
    return model(x, **given).logits


@pytest.fixture(scope="module")
def llama():
    return model_of("llama")


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_draft_tree_continues_a_cached_prompt(name, kind):
    model = model_of(name)
    mask = ancestors(PARENTS).mask().expand(2, 1, -1, -1)
    wanted = logits(model, tokens(), position_ids=TREE.expand(2, -1), attention_mask=mask)
    cache = {
        "dynamic": DynamicCache(),
        "static": StaticCache(config=model.config, max_cache_len=16),
    }[kind]
    with ga.patched(model, ancestors(PARENTS)):
        prompt = logits(model, tokens()[:, :4], past_key_values=cache)
        draft = logits(
            model, tokens()[:, 4:], past_key_values=cache, position_ids=TREE[4:].expand(2, -1)
        )
    assert torch.allclose(torch.cat((prompt, draft), 1), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_removed_before_documents_are_told_apart(llama, side):
    """The first row has documents of 4, 3 and 2 tokens beside padding, the second documents of 6,
    1, 4 and 2.
    """
    short = torch.cat([torch.arange(length) for length in (4, 3, 2)])
    place = slice(4, N) if side == "left" else slice(0, 9)
    mask = torch.zeros(2, N, dtype=torch.int64)
    mask[0, place] = 1
    mask[1] = 1
    positions = torch.zeros(2, N, dtype=torch.int64)
    positions[0, place] = short
    positions[1] = PACKED
    with ga.patched(llama, PATTERN):
        batch = logits(llama, tokens(), attention_mask=mask, position_ids=positions)
        alone = torch.cat([logits(llama, x) for x in tokens()[:1, place].split([4, 3, 2], 1)], 1)
    assert torch.allclose(batch[:1, place], alone, rtol=0, atol=1e-12)
    wanted = logits(
        llama, tokens()[1:], position_ids=PACKED[None], attention_mask=OF_PATTERN.mask()[None, None]
    )
    assert torch.allclose(batch[1:], wanted, rtol=0, atol=1e-12)


def test_a_mask_of_the_caller_and_documents(llama):
    """A 4-D mask takes edges away; a pattern is split as without it, also where a layer runs
    again.
    """
    kept = (torch.rand(1, 1, N, N, generator=torch.Generator().manual_seed(3)) < 0.8) | torch.eye(
        N
    ).bool()
    wanted = measured(
        llama,
        position_ids=PACKED[None],
        attention_mask=(kept & OF_PATTERN.mask()).expand(2, -1, -1, -1),
    )
    for use_reentrant in CHECKPOINTING:
        with ga.patched(with_checkpointing(llama, use_reentrant), PATTERN):
            given = {"position_ids": PACKED[None], "attention_mask": kept.expand(2, -1, -1, -1)}
            found, gradients = measured(llama, **given)
        assert torch.allclose(found, wanted[0], rtol=0, atol=1e-12)
        for ours, theirs in zip(gradients, wanted[1], strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    with_checkpointing(llama, None)


@pytest.mark.parametrize(
    "graph",
    [PATTERN, sliding_window(16, 3, causal=True), lambda n: sliding_window(n, 3, causal=True)],
)
@pytest.mark.parametrize("given", [{}, {"position_ids": torch.arange(N)[None]}])
def test_a_mask_of_the_caller_over_a_static_cache(llama, graph, given):
    """The mask covers the positions that are not written yet, which are no tokens."""
    kept = torch.rand(2, 1, N, N, generator=torch.Generator().manual_seed(3)) < 0.8
    kept = (kept | torch.eye(N).bool()).tril()
    wanted = logits(llama, tokens(), attention_mask=kept & sliding_window(N, 3, causal=True).mask())
    cache = StaticCache(config=llama.config, max_cache_len=16)
    found = []
    with ga.patched(llama, graph):
        for first, last in ((0, 7), (7, 8), (8, N)):
            mask = torch.nn.functional.pad(kept[:, :, first:last], (0, 3))
            part = {name: x[:, first:last] for name, x in given.items()}
            found.append(
                logits(
                    llama,
                    tokens()[:, first:last],
                    attention_mask=mask,
                    past_key_values=cache,
                    **part,
                )
            )
    assert torch.allclose(torch.cat(found, 1), wanted, rtol=0, atol=1e-12)


def test_batches_of_other_documents_are_kept_apart_until_the_backward(llama):
    other = torch.cat([torch.arange(length) for length in (3, 3, 7)])
    parts = [
        (PACKED, OF_PATTERN),
        (other, ga.disjoint_union([sliding_window(n, 3, causal=True) for n in (3, 3, 7)])),
    ]

    def gradients(calls):
        llama.zero_grad()
        sum(llama(tokens(), **call).logits.square().sum() for call in calls).backward()
        return [x.grad.clone() for x in llama.parameters()]

    masks = [
        {"position_ids": p[None], "attention_mask": graph.mask().expand(2, 1, -1, -1)}
        for p, graph in parts
    ]
    wanted = gradients(masks)
    for use_reentrant in (True, False):
        with ga.patched(with_checkpointing(llama, use_reentrant), PATTERN):
            found = gradients([{"position_ids": p[None]} for p, _ in parts])
        assert all(
            torch.allclose(*pair, rtol=1e-9, atol=1e-9) for pair in zip(found, wanted, strict=True)
        )
    with_checkpointing(llama, None)


def test_a_function_of_the_batch_reads_across_a_restart(llama):
    wanted = logits(
        llama,
        tokens(),
        position_ids=PACKED[None],
        attention_mask=sliding_window(N, 5, causal=True).mask()[None, None],
    )
    with ga.patched(llama, lambda input_ids: [sliding_window(N, 5, causal=True)] * len(input_ids)):
        for given in CACHES:
            assert torch.allclose(
                logits(llama, tokens(), position_ids=PACKED[None], **given), wanted, atol=1e-12
            )


def test_generate_continues_a_row_of_documents_along_its_own_graph(llama):
    """New tokens continue the last document; the graph is that of the final row."""
    graph = documents(lengths=(6, 1, 4, 6), causal=True)
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with ga.patched(llama, graph):
        written = llama.generate(tokens(), position_ids=PACKED.expand(2, -1), **options)
        row = torch.cat([torch.arange(length) for length in (6, 1, 4, 6)])
        whole = logits(llama, written, position_ids=row.expand(2, -1))
    assert torch.equal(whole[:, N - 1 : -1].argmax(-1), written[:, N:])


@pytest.mark.parametrize("positions", [TREE, GAP])
@pytest.mark.parametrize("given", CACHES)
def test_repeated_and_skipped_positions_are_refused_under_a_pattern(llama, positions, given):
    with (
        ga.patched(llama, PATTERN),
        pytest.raises(OptionError, match=r"rise by 1 .*ga.from_mask.*ancestors"),
    ):
        llama(tokens(), position_ids=positions.expand(2, -1), **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"cu_seq_lens_q": torch.tensor([0, 6, 13])},
            r"cu_seq_lens_q contradicts position_ids: .*6, 13",
        ),
        (
            {"seq_idx": torch.tensor([[0] * 6 + [1] * 7])},
            "seq_idx contradicts position_ids in row 0",
        ),
        (
            {"attention_mask": torch.tensor([[1] * 6 + [2] * 7])},
            "attention_mask contradicts position_ids in row 0",
        ),
        (
            {"attention_mask": torch.tensor([[1, 1, 0] + [1] * 10])},
            "position_ids must rise by 1 within a sequence, or return to 0 where the next one starts,",
        ),
    ],
)
def test_inputs_that_contradict_the_positions_are_named(llama, given, message):
    with ga.patched(llama, PATTERN), pytest.raises(OptionError, match=message):
        llama(tokens(1), position_ids=PACKED[None], **given)
    with ga.patched(llama, documents(lengths=DOCUMENTS, causal=True)):  # the graph of the row wins
        logits(llama, tokens(1), position_ids=PACKED[None], **given)


def test_inputs_that_agree_with_the_positions_change_nothing(llama):
    numbers = torch.arange(1, 5).repeat_interleave(torch.tensor(DOCUMENTS))[None]
    ends = torch.tensor([0, *itertools.accumulate(DOCUMENTS)])
    with ga.patched(llama, PATTERN):
        wanted = logits(llama, tokens(1), position_ids=PACKED[None])
        for given in ({"attention_mask": numbers}, {"seq_idx": numbers}, {"cu_seq_lens_q": ends}):
            assert torch.equal(logits(llama, tokens(1), position_ids=PACKED[None], **given), wanted)
        with pytest.raises(OptionError, match="cu_seq_lens_q contradicts"):
            llama(tokens(1), cu_seq_lens_q=ends)


def test_a_cache_that_contradicts_the_positions_is_refused(llama):
    with ga.patched(llama, PATTERN):
        cache = DynamicCache()
        logits(llama, tokens()[:, :8], position_ids=PACKED[:8].expand(2, -1), past_key_values=cache)
        with pytest.raises(
            OptionError, match=r"the cache contradicts position_ids.* holds 8 tokens.* is 1;"
        ):
            llama(tokens()[:, 8:9], position_ids=torch.ones(2, 1).long(), past_key_values=cache)


@pytest.mark.parametrize("start", [0, 5])
def test_positions_may_start_above_zero_with_a_cache(llama, start):
    positions = torch.arange(start, start + N).expand(2, -1)
    options = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with ga.patched(llama, PATTERN):
        expected = logits(llama, tokens(), position_ids=positions)
        first = llama(tokens()[:, :8], position_ids=positions[:, :8], use_cache=True)
        cache = first.past_key_values
        rest = logits(llama, tokens()[:, 8:], position_ids=positions[:, 8:], past_key_values=cache)
        assert torch.allclose(rest, expected[:, 8:], rtol=0, atol=1e-12)
        with pytest.raises(OptionError, match=rf"holds {N} tokens.* is {start + N - 1};"):
            llama(tokens()[:, :1], position_ids=positions[:, -1:], past_key_values=cache)
        written = llama.generate(tokens(), position_ids=positions, **options)
        without = llama.generate(tokens(), position_ids=positions, use_cache=False, **options)
        assert torch.equal(written, without)


def test_positions_that_generate_makes_contradict_nothing(llama):
    """Those of prompts padded on the right start again at the first new token."""
    mask = torch.ones(2, N).long()
    mask[0, 9:] = 0
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with ga.patched(llama, PATTERN):
        written = llama.generate(tokens(), attention_mask=mask, **options)
        assert torch.equal(
            written, llama.generate(tokens(), attention_mask=mask, use_cache=False, **options)
        )
        assert torch.equal(written[1:], llama.generate(tokens()[1:], **options))
        with pytest.raises(OptionError, match="contradicts position_ids"):
            llama.generate(tokens(), position_ids=PACKED.expand(2, -1), **options)
        # the caller's, after generate
        row = logits(llama, tokens(), position_ids=PACKED.expand(2, -1))
    masked = logits(
        llama, tokens(), position_ids=PACKED[None], attention_mask=OF_PATTERN.mask()[None, None]
    )
    assert torch.allclose(row, masked, rtol=0, atol=1e-12)


def test_documents_are_told_apart_in_a_call_from_within_generate(llama):
    rows = []

    def score(ids, scores):
        rows.append(logits(llama, tokens(), position_ids=PACKED[None]))
        return scores

    with ga.patched(llama, PATTERN):
        wanted = logits(llama, tokens(), position_ids=PACKED[None])
        llama.generate(
            tokens(), max_new_tokens=2, logits_processor=[score], eos_token_id=None, pad_token_id=0
        )
    assert len(rows) == 2
    assert all(torch.allclose(row, wanted, rtol=0, atol=1e-12) for row in rows)


@torch.no_grad()
def test_positions_that_a_model_makes_contradict_nothing():
    """PaliGemma counts positions from 1."""
    text = CONFIG_MAPPING["gemma"]
    model = tiny_model(
        "paligemma",
        auto=AutoModelForImageTextToText,
        text_config=tiny_config(text),
        image_token_id=36,
    )
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with ga.patched(model, {"language_model": PATTERN}):
        written = model.generate(tokens(), token_type_ids=torch.zeros(2, N).long(), **options)
        whole = model(written).logits
        cache = DynamicCache()
        parts = [model(x, past_key_values=cache).logits for x in written.split([5, 1, 11], 1)]
    assert torch.equal(whole[:, N - 1 : -1].argmax(-1), written[:, N:])
    assert torch.allclose(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)


def test_pairs_of_sentences_are_one_sequence():
    bert = tiny_model("bert")
    types = torch.tensor([[0] * 6 + [1] * 7]).expand(2, -1)
    pattern = sliding_window(..., 3, causal=False)
    with ga.patched(bert, pattern), torch.no_grad():
        row = bert(
            tokens(), token_type_ids=types, position_ids=torch.arange(N)[None]
        ).last_hidden_state
        assert torch.equal(row, bert(tokens(), token_type_ids=types).last_hidden_state)
        restarted = torch.cat((torch.arange(6), torch.arange(7)))[None]
        with pytest.raises(OptionError, match=r"token_type_ids contradict position_ids .* token 6"):
            bert(tokens(), token_type_ids=types, position_ids=restarted)
        bert(tokens(), token_type_ids=1 - types.clamp(max=0), position_ids=restarted)


def test_a_larger_graph_of_several_documents_is_refused(llama):
    with ga.patched(llama, causal(20)):
        with pytest.raises(GraphError, match=r"larger than the row of 13 tokens.* pass a pattern"):
            llama(tokens(), position_ids=PACKED[None])
        assert torch.equal(
            logits(llama, tokens()), logits(llama, tokens(), position_ids=torch.arange(N)[None])
        )


@pytest.mark.parametrize("rows", [3, 4])
def test_positions_of_three_axes(rows):
    """M-RoPE of Qwen2-VL: documents of text, one of them with an image of 2 x 2 patches."""
    model = tiny_model("qwen2_vl_text", rope_parameters=MROPE)
    image = torch.tensor(
        [[0, 1, 2, 2, 2, 2, 4, 5], [0, 1, 2, 2, 3, 3, 4, 5], [0, 1, 2, 3, 2, 3, 4, 5]]
    )
    positions = torch.cat((image, torch.arange(5).expand(3, -1)), 1)[:, None].expand(-1, 2, -1)
    if rows == 4:
        text = torch.cat((torch.arange(8), torch.arange(5))).expand(1, 2, -1)
        positions = torch.cat((text, positions))
    graph = ga.disjoint_union(
        [sliding_window(8, 3, causal=True), sliding_window(5, 3, causal=True)]
    )

    @torch.no_grad()
    def states(**given):
        return model(
            inputs_embeds=torch.sin(tokens())[..., None].double().expand(-1, -1, 32), **given
        )[0]

    wanted = states(position_ids=positions, attention_mask=graph.mask().expand(2, 1, -1, -1))
    with ga.patched(model, PATTERN):
        for given in CACHES:
            assert torch.allclose(
                states(position_ids=positions, **given), wanted, rtol=0, atol=1e-12
            )


def test_a_patch_keeps_the_tickets_of_its_last_masks_alone(llama):
    mask = torch.ones(2, 7).long().index_fill(1, torch.tensor([0]), 0)
    with ga.patched(llama, sliding_window(..., 3, causal=True)) as patch:
        for _ in range(30):
            logits(llama, tokens()[:, :7], attention_mask=mask)
        gc.collect()
        assert len(patch.places) == MOST_TICKETS
