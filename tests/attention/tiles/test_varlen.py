"""Tiles through torch's attention of sequences: its operator is CUDA's, and its definition stands
in for it here.
"""

from dataclasses import replace

import pytest
import torch
import varlen_definition
from torch.nn.attention import varlen

from graphattn import graphs
from graphattn.backends import BACKENDS, device, rates
from graphattn.backends.choose import explain_choice
from graphattn.backends.inputs import inputs_of
from graphattn.backends.request import Request
from graphattn.backends.tiles import backend as tiles
from graphattn.backends.tiles import varlen as tiles_varlen
from graphattn.backends.tiles.gathered import gathered_run
from graphattn.bench import calibrate
from graphattn.functional import attention

CUDA = Request(8, 8, 64, 64, dtype=torch.bfloat16, device=torch.device("cuda", 0))
DOCUMENTS = graphs.documents(torch.repeat_interleave(torch.tensor([3, 1, 17, 17, 9])), causal=False)
GRAPHS = {
    "documents": DOCUMENTS,
    "causal documents": DOCUMENTS & graphs.causal(47),
    "window": graphs.sliding_window(47, 9, causal=True),
    "both ways": graphs.sliding_window(47, 9, causal=False),
}


@pytest.fixture
def on_cpu():
    with varlen_definition.registered():
        yield


def nodes(graph, lead=(2,), dtype=torch.float64):
    draw = torch.Generator().manual_seed(0)
    return [
        torch.randn(*lead, graph.num_targets, 3, 8, generator=draw, dtype=dtype).requires_grad_()
        for _ in range(3)
    ]


def by_varlen(graph, inputs):
    def again(query, key, value):
        return (by_sdpa(graph, replace(inputs, query=query, key=key, value=value)).output,)

    return tiles_varlen.varlen_run(graph, inputs, again)


def by_sdpa(graph, inputs):
    return gathered_run(graph, inputs, False)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(("lead", "scale"), [((), 0.7), ((2, 3), -0.3)])
@pytest.mark.parametrize("name", GRAPHS)
def test_output_and_two_derivatives_are_those_of_tiles(name, lead, scale):
    graph, results = GRAPHS[name], []
    leaves = nodes(graph, lead)
    inputs = inputs_of(*leaves, graph, scale=scale)
    for run in (by_varlen, by_sdpa):
        output = run(graph, inputs).output
        first = torch.autograd.grad(output.sin().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(x.square().sum() for x in first), leaves)
        results.append((output, *first, *second))
    for ours, wanted in zip(*results, strict=True):
        assert float(wanted.detach().abs().max()) > 0.1
        torch.testing.assert_close(ours, wanted, atol=1e-11, rtol=0)


@pytest.mark.usefixtures("on_cpu")
def test_an_edge_that_is_missing_makes_a_difference():
    graph, other = GRAPHS["window"], graphs.sliding_window(47, 8, causal=True)
    leaves = nodes(graph)
    outputs = [by_varlen(which, inputs_of(*leaves, which)).output for which in (graph, other)]
    assert float((outputs[0] - outputs[1]).detach().abs().max()) > 0.1


@pytest.mark.usefixtures("on_cpu")
def test_a_program_that_users_compile_has_it_whole():
    graph = GRAPHS["causal documents"]
    leaves = [x.detach().float() for x in nodes(graph)]

    def call(query, key, value):
        return tiles_varlen.varlen_run(graph, inputs_of(query, key, value, graph), None).output

    with torch.no_grad():
        found = torch.compile(call, fullgraph=True, backend="aot_eager")(*leaves)
    torch.testing.assert_close(
        found, by_sdpa(graph, inputs_of(*leaves, graph)).output, atol=2e-6, rtol=0
    )


@pytest.mark.usefixtures("on_cpu")
def test_operands_in_any_strides():
    """The kernels want rows in one piece, at multiples of 16 bytes; a gradient's, too, which is one
    number here.
    """
    graph, results = GRAPHS["window"], []
    across, odd, late = (x.detach() for x in nodes(graph))
    across = across.transpose(-2, -1).clone().transpose(-2, -1)
    odd = torch.nn.functional.pad(odd, (0, 1))[..., :-1]
    late = torch.cat((late.new_zeros(1), late.flatten()))[1:].view_as(late)
    leaves = [x.requires_grad_() for x in (across, odd, late)]
    for run in (by_varlen, by_sdpa):
        output = run(graph, inputs_of(*leaves, graph)).output
        results.append((output, *torch.autograd.grad(output.sum(), leaves)))
    for ours, wanted in zip(*results, strict=True):
        torch.testing.assert_close(ours, wanted, atol=1e-12, rtol=0)


