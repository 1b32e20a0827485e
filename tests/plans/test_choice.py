"""What `auto` picks, and why: the cut of each graph and what each backend should take, at rates
that are fixed.

A changed number is a changed plan: of another speed, for somebody. Measure, then run this file to
write ``choices.json`` anew.
"""

import functools
import json
from pathlib import Path

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.backends import base, choose
from graphattn.backends.request import Request
from graphattn.backends.tiles.backend import tiles_bytes
from graphattn.plans.blocks import survey

DOCUMENTS = torch.repeat_interleave(torch.arange(30), torch.arange(1, 31))
WINDOW = graphs.sliding_window(1500, 65, causal=False)
RATES = {
    "dense": {
        "call_ms": 0.035,
        "training_factor": 3.3,
        "full": 0.027,
        "masked": 0.031,
        "unfused": 0.058,
    },
    "tiles": {
        "call_ms": 0.06,
        "training_factor": 3.8,
        "blocks": 0.0102,
        "fused": 0.028,
        "unfused": 0.05,
    },
    "edges": {"call_ms": 0.1, "training_factor": 3.4, "edge": 0.025},
    "message_passing": {"call_ms": 0.42, "training_factor": 2.2, "edge": 4.5},
}


def shuffled(graph):
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    return ga.from_edge_index(order[graph.edge_index], num_nodes=graph.num_nodes)


def equal_documents(count, length):
    return graphs.documents(torch.arange(count).repeat_interleave(length), causal=False)


def far(count):
    return graphs.random_neighbours(1500, count, seed=5)


def star(nodes):
    return graphs.global_tokens(nodes, [0]) | graphs.self_loops(nodes)


