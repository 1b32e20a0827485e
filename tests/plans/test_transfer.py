"""Graphs packed with their plans: the same edges, plans and outputs, as views of one memory."""

import pickle

import pytest
import torch
from graph_table import GRAPHS

import graphattn as ga
from graphattn.graph.sort import Sorted
from graphattn.plans.blocks import survey
from graphattn.plans.cache import CPU
from graphattn.plans.compacted import edges_of_rows, tiles_of_sources, tiles_of_targets
from graphattn.plans.grouped import by_source, by_target, ends
from graphattn.plans.pieces import pieces
from graphattn.plans.tiles import tiles
from graphattn.plans.transfer import ALIGNED, Apart, derivable, derived, pack, unpack

PLANS = (
    by_target,
    by_source,
    ends,
    tiles,
    survey,
    tiles_of_targets,
    tiles_of_sources,
    edges_of_rows,
)


def packed(graph, keys, device=CPU):
    plans = derived(graph, keys)
    return pack((graph, "beside it"), lambda one: plans, device)


def unpacked(packed):
    return unpack(packed.data, packed.blocks(CPU))[0]


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple):
        return [x for part in value for x in tensors(part)]
    return []


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_and_its_plans_arrive_as_they_were(name):
    graph = GRAPHS[name]()
    keys = [(plan, CPU) for plan in PLANS] + ["in_degree", "num_edges"]
    sent = packed(graph, keys)
    there = unpacked(sent)
    assert there.equals(graph)
    assert there.is_rule == graph.is_rule
    assert there.has_repeated_edges == graph.has_repeated_edges
    assert set(keys) <= derivable(there)
    for plan in PLANS:
        arrived = there._memo[plan, CPU]
        assert type(arrived) is type(plan(graph))
        wanted = tensors(plan(graph))
        assert len(wanted) == len(tensors(arrived))
        for x, y in zip(tensors(arrived), wanted, strict=True):
            assert torch.equal(x, y)
            assert x.dtype == y.dtype
            assert x.untyped_storage().data_ptr() == sent.memory.untyped_storage().data_ptr()
            assert x.storage_offset() * x.element_size() % ALIGNED == 0
    again = {plan: plan(unpacked(packed(graph, []))) for plan in PLANS}
    for plan, made in again.items():
        for x, y in zip(tensors(made), tensors(plan(graph)), strict=True):
            assert torch.equal(x, y), f"{plan.__name__} of the edges that arrived"


def test_what_a_step_derived_is_asked_for_by_functions_that_a_pickle_can_name():
    graph = ga.graphs.sliding_window(67, 5, causal=True) | ga.graphs.causal(67)
    x = torch.randn(67, 12, requires_grad=True)
    for backend in ("edges", "tiles", "dense"):
        ga.nn.GraphAttention(12, 3, backend=backend)(x, graph).sum().backward()
    keys = derivable(graph)
    assert {key[0] for key in keys if isinstance(key, tuple)} >= {
        by_target,
        by_source,
        pieces,
    }
    assert pickle.loads(pickle.dumps(keys)) == keys
    there = unpacked(packed(graph, keys))
    assert derivable(there) >= keys


def test_memory_of_their_own_outlives_that_of_the_others():
    kept = torch.arange(5)
    sent = pack((torch.ones(3), Apart((7, kept, Sorted(kept, kept, kept)))), lambda graph: {})
    moved, apart, host = sent.memory.split(sent.sizes)
    assert (len(moved), len(host)) == (ALIGNED, 0)
    blocks = {"device": moved.clone(), "apart": apart.clone(), "host": host.clone()}
    ones, (number, tensor, named) = unpack(sent.data, blocks)
    assert number == 7
    assert isinstance(named, Sorted)
    assert torch.equal(named.place, kept)
    assert tensor.untyped_storage().data_ptr() == blocks["apart"].untyped_storage().data_ptr()
    assert ones.untyped_storage().data_ptr() == blocks["device"].untyped_storage().data_ptr()


def test_for_a_device_intervals_and_plans_of_the_host_stay_there():
    graph = ga.graphs.sliding_window(67, 5, causal=True)
    meta = torch.device("meta")
    sent = packed(graph, [(survey, CPU), (by_target, meta)], meta)
    there = unpack(sent.data, sent.blocks(meta))[0]
    assert there.device == meta
    assert all(x.is_meta for x in there._memo[by_target, meta])
    assert torch.equal(there._memo[survey, CPU].cut.target, survey(graph).cut.target)
    assert there.num_edges == graph.num_edges
    assert torch.equal(there.edges.rows(torch.tensor([3, 61])).lo, torch.tensor([0, 57]))