def test_it_is_taken_where_it_was_measured_and_nowhere_else(monkeypatch):
    monkeypatch.setattr(device, "_triton_refuses", lambda device: ())
    backend, window = BACKENDS["tiles"], graphs.sliding_window(8192, 513, causal=True)
    assert backend.way(window, CUDA) == "flex"
    monkeypatch.setattr(rates, "_read_rates", lambda *about: {"tiles": {"varlen": 1e-5}})
    assert backend.way(window, CUDA) == backend.work(window, CUDA)[0] == "varlen"
    assert "it runs FlashAttention of sequences" in str(explain_choice(window, CUDA))
    assert backend.bytes_needed(window, CUDA) == 4 * 8192 * 8
    hub = window | graphs.global_tokens(8192, [0])
    for graph, request in (
        (hub, CUDA),
        (window, CUDA._replace(lse=True)),
        (window, CUDA._replace(kv_heads=2)),
    ):
        assert backend.way(graph, request) == "flex"
    assert backend.way(window, CUDA._replace(device=torch.device("cpu"))) == "blocks"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"score_bias": True}, "does not support a bias"),
        ({"dropout": True}, "does not support dropout"),
        ({"softcap": True}, "does not support softcap"),
        ({"lse": True}, "does not support lse"),
        ({"kv_heads": 2}, "does not support grouped heads"),
        ({"normalize": True}, "supports softmax only"),
        ({"device": torch.device("cpu")}, "runs on CUDA, and the tensors are on cpu"),
        ({"dtype": torch.float32}, "no kernel for torch.float32"),
        ({"value_dim": 32}, "a multiple of 8 up to 256, got 64 and 32"),
        ({"head_dim": 20, "value_dim": 20}, "got 20 and 20"),
        ({"batch": 1 << 30}, "in 32 bits"),
    ],
)
def test_reasons_against_it(change, words):
    (reason,) = tiles_varlen.reasons_against_varlen(DOCUMENTS, CUDA._replace(**change))
    assert words in reason
    assert not tiles_varlen.reasons_against_varlen(DOCUMENTS, CUDA)
    (reason,) = tiles_varlen.reasons_against_varlen(DOCUMENTS | graphs.global_tokens(47, [0]), CUDA)
    assert "not a set of sequences" in reason


@pytest.mark.usefixtures("on_cpu")
def test_calibration_takes_it_only_if_it_agrees(monkeypatch):
    """On the CPU, as if its tensors were on CUDA."""
    graph, cpu = graphs.sliding_window(61, 9, causal=True), torch.device("cpu")
    reasons, run, whole = tiles_varlen.reasons_against_varlen, tiles.tiles_run, varlen.varlen_attn

    def as_on_cuda(graph, request):
        return reasons(graph, request._replace(device=torch.device("cuda", 0)))

    def runs(graph, inputs, lse):
        way = BACKENDS["tiles"].way(graph, Request.of(inputs, lse=lse))
        return by_varlen(graph, inputs) if way == "varlen" else run(graph, inputs, lse)

    monkeypatch.setattr(tiles_varlen, "reasons_against_varlen", as_on_cuda)
    monkeypatch.setattr(tiles, "tiles_run", runs)
    monkeypatch.setattr(calibrate, "BATCH", 1)

    def tried(*more):
        # new ones
        own = [
            graphs.sliding_window(61, 9, causal=True),
            GRAPHS["causal documents"] & graphs.causal(47),
            *more,
        ]
        return calibrate.reason_against_trial("tiles", "varlen", own, cpu)

    assert tried() == ""
    assert not any(rates._tried.values())

    def keys_left_out(*x, window_size, **options):
        return whole(*x, window_size=(max(-1, window_size[0] - 1), window_size[1]), **options)

    def no_gradient(query, *x, **options):
        # NaN in that of the query alone
        return whole(query, *x, **options) + 0 * (query - query.detach()).sqrt()

    for wrong, words in (
        (keys_left_out, "its error is"),
        (no_gradient, "its error is nan"),
        (lambda *x, **options: torch.empty(0).view(3), "shape '[3]' is invalid"),
    ):
        monkeypatch.setattr(varlen, "varlen_attn", wrong)
        assert words in tried()
    hub = graph | graphs.global_tokens(61, [0])
    assert "it does not run there" in calibrate.reason_against_trial("tiles", "varlen", [hub], cpu)


@pytest.mark.usefixtures("on_cpu")
def test_more_sequences_than_there_are_programs(monkeypatch):
    graph = graphs.self_loops(40)
    inputs = inputs_of(*nodes(graph, (3,)), graph)
    assert not tiles_varlen.reasons_against_varlen(graph, CUDA)
    monkeypatch.setattr(tiles_varlen, "_MOST", 119)
    (reason,) = tiles_varlen.reasons_against_varlen(graph, CUDA._replace(batch=3))
    assert "at most 119 sequences" in reason
    monkeypatch.setattr(varlen, "varlen_attn", None)  # compiled code learns its batch when it runs
    torch.testing.assert_close(by_varlen(graph, inputs).output, by_sdpa(graph, inputs).output)
    assert by_varlen(graph, inputs_of(*nodes(graph, (0,)), graph)).output.shape == (0, 40, 3, 8)


def test_the_cpu_never_takes_it(monkeypatch):
    monkeypatch.setattr(varlen, "varlen_attn", None)
    graph = GRAPHS["window"]
    assert attention(*nodes(graph), graph, backend="tiles").shape == (2, 47, 3, 8)
