"""The shared checkers of arguments: what no reader or builder has to look for again."""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.arguments import device, integers, table
from graphattn.errors import GraphError, OptionError

CAUSAL = ga.graphs.causal(6)


def test_integers_that_int64_does_not_hold_are_refused_as_they_came():
    assert integers(np.array([3, 7], dtype=np.uint64), "ids", "(n,)").tolist() == [3, 7]


def test_numbers_without_a_meaning_of_their_own_are_refused():
    with pytest.raises(OptionError, match="got a masked array; fill its mask"):
        table(np.ma.masked_array([0, 1], mask=[0, 1]), "ids", "integers")
    quantised = torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8)
    with pytest.raises(OptionError, match=r"ids must be integers \(int64\) \(n,\), got qint8"):
        integers(quantised, "ids", "(n,)")


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_numbers_are_told_as_others_are(dtype):
    with pytest.raises(GraphError, match="num_nodes=N"):
        ga.from_edge_index(torch.tensor([[0], [1]], dtype=dtype))
    with pytest.raises(GraphError, match="mask must be bool"):
        ga.from_mask(torch.ones(2, 2).to(dtype))


def test_a_device_whose_module_is_missing_is_not_here():
    with pytest.raises(OptionError, match="device must be an available device"):
        device("hpu")


def test_explain_takes_an_array_for_a_tensor():
    assert "tiles" in str(ga.explain(CAUSAL, score_bias=np.ones(3)))


def test_the_callers_modes_do_not_decide_what_is_exact():
    layer = ga.nn.GraphAttention(8, 2)
    with torch.no_grad():
        assert ga.verify(CAUSAL, backends=["edges"], dtypes=[torch.float64])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ga.verify(
            layer, CAUSAL, backends=["edges", "dense"], dtypes=[torch.float64, torch.float32]
        )
