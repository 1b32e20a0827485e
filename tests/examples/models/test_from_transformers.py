"""Models of ``examples/models`` with weights of ``transformers``: outputs, every gradient, dropout,
refusals.
"""

import pytest
import torch
from hf_table import EXAMPLES, equal_outputs_and_gradients, theirs
from models.from_transformers import from_transformers
from text_models import in_float64, same

from graphattn.errors import OptionError


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, i) for name in EXAMPLES for i in range(len(EXAMPLES[name].options))],
)
def test_outputs_and_gradients(name, number):
    equal_outputs_and_gradients(name, EXAMPLES[name], number, from_transformers)


@pytest.mark.parametrize("place", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_of_longformer_is_where_theirs_is(place):
    off = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    model = theirs("Longformer", training=True, **{**off, place: 1.0})
    plain = theirs("Longformer", training=True, **off)
    with in_float64():
        wanted, without = (EXAMPLES["Longformer"].theirs(m)[0] for m in (model, plain))
    same(EXAMPLES["Longformer"].ours(from_transformers(model))[0], wanted)
    assert not torch.allclose(wanted, without)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: theirs("Timesformer", attention_type="space_only"),
            "'space_only' cannot be read; only 'divided",
        ),
        (
            lambda: theirs("Timesformer", hidden_dropout_prob=0.1),
            "hidden_dropout_prob = 0.1 cannot be read; only 0",
        ),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(make, words):
    with pytest.raises(OptionError, match=words):
        from_transformers(make())
