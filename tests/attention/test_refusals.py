"""Every refusal of attention, by its words; A39 among them."""

import math
import re
from dataclasses import replace

import pytest
import torch
from attention_formula import BACKENDS, HEADS, VALUE_WIDTH, WIDTH, biases, may_refuse, tensors
from graph_table import GRAPHS

import graphattn as ga
from graphattn.backends.choose import candidates
from graphattn.backends.inputs import inputs_of
from graphattn.backends.request import Request
from graphattn.errors import BackendError, GraphAttnError, GraphError, OptionError, ShapeError

GRAPH = GRAPHS["listed_bipartite"]()  # 13 targets, 19 sources, 53 edges
Q, K, V = tensors(GRAPH, (2,), requires_grad=False)


def call(graph=GRAPH, q=Q, k=K, v=V, **options):
    return ga.attention(q, k, v, graph, **options)


def test_the_call_itself_is_fine():
    assert call().shape == (2, 13, 6, 7)


SHAPES = {

    "two dimensions": ({"k": K[0, 0]}, r"key must have shape \(\.\.\., sources, heads, width\), got \(3, 5\)"),
    "targets": ({"q": Q[:, 1:]}, r"query has 12 nodes \(shape \(2, 12, 6, 5\)\), but the graph has 13 targets"),
    "heads first": ({"q": Q.transpose(1, 2)}, r"query has 6 nodes .* tensors are node-first"),
    "sources": ({"v": V[:, :-2]}, r"value has 17 nodes .* but the graph has 19 sources; tensors are node-first"),
    "swapped": ({"q": K, "k": Q}, r"query has 19 nodes .* the graph has 13 targets"),
    "integers": ({"q": Q.long()}, "must be of one dtype, float16, .*, got query of torch.int64"),
    "complex": ({"v": V.to(torch.complex64)}, "got value of torch.complex64 and"),
    "float8": ({"k": K.to(torch.float8_e4m3fn)}, "got key of torch.float8_e4m3fn and"),
    "two dtypes": ({"k": K.float()}, "got key of torch.float32 and query of torch.float64"),
    "two devices": ({"k": K.to("meta")}, r"key is on meta and query on cpu; move one of them"),
    "widths": ({"k": K[..., 1:]}, r"key and query must have the same width, got 4 and 5"),
    "kv heads": ({"v": V[:, :, :2]}, r"value must have as many heads as key, got 2 and 3"),
    "groups": ({"q": Q[:, :, :5]}, r"heads of query must be a multiple of those of key and value, got 5 and 3"),
    "no kv heads": ({"k": K[:, :, :0], "v": V[:, :, :0]}, r"heads of query must be a multiple of .* got 6 and 0"),
    "leads": ({"k": K.expand(3, 2, *K.shape[1:]), "v": V.expand(5, 2, *V.shape[1:])}, r"do not broadcast: .* \(3, 2\)"),
    "bias of another lead": ({"score_bias": torch.zeros(3, 53, 6)}, r"do not broadcast: .* \(3,\)"),
    "bias of pairs": ({"score_bias": torch.zeros(13, 19)}, r"of the 53 edges, got a matrix of all \(13, 19\) pairs"),
    "bias of kv heads": ({"score_bias": torch.zeros(53, 3)}, r"for 53 edges and 6 heads, in .* order; got \(53, 3\)"),
    "bias heads first": ({"score_bias": torch.zeros(6, 53)}, r"score_bias must have shape .* got \(6, 53\)"),
    "bool bias": ({"score_bias": torch.ones(53).bool()}, r"floating point, got torch.bool; to mask edges, pass"),

    "bias elsewhere": ({"score_bias": torch.zeros(53, device="meta")}, r"score_bias is on meta and query on cpu"),




}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shape_errors(name):
    options, words = SHAPES[name]
    with pytest.raises(ShapeError, match=words):
        call(**options)


