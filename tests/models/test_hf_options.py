"""An option of a configuration of ``transformers`` is honoured to the last digits, or refused: never ignored."""

import warnings

import pytest
import torch
from text_models import in_float64, same, shaken

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.models import from_hf

transformers = pytest.importorskip("transformers", minversion="5.0")

V = 13
SIZES = {"vocab_size": V, "num_hidden_layers": 2, "intermediate_size": 17, "attn_implementation": "eager"}
SIZES |= {"pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0}
LLAMA = {**SIZES, "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6}
BERT = {**SIZES, "hidden_size": 12, "num_attention_heads": 3, "max_position_embeddings": 16, "pad_token_id": 0}
T5 = {"vocab_size": V, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 3}
GPT2 = {"vocab_size": V, "n_embd": 12, "n_head": 3, "n_layer": 2, "n_positions": 16, "attn_implementation": "eager"}
MODELS = {
    "GPT2LMHeadModel": ("GPT2Config", {**GPT2, "bos_token_id": 0, "eos_token_id": 0}),
    "LlamaForCausalLM": ("LlamaConfig", LLAMA),
    "BertForMaskedLM": ("BertConfig", BERT),
    "T5ForConditionalGeneration": ("T5Config", T5),
}
OPTIONS = [
    {"is_causal": False},
    {"is_causal": True, "scale_decoder_outputs": True},
    {"tie_word_embeddings": False, "scale_decoder_outputs": True},
    {"add_cross_attention": True},
    {"is_decoder": True},
    {"tie_word_embeddings": False},
    {"attention_bias": True, "mlp_bias": True},
    {"use_sliding_window": True, "sliding_window": 3},
    {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 3},
    {"partial_rotary_factor": 0.5},
    {"scale_embedding": True, "scale_attn_weights": False},
    {"layer_norm_epsilon": 0.3, "layer_norm_eps": 0.3, "rms_norm_eps": 0.3},
]
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function")
OPTIONS += [
    dict.fromkeys(ACTIVATIONS, "mish") | {"feed_forward_proj": "gated-gelu"},
    dict.fromkeys(ACTIVATIONS, "silu"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_honoured_or_refused(name):
    tokens = torch.randint(V, (2, 6), generator=torch.Generator().manual_seed(1))
    given = {"decoder_input_ids": tokens[:, :4]} if "Conditional" in name else {}
    config, sizes = MODELS[name]
    honoured, refused = 0, 0
    for options in OPTIONS:
        with in_float64(), torch.no_grad():
            try:
                torch.manual_seed(0)
                model = shaken(getattr(transformers, name)(getattr(transformers, config)(**{**sizes, **options})))
                wanted = model(tokens, **given).logits
            except (ValueError, RuntimeError, TypeError, KeyError):  # theirs refuse it
                continue
        try:
            mine = from_hf(model)
        except OptionError:
            refused += 1
            continue
        same(mine(tokens, *given.values()), wanted)
        honoured += 1
    assert honoured >= 5
    assert refused >= 1


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "BertForMaskedLM", "T5ForConditionalGeneration"])
def test_a_head_that_was_given_weights_of_its_own_has_them(name):
    tokens = torch.randint(V, (2, 6), generator=torch.Generator().manual_seed(1))
    given = {"decoder_input_ids": tokens[:, :4]} if "Conditional" in name else {}
    config, sizes = MODELS[name]
    with in_float64(), torch.no_grad():
        model = shaken(getattr(transformers, name)(getattr(transformers, config)(**sizes)))
        head = model.get_output_embeddings()
        head.weight = torch.nn.Parameter(torch.randn_like(head.weight))
        wanted = model(tokens, **given).logits
    mine = from_hf(model)
    same(mine(tokens, *given.values()), wanted)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "GPT2LMHeadModel",
            lambda m: setattr(m.transformer.h[1].mlp, "act", torch.nn.ReLU()),
            "h.1.mlp.act is ReLU where",
        ),
        ("LlamaForCausalLM", lambda m: setattr(m.model.layers[0].self_attn, "scaling", 0.1), "scaling is 0.1 where"),
        ("LlamaForCausalLM", lambda m: m.model.layers.pop(1), "model.layers is 1 layers where .* makes 2"),
        ("BertForMaskedLM", lambda m: setattr(m.bert.embeddings.LayerNorm, "eps", 0.5), "LayerNorm.eps is 0.5 where"),
        ("T5ForConditionalGeneration", lambda m: setattr(m.config, "dropout_rate", 0.7), "dropout.*where .* makes 0.7"),
    ],
)
def test_what_was_changed_since_it_was_built_is_refused(name, change, message):
    config, sizes = MODELS[name]
    model = getattr(transformers, name)(getattr(transformers, config)(**sizes))
    from_hf(model)
    change(model)
    with pytest.raises(OptionError, match=message):
        from_hf(model)


