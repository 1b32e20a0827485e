"""Attention on tiles with compacted sources: the operators, and their kernels without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from graph_table import GRAPHS

from graphattn import attention, from_edge_index
from graphattn.backends import BACKENDS
from graphattn.backends.inputs import inputs_of
from graphattn.backends.tiles.compacted import compacted_run
from graphattn.graphs import sliding_window
from graphattn.kernels.tiles.operator import compacted_attention, compacted_attention_backward
from graphattn.plans.compacted import edges_of_rows, tiles_of_sources, tiles_of_targets

TESTS = Path(__file__).parents[2]


def nodes(graph, lead=(2,), dtype=torch.float64):
    """Query, key and value: 4 heads on 2, of widths 5 and 7."""
    draw = torch.Generator().manual_seed(0)
    sizes = ((graph.num_targets, 4, 5), (graph.num_sources, 2, 5), (graph.num_sources, 2, 7))
    return [
        torch.randn(*lead, *size, generator=draw, dtype=dtype).requires_grad_() for size in sizes
    ]


@pytest.mark.parametrize("name", ["listed_bipartite", "hub", "isolated_targets", "no_edges"])
def test_outputs_and_two_derivatives_are_those_of_dense_attention(name):
    graph = GRAPHS[name]()
    leaves = nodes(graph, (2, 3))
    draw = torch.Generator().manual_seed(1)
    bias = torch.randn(3, graph.num_edges, 4, generator=draw, dtype=torch.float64)
    bias[:, ::5, 1] = -torch.inf
    leaves.append(bias.requires_grad_())
    options = {"scale": -0.4, "softcap": 1.7, "score_bias": bias}
    ours = compacted_run(graph, inputs_of(*leaves[:3], graph, **options), True)
    dense = attention(*leaves[:3], graph, backend="dense", return_lse=True, **options)
    results = []
    for output, lse in ((ours.output, ours.lse), (dense.output, dense.lse)):
        loss = output.sin().sum() + lse[lse.isfinite()].cos().sum()
        once = torch.autograd.grad(loss, leaves, retain_graph=True)
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        second = torch.autograd.grad(sum(x.square().sum() for x in first), leaves)
        results.append((output, lse, *first, *second, *once))
    for found, wanted in zip(*results, strict=True):
        assert name == "no_edges" or float(wanted.detach().nan_to_num(0, 0, 0).norm()) > 0.1
        torch.testing.assert_close(found, wanted, atol=1e-11, rtol=0)


def test_weights_are_dropped_as_in_the_edge_kernels():
    graph = GRAPHS["hub"]()
    leaves = nodes(graph)
    results = []
    for run in (
        lambda inputs: compacted_run(graph, inputs, False),
        lambda inputs: BACKENDS["edges"].run(graph, inputs),
    ):
        torch.manual_seed(5)
        output = run(inputs_of(*leaves, graph, dropout_p=0.3)).output
        results.append((output, *torch.autograd.grad(output.sin().sum(), leaves)))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    whole = compacted_run(graph, inputs_of(*leaves, graph), False).output
    assert float((results[0][0] - whole).detach().abs().max()) > 0.1


def test_a_removed_edge_is_seen_and_a_source_without_a_reader_is_not():
    graph = GRAPHS["listed_bipartite"]()
    leaves = [x.detach() for x in nodes(graph)]
    whole = compacted_run(graph, inputs_of(*leaves, graph), False).output
    others = torch.arange(graph.num_edges) != 7
    removed = from_edge_index(graph.edge_index[:, others], num_sources=19, num_targets=13)
    target = int(graph.target[7])
    changed = (compacted_run(removed, inputs_of(*leaves, removed), False).output != whole).any(-1)
    assert changed[:, target].all()
    assert int(changed.any(-1).sum()) == 2
    lonely = GRAPHS["unused_sources"]()
    leaves = [x.detach() for x in nodes(lonely)]
    whole = compacted_run(lonely, inputs_of(*leaves, lonely), False).output
    leaves[1][:, 0] = torch.nan
    leaves[2][:, 0] = torch.inf
    assert torch.equal(compacted_run(lonely, inputs_of(*leaves, lonely), False).output, whole)


@pytest.mark.slow
def test_operators_keep_the_rules_of_torch():
    graph = GRAPHS["listed_bipartite"]()
    bias = torch.zeros(1, graph.num_edges, 1, dtype=torch.float64, requires_grad=True)
    leaves = (*nodes(graph), bias)
    tables = (*tiles_of_targets(graph), *tiles_of_sources(graph), *edges_of_rows(graph))
    rest = (*tables, 0.4, 1.7, 0.3, torch.tensor(5))
    torch.library.opcheck(compacted_attention, (*leaves, *rest))
    output, lse = (x.detach() for x in compacted_attention(*leaves, *rest))
    given = (*(x.detach() for x in leaves), *rest, output, lse, output, lse)
    torch.library.opcheck(compacted_attention_backward, given)


@pytest.mark.slow
def test_a_program_that_users_compile_has_them_whole():
    graph = sliding_window(47, 9, causal=True)
    leaves = nodes(graph, dtype=torch.float32)

    def call(query, key, value):
        return compacted_run(graph, inputs_of(query, key, value, graph), False).output

    outputs = [
        run(*leaves) for run in (torch.compile(call, fullgraph=True, backend="aot_eager"), call)
    ]
    grads = [torch.autograd.grad(x.sin().sum(), leaves) for x in outputs]
    for found, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(found, wanted, atol=2e-6, rtol=0)


@pytest.mark.slow
def test_kernels_in_the_interpreter_are_within_the_bounds_of_every_backend():
    """On the shared table of graphs, in four dtypes: outputs, lse, first and second derivatives.

    One call has all options at once, whose results are the definition's to 1e-12.
    """
    words = [sys.executable, str(TESTS / "kernels" / "interpreted_compacted.py")]
    env = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    done = subprocess.run(words, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert len(told) == 4 * len(GRAPHS) + 6
    for name, (worst, measured, ran) in told.items():
        assert worst <= 1, (name, worst)
        if "repeated_edges" not in name:
            assert measured >= 23, name
            assert ran >= (1 if name.startswith("everything") else 4), name


@pytest.mark.slow
def test_kernels_compile_within_bounds_and_without_atomics(tmp_path, monkeypatch):
    offline = pytest.importorskip("offline")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for architecture in offline.ARCHITECTURES:
        rows = offline.compiled(architecture, lambda: offline.compacted(8, 32, torch.bfloat16, 32))
        assert {row["kernel"] for row in rows} == set(offline.COMPACTED)
        for row in rows:
            assert row["atomics"] == row["stack"] == 0, row
            assert row["registers"] <= 192, row
            assert row["shared"] <= 32768, row
