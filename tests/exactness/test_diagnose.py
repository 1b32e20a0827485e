"""Each known mistake, made on purpose in a caller's function, is named; a right answer is not
accused of any.

Those of test_wrong_layers.py (rows swapped, a mask inverted or ignored, scales) are not made here
again.
"""

import pytest
import torch
from graph_table import GRAPHS

from graphattn.exactness import engine, verify
from graphattn.exactness.diagnose import UNEXPLAINED
from graphattn.graph import AttentionGraph, forms
from graphattn.graphs import global_tokens
from graphattn.twins import pieces


def attend(query, key, value, mask, *, scale=None, copies=None, tile=False, fill=-torch.inf):
    """Attention as people write it, heads last; wrong in whatever way its options say."""
    q, k, v = (x.transpose(0, 1) for x in (query, key, value))
    group = q.shape[0] // k.shape[0]
    k, v = (x.repeat(group, 1, 1) if tile else x.repeat_interleave(group, 0) for x in (k, v))
    score = q @ k.transpose(1, 2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if copies is not None:
        score = score + copies.clamp(min=1).log().to(score)
    score = score.masked_fill(~mask, fill)
    return (torch.softmax(score, -1).nan_to_num(0.0) @ v).transpose(0, 1)


def with_mask(mask, **how):
    return lambda q, k, v: attend(q, k, v, mask, **how)


def band(T, S, lo, hi=1 << 40, offset=0):
    return AttentionGraph(forms.band(T, S, lo, hi, offset=offset), "band")


def diagnosis(function, graph, **options):
    report = verify(function, graph, **options)
    assert not report.ok
    assert report.diagnosis is not None
    return report.diagnosis


RANDOM = GRAPHS["listed_random"]()
MASK = RANDOM.mask()
LOOPS = torch.eye(17, dtype=torch.bool)
REPEATED = GRAPHS["repeated_edges"]()
WINDOW = band(23, 23, 0, 4)
BOTH_WAYS = band(23, 23, -3, 2)
NINE = band(31, 31, -4, 4)
LONGFORMER = NINE | global_tokens(31, (0, 17))
PACKED = GRAPHS["packed_documents"]()
HUB = torch.zeros(31, dtype=torch.bool).index_fill(0, torch.tensor([0, 17]), True)


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("words", "function", "graph"),
    [
        ("repeated edges merged", with_mask(REPEATED.mask()), REPEATED),
        ("self-loops missing", with_mask(~LOOPS), AttentionGraph(forms.band(17, 17), "full")),
        ("self-loops added", with_mask(MASK | LOOPS), RANDOM),
        ("self-loops counted twice", with_mask(MASK | LOOPS, copies=MASK.int() + LOOPS), RANDOM),
        ("edges made symmetric", with_mask(MASK | MASK.t()), RANDOM),
        (
            "reversed edges added and counted",
            with_mask(MASK | MASK.t(), copies=MASK.int() + MASK.t()),
            RANDOM,
        ),
        ("scale applied twice", with_mask(MASK, scale=0.2), RANDOM),
        (
            "align='start' where 'end' was meant",
            with_mask(band(7, 13, 0).mask()),
            band(7, 13, 0, offset=6),
        ),
        (
            "align='end' where 'start' was meant",
            with_mask(band(7, 13, 0, offset=6).mask()),
            band(7, 13, 0),
        ),
        (
            "align='end' where 'start' was meant",
            with_mask(band(13, 7, 0, 3, offset=-6).mask()),
            band(13, 7, 0, 3),
        ),
        ("one source too many in the past", with_mask(band(23, 23, 0, 5).mask()), WINDOW),
        ("one source too few in the past", with_mask(band(23, 23, 0, 3).mask()), WINDOW),
        ("one source too many in the future", with_mask(band(23, 23, -4, 2).mask()), BOTH_WAYS),
        ("one source too few in the future", with_mask(band(23, 23, -2, 2).mask()), BOTH_WAYS),
        ("as if counted on each side", with_mask(band(31, 31, -9, 9).mask()), NINE),
        ("as if twice", with_mask(band(31, 31, -8, 8).mask()), NINE),
        ("window=5 where 9 was meant", with_mask(band(31, 31, -2, 2).mask()), NINE),
        ("left out of", with_mask(band(19, 19, 0).mask()), PACKED),
        ("global tokens are read by all, but", with_mask(NINE.mask() | HUB), LONGFORMER),
        ("global tokens read all, but", with_mask(NINE.mask() | HUB[:, None]), LONGFORMER),
    ],
)
def test_a_wrong_graph_or_scale_is_named(words, function, graph):
    result = diagnosis(function, graph)
    assert words in result
    assert UNEXPLAINED not in result


