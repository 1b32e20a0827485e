"""A union that loses the causality that was asked for says so; one that does not is silent."""

import warnings

import pytest

import graphattn as ga
from graphattn.errors import GraphError
from graphattn.graphs import (
    causal,
    global_tokens,
    self_loops,
    sinks,
    sliding_window,
)
from graphattn.graphs.expression import from_expression

LATER = "is causal and .* is not, so that targets read later sources"


@pytest.mark.parametrize(
    "join",
    [
        lambda: sliding_window(16, 5, causal=True) | global_tokens(16, [0]),
        lambda: global_tokens(16, [0]) | sliding_window(16, 5, causal=True),
        lambda: (sliding_window(..., 5, causal=True) | global_tokens(..., [0]))(16),
        lambda: causal(16) | ga.from_edge_index([[9], [2]], num_nodes=16),
        lambda: (sliding_window(16, 5, causal=True) - self_loops(16)) | global_tokens(16, [0]),
        lambda: sliding_window(16, 5, causal=True).with_global_tokens(1),
    ],
)
def test_edges_from_later_tokens_in_a_causal_graph_are_warned_of(join):
    with pytest.warns(UserWarning, match=LATER):
        assert not join().is_causal


@pytest.mark.parametrize(
    "join",
    [
        lambda: sliding_window(16, 5, causal=False) | global_tokens(16, [0]),
        lambda: sliding_window(16, 5, causal=True) | sinks(16, 2),
        lambda: sliding_window(16, 5, causal=True) | (global_tokens(16, [0]) & causal(16)),
        lambda: self_loops(16) | global_tokens(16, [0]),
        lambda: ga.from_edge_index([[2], [9]], num_nodes=16) | global_tokens(16, [0]),
        lambda: sliding_window(16, 5, causal=False).with_global_tokens(1),
        lambda: ~causal(16) | global_tokens(16, [0]),
    ],
)
def test_longformer_and_graphs_that_nobody_asked_to_be_causal_are_not(join):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        join()


@pytest.mark.parametrize(
    "name", [name for name, make in ga.graphs.BUILDERS.items() if "causal" in make.__annotations__]
)
def test_builders_of_both_forms_are_told_which(name):
    """No default of one is another's: a window and a block would differ in it."""
    arguments = {"documents": "lengths=(2, 3)", "lsh_buckets": "[0, 1, 0, 1], 2"}
    inside = arguments.get(name, "8, 3")
    with pytest.raises(
        GraphError,
        match=r"missing a required argument: 'causal'; the call is|causal must be given beside",
    ):
        from_expression(f"{name}({inside})")
