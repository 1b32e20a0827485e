"""Data of which no trial could answer is refused before one is trained."""

import pytest
import torch
from tiny_study import HELD, SAMPLES, N, tiny_data

import graphattn as ga
from graphattn import study
from graphattn.errors import ShapeError
from graphattn.study.comparison import Comparison

GREYS = torch.linspace(-1, 1, SAMPLES * N).view(SAMPLES, N, 1)
TOKENS = tiny_data().inputs
SHORT = torch.full((SAMPLES,), 5)
PARTLY = torch.where(torch.arange(SAMPLES) == 11, -100, TOKENS[:, 3])
NAN = torch.where(torch.arange(SAMPLES).view(-1, 1, 1) == 11, torch.nan, GREYS)
WRONG = {
    "inputs must be finite, sample 11 is not": ({"inputs": NAN}, {}),
    "pos must be finite, sample 11 is not": ({"pos": NAN}, {}),
    "inputs must be float32": ({"inputs": GREYS.double()}, {}),
    "pos must be": ({"pos": GREYS[..., 0]}, {}),
    "targets must ask something of every sample, sample 11": ({"targets": PARTLY}, {}),
    "targets of padding must be -100, sample 0": (
        {"sizes": SHORT, "targets": TOKENS},
        {"readout": "node"},
    ),
    "token 5 is padding in samples of 5 nodes": (
        {"sizes": SHORT},
        {"readout": "token", "token": 5},
    ),
}


@pytest.mark.parametrize("words", WRONG)
def test_data_that_cannot_answer_are_refused(words):
    of_data, options = WRONG[words]
    arms = {"window": ga.graphs.sliding_window(..., 3, causal=False)}
    with pytest.raises(ShapeError) as error:
        Comparison("c", arms, tiny_data(**of_data), **options)
    assert words in str(error.value)


def test_a_module_of_ones_own_may_take_other_floats():
    class Double(torch.nn.Linear):
        def __init__(self, data):
            super().__init__(1, data.classes, dtype=torch.float64)

        def forward(self, inputs, graphs, places, pos):
            return super().forward(inputs)

    data = tiny_data(inputs=GREYS.double(), test=HELD)
    assert Comparison(
        "c", {"full": ga.graphs.full(N)}, data, model=study.CustomModel(Double)
    ).graphs
