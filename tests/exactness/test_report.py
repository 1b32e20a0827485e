"""What a report prints: of several errors the worst, and the limits that they are held to."""

import math

import pytest
import torch

import graphattn as ga
from graphattn.exactness import bounds
from graphattn.exactness.layer_twin import LayerTwin
from graphattn.exactness.report import Report, Row
from graphattn.nn import FeatureScore, GraphAttention


def printed(*errors, quantity="grad key"):
    rows = (
        Row("edges", "float64", "plain", "output", 1e-13, 1e-12),
        *(Row("edges", "float64", f"case {i}", quantity, e, 1e-12) for i, e in enumerate(errors)),
    )
    return str(Report("a thing", "a graph", 5, 5, rows, (), ()))


@pytest.mark.parametrize("errors", [(4e-13, 5e-3, 6e-13), (5e-3, 4e-13), (1e-13, 5e-3), (5e-3,)])
def test_of_several_errors_the_worst_is_printed_wherever_it_stands(errors):
    line = next(line for line in printed(*errors).splitlines() if line.startswith("edges"))
    assert line.split()[2] == "WRONG"
    assert "5.0e-03" in line
    assert line.endswith(f"grad key (case {errors.index(5e-3)})")


def test_the_worst_is_the_one_furthest_beyond_its_own_bound():
    rows = (
        Row("edges", "float32", "a", "output", 3e-6, 1e-5),
        Row("edges", "float64", "b", "output", 2e-12, 1e-12),
    )
    report = Report("a thing", "a graph", 5, 5, rows, (), ())
    assert report.worst is rows[1]
    assert rows[1].ratio == pytest.approx(2.0)
    assert "limit: 1e-12 in float64" in str(report)
    assert "limit: twice (gradients: 3 times) the error of dense torch" in str(report)


@pytest.mark.parametrize(
    ("measured", "head", "verdict"),
    [
        (
            5,
            "at all 5 targets",
            "EXACT: outputs and gradients agree at all 5 targets (1 comparison)",
        ),
        (
            3,
            "at 3 of 5 targets",
            "EXACT: outputs and gradients agree at 3 of 5 targets, the others were not looked at "
            "(1 comparison)",
        ),
    ],
)
def test_it_says_how_much_was_compared(measured, head, verdict):
    row = Row("edges", "float64", "plain", "output", 1e-13, 1e-12)
    text = str(Report("a thing", "a graph", measured, 5, (row,), (), ()))
    assert head in text
    assert text.splitlines()[-1] == verdict


def test_nan_is_worse_than_any_number_in_print():
    line = next(
        line for line in printed(1e9, math.nan, 2e9).splitlines() if line.startswith("edges")
    )
    assert line.endswith("nan 1.0e-12  grad key (case 1)")


def test_the_worst_output_stands_apart_from_the_worst_of_the_rest():
    line = next(
        line
        for line in printed(7e-13, 3e-13, quantity="output").splitlines()
        if line.startswith("edges")
    )
    assert line.split()[3:] == ["7.0e-13", "1.0e-12", "-", "-"]


@pytest.mark.parametrize(
    ("dtype", "floor"), [(torch.float32, 4), (torch.float16, 1), (torch.bfloat16, 1)]
)
def test_a_narrow_error_is_held_to_twice_that_of_dense_torch_and_gradients_to_three_times(
    dtype, floor
):
    eps = torch.finfo(dtype).eps
    assert bounds.bound(dtype, 0.25, gradient=False) == pytest.approx(0.5 + floor * eps, rel=1e-12)
    assert bounds.bound(dtype, 0.25, gradient=True) == pytest.approx(0.75 + floor * eps, rel=1e-12)
    assert bounds.bound(dtype, 0.25, gradient=True, growth=3.0) == pytest.approx(
        0.75 + 3 * floor * eps, rel=1e-12
    )
    longer = 2 if dtype == torch.float32 else 1  # the root of 1,024 / 256
    assert bounds.bound(dtype, 0.25, gradient=True, longest=1024) == pytest.approx(
        0.75 + longer * floor * eps, rel=1e-12
    )
    long_sum = 16 if dtype == torch.float32 else 1
    assert bounds.agreement(dtype) == pytest.approx(2 * (2 * long_sum + floor) * eps, rel=1e-12)


def test_float64_is_held_to_1e_12_whatever_dense_torch_does_until_rounding_grows_64_times():
    for growth, wanted in ((1.0, 1e-12), (64.0, 1e-12), (128.0, 2e-12)):
        for gradient in (False, True):
            result = bounds.bound(torch.float64, 0.25, gradient=gradient, growth=growth)
            assert result == pytest.approx(wanted, rel=1e-12)


def test_size_and_difference_see_what_is_not_finite():
    x = torch.tensor([1.0, -3.0, math.inf, math.nan])
    assert bounds.size(x) == 3.0
    assert bounds.size(x[:0]) == bounds.difference(x[:0], x[:0]) == 0.0
    assert bounds.difference(x[:3], x[:3]) == 0.0  # equal infinities do not differ
    assert bounds.difference(x[:2], torch.tensor([1.5, -3.0])) == 0.5
    assert bounds.difference(x, torch.zeros(4)) == math.inf


POSITIVE = {"score": lambda: FeatureScore("elu"), "normalize": "sum"}


@pytest.mark.parametrize(
    ("options", "without_bias", "smooth"),
    [
        ({}, True, True),
        ({"score": "gaussian"}, False, True),
        ({"score": "additive"}, True, True),
        ({"score": "mlp"}, True, False),  # a ReLU
        ({"normalize": "sparsemax"}, True, False),
        ({"normalize": lambda score, target, num_targets: score}, True, False),  # somebody's own
        (POSITIVE, True, True),  # a sum of positive numbers is nowhere near 0
        (POSITIVE, False, False),  # unless a bias makes them negative,
        ({**POSITIVE, "softcap": 3.0}, True, False),  # or a cap
        ({"score": "dot", "normalize": "sum"}, True, False),  # and scores of both signs may cancel
        ({"score": lambda: FeatureScore(torch.relu), "normalize": "sum"}, True, False),
        ({"score": lambda: FeatureScore("elu"), "normalize": "sparsemax"}, True, False),
    ],
)
def test_smooth_is_what_has_no_kink_and_no_sum_near_0(options, without_bias, smooth):
    made = {k: v() if k == "score" and callable(v) else v for k, v in options.items()}
    assert LayerTwin(GraphAttention(8, 2, **made))._smooth(without_bias) is smooth


def test_a_report_is_true_if_everything_measured_held():
    assert ga.verify(ga.graphs.causal(5), dtypes=(torch.float64,))
    assert not ga.verify(
        lambda query, key, value: value, ga.graphs.causal(5), dtypes=(torch.float64,)
    )
