"""What a graph remembers of earlier calls: a call of another kind is checked, chosen and computed
anew.
"""

import pytest
import test_refusals
import torch
from attention_formula import assert_near

import graphattn as ga
from graphattn import graphs
from graphattn.backends import rates
from graphattn.backends.choose import choose
from graphattn.backends.request import Request
from graphattn.backends.tiles.backend import TilesBackend
from graphattn.errors import GraphAttnError
from graphattn.plans import pieces
from graphattn.plans.cache import _MOST_KNOWN

T, S, H, D, V = 5, 7, 6, 3, 2


def tensors(*lead, dtype=torch.float64, heads=H, kv_heads=2):
    made = torch.Generator().manual_seed(3)
    return [
        torch.randn(*lead, *shape, generator=made, dtype=torch.float64).to(dtype)
        for shape in ((T, heads, D), (S, kv_heads, D), (S, kv_heads, V))
    ]


def test_a_right_call_makes_no_wrong_one_right():
    graph = ga.from_edge_index(test_refusals.GRAPH.edge_index, num_sources=19, num_targets=13)
    for options, words in (test_refusals.SHAPES | test_refusals.OPTIONS).values():
        test_refusals.call(graph)
        for _ in range(2):
            with pytest.raises(GraphAttnError, match=words):
                test_refusals.call(graph, **options)
    test_refusals.call(graph)


@pytest.mark.parametrize(
    "make", [lambda: graphs.cross(T, S), lambda: ga.PerHead((graphs.cross(T, S),) * 2)]
)
def test_every_kind_of_call_has_its_own_result_whatever_came_before(make):
    calls = [
        (tensors(), {}),
        (tensors(), {"scale": 0.0}),
        (tensors(), {"scale": 2}),
        (tensors(), {"scale": 2.0, "softcap": 1.5}),
        (tensors(4), {}),
        (tensors(0), {}),
        (tensors(heads=2), {}),
        (tensors(dtype=torch.float32), {}),
        ([tensors(4)[0], *tensors()[1:]], {"scale": 2.0}),
        (tensors(), {"score_bias": torch.arange(T * S).double() / 9}),
        (tensors(4), {"score_bias": torch.arange(T * S).double() / 9}),
        (tensors(), {"return_weights": True}),
        ([x.requires_grad_() for x in tensors()], {}),
    ]
    fresh = [ga.attention(*given, make(), **options) for given, options in calls]
    graph = make()
    for _ in range(2):
        for (given, options), wanted in zip(calls, fresh, strict=True):
            result = ga.attention(*given, graph, **options)
            if isinstance(result, tuple):
                result, wanted = result.output, wanted.output
            assert torch.equal(result, wanted)
            assert (result.dtype, result.requires_grad) == (wanted.dtype, wanted.requires_grad)


def test_what_surrounds_a_call_is_no_part_of_what_is_remembered():
    graph, given = graphs.cross(T, S), tensors(dtype=torch.float32)
    plain = ga.attention(*given, graph)
    with torch.autocast("cpu", torch.bfloat16):
        assert ga.attention(*given, graph).dtype == torch.bfloat16
    assert torch.equal(ga.attention(*given, graph), plain)
    batch = [x.expand(3, *x.shape) for x in given]
    assert_near(
        torch.func.vmap(lambda *x: ga.attention(*x, graph))(*batch), plain.expand(3, T, H, V), 1e-6
    )
    torch._dynamo.reset()
    compiled = torch.compile(ga.attention, backend="eager", fullgraph=True)
    assert_near(compiled(*given, graph), plain, 1e-6)
    torch._dynamo.reset()
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        assert ga.attention(*given, graph).shape == plain.shape
    assert torch.equal(ga.attention(*given, graph), plain)


def test_a_graph_remembers_so_many_kinds_of_calls_and_no_more():
    graph, (query, key, value) = graphs.cross(T, S), tensors()
    for number in range(_MOST_KNOWN + 3):
        ga.attention(query, key, value, graph, scale=number / 7)
    assert len(graph._memo["checked calls"]) <= _MOST_KNOWN
    for batch in range(_MOST_KNOWN + 3):
        choose(graph, Request(batch=batch))
    assert len(graph._memo["chosen backends"]) <= _MOST_KNOWN


def test_a_choice_is_made_anew_for_new_rates(tmp_path, monkeypatch):
    graph, request = graphs.sliding_window(4096, 257, causal=False), Request()
    before = choose(graph, request)
    monkeypatch.setenv("GRAPHATTN_CACHE", str(tmp_path))
    dear = {"tiles": {"blocks": 9.0}, "edges": {"edge": 9.0}, "dense": {"call_ms": 1e-3}}
    try:
        rates.keep(dear, "today")
        assert choose(graph, request) == "dense" != before
    finally:
        monkeypatch.undo()
        rates._read_rates.cache_clear()
        rates._changes.append("undone")
    assert choose(graph, request) == before


def test_tiles_ask_a_graph_once_for_the_way_and_the_plan_of_a_kind_of_call(monkeypatch):
    graph = graphs.sliding_window(64, 9, causal=True)
    x = torch.randn(64, 4, 8)
    first = ga.attention(x, x, x, graph, backend="tiles")
    asked = []
    monkeypatch.setattr(TilesBackend, "way", lambda *call: asked.append("way") or "blocks")
    monkeypatch.setattr(pieces, "pieces", lambda *plan: pytest.fail("planned"))
    assert torch.equal(ga.attention(x, x, x, graph, backend="tiles"), first)
    assert asked == []
    other = x[:, :2]
    with pytest.raises(pytest.fail.Exception, match="planned"):
        ga.attention(other, other, other, graph, backend="tiles")
    assert asked


def test_unusual_numbers_are_checked_each_time():
    graph, given = graphs.cross(T, S), tensors()
    whole = ga.attention(*given, graph, scale=1)
    assert torch.equal(ga.attention(*given, graph, scale=True), whole)
