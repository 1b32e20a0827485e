"""What a graph says of itself where it equals a simpler one."""

import pytest
import torch

import graphattn as ga
from graphattn.graphs import (
    causal,
    cross,
    documents,
    global_tokens,
    prefix,
    self_loops,
    sinks,
    sliding_window,
)
from graphattn.graphs.expression import from_expression
from graphattn.mistakes.graphs.simple import remark, simple_expression

WINDOW = sliding_window(64, 9, causal=True)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (WINDOW | (prefix(64, 4) & causal(64)), "equals causal(64)"),
        (WINDOW | sliding_window(64, 5, causal=True), "equals sliding_window(64, 9, causal=True)"),
        (WINDOW & causal(64), "equals sliding_window(64, 9, causal=True)"),
        (
            sliding_window(64, 9, causal=False) & sliding_window(64, 5, causal=True),
            "equals sliding_window(64, 5, causal=True)",
        ),
        (causal(5, 9) | cross(5, 9), "equals cross(5, 9)"),
        (causal(9) | causal(9).reverse(), "equals full(9)"),
        (~~causal(64), "equals causal(64)"),
        (WINDOW | sinks(64, 4), ""),
        (WINDOW & documents(lengths=(30, 34), causal=False), ""),
        (causal(64) - self_loops(64), ""),
        (WINDOW, ""),
        (prefix(5, 5), ""),
    ],
)
def test_a_remark(graph, words):
    assert remark(graph) == words
    assert ga.facts(graph).remark == words
    assert words in str(ga.facts(graph))
    assert words in str(ga.audit(graph.mask(), graph))
    assert words in str(ga.audit(~graph.mask(), graph))


def test_a_remark_walks_no_further_than_repr_counts(monkeypatch):
    big = sliding_window(20_000_000, 9, causal=True) | sinks(20_000_000, 4)
    assert remark(big) == ""
    assert "not counted" in repr(big)
    walked = []
    graph = WINDOW | global_tokens(64, (0,))
    monkeypatch.setattr(
        type(graph.edges), "chunks", lambda self, *rest: walked.append(self) or iter(())
    )
    repr(graph)
    first = len(walked)
    repr(graph)
    assert first == len(walked) <= 2  # counted once, and remembered


@pytest.mark.parametrize(
    "text",
    [
        "full(7)",
        "cross(5, 9)",
        "causal(7)",
        "causal(5, 9)",
        "causal(5, 9, align='start')",
        "causal(7).reverse()",
        "causal(7).without_self_loops()",
        "self_loops(7)",
        "sliding_window(9, 4, causal=True)",
        "sliding_window(9, 5, causal=False)",
        "sliding_window(9, (2, 3))",
        "sliding_window(5, (2, 1), num_sources=9)",
        "sliding_window(5, (2, 1), num_sources=9, align='start')",
    ],
)
def test_edges_that_somebody_listed_are_known_as_the_call_they_could_be_of(text):
    graph = from_expression(text)
    found = simple_expression(ga.from_mask(graph.mask()))
    assert str(found) == text
    assert found.build().equals(graph)


def test_other_edges_are_no_simple_call():
    assert simple_expression(ga.graphs.sparse_strided(9, 3)) is None
    assert simple_expression(ga.from_mask(torch.zeros(3, 3, dtype=torch.bool))) is None
    assert (
        simple_expression(
            ga.from_edge_index(torch.tensor([[0, 0], [0, 0]]), num_nodes=1, duplicates="keep")
        )
        is None
    )


@pytest.mark.parametrize("align", ["end", "start"])
@pytest.mark.parametrize("sizes", [(5, 9), (9, 5)])
def test_a_causal_graph_is_called_causal_however_it_is_aligned(sizes, align):
    graph = causal(*sizes, align=align)
    made = simple_expression(graph)
    assert made.function == "causal"
    assert from_expression(str(made)).equals(graph)
