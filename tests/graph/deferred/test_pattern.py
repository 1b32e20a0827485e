"""Patterns sized when used, layers, graphs of heads, typed unions: what they are and what they
refuse.
"""

import copy
import pickle
import sys

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import PerHead, graphs
from graphattn.analysis import reach
from graphattn.errors import GraphAttnError, GraphError
from graphattn.graph.deferred.text import Reader
from graphattn.graph.kinds.layers import layers_of, sized_layers
from graphattn.graphs import Pattern, Relations

LONGFORMER = graphs.sliding_window(..., 3, causal=False) | graphs.global_tokens(..., (0,))


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 7])
def test_algebra_of_patterns_is_algebra_of_their_graphs(size):
    window, causal, full = (
        graphs.sliding_window(size, 3, causal=True),
        graphs.causal(size),
        graphs.full(size),
    )
    w, c = graphs.sliding_window(..., 3, causal=True), graphs.causal(...)
    expected = {
        "or": (w | c, window | causal),
        "and": (w & c, window & causal),
        "minus": (c - w, causal - window),
        "not": (~w, ~window),
        "compose": (w @ c, window @ causal),
        "reverse": (w.reverse(), window.reverse()),
        "k_hop": (w.k_hop(2), window.k_hop(2)),
        "loops": (w.without_self_loops(), window.without_self_loops()),
        "no loops": (w.without_self_loops().with_self_loops(), window),
        "graph on the left": (full - w, full - window),
        "graph on the right": (w | full, full),
        "left and": (full & w, window),
        "left or": (full | w, full),
        "left compose": (full @ w, full @ window),
    }
    for name, (pattern, graph) in expected.items():
        assert isinstance(pattern, Pattern), name
        assert pattern(size).equals(graph), name
        assert graph.num_edges == 0 or not pattern(size).equals(
            graphs.self_loops(size) - graphs.full(size)
        ), name


def test_a_pattern_makes_a_graph_once_for_each_size_and_forgets_the_oldest():
    pattern = graphs.causal(...)
    first = pattern(5)
    assert pattern(5) is first
    for size in range(6, 14):
        pattern(size)
    assert pattern(5) is not first
    assert pattern(13) is pattern(13)


def test_sizes_of_both_sides_and_of_grids():
    assert graphs.causal(..., ...)(3, 5).equals(graphs.causal(3, 5))
    assert graphs.cross(..., ...)(3, 5).equals(graphs.cross(3, 5))
    assert graphs.causal(..., ...)(4).equals(graphs.causal(4))
    assert graphs.cross(..., 4)(3, 4).equals(graphs.cross(3, 4))
    swin = graphs.window_partition(..., (2, 3)) | graphs.global_tokens(..., (0,))
    assert swin((4, 6)).equals(
        graphs.window_partition((4, 6), (2, 3)) | graphs.global_tokens(24, (0,))
    )
    with pytest.raises(GraphError, match="needs the axes of a grid, and got 24 nodes"):
        swin(24)


def test_global_tokens_are_counted_by_sizes_and_not_by_the_axes_of_a_grid():
    etc, swin = graphs.sliding_window(..., 3, causal=True), graphs.window_partition(..., (2, 3))
    assert etc.with_global_tokens(2)(9).equals(
        graphs.sliding_window(7, 3, causal=True).with_global_tokens(2)
    )
    assert (etc.with_global_tokens(2) | graphs.causal(...))(9).num_nodes == 9
    assert swin.with_global_tokens()((4, 6)).equals(
        graphs.window_partition((4, 6), (2, 3)).with_global_tokens()
    )
    layer, x = ga.nn.GraphAttention(8, 2), torch.randn(9, 8)
    torch.testing.assert_close(
        layer(x, etc.with_global_tokens(2)), layer(x, etc.with_global_tokens(2)(9))
    )
    for sizes, words in (((1,), "got -1"), ((9, 8), "7 targets has 7 sources, expected 6")):
        with pytest.raises(GraphError, match=words):
            etc.with_global_tokens(2)(*sizes)


def test_patterns_travel():
    for pattern in (LONGFORMER, LONGFORMER.k_hop(2), ~LONGFORMER, LONGFORMER.with_global_tokens()):
        assert pickle.loads(pickle.dumps(pattern))(9).equals(pattern(9))
        assert copy.deepcopy(pattern)(9).equals(pattern(9))
        assert repr(pattern).startswith("Pattern(")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: graphs.sliding_window(5, ..., causal=True),
            r"\.\.\. stands for the sizes, which come first \(num_targets, num_sources\)",
        ),
        (lambda: graphs.sliding_window(5, window=..., causal=True), "stands for the sizes"),
        (
            lambda: graphs.full(..., ...),
            r"full: ... stands for the sizes, which come first \(num_nodes\)",
        ),
        (lambda: graphs.full(...)(5, 6), "of 5 targets has 5 sources, expected 6"),
        (
            lambda: graphs.sliding_window(..., 3, causal=True)(2, 7),
            r"sliding_window\(..., 3, causal=True\) of 2 targets has 2 sources, expected 7",
        ),
        (lambda: graphs.causal(...)(-1), "num_.* must be a whole number >= 0, got -1"),
        (
            lambda: graphs.global_tokens(..., (7,))(5),
            r"tokens must be in \[0, 5\), as negative numbers do not wrap, got 7 to 7",
        ),
        (lambda: (graphs.causal(...) | graphs.full(5))(6), "same nodes"),
    ],
)
def test_refusals_of_patterns(make, message):
    with pytest.raises(GraphAttnError, match=message):
        make()


