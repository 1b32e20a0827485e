"""Prompt and prefix tuning: virtual tokens are nodes that every token reads, and graphs count text
alone.
"""

import pytest
import torch
from test_rows import PACKED
from tiny_models import padding, tiny_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

import graphattn as ga
from graphattn.errors import GraphError, OptionError
from graphattn.graphs import causal, cross, full, sliding_window, top_k

peft = pytest.importorskip("peft")

N, V = 13, 3
KINDS = {
    "prompt": peft.PromptTuningConfig,
    "p": peft.PromptEncoderConfig,
    "prefix": peft.PrefixTuningConfig,
}
WRITE = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
pytestmark = pytest.mark.filterwarnings("ignore:Position ids are not supported")


def tokens():
    return torch.randint(3, 30, (2, N), generator=torch.Generator().manual_seed(1))


def tuned(name, kind, auto, task):
    model = tiny_model(name, auto=auto)
    hidden = {"encoder_hidden_size": 7} if kind == "p" else {}
    torch.manual_seed(0)
    return (
        peft.get_peft_model(model, KINDS[kind](num_virtual_tokens=V, task_type=task, **hidden))
        .double()
        .eval()
    )


@pytest.fixture(params=KINDS)
def writer(request):
    return tuned("llama", request.param, AutoModelForCausalLM, "CAUSAL_LM")


@torch.no_grad()
def logits(model, **given):
    return model(tokens(), **given).logits


def close(a, b):
    return torch.allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("side", "beams"), [("left", 1), (None, 2)])
def test_functions_of_the_batch_count_text_alone(writer, side, beams):
    options = WRITE | {"num_beams": beams}
    if side is not None:
        options["attention_mask"] = padding({"input_ids": tokens()}, side)
    with ga.patched(writer, sliding_window(..., 4, causal=True)):
        expected = writer.generate(input_ids=tokens(), **options)

    def windows(input_ids):
        return [sliding_window(len(x), 4, causal=True) for x in input_ids]

    def rows(input_ids, new):
        n = input_ids.shape[1]
        return sliding_window(n, 4, causal=True).subgraph(
            targets=range(n - new, n), sources=range(n)
        )

    for graph in (windows, rows):
        with ga.patched(writer, graph):
            assert torch.equal(writer.generate(input_ids=tokens(), **options), expected)


@pytest.mark.sample(3)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_causal_graph_is_the_adapted_model_itself(writer, side):
    mask = padding({"input_ids": tokens()}, side)
    plain, padded = logits(writer), logits(writer, attention_mask=mask)
    written = writer.generate(
        input_ids=tokens(), attention_mask=padding({"input_ids": tokens()}, "left"), **WRITE
    )
    ga.patch(writer, causal(...))
    assert close(logits(writer), plain)
    assert close(
        logits(writer, attention_mask=mask)[..., -N:, :][mask.bool()],
        padded[..., -N:, :][mask.bool()],
    )
    again = writer.generate(
        input_ids=tokens(), attention_mask=padding({"input_ids": tokens()}, "left"), **WRITE
    )
    assert torch.equal(again, written)


def by_hand(writer, graph):
    """The adapted model with a graph between virtual tokens and text as a 4-D mask."""
    base, prompt = writer.base_model, writer.get_prompt(2)
    mask = graph.mask().expand(2, 1, -1, -1)
    with torch.no_grad():
        if isinstance(prompt, torch.Tensor):
            x = torch.cat((prompt.double(), base.get_input_embeddings()(tokens())), 1)
            return base(inputs_embeds=x, attention_mask=mask).logits[:, V:]
        return base(tokens(), attention_mask=mask[:, :, V:], past_key_values=prompt).logits


def window_behind(size, window):
    return ga.from_rule(
        lambda t, s: (s <= t) & ((s < V) | (t - s < window)),
        V + size,
        name="a window behind virtual tokens",
    )


def test_a_window_counts_text_alone_and_hides_no_virtual_token(writer):
    expected = by_hand(writer, window_behind(N, 4))
    for graph in (
        sliding_window(..., 4, causal=True),
        sliding_window(N, 4, causal=True),
        ga.PerHead([sliding_window(N, 4, causal=True)] * 2),
    ):
        with ga.patched(writer, graph):
            assert close(logits(writer)[:, -N:], expected)
    with ga.patched(writer, lambda input_ids: [sliding_window(N, 4, causal=True)] * len(input_ids)):
        assert close(logits(writer)[:, -N:], expected)
    assert not close(by_hand(writer, window_behind(N, 5)), expected)


