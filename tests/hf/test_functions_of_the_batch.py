"""A function of the batch sees the inputs of the call that its layers run in; state of a call is
not shared.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tiny_models import inputs_of, tiny_model
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import graphattn as ga
from graphattn.errors import GraphError, OptionError


def tokens(seed):
    return torch.randint(3, 30, (2, 11), generator=torch.Generator().manual_seed(seed))


def next_of_kind(input_ids):
    """Earlier tokens of a token's kind, and itself."""
    return [ga.from_mask((x[:, None] % 3 == x % 3).tril()) for x in input_ids]


@pytest.fixture
def writer():
    model = tiny_model("t5", auto=AutoModelForSeq2SeqLM)
    model.generation_config.decoder_start_token_id = 1
    return model


def test_generate_runs_the_encoder_on_its_own_inputs(writer):
    """After another call of the same sizes; a decoder that runs by itself has its inputs too."""
    ga.patch(
        writer,
        {
            "encoder": next_of_kind,
            "decoder": lambda decoder_input_ids: next_of_kind(decoder_input_ids),
        },
    )
    call = {"decoder_input_ids": tokens(3), "output_hidden_states": True}
    expected, other = (writer(input_ids=tokens(seed), **call) for seed in (1, 2))
    states = writer.decoder(
        tokens(3), encoder_hidden_states=expected.encoder_last_hidden_state
    ).last_hidden_state
    assert torch.allclose(states, expected.decoder_hidden_states[-1], rtol=0, atol=1e-12)
    ga.patch(writer, {"encoder": next_of_kind})
    writer(input_ids=tokens(2), **call)
    options = {"max_new_tokens": 2, "return_dict_in_generate": True, "output_hidden_states": True}
    states = writer.generate(tokens(1), **options).encoder_hidden_states[-1]
    assert torch.allclose(states, expected.encoder_last_hidden_state, rtol=0, atol=1e-12)
    assert not torch.allclose(states, other.encoder_last_hidden_state, atol=0.1)


def gradients(model, *batches):
    """Of one backward after as many forwards."""
    model.zero_grad()
    sum(model(**batch)[0].square().sum() for batch in batches).backward()
    return [x.grad.clone() for x in model.parameters() if x.grad is not None]


def bands(pixel_values):
    return [
        ga.graphs.sliding_window(17, 1 + int(abs(x.sum())) % 5, causal=True) for x in pixel_values
    ]


@pytest.mark.parametrize(("name", "graph"), [("llama", next_of_kind), ("vit", bands)])
def test_checkpointing_runs_each_batch_on_its_own_graphs(name, graph):
    model = tiny_model(name, auto=AutoModelForCausalLM) if name == "llama" else tiny_model(name)
    batches = [{"input_ids": tokens(seed)} for seed in (1, 2)]
    if name == "vit":
        images = inputs_of(model)["pixel_values"]
        batches = [{"pixel_values": x} for x in (images, 3 * images + 1)]
    ga.patch(model, graph)
    model.train()
    expected = gradients(model, *batches)
    model.gradient_checkpointing_enable()
    assert all(
        torch.allclose(*pair, rtol=0, atol=1e-10)
        for pair in zip(gradients(model, *batches), expected, strict=True)
    )


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_mask_passed_by_place_is_known_where_a_layer_runs_again(use_reentrant):
    """Reentrant checkpointing detaches what is passed by place; on CUDA another thread runs the
    layer again.
    """
    model = tiny_model("bert").eval()
    batches = [{"input_ids": tokens(seed)} for seed in range(5)]
    ga.patch(model, next_of_kind)
    expected = gradients(model, *batches)
    model.train().gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    for part in model.modules():
        part.train(hasattr(part, "gradient_checkpointing"))  # without dropout
    model.zero_grad()
    loss = sum(model(**batch)[0].square().sum() for batch in batches)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(loss.backward).result()
    found = [x.grad for x in model.parameters() if x.grad is not None]
    assert all(
        torch.allclose(*pair, rtol=0, atol=1e-10) for pair in zip(found, expected, strict=True)
    )


def test_a_layer_outside_of_a_call_is_refused(writer):
    ga.patch(writer, {"encoder": next_of_kind})
    writer(input_ids=tokens(1), decoder_input_ids=tokens(2))
    with pytest.raises(OptionError, match="runs outside a call of the model"):
        writer.encoder.block[0](torch.randn(2, 11, 32, dtype=torch.float64))
    with pytest.raises(OptionError, match="pass input_ids by name"):
        writer(
            inputs_embeds=torch.randn(2, 11, 32, dtype=torch.float64), decoder_input_ids=tokens(2)
        )
    # also after a call that ended in an error
    with pytest.raises(OptionError, match="runs outside"):
        writer.encoder.block[0](torch.randn(2, 11, 32, dtype=torch.float64))


def random_and_near(length):
    return ga.graphs.random_neighbours(length, 2, seed=length) & ga.graphs.causal(
        length
    ) | ga.graphs.sliding_window(length, 2, causal=True)


