"""Attention weights of patched models are read as those of eager attention are, with their
gradients.
"""

import copy
import pickle

import numpy as np
import pytest
import torch
from tiny_models import inputs_of, padding, tiny_model
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

import graphattn as ga
from graphattn.errors import OptionError

NAMES = [
    "llama",
    "qwen2",
    "gpt2",
    "gemma2",
    "gemma3_text",
    "modernbert",
    "bert",
    "gpt_oss",
    "mixtral",
    "vit",
]
NAMES += ["clip_vision_model", "t5", "bart"]
# rotary or learned positions, sinks, two stacks, images
QUICK = ("gpt2", "gpt_oss", "bert", "t5", "vit")
FLOAT32 = {"mixtral", "gpt_oss", "gemma2"}
CLOSE = 1e-6  # eager attention computes softmax in float32
FIELDS = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")


def attentions(output):
    """All weights of a call, layer after layer."""
    return [layer for name in FIELDS for layer in output.get(name) or ()]


def stock_and_patched(name):
    """Outputs of the eager model and of one patched with its own connectivity, and the rows that
    are tokens.
    """
    dtype = torch.float32 if name in FLOAT32 else torch.float64
    model = tiny_model(name, dtype, _attn_implementation="eager")
    given = inputs_of(model, dtype)
    if "input_ids" in given:
        given["attention_mask"] = padding(given, "right")
    expected = model(**given, output_attentions=True)
    ga.patch(model, "model")
    return model, given, expected, model(**given, output_attentions=True)


def rows(weights, given):
    """bool (B, 1, T, 1): True where the target is a token."""
    B, _, T, _ = weights.shape
    mask = given.get("attention_mask")
    decodes = "decoder_input_ids" in given and given["decoder_input_ids"].shape[1] == T
    if mask is None or decodes:
        return torch.ones(B, 1, T, 1, dtype=torch.bool)
    return mask.bool()[:, None, :, None]


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
def test_weights_and_their_gradients_are_those_of_eager_attention(name):
    _, given, expected, found = stock_and_patched(name)
    close = 20 * CLOSE if name in FLOAT32 else CLOSE
    ours, theirs = attentions(found), attentions(expected)
    assert len(ours) == len(theirs) > 0

    def loss(output):
        last = output.last_hidden_state
        last = last * rows(last[:, None], given)[:, 0]
        return (last * torch.linspace(-1, 1, last.numel(), dtype=last.dtype).view_as(last)).sum()

    gradients = torch.autograd.grad(loss(found), ours)
    for x, y, gx, gy in zip(
        ours, theirs, gradients, torch.autograd.grad(loss(expected), theirs), strict=True
    ):
        there = rows(y, given)
        assert x.shape == y.shape
        torch.testing.assert_close(x * there, y * there, rtol=0, atol=close)
        edges = (x != 0) & there  # elsewhere the patched model has no weight to change
        size = max(1.0, float(gy.abs().max()))
        torch.testing.assert_close(gx * edges, gy * edges, rtol=0, atol=10 * close * size)
        assert (gx * edges).abs().max() > 0


@pytest.mark.parametrize(
    "name", ["gpt2", *(pytest.param(n, marks=pytest.mark.slow) for n in NAMES if n != "gpt2")]
)
def test_what_reads_tensors_reads_them(name):
    _, _, expected, found = stock_and_patched(name)
    ours, theirs = attentions(found), [x.detach() for x in attentions(expected)]
    first, other = ours[0], theirs[0]
    assert first.shape == first.size() == other.shape
    assert (first.ndim, first.dim(), len(first), first.size(1), first.numel()) == (
        *(4, 4, len(other), other.size(1), other.numel()),
    )
    assert (first.dtype, first.device) == (other.dtype, other.device)
    # as bertviz does
    squeezed = [layer[:1].squeeze(0) for layer in ours if layer.shape == first.shape]
    dense = torch.stack([layer.dense()[0] for layer in ours if layer.shape == first.shape])
    assert torch.equal(torch.stack(squeezed), dense)
    assert ours[0][0].size(0) == other.shape[1]
    alike = [layer for layer in ours if layer.shape == first.shape]
    both = torch.stack(alike)
    assert torch.equal(torch.cat(alike).view_as(both), both)
    assert torch.equal(first.mean(1), first.dense().mean(1))
    assert torch.equal(first[0, 2], first.dense()[0, 2])
    assert torch.equal(torch.max(first, -1).indices, first.dense().max(-1).indices)
    numbers = first.detach().cpu().numpy()
    assert np.array_equal(numbers, np.asarray(first.detach()))
    assert np.array_equal(numbers, first.dense().detach().numpy())


