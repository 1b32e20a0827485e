"""What transformers asks of its models in its own tests, asked of patched ones beside stock ones.

Each model is patched with its own connectivity, ``ga.patch(model, "model")``. Its source release
lacks the tests of its models; ``own_tests.py`` runs them where a checkout is at hand.
"""

import copy
import inspect

import pytest
import torch
import transformers
from families import (
    DECODERS,
    EOS,
    FAMILIES,
    PAD,
    READERS,
    WRITERS,
    V,
    dtype_of,
    family_inputs,
    family_model,
    text_inputs,
)

import graphattn as ga

QUICK = ("llama", "gemma3", "t5", "vit")
CLOSE = 3e-6  # eager attention has a softmax in float32
NEW = 6
WRITE = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": PAD}


def of(*families):
    """Parameters of a test: the quick families, and the others marked slow."""
    marked = []
    for family in families:
        if family in QUICK:
            marked.append(family)
        else:
            marked.append(pytest.param(family, marks=pytest.mark.slow))
    return pytest.mark.parametrize("family", marked)


def without(families, name):
    return [family for family in families if family != name]


def both(family, attention="eager", **options):
    """A stock model, and a copy of it that is patched."""
    stock = family_model(family, attention, **options)
    patched = copy.deepcopy(stock)
    ga.patch(patched, "model")
    return stock, patched


def tensors(outputs, prefix=""):
    """The tensors of an output of a model, by name; caches are left out."""
    if torch.is_tensor(outputs) or isinstance(outputs, ga.EdgeWeights):
        return {prefix: outputs}
    if isinstance(outputs, dict):
        items = list(outputs.items())
    elif isinstance(outputs, (tuple, list)):
        items = list(enumerate(outputs))
    else:
        return {}
    return {
        name: x for key, value in items for name, x in tensors(value, f"{prefix}.{key}").items()
    }


def dense(x):
    if torch.is_tensor(x):
        return x
    return x.dense()


def assert_same(ours, theirs, close=CLOSE):
    """The same tensors by the same names."""
    ours = tensors(ours)
    theirs = tensors(theirs)
    assert ours.keys() == theirs.keys()
    assert theirs
    for name, expected in theirs.items():
        result = dense(ours[name])
        assert result.shape == expected.shape, name
        assert torch.allclose(result.double(), expected.double(), rtol=close, atol=close), name


def padded(family, side):
    """Inputs of which the first example lacks two tokens on a side."""
    given = family_inputs(family)
    mask = torch.ones_like(given["input_ids"])
    mask[0, slice(0, 2) if side == "left" else slice(-2, None)] = 0
    return given | {"attention_mask": mask}


def labels_of(family, model, given):
    """Labels for the loss of a model; ``return_loss`` for two towers."""
    if family == "clip":
        return {"return_loss": True}
    if family == "vit":
        return {"labels": torch.arange(len(given["pixel_values"])) % model.config.num_labels}
    ids = given.get("decoder_input_ids", given.get("input_ids"))
    return {"labels": ids % 7 + 8}


def step(model, given):
    """The loss, and the gradients of all parameters."""
    model.zero_grad()
    loss = model(**given).loss
    loss.backward()
    gradients = {name: x.grad for name, x in model.named_parameters() if x.grad is not None}
    return {"loss": loss.detach(), "gradients": gradients}


# --- outputs


@of(*FAMILIES)
@torch.no_grad()
def test_outputs_hidden_states_and_weights_are_those_of_eager(family):
    stock, patched = both(family)
    asked = {"output_hidden_states": True, "output_attentions": True}
    given = family_inputs(family) | asked
    assert_same(patched(**given), stock(**given))
    assert_same(patched(**given, return_dict=False), stock(**given, return_dict=False))


@of(*FAMILIES)
@torch.no_grad()
def test_outputs_are_those_of_sdpa(family):
    stock, patched = both(family, "sdpa")
    given = family_inputs(family)
    close = 1e-5 if dtype_of(family) == torch.float32 else 1e-11
    assert_same(patched(**given), stock(**given), close)
    assert_same(patched(**given), patched(**given), 0)