def test_generate_with_a_window_writes_what_it_writes_without_a_cache(writer):
    with ga.patched(writer, sliding_window(..., 4, causal=True)):
        given = {"input_ids": tokens(), "attention_mask": padding({"input_ids": tokens()}, "left")}
        written = writer.generate(**given, **WRITE)
        alone = writer.generate(
            input_ids=tokens()[:1, 3:], attention_mask=torch.ones(1, N - 3).long(), **WRITE
        )
    assert torch.equal(written[0, 3:], alone[0])


def test_documents_behind_a_prefix_read_it_each():
    writer = tuned("llama", "prefix", AutoModelForCausalLM, "CAUSAL_LM")
    lengths = (6, 1, 4, 2)
    row = torch.arange(4).repeat_interleave(torch.tensor(lengths))
    row = torch.cat((torch.full((V,), -1), row))
    packed = ga.from_rule(lambda t, s: (s <= t) & ((s < V) | (row[s] == row[t])), V + N)
    with torch.no_grad():
        mask = packed.mask().expand(2, 1, -1, -1)[:, :, V:]
        given = {"position_ids": PACKED[None] + V, "past_key_values": writer.get_prompt(2)}
        expected = writer.base_model(tokens(), attention_mask=mask, **given).logits
    with ga.patched(writer, causal(...)):
        assert close(logits(writer, position_ids=PACKED[None]), expected)


def test_an_adapter_that_is_switched_off_has_no_virtual_tokens(writer):
    with ga.patched(writer, sliding_window(..., 4, causal=True)):
        with writer.disable_adapter():
            off = logits(writer)
        assert not close(logits(writer)[:, -N:], off)
    base = writer.base_model
    with ga.patched(base, sliding_window(..., 4, causal=True)):
        assert close(logits(base), off)


def test_gradients_of_virtual_tokens_arrive_under_checkpointing():
    writer = tuned("llama", "prompt", AutoModelForCausalLM, "CAUSAL_LM")
    ga.patch(writer, sliding_window(..., 4, causal=True))

    def gradient():
        writer.zero_grad()
        writer(tokens()).logits.square().sum().backward()
        return next(writer.prompt_encoder.parameters()).grad.clone()

    expected = gradient()
    writer.base_model.train().gradient_checkpointing_enable({"use_reentrant": False})
    assert expected.abs().min() > 0
    assert torch.allclose(gradient(), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder(kind):
    model = tuned("bert", kind, AutoModelForSequenceClassification, "SEQ_CLS")
    mask = padding({"input_ids": tokens()}, "right")
    plain = logits(model, attention_mask=mask)
    with ga.patched(model, full(...)):
        assert close(logits(model, attention_mask=mask), plain)
    with ga.patched(model, sliding_window(..., 3, causal=False)):
        assert not close(logits(model, attention_mask=mask), plain)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_an_encoder_decoder(name, kind):
    model = tuned(name, kind, AutoModelForSeq2SeqLM, "SEQ_2_SEQ_LM")
    model.base_model.generation_config.decoder_start_token_id = 1
    given = {
        "decoder_input_ids": tokens()[:, :7],
        "attention_mask": padding({"input_ids": tokens()}, "right"),
    }
    prompt = {"input_ids": tokens(), "attention_mask": given["attention_mask"], **WRITE}
    plain, written = logits(model, **given), model.generate(**prompt)
    with ga.patched(
        model, {"encoder": full(...), "decoder": causal(...), "cross": cross(..., ...)}
    ):
        assert close(logits(model, **given), plain)
        assert torch.equal(model.generate(**prompt), written)


def test_what_virtual_tokens_do_not_take_part_in_is_refused(writer):
    with (
        ga.patched(writer, top_k(..., 2, within=causal(...))),
        pytest.raises(GraphError, match="chooses edges"),
    ):
        writer(tokens())
    ga.patch(writer.base_model, causal(...))
    with pytest.raises(OptionError, match=r"3 virtual tokens.* patch the model of PEFT"):
        writer.generate(input_ids=tokens(), **WRITE)