def near(targets, sources):
    return ga.from_rule(lambda t, s: (s - t).abs() < 2, 32).subgraph(
        targets=range(targets), sources=range(sources)
    )


@pytest.mark.parametrize(
    ("graphs", "part", "generates"),
    [
        ({"encoder": next_of_kind}, "encoder.block.0", False),
        ({"decoder": random_and_near}, "decoder.block.0", True),
        ({"decoder": ga.graphs.causal(...), "cross": near}, "decoder.block.1.layer.0", False),
    ],
)
def test_a_call_that_runs_between_in_another_thread_changes_nothing(
    writer, graphs, part, generates
):
    """Inputs, the length of generate, the decoder's padding."""
    ga.patch(writer, graphs)
    others = []

    @torch.no_grad()
    def call(seed):
        if generates:
            return writer.generate(
                tokens(seed), max_new_tokens=3 * seed, do_sample=False, eos_token_id=None
            )
        there = torch.ones(2, 11, dtype=torch.int64)
        there[:, :seed] = 0
        return writer(
            input_ids=tokens(seed), decoder_input_ids=tokens(3), decoder_attention_mask=there
        ).logits[:, 4:]

    def between(*_):
        if others:
            with ThreadPoolExecutor(1) as pool:
                assert torch.equal(pool.submit(call, others.pop()).result(), expected)

    writer.get_submodule(part).register_forward_hook(between)
    expected, alone = call(3), call(2)
    others.append(3)
    assert torch.equal(call(2), alone)


def test_a_function_may_return_graphs_of_examples():
    model = tiny_model("llama", auto=AutoModelForCausalLM)
    with ga.patched(model, next_of_kind):
        expected = model(tokens(1)).logits
    with ga.patched(model, lambda input_ids: ga.PerExample(next_of_kind(input_ids))):
        assert torch.equal(model(tokens(1)).logits, expected)
    with (
        ga.patched(model, lambda input_ids: ga.PerExample(next_of_kind(input_ids)[:1])),
        pytest.raises(GraphError, match="one for each of 2 examples; got 1"),
    ):
        model(tokens(1))


def test_graphs_of_one_batch_are_a_patch_for_it():
    model = tiny_model("llama", auto=AutoModelForCausalLM)
    with ga.patched(model, next_of_kind):
        expected = model(tokens(1)).logits
    graphs = ga.PerExample(next_of_kind(tokens(1)))
    for given in (graphs, [graphs] * 2):
        ga.patch(model, given)
        assert torch.equal(model(tokens(1)).logits, expected)
        with pytest.raises(GraphError, match="one for each of 1 example; got 2"):
            model(tokens(1)[:1])


def test_heads_of_examples_may_differ_in_number():
    """Head h of H reads graph h // (H / n), whatever the n of other examples."""
    model = tiny_model("llama", auto=AutoModelForCausalLM)
    near, far = ga.graphs.causal(11), ga.graphs.sliding_window(11, 3, causal=True)
    of_two, of_four = ga.PerHead((near, far)), ga.PerHead((near, near, far, far))
    with ga.patched(model, lambda input_ids: [of_two, ga.PerHead((far, near, near, far))]):
        mixed = model(tokens(1)).logits
    with ga.patched(model, lambda input_ids: [of_four, ga.PerHead((far, near, near, far))]):
        assert torch.allclose(model(tokens(1)).logits, mixed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("hidden", [(0, 1, 2), (8, 9, 10), (3, 4, 7)])
def test_padding_is_cut_from_the_graphs(hidden):
    """A row with padding anywhere is the row without it, along the graph of its tokens."""
    model = tiny_model("llama", auto=AutoModelForCausalLM)
    ids = tokens(1)
    mask = torch.ones_like(ids)
    mask[0, list(hidden)] = 0
    kept = [place for place in range(11) if place not in hidden]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with ga.patched(model, next_of_kind):
        padded = model(ids, attention_mask=mask, position_ids=positions).logits
        alone = model(ids[:1, kept]).logits
        whole = model(ids[1:]).logits
    assert torch.allclose(padded[:1, kept], alone, rtol=0, atol=1e-12)
    assert torch.allclose(padded[1:], whole, rtol=0, atol=1e-12)


def test_a_graph_of_a_larger_batch_is_refused():
    model = tiny_model("llama")
    stale = ga.graphs.prefix_tree([[9] * 13], prompt_ids=[5, 6])
    ga.patch(model, lambda input_ids: stale.graph)
    with pytest.raises(
        GraphError, match=r"of the 11 tokens of a row, got .*subgraph\(range\(11\)\)"
    ):
        model(tokens(1))
    ga.patch(model, lambda input_ids: stale.graph.subgraph(range(11)))
    model(tokens(1))
    ga.patch(model, lambda input_ids: ga.graphs.causal(...))
    model(tokens(1))