def points(count):
    return torch.rand(count, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


MAKERS = {
    "full": lambda: graphs.full(300),
    "cross": lambda: graphs.cross(50, 700),
    "causal": lambda: graphs.causal(700),
    "a small causal one": lambda: graphs.causal(40),
    "window": lambda: WINDOW,
    "causal window": lambda: graphs.sliding_window(1500, 33, causal=True),
    "window and global tokens": lambda: WINDOW | graphs.global_tokens(1500, range(16)),
    "dilated window": lambda: graphs.sliding_window(1500, 33, causal=True, dilation=5),
    "shifted cells": lambda: graphs.window_partition((56, 56), cell=(7, 7), shift=(3, 3)),
    "neighbourhood": lambda: graphs.grid_neighbourhood((40, 30), 7, causal=False),
    "neighbourhood in 3 axes": lambda: graphs.grid_neighbourhood((9, 11, 13), 3, causal=False),
    "documents": lambda: graphs.documents(DOCUMENTS, causal=False),
    "causal documents": lambda: (
        graphs.documents(DOCUMENTS, causal=False) & graphs.causal(DOCUMENTS.numel())
    ),
    "prefix": lambda: graphs.prefix(700, 50),
    "nearest of points": lambda: graphs.knn(points(1500), 16),
    "few at random": lambda: far(3),
    "many at random": lambda: graphs.erdos_renyi(500, 0.2, 1),
    "cells and far edges": lambda: (
        graphs.window_partition((40, 40), cell=(10, 10)) | graphs.random_neighbours(1600, 8)
    ),
    "window and far edges": lambda: WINDOW | far(12),
    "window and many far edges": lambda: WINDOW | far(60),
    "shuffled wide window": lambda: shuffled(graphs.sliding_window(1500, 97, causal=False)),
    "shuffled narrow window": lambda: shuffled(graphs.sliding_window(1500, 33, causal=False)),
    "not a window": lambda: ~graphs.sliding_window(400, 65, causal=True),
    "half full": lambda: ga.from_edge_index(
        torch.tensor([[0, 1, 2, 3, 0, 2, 1, 3], [0, 0, 1, 1, 2, 2, 3, 3]]), num_nodes=4
    ),
    "neighbourhood without loops": lambda: graphs.grid_neighbourhood(
        (40, 30), 7, causal=False
    ).without_self_loops(),
    "balls": lambda: graphs.grid_ball((40, 30), 3),
    "star": lambda: star(900),
    "expander": lambda: graphs.expander(900, 3),
    "tree": lambda: graphs.tree(torch.arange(-1, 899) // 2),
    "two of everything": lambda: ga.disjoint_union([graphs.causal(300), far(4), graphs.full(64)]),
}
MORE = {
    "wide": {"heads": 12, "kv_heads": 4, "head_dim": 128, "value_dim": 96, "batch": 3},
    "narrow": {"heads": 8, "head_dim": 8, "value_dim": 8},
    "weights": {"heads": 4, "weights": True},
    "bias": {"heads": 4, "score_bias": True},
    "softcap": {"heads": 4, "softcap": True},
    "lse": {"heads": 4, "lse": True},
    "half": {"heads": 4, "dtype": torch.bfloat16},
    "own score": {"heads": 4, "score": True},
    "features": {"heads": 4, "edge_features": True},
}
CASES = [(name, "plain") for name in MAKERS] + [
    (name, option)
    for name in ("full", "causal", "window", "window and far edges", "few at random")
    for option in MORE
]


WANTED = Path(__file__).with_name("choices.json")


@pytest.fixture(autouse=True)
def _no_amx(monkeypatch):
    monkeypatch.setattr(base, "has_amx", lambda: False)


@functools.cache
def made(name):
    return MAKERS[name]()


def found(name, option):
    """The backend chosen; of each, what it is expected to take and to hold; pairs and columns of
    the cut.
    """
    graph = made(name)
    told = choose.explain_choice(
        graph, Request(**MORE.get(option, {"heads": 2, "head_dim": 32, "value_dim": 32}))
    )
    costs = {c.name: [round(c.cost_ms, 6), c.bytes_needed] for c in told.candidates if c.runs}
    return {"chosen": told.chosen, "cost": costs, "cut": list(survey(graph)[1:3])}


def flat(choice):
    """The numbers of a choice in a row."""
    return [*choice["cut"], *(number for each in choice["cost"].values() for number in each)]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("name", "option"), CASES, ids=map(", ".join, CASES))
def test_the_plan_of_a_graph_is_the_one_that_was_measured(name, option, monkeypatch):
    monkeypatch.setattr(base, "measured_rates", lambda device: RATES)
    wanted, mine = json.loads(WANTED.read_text("utf-8"))[f"{name}, {option}"], found(name, option)
    assert mine["chosen"] == wanted["chosen"]
    assert list(mine["cost"]) == list(wanted["cost"])
    assert flat(mine) == pytest.approx(flat(wanted), rel=1e-5)


SMALL = [
    *(graphs.sliding_window(n, 3, causal=True) for n in range(120, 400, 20)),
    *(graphs.grid_neighbourhood((n, n), 5, causal=False) for n in range(8, 80, 8)),
]


@pytest.mark.parametrize("graph", SMALL, ids=repr)
def test_what_saves_asking_the_others_does_not_change_the_choice(graph, monkeypatch):
    """Dense is taken at once where its products cost less than the others' bare calls: up to some
    260 nodes here.
    """
    monkeypatch.setattr(
        base, "measured_rates", lambda device: {**RATES, "edges": {**RATES["edges"], "edge": 0.02}}
    )
    request = Request(heads=4, head_dim=16, value_dim=16)
    assert choose.choose(graph, request) == choose.explain_choice(graph, request).chosen


def test_points_that_read_their_nearest_are_not_cut_into_blocks_to_find_that_edges_are_quicker(
    monkeypatch,
):
    """Training makes such graphs for every batch; the survey took as long as all else together."""
    monkeypatch.setattr(base, "measured_rates", lambda device: {})
    monkeypatch.setattr(
        "graphattn.backends.tiles.backend.survey", lambda graph: pytest.fail("surveyed")
    )
    points = torch.rand(1024, 3, generator=torch.Generator().manual_seed(0))
    assert (
        choose.choose(graphs.knn(points, k=16), Request(heads=4, head_dim=16, value_dim=16))
        == "edges"
    )


MEASURED = [
    # the quickest of each, forward times training, on one thread and on two of an EPYC
    ("documents of 128 tokens", lambda: equal_documents(64, 128), 4, "tiles"),
    ("causal", lambda: graphs.causal(1024), 4, "tiles"),
    ("causal", lambda: graphs.causal(1024), 64, "tiles"),
    ("prefix", lambda: graphs.prefix(1500, 200), 8, "tiles"),
    ("narrow window", lambda: graphs.sliding_window(4096, 9, causal=False), 8, "edges"),
    ("prefix", lambda: graphs.prefix(1500, 200), 64, "tiles"),
    ("documents of 1,024 tokens", lambda: equal_documents(4, 1024), 32, "tiles"),
    ("wide window", lambda: graphs.sliding_window(4096, 1025, causal=False), 64, "tiles"),
    ("few tokens", lambda: graphs.causal(16), 32, "dense"),
    ("full", lambda: graphs.full(300), 32, "tiles"),
    ("window of 65", lambda: graphs.sliding_window(1500, 65, causal=False), 32, "tiles"),
    (
        "dilated window",
        lambda: graphs.sliding_window(1500, 33, causal=True, dilation=5),
        32,
        "edges",
    ),
    ("neighbourhood", lambda: graphs.grid_neighbourhood((40, 30), 7, causal=False), 32, "edges"),
    ("documents of 64 tokens", lambda: equal_documents(64, 64), 32, "tiles"),
]


@pytest.mark.parametrize(("name", "make", "width", "quickest"), MEASURED)
def test_narrow_heads_take_what_was_quickest_for_them(name, make, width, quickest, monkeypatch):
    """A product of SDPA with fewer than some 20 numbers a row takes no less time."""
    monkeypatch.setattr(base, "measured_rates", lambda device: {})
    heads = 4
    if width < 16:
        heads = 8
    request = Request(heads, heads, width, width)
    assert choose.choose(make(), request) == quickest


@pytest.mark.parametrize(("amx", "chosen"), [(True, "dense"), (False, "tiles")])
def test_bfloat16_of_all_pairs_is_left_to_amx(amx, chosen, monkeypatch):
    monkeypatch.setattr(base, "measured_rates", lambda device: {})
    monkeypatch.setattr(base, "has_amx", lambda: amx)
    request = Request(4, 4, 64, 64, dtype=torch.bfloat16)
    assert choose.choose(graphs.full(2048), request) == chosen
    assert choose.choose(graphs.full(2048), request._replace(dtype=torch.float16)) == "tiles"
    assert choose.choose(WINDOW, request) == "tiles"


def test_the_choice_is_that_of_the_passes_that_come(monkeypatch):
    """Edges take less time forward here, and dense with its backward; dropout has one choice, as a
    checkpoint runs forward in both modes.
    """
    rates = {
        **RATES,
        "dense": {**RATES["dense"], "training_factor": 1.1},
        "edges": {**RATES["edges"], "edge": 1e-4, "training_factor": 100.0},
        "tiles": {**RATES["tiles"], "call_ms": 9.0},
    }
    monkeypatch.setattr(base, "measured_rates", lambda device: rates)
    graph, x = graphs.sliding_window(512, 65, causal=True), torch.randn(512, 4, 64)

    def chosen(**options):
        graph._memo.pop("chosen backends", None)
        ga.attention(x, x, x, graph, **options)
        (name,) = graph._memo["chosen backends"].values()
        assert ga.explain(graph, heads=4, **options).chosen == name
        return name

    with torch.no_grad():
        alone, dropped = chosen(), chosen(dropout_p=0.5)
    assert (alone, chosen()) == ("edges", "dense")
    assert chosen(dropout_p=0.5) == dropped
    assert "without a backward pass: edges\n" in str(ga.explain(graph, heads=4))


def test_a_width_below_the_least_costs_as_much():
    for backend, kind in (("dense", "masked"), ("tiles", "unfused"), ("edges", "edge")):
        least = choose.BACKENDS[backend].least_width[kind]
        widths = (least // 2, least, 2 * least)
        narrow, at_least, wide = (
            choose.BACKENDS[backend].work_ms(Request(4, 4, width, width), kind, 1e6)
            for width in widths
        )
        assert narrow == at_least == wide / 2


def test_more_targets_than_are_planned_for_are_refused_and_no_fewer(monkeypatch):
    monkeypatch.setattr("graphattn.backends.tiles.backend.MOST_TARGETS", 40)
    tiles = choose.BACKENDS["tiles"]
    assert not tiles.reasons_against(graphs.causal(40), Request())
    assert "at most 40 targets" in tiles.reasons_against(graphs.causal(41), Request())[0]


def test_what_tiles_would_hold_is_refused_before_they_are_looked_for_where_it_is_known(monkeypatch):
    graph = far(3)
    request = Request(dropout=True)
    pairs, fewest = survey(graph).pairs, tiles_bytes(graph.num_edges, 0, request)
    monkeypatch.setattr("graphattn.backends.tiles.backend.MAX_BYTES", fewest)
    (told,) = choose.BACKENDS["tiles"].reasons_against(graph, request)
    assert told.endswith(f"edges fill only {graph.num_edges / pairs:.2g} of its tiles")
    monkeypatch.setattr("graphattn.backends.tiles.backend.MAX_BYTES", 1000)
    (told,) = choose.BACKENDS["tiles"].reasons_against(graph, request)
    assert told.endswith("bytes and more for 4,500 edges")


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (0.004, "0.004 ms"),
        (994.0, "994 ms"),
        (996.0, "0.996 s"),
        (59_000.0, "59 s"),
        (123_000.0, "2.05 min"),
    ],
)
def test_a_time_is_told_in_the_largest_unit_that_it_fills(ms, told):
    assert choose._in_units(ms, choose._TIMES) == told


def test_every_backend_is_the_choice_for_some_graph_and_the_definition_runs_all(monkeypatch):
    monkeypatch.setattr(base, "measured_rates", lambda device: RATES)
    wanted = json.loads(WANTED.read_text("utf-8"))
    assert sorted(wanted) == sorted(map(", ".join, CASES))
    first = {wanted[", ".join(case)]["chosen"]: case for case in reversed(CASES)}
    definition = {"message_passing"}
    chosen = {found(*case)["chosen"] for case in first.values()}
    assert chosen == set(choose.BACKENDS) - definition
    assert all(definition <= choice["cost"].keys() for choice in wanted.values())


if __name__ == "__main__":  # writes what is wanted
    base.measured_rates = lambda device: RATES
    base.has_amx = lambda: False
    lines = [f"{json.dumps(', '.join(case))}: {json.dumps(found(*case))}" for case in CASES]
    WANTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