def test_wrong_arguments_are_found_before_a_pattern_is_used():
    with pytest.raises(TypeError, match="bogus"):
        graphs.full(..., bogus=1)
    with pytest.raises(TypeError):
        graphs.causal(...) | 3


@pytest.mark.parametrize("tokens", [np.array([0, 3]), torch.tensor([0, 3])])
def test_an_argument_of_several_numbers_is_no_blank(tokens):
    assert graphs.global_tokens(..., tokens)(5).equals(graphs.global_tokens(5, (0, 3)))
    assert graphs.global_tokens(5, tokens=tokens).equals(graphs.global_tokens(5, (0, 3)))


def test_a_layer_reaches_what_the_layers_before_it_reach():
    local, far = graphs.sliding_window(6, 2, causal=True), graphs.causal(6)
    assert reach(local).equals(local)
    assert reach([local, far]).equals(far @ local)
    assert reach([local] * 3).equals(local @ local @ local)
    assert layers_of(local, 3) == layers_of([local] * 3) == (local,) * 3
    assert sized_layers([graphs.causal(...), far], 6)[0].equals(far)
    strict = graphs.causal(6).without_self_loops()
    assert reach([strict, strict], residual=True).equals(strict | graphs.self_loops(6))


def test_layers_may_pool():
    down, up = graphs.cross(2, 6), graphs.cross(6, 2)
    assert reach([down, up]).equals(graphs.full(6))
    with pytest.raises(GraphError, match="layer 1 reads 6 sources, but layer 0 has 2 targets"):
        reach([down, down])


def test_a_layer_may_have_graphs_of_heads():
    rows, columns = graphs.window_partition((2, 3), (1, 3)), graphs.window_partition((2, 3), (2, 1))
    both = PerHead((rows, columns))
    assert reach([both]).equals(rows | columns)
    assert reach([both, both]).equals(graphs.full(6))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: reach([]), "at least one graph"),
        (lambda: reach([torch.ones(3, 3).bool()]), "layer 0 must be .*from_mask"),
        (
            lambda: layers_of([graphs.full(3)], 2),
            r"2 layers need as many graphs, got 1; \[a, b\] \* 3",
        ),
        (lambda: reach(graphs.full(...)), "layer 0 is Pattern.*: give it a size"),
        (lambda: PerHead(()), "at least one graph"),
        (lambda: PerHead(graphs.full(3)), "graphs must be a tuple of AttentionGraphs"),
        (
            lambda: PerHead((graphs.full(3), graphs.full(4))),
            "each head must have 3 targets and 3 sources, got AttentionGraph",
        ),
        (lambda: PerHead((graphs.full(...),)), "got Pattern; give it a size"),
        (
            lambda: PerHead((graphs.full(3),) * 2).groups(3),
            "2 graphs needs a multiple of 2 heads, got 3",
        ),
        (
            lambda: PerHead(
                (ga.from_edge_index([[0, 0], [1, 1]], num_nodes=2, duplicates="keep"),)
            ),
            "repeats some",
        ),
        (lambda: Relations(a=3), "relation a needs an AttentionGraph, got int"),
        (lambda: Relations(a=graphs.full(3), b=graphs.full(4)), "same nodes"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(GraphError, match=message):
        make()


def test_relations_number_every_edge_and_the_first_part_wins():
    hub, near = graphs.global_tokens(6, (0,)), graphs.sliding_window(6, 3, causal=False)
    both = Relations(hub=hub, near=near)
    assert both.graph.equals(hub | near)
    assert (both.names, both.num_relations) == (("hub", "near"), 2)
    for edge, (source, target) in enumerate(both.graph.edge_index.t().tolist()):
        assert both.relation[edge] == (0 if bool(hub.contains(target, source)) else 1)
    assert both.count() == {"hub": 11, "near": (near - hub).num_edges}
    assert Relations(near=near, hub=hub).count() == {
        "near": near.num_edges,
        "hub": (hub - near).num_edges,
    }


def test_relations_of_listed_graphs_keep_the_callers_order():
    edges = ga.from_edge_index([[3, 0, 1], [0, 2, 2]], num_nodes=4)
    both = Relations(mine=edges, all=graphs.self_loops(4).materialise())
    assert both.graph.edge_index[:, :3].tolist() == [[3, 0, 1], [0, 2, 2]]
    assert both.relation.tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_another_thread_may_make_other_sizes_between_any_two_lines():
    pattern = graphs.causal(...)
    passed = set()

    def between(frame, event, found):
        if frame.f_lineno not in passed:
            passed.add(frame.f_lineno)
            for size in range(20, 20 + 9):  # one more than are kept; untraced
                pattern(size)
        return between

    def of_calls(frame, event, found):
        return between if frame.f_code is Pattern.__call__.__code__ else None

    before = sys.gettrace()
    sys.settrace(of_calls)
    try:
        found = [pattern(size).num_nodes for size in (3, 20)]
    finally:
        sys.settrace(before)
    assert found == [3, 20]
    assert len(vars(pattern.shelf)) == 8


def test_global_tokens_of_a_pattern_are_one_by_default():
    written = Reader("causal(...).with_global_tokens()", {}).read()
    assert Pattern(written)(5).equals(graphs.causal(4).with_global_tokens())


@pytest.mark.parametrize("name", ["num_edges", "edge_index", "mask"])
def test_a_question_before_there_is_a_size_says_to_call(name):
    with pytest.raises(
        AttributeError, match=rf"Pattern has no {name} before it has a size; call it first"
    ):
        getattr(ga.graphs.causal(...), name)
    assert not hasattr(ga.graphs.causal(...), "nothing")
