"""The edges of every random builder, pinned: a study's graph must not change from one version to
the next.

If one fails after an update of numpy or networkx, whose streams these are, the release notes must
say so; if after a change of ours, the change is wrong.
"""

import hashlib
import inspect

import pytest

import graphattn as ga
from graphattn import graphs

WINDOW = graphs.sliding_window(29, 5, causal=False)
GOLDEN = {
    "random_neighbours": (lambda: graphs.random_neighbours(31, 3), "443779f0031ecac5"),
    "random_neighbours, seed": (
        lambda: graphs.random_neighbours(31, 3, 7, num_sources=17),
        "faedc5dd1fd99e9d",
    ),
    "random_neighbours, avoid": (
        lambda: graphs.random_neighbours(29, 3, 2, avoid=WINDOW),
        "6483ff4d5f346c17",
    ),
    "erdos_renyi": (lambda: graphs.erdos_renyi(31, 0.1), "47b37c564bf9c3c4"),
    "erdos_renyi, seed": (
        lambda: graphs.erdos_renyi(31, 0.1, 7, num_sources=17),
        "042da137d3f9bf39",
    ),
    "erdos_renyi, rule": (lambda: graphs.erdos_renyi(31, 0.1, listed=False), "76ab7cff67b40da1"),
    "erdos_renyi, rule, seed": (
        lambda: graphs.erdos_renyi(31, 0.1, 7, num_sources=17, listed=False),
        "3087f872a937af6c",
    ),
    "expander": (lambda: graphs.expander(31), "ea9be2f0f5685771"),
    "expander, seed": (lambda: graphs.expander(31, 2, 7), "cf8eef3ad9e590ed"),
    "expander, large": (lambda: graphs.expander(601, 2, 3), "9122a71d914ddc4e"),
    "random_regular": (lambda: graphs.random_regular(30, 3), "bc9fc703baee8cac"),
    "random_regular, seed": (lambda: graphs.random_regular(30, 4, 7), "437252a7ad82bf80"),
    "small_world": (lambda: graphs.small_world(31, 4, 0.2), "9eff1a432c8a1319"),
    "small_world, seed": (lambda: graphs.small_world(31, 4, 0.2, 7), "ec54c6c7a198ad52"),
    "degree_matched_random": (
        lambda: graphs.degree_matched_random(WINDOW, keep="in-degrees"),
        "cc75a8f02729ceb4",
    ),
    "degree_matched_random, seed": (
        lambda: graphs.degree_matched_random(graphs.causal(23), 7, keep="in-degrees"),
        "4a17fcea41fdb904",
    ),
    "degree_matched_random, degrees": (
        lambda: graphs.degree_matched_random(WINDOW, 3),
        "7c925c47a2fd3b7b",
    ),
    "degree_matched_random, cross": (
        lambda: graphs.degree_matched_random(
            graphs.random_neighbours(31, 3, num_sources=97), keep="in-degrees"
        ),
        "c0eb9007c2f4a178",
    ),
}


def digest(graph: ga.AttentionGraph) -> str:
    return hashlib.sha256(
        graph.edge_index.contiguous().numpy().astype("<i8").tobytes()
    ).hexdigest()[:16]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_seed_gives_the_edges_that_it_always_gave(name):
    make, wanted = GOLDEN[name]
    assert digest(make()) == wanted


def test_every_builder_with_a_seed_is_pinned():
    functions = {
        name: getattr(graphs, name)
        for name in graphs.__all__
        if inspect.isfunction(getattr(graphs, name))
    }
    seeded = {
        name for name, make in functions.items() if "seed" in inspect.signature(make).parameters
    }
    assert seeded == {name.split(",")[0] for name in GOLDEN} - {"power_law", "big_bird"}