OPTIONS = {
    "learned scale": ({"scale": torch.tensor(0.3)}, "number; multiply the query by a learned factor"),
    **{f"scale {x}": ({"scale": x}, f"scale must be finite, got {x}") for x in (math.nan, math.inf, -math.inf)},
    **{f"dropout {x}": ({"dropout_p": x}, rf"dropout_p must be in \[0, 1\], got {x}") for x in (math.nan, -0.1, 1.1)},
    "softcap 0": ({"softcap": 0.0}, "softcap must be finite and > 0, got 0.0; None means no cap"),
    "softcap < 0": ({"softcap": -1.0}, "softcap must be finite and > 0, got -1.0"),
    "softcap inf": ({"softcap": math.inf}, "softcap must be finite and > 0, got inf"),
    "softcap nan": ({"softcap": math.nan}, "softcap must be finite and > 0, got nan"),
    "learned softcap": ({"softcap": torch.tensor(3.0)}, "softcap must be a number; multiply"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_option_errors(name):
    options, words = OPTIONS[name]
    with pytest.raises(OptionError, match=words):
        call(**options)


@pytest.mark.parametrize("backend", [None, "edge", "cuda"])
def test_a_backend_is_a_name(backend):
    with pytest.raises(
        BackendError, match=f'backend must be "auto" or one of .*, got {re.escape(repr(backend))}'
    ):
        call(backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("option", [None, "score_bias", "dropout_p", "return_weights"])
def test_dense_products_refuse_empty_sides_and_copies_told_apart(option, backend):
    """What the other tests leave out, and there "auto" runs."""
    for name, build in GRAPHS.items():
        graph, options = build(), {option: True} if option else {}
        if not may_refuse(graph, backend, **options):
            continue
        shown = {
            c.name: c for c in ga.explain(graph, heads=HEADS, head_dim=WIDTH, **options).candidates
        }
        assert shown["message_passing"].runs, name
        call = (
            {}
            if option is None
            else {option: {"score_bias": biases(graph), "dropout_p": 0.5}.get(option, True)}
        )
        with pytest.raises(BackendError, match=f"'{backend}' cannot run") as caught:
            ga.attention(*tensors(graph), graph, **call, backend=backend)
        assert caught.value.reasons == shown[backend].reasons != ()
        result = ga.attention(*tensors(graph), graph, **call)
        result = result.output if option == "return_weights" else result
        assert result.shape == (graph.num_targets, HEADS, VALUE_WIDTH)


@pytest.mark.parametrize("graph", [ga.graphs.cross(13, 19), ga.graphs.cross(13, 19).to("meta")])
def test_tensors_without_numbers_are_refused(graph):
    with pytest.raises(ShapeError, match="query is on meta, whose tensors hold no numbers"):
        ga.attention(*(x.to("meta") for x in (Q, K, V)), graph)


@pytest.mark.parametrize("elsewhere", ["edge_attr", "edge_weight"])
def test_edge_features_elsewhere_are_refused(elsewhere):
    features = {"edge_attr": torch.zeros(53, 2), "edge_weight": torch.zeros(3, 5, 2)}
    inputs_of(Q, K, V, GRAPH, **features)
    with pytest.raises(
        ShapeError, match=f"{elsewhere} is on meta and query on cpu; move one of them"
    ):
        inputs_of(Q, K, V, GRAPH, **features | {elsewhere: features[elsewhere].to("meta")})


@pytest.mark.parametrize(
    ("graph", "kind"),
    [(GRAPH.edge_index, "Tensor"), (None, "NoneType"), (GRAPH.edges, "Listed")],
)
def test_a_graph_must_be_one(graph, kind):
    with pytest.raises(
        GraphError,
        match=f"graph must be an AttentionGraph, got {kind}; wrap an edge_index with graph",
    ):
        call(graph=graph)


@pytest.mark.parametrize("ask", [lambda graph: call(graph=graph), ga.explain])
def test_a_mask_is_no_graph_and_is_told_how_to_become_one(ask):
    for mask in (GRAPH.mask(), GRAPH.mask().numpy()):
        with pytest.raises(
            GraphError, match=r"graph must be an .* wrap it with graphattn.from_mask\(mask\)"
        ):
            ask(mask)


def test_a_graph_on_another_device():
    elsewhere = tuple(x.to("meta") for x in (Q, K, V))
    with pytest.raises(
        GraphError, match=r"the graph is on cpu and query on meta; use graph\.to\(query\.device\)"
    ):
        ga.attention(*elsewhere, GRAPH)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_graph_on_the_cpu_and_features_on_cuda():
    there = tuple(x.cuda() for x in (Q, K, V))
    with pytest.raises(GraphError, match=r"the graph is on cpu and query on cuda:0"):
        ga.attention(*there, GRAPH)
    assert ga.attention(*there, GRAPH.to("cuda")).is_cuda
    assert ga.attention(*there, ga.graphs.cross(13, 19)).is_cuda  # a rule has no tensors of its own


def test_every_error_is_one_of_the_family():
    for error in (ShapeError, OptionError, GraphError):
        assert issubclass(error, GraphAttnError)
        assert issubclass(error, ValueError)


@pytest.mark.slow
def test_dense_refuses_what_does_not_fit_in_memory():
    graph = ga.graphs.sliding_window(1_000_000, 3, causal=True)
    request = {c.name: c for c in ga.explain(graph, heads=1).candidates}
    assert request["dense"].reasons == (
        "it would hold 5,000,000,000,000 bytes for 1,000,000 x 1,000,000 pairs",
    )
    assert ga.explain(graph, heads=1).chosen == "edges"


def test_dense_is_refused_where_torchs_masked_cuda_kernels_fail():
    for graph, options, refused in (
        (ga.graphs.sliding_window(65_536, 3, causal=True).subgraph(sources=range(7)), {}, True),
        (ga.graphs.sliding_window(65_535, 3, causal=True).subgraph(sources=range(7)), {}, False),
        (ga.graphs.cross(65_536, 7), {}, False),
        (ga.graphs.cross(65_536, 7), {"score_bias": True}, True),
    ):
        for device in ("cuda", "cpu"):
            found = candidates(graph, Request(device=torch.device(device), **options))[0]
            assert found.name == "dense"
            assert any("pytorch#145040" in reason for reason in found.reasons) == (
                refused and device == "cuda"
            )


def test_message_passing_refuses_to_list_a_huge_rule():
    graph = ga.graphs.full(1_000_000)
    found = {c.name: c for c in ga.explain(graph, heads=1).candidates}
    assert found["message_passing"].reasons == (
        "listing its 1,000,000,000,000 edges takes 16,000,000,000,000 bytes (limit 4,294,967,296)",
    )
    x = torch.zeros(1, 1, 1).expand(1_000_000, 1, 1)
    with pytest.raises(BackendError, match=r"\n  - listing its 1,000,000,000,000 edges takes"):
        ga.attention(x, x, x, graph, backend="message_passing")


def test_explain_says_which_backends_are_as_fast_as_the_chosen_one():
    """Here 1.05 and 1.2 times the best."""
    explanation = ga.explain(GRAPH)
    assert "within 10 %" not in str(explanation)
    first, second, third = [c for c in explanation.candidates if c.runs][:3]
    times = {first: 1.0, second: 1.05, third: 1.2}
    candidates = [replace(candidate, cost=cost) for candidate, cost in times.items()]
    tied = replace(explanation, candidates=tuple(candidates), chosen=first.name)
    assert f"\nwithin 10 % of it: {second.name}\n" in str(tied)
    refused = replace(candidates[1], reasons=("no",), cost=math.nan)
    assert "within 10 %" not in str(replace(tied, candidates=(candidates[0], refused)))


def test_explain_knows_its_options_and_prints_itself():
    with pytest.raises(OptionError, match=r"explain takes the options score_bias, .* got 'bias'"):
        ga.explain(GRAPH, bias=True)
    copies = GRAPHS["repeated_edges"]()
    for asked in (
        {"return_weights": True},
        {"dropout_p": 0.3},
        {"score_bias": torch.zeros(copies.num_edges)},
    ):
        assert ga.explain(copies, **asked).candidates[0].reasons
    nothing = {
        "return_weights": False,
        "dropout_p": 0.0,
        "score_bias": None,
        "return_lse": True,
        "softcap": 30.0,
    }
    assert not ga.explain(copies, **nothing).candidates[0].reasons
    for heads, kv_heads in ((5, 3), (2, 0), (-2, 1), (2, -1)):
        with pytest.raises(
            OptionError,
            match=f"multiple of kv_heads >= 1, got heads={heads} and kv_heads={kv_heads}",
        ):
            ga.explain(GRAPH, heads=heads, kv_heads=kv_heads)
    found = ga.explain(GRAPHS["repeated_edges"](), score_bias=True)
    assert found.chosen == "edges"
    assert (
        "  dense: refused\n      because each copy of an edge has its own bias, dropout and weight"
        in str(found)
    )
    assert found.to_dict()["candidates"][0]["runs"] is False
    both = str(ga.explain(GRAPH))
    assert "      note: a NaN or inf in a source reaches every target" in both
    assert "* " in both
