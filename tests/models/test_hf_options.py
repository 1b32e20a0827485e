"""An option of a configuration of ``transformers`` is honoured to the last digits or refused;
changed models are.
"""

import warnings

import pytest
import torch
from hf_table import CASES, WORDS, theirs, transformers
from text_models import in_float64, same

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.models import from_transformers

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
@pytest.mark.parametrize("family", ["GPT2", "Llama", "Bert", "T5"])
def test_honoured_or_refused(family):
    honoured, refused = 0, 0
    for options in OPTIONS:
        with torch.no_grad():
            try:
                model = theirs(family, **options)
                with in_float64():
                    wanted = CASES[family].theirs(model)[0]
            except (ValueError, RuntimeError, TypeError, LookupError):  # theirs refuse it
                continue
        try:
            mine = from_transformers(model)
        except OptionError:
            refused += 1
            continue
        same(CASES[family].ours(mine)[0], wanted)
        honoured += 1
    assert honoured >= 5
    assert refused >= 1


@pytest.mark.parametrize("family", ["GPT2", "Bert", "T5"])
def test_a_head_that_was_given_weights_of_its_own_has_them(family):
    model = theirs(family)
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(torch.randn_like(head.weight))
    with in_float64():
        wanted = CASES[family].theirs(model)[0]
    same(CASES[family].ours(from_transformers(model))[0], wanted)


class Packed(torch.nn.Module):
    """A linear map that holds bytes and a scale, as those of quantised checkpoints."""

    def __init__(self, linear):
        super().__init__()
        self.scale = torch.nn.Parameter(linear.weight.detach().abs().amax() / 127)
        self.register_buffer(
            "qweight", (linear.weight.detach() / self.scale).round().to(torch.int8)
        )


class OtherAttention(torch.nn.Module):
    """Another attention, with the parameters of the one that it replaces."""

    def __init__(self, old):
        super().__init__()
        self.__dict__.update(old.__dict__)


class Coded(torch.Tensor):
    """Numbers that are codes, under the dtype of what they stand for."""


def weight(make):
    """A linear map whose weight is made another."""

    def change(linear):
        linear.weight = torch.nn.Parameter(make(linear.weight.detach()), requires_grad=False)
        return linear

    return change


TAKEN = r"where the model's configuration makes \w+: a model that was changed .*quantised.*as transformers loads it"
PARTS = {  # a linear map of each model, an attention
    "Llama": ("model.layers.1.mlp.up_proj", "model.layers.0.self_attn"),
    "Bert": ("bert.encoder.layer.1.attention.self.key", "bert.encoder.layer.0.attention.self"),
    "T5": ("decoder.block.1.layer.2.DenseReluDense.wo", "encoder.block.0.layer.0.SelfAttention"),
    "GPT2": ("transformer.h.1.mlp.c_fc", "transformer.h.0.attn"),
    "ViT": ("vit.layers.0.mlp.fc1", "vit.layers.1.attention"),
}
REPLACED = [  # which part, what takes its place, the words
    (0, Packed, rf"is Packed {TAKEN}"),
    (1, OtherAttention, rf"is OtherAttention {TAKEN}"),
    (1, lambda old: ga.nn.GraphAttention(12, 3).double(), "GraphAttention where"),
    (0, weight(lambda x: x.to(torch.int8)), r"weight is a Parameter of torch.i"),
    (0, weight(lambda x: x.as_subclass(Coded)), r"weight is a Coded of torch.float64"),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("family", PARTS)
def test_a_quantised_or_half_converted_model_is_refused(family):
    for part, make, words in REPLACED:
        model, name = theirs(family), PARTS[family][part]
        from_transformers(model)
        owner, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(owner), leaf, make(model.get_submodule(name)))
        with pytest.raises(OptionError, match=words) as refusal:
            from_transformers(model)
        assert name in str(refusal.value)
    if family != "GPT2":  # whose maps are Conv1D
        model = theirs(family).float()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.ao is to move to torchao
            torch.ao.quantization.quantize_dynamic(
                model, {torch.nn.Linear}, torch.qint8, inplace=True
            )
        with pytest.raises(OptionError, match=f"is Linear {TAKEN}"):
            from_transformers(model)


def doubled(module, *given):
    return given[-1]


def mlp(model):
    return model.transformer.h[0].mlp


CHANGED = [
    (
        "GPT2",
        lambda m: setattr(m.transformer.h[1].mlp, "act", torch.nn.ReLU()),
        "h.1.mlp.act is ReLU where",
    ),
    (
        "Llama",
        lambda m: setattr(m.model.layers[0].self_attn, "scaling", 0.1),
        "scaling is 0.1 where",
    ),
    ("Llama", lambda m: m.model.layers.pop(1), "model.layers is 1 layer where .* makes 2"),
    (
        "Bert",
        lambda m: setattr(m.bert.embeddings.LayerNorm, "eps", 0.5),
        "LayerNorm.eps is 0.5 where",
    ),
    ("T5", lambda m: setattr(m.config, "dropout_rate", 0.7), "dropout.*where .* makes 0.7"),
    (
        "GPT2",
        lambda m: mlp(m).register_forward_hook(doubled),
        "h.0.mlp has a forward hook, .*options.doubled, whose",
    ),
    ("GPT2", lambda m: m.register_forward_hook(doubled), "GPT2LMHeadModel has a forward hook"),
    (
        "GPT2",
        lambda m: mlp(m).register_forward_pre_hook(doubled, with_kwargs=True),
        "h.0.mlp has a forward pre-hook, .*doubled, .* remove it first",
    ),
    (
        "GPT2",
        lambda m: setattr(mlp(m), "forward", doubled),
        "h.0.mlp.forward is .*doubled where .* of GPT2MLP: a",
    ),
    (
        "GPT2",
        lambda m: setattr(m, "forward", m.forward),
        "^GPT2LMHeadModel.forward is .*GPT2LMHead",
    ),
    (
        "GPT2",
        lambda m: torch.nn.utils.weight_norm(m.lm_head),
        "lm_head has a forward pre-hook, torch.*WeightNorm",
    ),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("family", "change", "words"), CHANGED)
def test_what_was_changed_since_it_was_built_is_refused(family, change, words):
    model = theirs(family)
    if family == "GPT2":  # with hooks of transformers' own
        model(WORDS, output_hidden_states=True)
        model.enable_input_require_grads()
        assert any(module._forward_hooks for module in model.modules())
    from_transformers(model)
    change(model)
    with pytest.raises(OptionError, match=words):
        from_transformers(model)


def uniform(module, query, key, value, attention_mask, **options):
    """An attention in which every key is alike."""
    return value.mean(-2, keepdim=True).expand_as(query).transpose(1, 2).contiguous(), None


@pytest.fixture
def registered():
    functions = transformers.AttentionInterface()
    before = dict(type(functions)._global_mapping)
    yield functions
    type(functions)._global_mapping.clear()
    type(functions)._global_mapping.update(before)


@pytest.mark.parametrize("name", ["uniform", "sdpa", "eager"])
@pytest.mark.parametrize("family", ["GPT2", "Llama", "Bert"])
def test_another_attention_is_refused_by_name_and_under_a_known_name(family, name, registered):
    model = theirs(family)
    from_transformers(model)
    registered.register(name, uniform)
    model.set_attn_implementation(name)
    with pytest.raises(
        OptionError,
        match=f"'{name}', not transformers' own; expected one of eager, sdpa",
    ):
        from_transformers(model)