def test_the_polarity_of_multihead_attention_is_named():
    """nn.MultiheadAttention blocks where its mask is True, and gives NaN to whom all is blocked."""
    graph = GRAPHS["causal"]()

    def blocked(q, k, v):
        score = (q.transpose(0, 1) @ k.permute(1, 2, 0)) * q.shape[-1] ** -0.5
        return (
            torch.softmax(score.masked_fill(graph.mask(), -torch.inf), -1) @ v.transpose(0, 1)
        ).transpose(0, 1)

    assert "inverted mask" in diagnosis(blocked, graph)


def test_tiled_heads_are_named():
    function = with_mask(MASK, tile=True)
    assert "heads grouped by tiling" in diagnosis(function, RANDOM, heads=6, kv_heads=3)
    assert verify(function, RANDOM, heads=3).ok


def test_a_forgotten_scale_is_named():
    assert "default scale D ** -0.5" in diagnosis(with_mask(MASK), RANDOM, scale=0.3)


def test_a_forgotten_softcap_is_named():
    assert "softcap ignored" in diagnosis(with_mask(MASK), RANDOM, softcap=0.7)


def test_nan_in_rows_without_edges_is_named():
    graph = GRAPHS["isolated_targets"]()

    def plain(q, k, v):
        score = torch.einsum("thd,shd->hts", q, k) * q.shape[-1] ** -0.5
        return torch.einsum(
            "hts,shd->thd", torch.softmax(score.masked_fill(~graph.mask(), -torch.inf), -1), v
        )

    assert "give NaN" in diagnosis(plain, graph)


def test_an_average_in_rows_without_edges_is_named():
    graph = GRAPHS["isolated_targets"]()
    assert "average all sources" in diagnosis(with_mask(graph.mask(), fill=-1e30), graph)
    assert "do not give 0" in diagnosis(
        lambda q, k, v: attend(q, k, v, graph.mask()) + 5 * ~graph.mask().any(1)[:, None, None],
        graph,
    )


def test_what_no_mistake_explains_is_said_to_be_unexplained():
    result = diagnosis(lambda q, k, v: attend(q, k, v, MASK) * 1.01, RANDOM)
    assert UNEXPLAINED in result
    assert "of 17 targets are wrong" in result


def test_a_single_wrong_target_is_pointed_at():
    def one_off(q, k, v):
        output = attend(q, k, v, WINDOW.mask())
        return torch.cat((output[:11], output[11:12] * 1.01, output[12:]))

    assert "1 of 23 targets is wrong, most of all target 11 (in-degree 5)" in diagnosis(
        one_off, WINDOW
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name", ["causal", "listed_random", "cross_causal_end", "isolated_targets", "repeated_edges"]
)
def test_a_right_function_gets_no_diagnosis(name):
    graph = GRAPHS[name]()
    mask = graph.mask()
    copies = torch.zeros(mask.shape).index_put(
        (graph.target, graph.source), torch.ones(graph.num_edges), True
    )
    report = verify(
        with_mask(mask, copies=copies.double()), graph, heads=6, kv_heads=2, head_dim=5, value_dim=3
    )
    assert report.ok, report
    assert report.diagnosis is None
    assert "diagnosis" not in str(report)


def test_the_diagnosis_holds_in_half_precision_too():
    assert "rows swapped" in diagnosis(with_mask(MASK.t()), RANDOM, dtypes=(torch.bfloat16,))


@pytest.mark.slow
def test_a_mistake_on_a_sample_of_a_large_graph_is_named(monkeypatch):
    graph = AttentionGraph(forms.band(307, 307, 0, 12), "window of 13")
    monkeypatch.setattr(engine, "EVERYTHING", 0)
    report = verify(with_mask(graph.mask().t()), graph, at_most=31)
    assert report.measured < report.total
    assert "rows swapped" in report.diagnosis