@pytest.mark.parametrize("side", ["left", "right"])
@of(*READERS)
@torch.no_grad()
def test_padded_tokens_change_nothing(family, side):
    stock, patched = both(family, "sdpa")  # eager gives NaN to a token without sources in float64
    given = padded(family, side)
    kept = given["attention_mask"].bool()
    if family == "clip":
        kept = torch.tensor([True, True])
    asked = {"output_hidden_states": True}
    ours = patched(**given, **asked)
    theirs = stock(**given, **asked)
    if family == "clip":
        assert_same(ours.logits_per_image, theirs.logits_per_image)
        return
    if family in ("t5", "bart"):
        assert_same(ours.logits, theirs.logits)
        assert_same(ours.encoder_last_hidden_state[kept], theirs.encoder_last_hidden_state[kept])
        return
    assert_same(ours.logits[kept], theirs.logits[kept])
    assert len(ours.hidden_states) == len(theirs.hidden_states)
    for a, b in zip(ours.hidden_states, theirs.hidden_states, strict=True):
        assert_same(a[kept], b[kept])


@of(*FAMILIES)
@torch.no_grad()
def test_each_example_is_as_it_is_by_itself(family):
    _, patched = both(family)
    given = family_inputs(family)
    whole = patched(**given).to_tuple()[0]
    alone = {name: x[: len(x) // 2] for name, x in given.items()}
    first = patched(**alone).to_tuple()[0]
    if family == "clip":  # all pairs of images and texts
        whole = whole[:, :1]
    assert torch.allclose(whole[:1], first, rtol=1e-5, atol=1e-5)


@of(*without(READERS, "clip"))
@torch.no_grad()
def test_embeddings_stand_for_their_tokens(family):
    _, patched = both(family)
    given = text_inputs(family)
    if family in ("t5", "bart"):
        given["decoder_input_ids"] = given["input_ids"][:, :5]
    ids = given.pop("input_ids")
    expected = patched(input_ids=ids, **given).logits
    embeds = patched.get_input_embeddings()(ids)
    assert torch.allclose(patched(inputs_embeds=embeds, **given).logits, expected, atol=1e-9)


@of(*DECODERS)
@torch.no_grad()
def test_a_mask_of_pairs_is_the_model_s_own(family):
    stock, patched = both(family)
    ids = text_inputs(family)["input_ids"]
    allowed = torch.ones(9, 9, dtype=torch.bool).tril()[None, None].expand(2, 1, -1, -1).clone()
    allowed[1, :, 5:, 2] = False
    least = torch.finfo(dtype_of(family)).min
    mask = torch.zeros(allowed.shape, dtype=dtype_of(family)).masked_fill(~allowed, least)
    if family in ("gemma3", "gpt_oss"):  # one for each kind of layer
        mask = {"full_attention": mask, "sliding_attention": mask}
    if family == "gemma3":
        stock, patched = stock.model.language_model, patched.model.language_model
    assert_same(patched(ids, attention_mask=mask), stock(ids, attention_mask=mask))


@of(*DECODERS)
@torch.no_grad()
def test_the_last_logits_alone(family):
    _, patched = both(family)
    given = family_inputs(family)
    last = patched(**given, logits_to_keep=2).logits
    assert torch.allclose(last, patched(**given).logits[:, -2:], atol=1e-9)


@of("gemma3", "qwen2_vl", "clip")
@torch.no_grad()
def test_features_of_a_tower_that_is_called_by_itself(family):
    stock, patched = both(family)
    given = family_inputs(family)
    asked = {name: given[name] for name in ("pixel_values", "image_grid_thw") if name in given}
    asked["output_hidden_states"] = True
    if family != "qwen2_vl":
        asked["output_attentions"] = True
    assert_same(patched.get_image_features(**asked), stock.get_image_features(**asked))


@of(*FAMILIES)
@torch.no_grad()
def test_half_precision(family):
    stock, patched = both(family, "sdpa")
    for dtype in (torch.bfloat16, torch.float16):
        given = {
            name: x.to(dtype) if x.is_floating_point() else x
            for name, x in family_inputs(family).items()
        }
        theirs = stock.to(dtype)(**given).to_tuple()[0]
        ours = patched.to(dtype)(**given).to_tuple()[0]
        assert ours.dtype == theirs.dtype
        assert (ours - theirs).abs().max() <= 16 * torch.finfo(dtype).eps * theirs.abs().max()


# --- weights


@pytest.mark.sample(3)
@of(*FAMILIES)
@torch.no_grad()
def test_saved_and_loaded_patched_or_plain(family, tmp_path):
    stock, patched = both(family)
    given = family_inputs(family)
    expected = stock(**given)
    patched.save_pretrained(tmp_path)
    plain = type(stock).from_pretrained(tmp_path, dtype=dtype_of(family))
    assert_same(plain.eval()(**given), expected)
    again = ga.hf.from_pretrained(tmp_path, dtype=dtype_of(family))
    assert_same(again.eval()(**given), expected)
    assert not [name for name in patched.state_dict() if name not in stock.state_dict()]
    copied = copy.deepcopy(patched)
    copied.load_state_dict(stock.state_dict())
    assert_same(copied(**given), expected)


@of(*without(READERS, "clip"))
@torch.no_grad()
def test_resized_embeddings(family):
    stock, patched = both(family)
    for model in (stock, patched):
        torch.manual_seed(3)
        model.resize_token_embeddings(V + 6)
    given = family_inputs(family)
    ours = patched(**given).logits
    assert ours.shape[-1] == V + 6
    assert_same(ours, stock(**given).logits)
    assert patched.config.get_text_config().vocab_size == V + 6


# --- training


@of(*FAMILIES)
def test_steps_of_training(family):
    stock, patched = both(family)
    given = family_inputs(family)
    given |= labels_of(family, stock, given)
    for model in (stock, patched):
        model.train()
    assert_same(step(patched, given), step(stock, given), 1e-5)
    for model in (stock, patched):
        torch.optim.SGD(model.parameters(), lr=0.01).step()
    assert_same(step(patched, given), step(stock, given), 1e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize("reentrant", [False, True])
@of(*without(FAMILIES, "qwen2_vl"))
def test_gradient_checkpointing(family, reentrant):
    _, patched = both(family)
    given = family_inputs(family)
    given |= labels_of(family, patched, given)
    patched.train()
    expected = step(patched, given)
    patched.gradient_checkpointing_enable({"use_reentrant": reentrant})
    if reentrant:
        patched.enable_input_require_grads()
    assert_same(step(patched, given), expected, 1e-7)
    patched.gradient_checkpointing_disable()
    assert_same(step(patched, given), expected, 1e-7)


@of(*FAMILIES)
def test_hidden_states_and_weights_have_gradients(family):
    stock, patched = both(family)
    given = family_inputs(family) | {"output_hidden_states": True, "output_attentions": True}
    results = []
    for model in (stock, patched):
        outputs = model(**given)
        kept = [x for name, x in tensors(outputs).items() if "hidden" in name or "attent" in name]
        kept = [x for x in kept if x.requires_grad]
        for x in kept:
            x.retain_grad()
        outputs.to_tuple()[0].pow(2).sum().backward()
        results.append([(dense(x), dense(x.grad)) for x in kept])
    assert len(results[0]) == len(results[1])
    assert len(results[0]) > 2
    for (weights, theirs), (_, ours) in zip(*results, strict=True):
        there = weights != 0  # an edge; eager attention has gradients of other pairs, too
        assert there.any()
        assert torch.allclose(ours[there].double(), theirs[there].double(), rtol=1e-4, atol=1e-4)


@of("llama", "gpt2", "t5", "bart", "modernbert")
@pytest.mark.parametrize(
    "problem", ["single_label_classification", "multi_label_classification", "regression"]
)
def test_losses_of_classification(family, problem):
    stock = family_model(family)
    kind = getattr(
        transformers,
        type(stock).__name__.split("For")[0].removesuffix("LMHeadModel")
        + "ForSequenceClassification",
    )
    config = copy.deepcopy(stock.config)
    config.num_labels = 1 if problem == "regression" else 3
    config.problem_type = problem
    torch.manual_seed(0)
    stock = kind(config).to(torch.float64).eval()
    patched = copy.deepcopy(stock)
    ga.patch(patched, "model")
    ids = text_inputs(family)["input_ids"]
    ids[:, -1] = EOS
    labels = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    if problem == "single_label_classification":
        labels = torch.tensor([2, 0])
    if problem == "regression":
        labels = labels[:, 1:2]
    given = {"input_ids": ids, "labels": labels}
    assert_same(step(patched, given), step(stock, given), 1e-5)


# --- generation


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "way",
    [
        {},
        {"do_sample": True, "top_k": 5},
        {"num_beams": 3, "num_return_sequences": 2},
        {"num_beams": 2, "do_sample": True},
        {"use_cache": False},
        {"cache_implementation": "static"},
        {"prompt_lookup_num_tokens": 2},
    ],
    ids=["greedy", "sample", "beams", "beam sample", "no cache", "static cache", "prompt lookup"],
)
@of(*WRITERS)
def test_generation(family, way):
    stock, patched = both(family)
    given = text_inputs(family, rows=1 if "prompt_lookup_num_tokens" in way else 2)
    written = []
    for model in (stock, patched):
        torch.manual_seed(4)
        written.append(model.generate(**given, **WRITE | way).tolist())
    assert written[0] == written[1]


@of(*without(WRITERS, "whisper"))
def test_left_padded_prompts(family):
    stock, patched = both(family, "sdpa")
    given = text_inputs(family)
    given["attention_mask"][0, :3] = 0
    given["input_ids"][0, :3] = PAD
    assert patched.generate(**given, **WRITE).tolist() == stock.generate(**given, **WRITE).tolist()


@pytest.mark.sample(3)
@of(*WRITERS)
@pytest.mark.parametrize("drafts", ["same", "patched", "stock"])
def test_assisted_decoding(family, drafts):
    stock, patched = both(family)
    given = text_inputs(family, rows=1)
    assistant = copy.deepcopy(patched if drafts == "same" else stock)
    for parameter in assistant.parameters():
        parameter.data.add_(0.02 * (drafts != "same") * torch.randn_like(parameter))
    if drafts == "patched":
        ga.patch(assistant, "model")
    assistant.generation_config.num_assistant_tokens = 2
    expected = stock.generate(**given, **WRITE)
    written = patched.generate(**given, **WRITE, assistant_model=assistant)
    assert written.tolist() == expected.tolist()


@of("llama", "gpt2", "qwen3", "qwen2_vl")
def test_a_quantised_cache(family):
    stock, patched = both(family)
    given = text_inputs(family)
    way = {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
    for model in (stock, patched):
        model.to(torch.float32)
    expected = stock.generate(**given, **WRITE, **way)
    assert patched.generate(**given, **WRITE, **way).tolist() == expected.tolist()


@pytest.mark.sample(3)
@pytest.mark.parametrize("beams", [1, 2])
@of(*WRITERS)
def test_what_generate_returns_beside_tokens(family, beams):
    stock, patched = both(family)
    way = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    way |= {"output_attentions": True, "output_hidden_states": True, "num_beams": beams}
    given = text_inputs(family)
    ours = patched.generate(**given, **WRITE, **way)
    assert_same(ours, stock.generate(**given, **WRITE, **way), 1e-5)


@of("llama", "mistral", "qwen3", "gpt_oss", "gpt2")
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_from_embeddings(family, cache):
    stock, patched = both(family)
    ids = text_inputs(family)["input_ids"]
    way = {} if cache == "dynamic" else {"cache_implementation": "static"}
    written = [
        model.generate(inputs_embeds=model.get_input_embeddings()(ids), **WRITE, **way).tolist()
        for model in (stock, patched)
    ]
    assert written[0] == written[1]
    whole = patched.generate(ids, attention_mask=torch.ones_like(ids), **WRITE)
    assert whole[:, ids.shape[1] :].tolist() == written[0]


@of(*WRITERS)
def test_generation_goes_on_from_a_cache(family):
    stock, patched = both(family)
    given = text_inputs(family)
    results = []
    for model in (stock, patched):
        way = WRITE | {"return_dict_in_generate": True, "min_new_tokens": 0, "eos_token_id": None}
        first = model.generate(**given, **way | {"max_new_tokens": 2})
        more = {"past_key_values": first.past_key_values}
        if family in DECODERS:
            ids = first.sequences
            more |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        else:
            more |= given | {"decoder_input_ids": first.sequences}
        results.append(model.generate(**more, **way | {"max_new_tokens": 3}).sequences.tolist())
    assert results[0] == results[1]


@of(*WRITERS)
def test_the_inputs_of_a_step_are_prepared_by_name(family):
    stock, patched = both(family)
    first, *_ = inspect.signature(stock.prepare_inputs_for_generation).parameters
    given = {first: torch.tensor([[7, 8, 9]]), "position_ids": torch.tensor([[0, 1, 2]])}
    ours = patched.prepare_inputs_for_generation(**given, more=True)
    assert ours["more"]
    assert_same(ours, stock.prepare_inputs_for_generation(**given, more=True), 0)


# --- programs


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_programs(family):
    stock, patched = both(family)
    given = family_inputs(family)
    given |= labels_of(family, stock, given)
    expected = step(stock, given)
    patched.forward = torch.compile(patched.forward, backend="aot_eager")
    assert_same(step(patched, given), expected, 1e-5)