class Packed(torch.nn.Module):
    """A linear map that holds bytes and a scale, as those of quantised checkpoints."""

    def __init__(self, linear):
        super().__init__()
        self.scale = torch.nn.Parameter(linear.weight.detach().abs().amax() / 127)
        self.register_buffer("qweight", (linear.weight.detach() / self.scale).round().to(torch.int8))


class OtherAttention(torch.nn.Module):
    """Somebody's own attention, with the parameters of the one that it replaces."""

    def __init__(self, old):
        super().__init__()
        self.__dict__.update(old.__dict__)


class Coded(torch.Tensor):
    """Numbers that are codes, under the dtype of what they stand for."""


def in_bytes(linear):
    linear.weight = torch.nn.Parameter(linear.weight.detach().to(torch.int8), requires_grad=False)


def coded(linear):
    linear.weight = torch.nn.Parameter(linear.weight.detach().as_subclass(Coded))


def dynamically(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao is to move to torchao
        torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8, inplace=True)


CONVERTED = {  # model -> a linear map of it, an attention
    "LlamaForCausalLM": ("model.layers.1.mlp.up_proj", "model.layers.0.self_attn"),
    "BertForMaskedLM": ("bert.encoder.layer.1.attention.self.key", "bert.encoder.layer.0.attention.self"),
    "T5ForConditionalGeneration": (
        "decoder.block.1.layer.2.DenseReluDense.wo",
        "encoder.block.0.layer.0.SelfAttention",
    ),
    "GPT2LMHeadModel": ("transformer.h.1.mlp.c_fc", "transformer.h.0.attn"),
    "ViTModel": ("layers.0.mlp.fc1", "layers.1.attention"),
}
VIT = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 17, "num_hidden_layers": 2, "image_size": 8}


@pytest.mark.parametrize("name", CONVERTED)
def test_a_quantised_or_half_converted_model_is_refused(name):
    config, sizes = {**MODELS, "ViTModel": ("ViTConfig", {**VIT, "patch_size": 4})}[name]
    linear, attention = CONVERTED[name]

    def fresh(at, change):
        model = getattr(transformers, name)(getattr(transformers, config)(**sizes))
        from_hf(model)
        owner, _, leaf = at.rpartition(".")
        change(model, model.get_submodule(owner), leaf)
        return model

    def put(make):
        return lambda model, owner, leaf: setattr(owner, leaf, make(getattr(owner, leaf)))

    taken = r"where the model's configuration makes \w+: a model that was changed .*quantised.*as transformers loads it"
    for at, change, words in (
        (linear, put(Packed), rf"{linear} is Packed {taken}"),
        (attention, put(OtherAttention), rf"{attention} is OtherAttention {taken}"),
        (
            attention,
            lambda model, owner, leaf: setattr(owner, leaf, ga.nn.GraphAttention(12, 3)),
            "GraphAttention where",
        ),
        (
            linear,
            lambda model, owner, leaf: in_bytes(getattr(owner, leaf)),
            rf"^{linear}.weight is a Parameter of torch.i",
        ),
        (
            linear,
            lambda model, owner, leaf: coded(getattr(owner, leaf)),
            rf"^{linear}.weight is a Coded of torch.float32",
        ),
        (
            linear,
            lambda model, owner, leaf: getattr(owner, leaf).half(),
            "one dtype and device, .*float32 .*float16 on cpu",
        ),
        (linear, lambda model, owner, leaf: getattr(owner, leaf).to("meta"), "one dtype and device, .* on meta; call"),
    ):
        with pytest.raises(OptionError, match=words):
            from_hf(fresh(at, change))
    if name != "GPT2LMHeadModel":  # whose maps are Conv1D
        with pytest.raises(OptionError, match=f"is Linear {taken}"):
            from_hf(fresh(linear, lambda model, owner, leaf: dynamically(model)))


