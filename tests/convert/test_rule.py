"""from_rule: a function of the pair, and what is no function of the pair (C13)."""

import pytest
import torch

from graphattn.convert import from_rule
from graphattn.errors import GraphError
from graphattn.graphs import causal


def test_a_rule_is_its_function():
    graph = from_rule(lambda t, s: (t * 3 + s) % 5 < 2, 7, 11)
    assert graph.is_rule
    assert (graph.num_targets, graph.num_sources) == (7, 11)
    assert graph.mask().tolist() == [[(t * 3 + s) % 5 < 2 for s in range(11)] for t in range(7)]
    assert from_rule(lambda t, s: s <= t, 13).equals(causal(13))


def test_names():
    def every_third(t, s):
        return (t - s) % 3 == 0

    assert from_rule(every_third, 5).name == "every_third"
    assert from_rule(lambda t, s: s <= t, 5).name == "rule"
    assert from_rule(every_third, 5, name="mine").name == "mine"


def test_a_constant_and_a_function_of_one_side_broadcast():
    assert from_rule(lambda t, s: True, 3, 5).num_edges == 15
    assert from_rule(lambda t, s: t == 1, 3, 5).num_edges == 5
    assert from_rule(lambda t, s: s < 2, 3, 5).num_edges == 6


@pytest.mark.parametrize(
    ("num_targets", "num_sources"), [(0, 5), (5, 0), (0, 0), (1, 1), (1_000_000_007, 1_000_000_009)]
)
def test_any_size(num_targets, num_sources):
    graph = from_rule(lambda t, s: s <= t, num_targets, num_sources)
    assert (graph.num_targets, graph.num_sources) == (num_targets, num_sources)


def test_tensors_that_the_rule_reads():
    label = torch.tensor([0, 1, 0, 2, 1, 0, 2])
    graph = from_rule(lambda t, s: label[t] == label[s], 7)
    assert graph.num_edges == 9 + 4 + 4


NOT_BOOLEAN = [
    (
        lambda t, s: t * s,
        r"must return a bool tensor, got torch.int64. For example \(t=6, s=0\) gives tensor\(\[0\]\)",
    ),
    (
        lambda t, s: (t - s).float(),
        r"must return a bool tensor, got torch.float32. For example \(t=6, s=0\) gives",
    ),
    (lambda t, s: t.sum() > s.sum(), "treat each pair independently"),
    (lambda t, s: (t >= s)[0], r"must return the shape|treat each pair independently"),
    (
        lambda t, s: (t >= s).flatten(),
        r"must return the shape \(7, 11\), got \(77,\). For example \(t=6, s=0\)",
    ),
    (
        lambda t, s: s <= t if t > 3 else s < t,
        r"the rule failed .*write & \| ~ and torch.where, not and/or/not/if",
    ),
    (lambda t, s: 0 <= s <= t, "the rule failed"),
]


@pytest.mark.parametrize(("function", "words"), NOT_BOOLEAN, ids=range(len(NOT_BOOLEAN)))
def test_a_rule_that_is_not_boolean_is_shown_a_pair(function, words):
    with pytest.raises(GraphError, match=words):
        from_rule(function, 7, 11)


def counting():
    calls = [0]

    def rule(t, s):
        calls[0] += 1
        return (t + s + calls[0]) % 2 == 0

    return rule


def whole_table(t, s):
    """Looks at the shape: right for the whole table of 7 x 11, wrong for any part of it."""
    if t.numel() == 7 and s.numel() == 11:
        return s <= t
    return s < t


DEPENDENT = [
    (
        lambda t, s: t > t.float().mean(),
        r"got (True|False) for \(t=\d+, s=\d+\) in a table of pairs and (True|False)",
    ),
    (lambda t, s: s <= t.min() + 0 * t, r"\(t=\d+, s=\d+\)"),
    (lambda t, s: torch.rand(torch.broadcast_shapes(t.shape, s.shape)) < 0.5, "random numbers"),
    (lambda t, s: (t + s).cumsum(0) % 2 == 0, r"\(t=\d+, s=\d+\)"),
    (
        lambda t, s: torch.arange(t.numel())[:, None] >= s if t.dim() == 2 else t >= s,
        r"evaluated in reverse order",
    ),
    (whole_table, r"got True for \(t=0, s=0\) in a table of pairs and False evaluated alone"),
    (counting(), r"\(t=\d+, s=\d+\)"),
]


@pytest.mark.parametrize(("function", "words"), DEPENDENT, ids=range(len(DEPENDENT)))
def test_a_rule_that_looks_at_other_pairs_is_shown_one(function, words):
    with pytest.raises(GraphError, match=words):
        from_rule(function, 7, 11)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((lambda t, s: t > s, -1), "num_targets must be a whole number >= 0, got -1"),
        ((lambda t, s: t > s, 3, 2.5), "num_sources must be a whole number >= 0, got 2.5"),
        ((lambda t, s: t > s, "3"), "num_targets must be a whole number"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(GraphError, match=words):
        from_rule(*arguments)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_rule_that_reads_tensors_on_the_device():
    label = torch.tensor([0, 1, 0, 2, 1, 0, 2], device="cuda")
    graph = from_rule(lambda t, s: label[t] == label[s], 7, device="cuda")
    assert graph.num_edges == 17
    assert graph.mask().is_cuda
    assert graph.edge_index.is_cuda
    assert (graph | causal(7)).num_edges == 28 + 5  # five edges above the diagonal
