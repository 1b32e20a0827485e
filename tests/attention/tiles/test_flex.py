"""Tiles through FlexAttention, whose definition runs on the CPU, beside the same tiles by SDPA."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from graphattn import from_rule, graphs
from graphattn.backends import device
from graphattn.backends.choose import explain_choice
from graphattn.backends.inputs import inputs_of
from graphattn.backends.request import Request
from graphattn.backends.tiles import backend as tiles
from graphattn.backends.tiles import flex as tiles_flex
from graphattn.backends.tiles.gathered import gathered_run
from graphattn.plans import block_lists

CUDA = Request(8, 8, 64, 64, dtype=torch.bfloat16, device=torch.device("cuda", 0))


@pytest.fixture
def uncompiled(monkeypatch, fresh_compiler):
    """FlexAttention's own definition, with gradients; blocks of 32, those of long rows in
    pieces.
    """
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", False)
    monkeypatch.setattr(
        tiles_flex, "compiled", lambda scale, cap, lse, *kind: tiles_flex.attend(scale, cap, lse)
    )
    for name, value in (("SIDE", 32), ("SHORT", 1), ("LONG", 1)):
        monkeypatch.setattr(block_lists, name, value)
    monkeypatch.setattr(tiles_flex, "SIDE", 32)


def problem(heads=(6, 3), softcap=None):
    """A graph with rows and columns in pieces, a target that reads nobody and sources that nobody
    reads.
    """
    graph = graphs.sliding_window(331, 33, causal=False) | graphs.global_tokens(331, [5, 200])
    graph = graph - from_rule(lambda t, s: (t == 100) | (s == 300), 331)
    draw = torch.Generator().manual_seed(0)
    shapes = ((331, heads[0], 5), (331, heads[1], 5), (331, heads[1], 7))
    nodes = [torch.randn(2, *shape, generator=draw, dtype=torch.float64) for shape in shapes]
    for x, nobody in zip(nodes, (100, 300, 300), strict=True):
        x[:, nobody] = torch.nan
        x.requires_grad_()
    return graph, inputs_of(*nodes, graph, scale=-0.3, softcap=softcap), nodes


def by_flex(graph, inputs):
    def again(query, key, value):
        outputs = by_sdpa(graph, replace(inputs, query=query, key=key, value=value))
        return outputs.output, outputs.lse

    return tiles_flex.flex_run(graph, inputs, True, again)


def by_sdpa(graph, inputs):
    return gathered_run(graph, inputs, True)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_outputs_and_gradients_are_those_of_tiles(uncompiled):
    graph, inputs, nodes = problem(softcap=1.3)
    results = []
    for run in (by_flex, by_sdpa):
        outputs = run(graph, inputs)
        level = outputs.lse.masked_fill(outputs.lse == -torch.inf, 0.0)
        loss = (outputs.output.sin() + level.cos().unsqueeze(-1)).sum()
        first = torch.autograd.grad(loss, nodes, retain_graph=True)
        assert all(
            torch.equal(*pair) for pair in zip(first, torch.autograd.grad(loss, nodes), strict=True)
        )
        results.append((outputs.output, outputs.lse, *first))
    for ours, wanted in zip(*results, strict=True):
        assert float(wanted.detach()[:, :99].abs().max()) > 0.1
        torch.testing.assert_close(ours, wanted, atol=1e-12, rtol=0)
    plan = block_lists.block_lists(graph)
    assert plan.pieces is not None
    assert plan.source is not None


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_a_second_derivative_is_that_of_tiles(uncompiled):
    graph, inputs, nodes = problem()
    results = []
    for run in (by_flex, by_sdpa):
        first = torch.autograd.grad(run(graph, inputs).output.sin().sum(), nodes, create_graph=True)
        results.append(torch.autograd.grad(sum(x[:, :99].square().sum() for x in first), nodes))
    for ours, wanted in zip(*results, strict=True):
        assert float(wanted[:, :99].abs().max()) > 0.1
        torch.testing.assert_close(ours, wanted, atol=1e-11, rtol=0)


@pytest.mark.slow
def test_a_program_that_users_compile_has_it_whole():
    graph, _, nodes = problem()
    nodes = [x.detach().float() for x in nodes]

    def call(query, key, value):
        return tiles_flex.flex_run(graph, inputs_of(query, key, value, graph), False, None).output

    with torch.no_grad():
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        wanted = gathered_run(graph, inputs_of(*nodes, graph), False).output
        torch.testing.assert_close(compiled(*nodes), wanted, atol=2e-6, rtol=0)


@pytest.mark.slow
def test_graphs_share_a_program_and_new_sizes_make_one_for_any(monkeypatch):
    """Compiled by a backend that only counts; nothing is generated."""
    made, compile_ = [], torch.compile

    def counted(program, inputs):
        made.append(program)
        return program.forward

    monkeypatch.setattr(
        torch, "compile", lambda run, **options: compile_(run, backend=counted, **options)
    )
    tiles_flex._compiled.cache_clear()

    def programs(*each):
        for graph in each:
            nodes = torch.randn(3, graph.num_targets, 2, 16)
            tiles_flex.flex_run(graph, inputs_of(*nodes, graph), False, by_sdpa)
        return len(made)

    own = (graphs.sliding_window(300, window, causal=True) for window in (70, 90))
    assert (
        programs(*own, graphs.random_neighbours(300, 9) & graphs.causal(300), graphs.causal(300))
        <= 2
    )
    assert programs(graphs.causal(400), graphs.sliding_window(500, 40, causal=True)) <= 4
    assert (
        programs(
            *(graphs.sliding_window(nodes, 50, causal=True) for nodes in (600, 700, 1000)),
            graphs.full(800),
        )
        == len(made)
        <= 4
    )
    tiles_flex._compiled.cache_clear()


@pytest.mark.slow
def test_the_choice_between_blocks_in_order_and_tiles_that_are_gathered(monkeypatch):
    monkeypatch.setattr(device, "_triton_refuses", lambda device: ())
    window, cells = (
        graphs.sliding_window(8192, 513, causal=False),
        graphs.window_partition((56, 56), (7, 7), (3, 3)),
    )
    longformer = window | graphs.global_tokens(8192, range(16))
    lengths = torch.tensor([300, 5, 700, 41, 900, 333] * 4)
    documents = graphs.documents(torch.repeat_interleave(lengths), causal=False)
    for graph, flex_wins in ((window, True), (longformer, True), (documents, True), (cells, False)):
        explanation = explain_choice(graph, CUDA._replace(batch=8))
        assert explanation.chosen == "tiles", graph
        assert ("it runs FlexAttention" in str(explanation)) is flex_wins, graph
        assert (tiles.TilesBackend().work(graph, CUDA)[0] == "flex") is flex_wins
    for request in (CUDA._replace(device=torch.device("cpu")), CUDA._replace(score_bias=True)):
        assert "FlexAttention" not in str(explain_choice(window, request))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"score_bias": True}, "does not support a bias"),
        ({"dropout": True}, "does not support dropout"),
        ({"normalize": True}, "supports softmax only"),
        ({"device": torch.device("cpu")}, "used on CUDA only"),
        ({"dtype": torch.float64}, "no kernel for torch.float64"),
        ({"head_dim": 8}, "heads of width 16 to 256, got 8 and 64"),
        ({"batch": 70_000}, "at most 65,535 heads"),
    ],
    ids=lambda x: "-".join(x) if isinstance(x, dict) else None,
)
def test_each_refusal_is_a_line(change, words):
    graph = graphs.sliding_window(300, 9, causal=True)
    assert tiles_flex.reasons_against_flex(graph, CUDA) == []
    (reason,) = tiles_flex.reasons_against_flex(graph, CUDA._replace(**change))
    assert words in reason
    assert "\n" not in reason
    monstrous = graphs.sliding_window(1 << 20, 9, causal=True)
    assert "table of 67,108,864 blocks" in tiles_flex.reasons_against_flex(monstrous, CUDA)[0]