def doubled(module, *given):
    return given[-1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda layer, model: layer.register_forward_hook(doubled),
            "h.0.mlp has a forward hook, .*options.doubled, whose",
        ),
        (lambda layer, model: model.register_forward_hook(doubled), "GPT2LMHeadModel has a forward hook"),
        (
            lambda layer, model: layer.register_forward_pre_hook(doubled, with_kwargs=True),
            "h.0.mlp has a forward pre-hook, .*doubled, .* remove it first",
        ),
        (
            lambda layer, model: setattr(layer, "forward", doubled),
            "h.0.mlp.forward is .*doubled where .* of GPT2MLP: a",
        ),
        (lambda layer, model: setattr(model, "forward", model.forward), "^GPT2LMHeadModel.forward is .*GPT2LMHead"),
        (
            lambda layer, model: torch.nn.utils.weight_norm(model.lm_head),
            "lm_head has a forward pre-hook, torch.*WeightNorm",
        ),
    ],
)
def test_a_model_that_was_hooked_or_patched_is_refused(change, words):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**MODELS["GPT2LMHeadModel"][1]))
    model(torch.ones(1, 2, dtype=torch.int64), output_hidden_states=True)
    model.enable_input_require_grads()
    assert any(module._forward_hooks for module in model.modules())
    from_hf(model)
    change(model.transformer.h[0].mlp, model)
    with pytest.raises(OptionError, match=words):
        from_hf(model)


def test_a_frozen_model_stays_frozen():
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**MODELS["GPT2LMHeadModel"][1]))
    assert all(p.requires_grad for p in from_hf(model).parameters())
    assert not any(p.requires_grad for p in from_hf(model.requires_grad_(False)).parameters())


def uniform(module, query, key, value, attention_mask, **options):
    """Somebody's own attention: every key alike."""
    return value.mean(-2, keepdim=True).expand_as(query).transpose(1, 2).contiguous(), None


def whole(name):
    config, sizes = MODELS[name]
    return getattr(transformers, name)(
        getattr(transformers, config)(**{key: x for key, x in sizes.items() if "attn_" not in key})
    )


@pytest.fixture
def registered():
    functions = transformers.AttentionInterface()
    before = dict(type(functions)._global_mapping)
    yield functions
    type(functions)._global_mapping.clear()
    type(functions)._global_mapping.update(before)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM", "BertForMaskedLM"])
def test_an_attention_of_somebodys_own_is_refused_by_name(name, registered):
    model = whole(name)
    from_hf(model)
    registered.register("uniform", uniform)
    model.set_attn_implementation("uniform")
    with pytest.raises(
        OptionError, match=r"'uniform', which is .*test_hf_options.uniform; expected one of eager, sdpa"
    ):
        from_hf(model)
    model.set_attn_implementation("eager")
    from_hf(model)


@pytest.mark.parametrize("known", ["sdpa", "eager"])
def test_an_attention_of_somebodys_own_under_a_known_name_is_refused(known, registered):
    model = whole("LlamaForCausalLM")
    model.set_attn_implementation(known)
    from_hf(model)
    registered.register(known, uniform)
    with pytest.raises(OptionError, match=f"'{known}', which is .*test_hf_options.uniform"):
        from_hf(model)