@pytest.mark.slow
def test_a_wrong_order_of_biases_is_named(monkeypatch):
    from graphattn.exactness import operator

    right = operator.attention

    def wrong(query, key, value, graph, score_bias=None, **options):
        if score_bias is not None and not graph.edges.is_listed:
            return right(query, key, value, graph, score_bias=score_bias, **options)
        if score_bias is not None:
            place = torch.argsort(torch.argsort(graph.target * graph.num_sources + graph.source))
            score_bias = score_bias[place]
        return right(query, key, value, graph, score_bias=score_bias, **options)

    monkeypatch.setattr(operator, "attention", wrong)
    assert "not in the caller's edge order" in diagnosis(RANDOM, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("score_bias ignored", lambda bias: bias * 0),
        ("score_bias scaled", lambda bias: bias * 0.61),
    ],
)
def test_a_mishandled_bias_is_named(monkeypatch, words, change):
    from graphattn.exactness import operator

    right = operator.attention

    def wrong(*args, score_bias=None, **options):
        return right(
            *args, score_bias=None if score_bias is None else change(score_bias), **options
        )

    monkeypatch.setattr(operator, "attention", wrong)
    assert words in diagnosis(RANDOM, None)


@pytest.mark.slow
def test_a_layer_on_the_wrong_graph_is_diagnosed(monkeypatch):
    from graphattn.nn import GraphAttention

    right = GraphAttention.forward
    monkeypatch.setattr(
        GraphAttention,
        "forward",
        lambda self, x, graph, **rest: right(self, x, graph.reverse(), **rest),
    )
    assert "rows swapped" in diagnosis(GraphAttention(12, 3), RANDOM)


def test_outputs_that_are_not_finite_are_explained_by_no_other_mistake():
    def masked_embeddings(query, key, value):
        """The mask's -inf in keys and values of the sources that nobody may read."""
        hidden = ~there[:, None, None]
        key = key.masked_fill(hidden, -torch.inf)
        return attend(query, key, value.masked_fill(hidden, -torch.inf), everything)

    there = torch.arange(11) < 7
    everything = torch.ones(13, 11, dtype=torch.bool)
    graph = AttentionGraph(forms.of_mask(there.expand(13, 11)), "padding")
    result = diagnosis(masked_embeddings, graph)
    assert result.endswith(
        "; 13 of the targets with edges are NaN or infinite, as where a mask's -inf is in "
        "embeddings, keys or values, not in scores (find_nonfinite names the nodes)"
    )


def test_a_simple_mistake_is_not_joined_by_a_rare_one():
    """A causal graph made symmetric is the full one: no mask is what happened."""
    result = diagnosis(with_mask(torch.ones(13, 13, dtype=torch.bool)), GRAPHS["causal"]())
    assert "mask ignored" in result
    assert "symmetric" not in result


@pytest.mark.slow
def test_one_over_the_width_is_named_beside_what_is_as_good():
    result = diagnosis(with_mask(MASK, scale=1 / 5), RANDOM)
    assert "scale 1 / D, not 1 / sqrt(D) or scale applied twice" in result
    assert "scale applied twice" not in diagnosis(with_mask(MASK, scale=1 / 5), RANDOM, scale=0.3)


@pytest.mark.slow
def test_one_edge_at_the_end_of_a_window_is_no_window_off_by_one(monkeypatch):
    monkeypatch.setattr(pieces, "EXHAUSTIVE", 1 << 10)
    graph = AttentionGraph(forms.band(151, 151, 0, 16), "window of 17")
    mask = graph.mask()
    mask[131, 131 - 16] = False
    result = diagnosis(with_mask(mask), graph, dtypes=(torch.float64,), at_most=19)
    assert "1 of 151 targets is wrong" in result
    assert "edge 115 -> 131 of the graph is not read" in result
    assert "where 17 was meant" not in result
    shorter = AttentionGraph(forms.band(151, 151, 0, 15), "window of 16").mask()
    result = diagnosis(with_mask(shorter), graph, dtypes=(torch.float64,), at_most=19)
    assert "one source too few in the past: window=16 where 17 was meant" in result
