"""Models of ``transformers`` read by ``from_transformers``: outputs, every gradient, dtype, mode, dropout,
refusals.
"""

import pytest
import torch
from hf_table import CASES, equal_outputs_and_gradients, theirs, transformers
from text_models import in_float64, same

from graphattn.errors import OptionError
from graphattn.models import from_transformers
from graphattn.models.from_transformers import FAMILIES


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("name", "number"), [(name, i) for name in CASES for i in range(len(CASES[name].options))]
)
def test_outputs_and_gradients(name, number):
    equal_outputs_and_gradients(name, CASES[name], number, from_transformers)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", ["Bert", "GPT2", "T5", "Llama"])
def test_heads_are_tied_as_theirs_are(name, tied):
    model = theirs(name, tie_word_embeddings=tied)
    mine, own = from_transformers(model), model.get_output_embeddings().weight
    head = mine.head.out if name == "Bert" else mine.head
    assert (head.weight is mine.embedding.weight) == (own is model.get_input_embeddings().weight)


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", ["Bert", "GPT2", "ViT", "Swinv2", "T5"])
def test_dtype_mode_and_frozen_parameters_are_theirs(family):
    model = theirs(family).float().train()
    mine = from_transformers(model)
    assert mine.training
    assert {p.dtype for p in mine.parameters()} == {torch.float32}
    assert all(p.requires_grad for p in mine.parameters())
    before = [p.clone() for p in mine.parameters()]
    for parameter in model.requires_grad_(False).parameters():
        parameter.zero_()
    assert all(map(torch.equal, before, mine.parameters()))  # copies
    assert not any(p.requires_grad for p in from_transformers(model).parameters())


DROPOUTS = {"Bert": ("hidden_dropout_prob", "attention_probs_dropout_prob")}
DROPOUTS |= {"GPT2": ("embd_pdrop", "attn_pdrop", "resid_pdrop"), "T5": ("dropout_rate",)}
DROPOUTS |= {"Llama": ("attention_dropout",)}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("family", "place"), [(family, name) for family in DROPOUTS for name in DROPOUTS[family]]
)
def test_dropout_is_where_theirs_is(family, place):
    off = dict.fromkeys(DROPOUTS[family], 0.0)
    model, plain = (
        theirs(family, training=True, **{**off, place: 1.0}),
        theirs(family, training=True, **off),
    )
    with in_float64():
        wanted, without = (CASES[family].theirs(m)[0] for m in (model, plain))
    same(CASES[family].ours(from_transformers(model))[0], wanted)
    assert not torch.allclose(wanted, without)


def test_every_class_that_is_read_is_one_of_transformers():
    assert not [name for name in FAMILIES if not hasattr(transformers, name)]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.nn.Linear(2, 2), "from_transformers reads .*ViTModel.* got Linear"),
        (lambda: theirs("GPT2", "Model"), "got GPT2Model"),
        (lambda: theirs("GPT2", activation_function="mish"), "activation must be .*'mish'"),
        (lambda: theirs("GPT2", add_cross_attention=True), "add_cross_attention = True cannot be"),
        (lambda: theirs("Bert", is_decoder=True), "is_decoder = True cannot be read; only False"),
        (
            lambda: theirs(
                "Llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 9.0, "factor": 2.0}
            ),
            "default, linear, llama3;",
        ),
        (
            lambda: theirs(
                "Llama",
                rope_parameters={
                    "rope_type": "default",
                    "rope_theta": 9.0,
                    "partial_rotary_factor": 0.5,
                },
            ),
            "all channels",
        ),
        (lambda: theirs("Llama", hidden_act="mish"), "activation must be .*'mish'"),
        (
            lambda: theirs("Llama", is_causal=False),
            "is_causal = False cannot be read; only True can",
        ),
        (lambda: theirs("T5", is_causal=False), "is_causal = False is not supported"),
        (
            lambda: theirs("T5", feed_forward_proj="tanh"),
            "the activation must be \"relu\", .* got 'tanh'",
        ),
        (lambda: theirs("ViT", hidden_act="tanh"), 'activation must be "relu", .* got .tanh'),
        (
            lambda: transformers.ViTModel(theirs("ViT").config, use_mask_token=True),
            "use_mask_token=True",
        ),
        (
            lambda: transformers.Swinv2Model(theirs("Swinv2").config, use_mask_token=True),
            "use_mask_token=True",
        ),
        (lambda: theirs("Swinv2", use_absolute_embeddings=True), "use_absolute_embeddings = True"),
        (
            lambda: theirs("Swinv2", image_size=(36, 12), window_size=4),
            "cells of 4 there and of 3 here",
        ),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(make, words):
    with pytest.raises(OptionError, match=words):
        from_transformers(make())