@pytest.mark.parametrize(
    "option", [{"prompt_lookup_num_tokens": 3}, {"num_beams": 2}, {"do_sample": True}, {}]
)
def test_generate_slices_them_by_steps(option):
    model = tiny_model("llama", auto=AutoModelForCausalLM, _attn_implementation="eager")
    prompt = torch.tensor([[5, 6, 7, 5, 6, 7, 5, 6]])
    asked = {
        "max_new_tokens": 6,
        "output_attentions": True,
        "return_dict_in_generate": True,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    expected = model.generate(prompt, **asked, **option)
    ga.patch(model, ga.graphs.causal(...))
    torch.manual_seed(0)
    found = model.generate(prompt, **asked, **option)
    assert torch.equal(found.sequences, expected.sequences)
    assert len(found.attentions) == len(expected.attentions) > 1
    for step, other in zip(found.attentions, expected.attentions, strict=True):
        for x, y in zip(step, other, strict=True):
            torch.testing.assert_close(x * 1.0, y, rtol=0, atol=CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_generate_of_two_stacks_returns_all_three(name):
    model = tiny_model(name, auto=AutoModelForSeq2SeqLM, _attn_implementation="eager")
    model.generation_config.decoder_start_token_id = 1
    given = {"input_ids": inputs_of(model)["input_ids"]}
    asked = {
        "max_new_tokens": 5,
        "output_attentions": True,
        "return_dict_in_generate": True,
        "do_sample": False,
    }
    expected = model.generate(**given, **asked)
    ga.patch(model, "model")
    found = model.generate(**given, **asked)
    for field in FIELDS[1:]:
        ours, theirs = found[field], expected[field]
        pairs = zip(ours, theirs, strict=True)
        if field != "encoder_attentions":
            pairs = [pair for steps in pairs for pair in zip(*steps, strict=True)]
        for x, y in pairs:
            torch.testing.assert_close(x * 1.0, y, rtol=0, atol=CLOSE)


def test_retained_gradients_as_transformers_own_test_reads_them():
    """As ``test_retain_grad_hidden_states_attentions`` of transformers."""
    model = tiny_model("gpt2")
    ga.patch(model, ga.graphs.sliding_window(..., 4, causal=True))
    outputs = model(**inputs_of(model), output_attentions=True)
    weights = outputs.attentions[0]
    weights.retain_grad()
    outputs[0].flatten()[0].backward(retain_graph=True)
    assert weights.grad.shape == weights.shape
    assert weights.grad.abs().sum() > 0


@pytest.mark.parametrize("checkpointing", [False, True])
def test_relevance_maps_are_those_of_eager_attention(checkpointing):
    """Chefer et al. 2021, equations 5 and 6: rows of ``mean over heads of (gradient * weight)+``,
    layer by layer.
    """

    def relevance(model, tokens):
        model.train(checkpointing)
        output = model(tokens, output_attentions=True)
        gradients = torch.autograd.grad(output.logits[:, -1, 5].sum(), output.attentions)
        total = torch.eye(tokens.shape[1], dtype=torch.float64)
        for weights, gradient in zip(output.attentions, gradients, strict=True):
            total = total + (gradient * weights).clamp(min=0).mean(1) @ total
        return total.detach()

    options = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    model = tiny_model("gpt2", auto=AutoModelForCausalLM, _attn_implementation="eager", **options)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    tokens = inputs_of(model)["input_ids"]
    expected = relevance(model, tokens)
    ga.patch(model, ga.graphs.causal(...))
    torch.testing.assert_close(relevance(model, tokens), expected, rtol=0, atol=CLOSE)
    assert (expected - torch.eye(11)).abs().max() > 1e-4


def test_packed_and_padded_rows_have_weights_through_which_their_output_is_computed():
    model = tiny_model("llama", _attn_implementation="eager")
    tokens = inputs_of(model)["input_ids"]
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3]])
    same = (positions == 0).cumsum(1)
    mask = (same[:, None] == same[..., None]).tril()[:, None]
    added = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -1e30)
    expected = model(
        tokens,
        position_ids=positions,
        attention_mask=added,
        output_attentions=True,
        use_cache=False,
    )
    ga.patch(model, ga.graphs.causal(...))
    found = model(tokens, position_ids=positions, output_attentions=True, use_cache=False)
    ours, theirs = (
        torch.autograd.grad(output.last_hidden_state.sin().sum(), output.attentions)
        for output in (found, expected)
    )
    for x, y, gx, gy in zip(found.attentions, expected.attentions, ours, theirs, strict=True):
        torch.testing.assert_close(x * 1.0, y, rtol=0, atol=CLOSE)
        torch.testing.assert_close(gx * mask, gy * mask, rtol=0, atol=10 * CLOSE)
        assert (gx.dense()[~mask.expand(gx.shape)] == 0).all()


