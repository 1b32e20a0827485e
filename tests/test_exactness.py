"""Every backend on graphs of every kind, in every dtype, judged by the engine that users get."""

import pytest
import torch
from graph_table import GRAPHS
from layer_table import LAYERS, layer_of

from graphattn.exactness import assert_exact
from graphattn.nn import GraphAttention

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("longformer", DTYPES),
        ("isolated_targets", DTYPES[::2]),
        ("repeated_edges", DTYPES[1::2]),
        ("hub", DTYPES[:2]),
        ("zero_targets", DTYPES[:2]),
    ],
)
def test_attention_is_exact(name, dtypes):
    report = assert_exact(GRAPHS[name](), dtypes=dtypes)
    assert {row.dtype for row in report.rows if row.backend == "message_passing"} == {
        str(dtype).removeprefix("torch.") for dtype in dtypes
    }
    assert report.measured == report.total


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("layer", "name"),
    list(
        zip(LAYERS, ("cross", "isolated_targets", "repeated_edges", "rule_or_listed"), strict=True)
    ),
)
def test_layer_is_exact(name, layer):
    module = layer_of(layer)
    report = assert_exact(module, GRAPHS[name](), dtypes=(torch.float64, torch.float32))
    measured = {row.quantity for row in report.rows}
    assert {f"grad {parameter}" for parameter, _ in module.named_parameters()} < measured


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layer_is_exact_in_half_precision(dtype):
    torch.manual_seed(1)
    assert_exact(GraphAttention(35, 5), GRAPHS["longformer"](), dtypes=(dtype,))