def test_copies_of_an_edge_share_the_gradient_of_their_sum():
    model = tiny_model("llama")
    tokens = inputs_of(model)["input_ids"]
    causal = ga.graphs.causal(11)
    twice = ga.from_edge_index(causal.edge_index.repeat(1, 2), num_nodes=11, duplicates="keep")
    results = []
    for graph in (causal, twice):
        with ga.patched(model, graph):
            output = model(
                tokens,
                attention_mask=padding({"input_ids": tokens}, "right"),
                output_attentions=True,
            )
            grads = torch.autograd.grad(output.last_hidden_state[1].sin().sum(), output.attentions)
            results.append([x * 1.0 for x in (*output.attentions, *grads)])
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-12)


def test_the_configuration_may_request_them_and_is_saved_and_copied(tmp_path):
    model = tiny_model("llama")
    kind, given = type(model.config), inputs_of(model)
    ga.patch(model, ga.graphs.causal(...))
    model.config.output_attentions = True
    assert model(**given).attentions[0].shape == (2, 4, 11, 11)
    assert AutoModel.from_config(copy.copy(model.config)) is not None
    for copied in (copy.deepcopy(model.config), pickle.loads(pickle.dumps(model.config))):
        assert copied.to_dict() == model.config.to_dict()
        copied.output_attentions = False
        copied.output_attentions = True
    again = copy.deepcopy(model)
    assert again(**given).attentions is not None
    model.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).output_attentions
    loaded = ga.hf.from_pretrained(tmp_path, dtype=torch.float64)
    torch.testing.assert_close(
        loaded(**given).attentions[1] * 1.0, model(**given).attentions[1] * 1.0
    )
    ga.unpatch(model)
    assert type(model.config) is kind
    assert model(**given).attentions is None
    with pytest.raises(ValueError, match="eager"):
        model.config.output_attentions = True


def test_a_request_from_before_the_patch_stays():
    model = tiny_model("gpt2", _attn_implementation="eager", output_attentions=True)
    given = inputs_of(model)
    with ga.patched(model, ga.graphs.causal(...)):
        assert isinstance(model(**given).attentions[0], ga.EdgeWeights)
        model.config._attn_implementation = "eager"
        with pytest.raises(OptionError, match="was set to 'eager'"):
            model(**given)
    assert model.config.output_attentions
    assert isinstance(model(**given).attentions[0], torch.Tensor)
