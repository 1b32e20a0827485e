"""Masks in three polarities, shown on torch's own attention; A25 and A26, and the trap "mask
polarity".
"""

import math

import numpy as np
import pytest
import torch
from convert_graphs import PAIRED, REPEATED, SIMPLE, TABLE, counts_of, softmax_over
from torch.nn.functional import scaled_dot_product_attention

from graphattn import audit, graphs
from graphattn.convert import from_edge_index, from_mask, to_mask
from graphattn.errors import GraphError, OptionError

ALL_SIMPLE = pytest.mark.parametrize("name", SIMPLE)
ALL_PAIRED = pytest.mark.parametrize("name", PAIRED)
HEAD_DIM, VALUE_DIM = 5, 3


CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()
CAUSAL_BY_KIND = {
    "bool": CAUSAL,
    "mha": ~CAUSAL,
    "additive": torch.zeros(5, 5).masked_fill(~CAUSAL, -torch.inf),
}
KINDS = pytest.mark.parametrize("kind", CAUSAL_BY_KIND)


def inputs(graph):
    draw = torch.Generator().manual_seed(11)
    sizes = (
        (graph.num_targets, HEAD_DIM),
        (graph.num_sources, HEAD_DIM),
        (graph.num_sources, VALUE_DIM),
    )
    return [2 * torch.randn(*size, generator=draw, dtype=torch.float64) for size in sizes]


@pytest.mark.sample(4)
@ALL_SIMPLE
@KINDS
def test_there_and_back(name, kind):
    graph, counts = TABLE[name]
    again = from_mask(to_mask(graph, kind), kind)
    assert np.array_equal(counts_of(again), counts)
    assert again.equals(graph)
    assert not again.is_rule
    assert (again.num_targets, again.num_sources) == counts.shape


@ALL_SIMPLE
def test_rows_are_targets_and_true_is_an_edge(name):
    graph, counts = TABLE[name]
    assert np.array_equal(to_mask(graph).numpy(), counts > 0)
    assert np.array_equal(to_mask(graph, "mha").numpy(), counts == 0)
    assert np.array_equal(to_mask(graph, "additive").numpy(), np.where(counts > 0, 0.0, -np.inf))
    for mask, dtype in ((to_mask(graph), torch.bool), (to_mask(graph, "mha"), torch.bool)):
        assert mask.dtype == dtype


@pytest.mark.sample(4)
@ALL_PAIRED
def test_sdpa_reads_our_mask_as_it_is(name):
    graph, counts = TABLE[name]
    query, key, value = inputs(graph)
    expected = softmax_over(counts, query, key, value)
    for mask in (to_mask(graph), to_mask(graph, "additive", torch.float64)):
        out = scaled_dot_product_attention(query[None], key[None], value[None], attn_mask=mask)[0]
        torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)


@ALL_PAIRED
def test_mha_reads_the_opposite_polarity(name):
    """nn.MultiheadAttention with identity projections, on the rows that have an edge (it makes NaN
    of the others).
    """
    graph, counts = TABLE[name]
    query, key, value = inputs(graph)
    value = torch.cat(
        (value, torch.zeros(graph.num_sources, HEAD_DIM - VALUE_DIM, dtype=value.dtype)), 1
    )
    layer = torch.nn.MultiheadAttention(
        HEAD_DIM, 1, bias=False, batch_first=True, dtype=torch.float64
    )
    eye = torch.eye(HEAD_DIM, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat((eye, eye, eye)))
        layer.out_proj.weight.copy_(eye)
        out, weights = layer(query[None], key[None], value[None], attn_mask=to_mask(graph, "mha"))
    has_edge = counts.any(1)
    torch.testing.assert_close(
        out[0][has_edge], softmax_over(counts, query, key, value)[has_edge], atol=1e-12, rtol=0
    )
    assert np.array_equal(weights[0].numpy()[has_edge] > 0, counts[has_edge] > 0)
    assert out[0][~has_edge].isnan().all()


def test_the_wrong_polarity_would_be_seen():
    graph, counts = TABLE["window"]
    query, key, value = inputs(graph)
    wrong = scaled_dot_product_attention(
        query[None], key[None], value[None], attn_mask=to_mask(graph, "mha")
    )[0]
    assert (wrong - softmax_over(counts, query, key, value)).abs().max() > 0.1


@pytest.mark.parametrize("name", REPEATED)
def test_copies_are_counted_by_the_additive_mask_and_refused_by_the_others(name):
    graph, counts = TABLE[name]
    query, key, value = inputs(graph)
    mask = to_mask(graph, "additive", torch.float64)
    out = scaled_dot_product_attention(query[None], key[None], value[None], attn_mask=mask)[0]
    torch.testing.assert_close(out, softmax_over(counts, query, key, value), atol=1e-12, rtol=0)
    for kind in ("bool", "mha"):
        with pytest.raises(GraphError, match=r"a bool mask cannot count copies.*additive"):
            to_mask(graph, kind)
    with pytest.raises(GraphError, match=r"only 0 \(edge\) and -inf \(none\), got 0.69"):
        from_mask(mask, "additive")
    assert np.array_equal(to_mask(graph | graph).numpy(), counts > 0)


def test_edges_come_by_target_then_source():
    assert from_mask([[False, True, True], [True, False, False]]).edge_index.tolist() == [
        [1, 2, 0],
        [0, 0, 1],
    ]


def test_arrays_tensors_and_views_are_the_same():
    mask = np.arange(35).reshape(5, 7) % 3 == 0
    expected = from_mask(torch.from_numpy(mask))
    assert expected.edge_index.tolist() == list(map(list, np.argwhere(mask)[:, ::-1].T.tolist()))
    assert from_mask(mask).equals(expected)
    assert from_mask(mask.tolist()).equals(expected)
    assert from_mask(torch.from_numpy(mask.T.copy()).t()).equals(expected)
    assert from_mask(torch.ones(1, 1).bool().expand(5, 7)).num_edges == 35


@pytest.mark.parametrize("lead", [(1,), (1, 1), (1, 1, 1)])
@KINDS
def test_the_mask_of_one_example_as_transformers_makes_it_is_a_mask(kind, lead):
    mask = CAUSAL_BY_KIND[kind]
    assert from_mask(mask.reshape(*lead, 5, 5), kind).equals(graphs.causal(5))
    assert from_mask(mask[:0].reshape(*lead, 0, 5), kind).num_targets == 0
    if kind == "bool":
        assert audit(mask.reshape(*lead, 5, 5), graphs.causal(5)).ok


def test_the_graph_does_not_follow_the_mask():
    mask = torch.eye(3, dtype=torch.bool)
    graph = from_mask(mask)
    mask.fill_(True)
    assert graph.num_edges == 3


@KINDS
@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (
            torch.ones(7),
            r"mask must have shape \(T, S\), targets x sources, \(B, T, S\) or \(B, H, T, S\), got \(7,\)",
        ),
        (torch.ones(2, 3, 1, 5, 7), r"or \(B, H, T, S\), got \(2, 3, 1, 5, 7\)"),
        (torch.ones(2, 0, 5, 7), r"an example and a head, got none in \(2, 0, 5, 7\)"),
        (torch.tensor(True), r"got \(\)"),
        ([[True, False], [True]], "mask must be a tensor"),
        (None, "mask must be a tensor"),
    ],
)
def test_wrong_shapes(kind, mask, words):
    with pytest.raises(GraphError, match=words):
        from_mask(mask, kind)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("kind", ["bool", "mha"])
@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ([[1.0, 0.0], [NAN, 1.0]], r"must be bool.*got float32 with NaN at \[1, 0\]"),
        (
            [[1.0, -0.5], [0.0, 1.0]],
            r"got float32 with a negative number at \[0, 1\]; pass \(mask > 0\) or",
        ),
        ([[1, 0], [0, -1]], r"got int64 with a negative number at \[1, 1\]"),
        (
            [[0.0, -INF], [0.0, 0.0]],
            r"got float32 with -inf at \[0, 1\]; a mask that is added.*kind=\"additive\"",
        ),
        (
            [[0.0, 0.3], [0.0, 0.0]],
            r"got float32; pass \(mask != 0\).*weights belong to score_bias",
        ),
        ([[0, 1], [1, 0]], r"got int64; pass \(mask != 0\)"),
        (torch.ones(2, 2, dtype=torch.uint8), "got uint8"),
        (torch.ones(2, 2, dtype=torch.complex64), "got complex64"),
    ],
)
def test_numbers_are_no_mask(kind, mask, words):
    with pytest.raises(GraphError, match=words):
        from_mask(mask, kind)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (
            [[0.0, -1e9], [0.0, 0.0]],
            r"got -1000000000.0 at \[0, 1\] \(1 such values\).*from_mask\(mask > threshold\)",
        ),
        ([[0.0, 0.0], [NAN, 0.5]], r"got nan at \[1, 0\] \(2 such values\)"),
        ([[0.0, INF], [0.0, 0.0]], r"got inf at \[0, 1\]"),
        (
            [[True, False]],
            'must be floating point, 0 or -inf, got bool; a bool mask is kind="bool"',
        ),
        ([[0, 0]], "must be floating point, 0 or -inf, got int64"),
    ],
)
def test_an_additive_mask_is_0_or_minus_infinity(mask, words):
    with pytest.raises(GraphError, match=words):
        from_mask(mask, "additive")


def test_the_mask_of_transformers_has_the_lowest_number_for_minus_infinity():
    for dtype in (torch.float32, torch.bfloat16):
        lowest = torch.finfo(dtype).min
        mask = torch.zeros(1, 1, 5, 5, dtype=dtype).masked_fill(~CAUSAL, lowest)
        assert from_mask(mask, "additive").equals(from_mask(CAUSAL))
        mask[..., 2, :] = lowest  # a row of it has equal weights there, and none here
        with pytest.raises(GraphError, match=r"got -[\d.]+e\+38 at \[2, 0\] \(5 such values\)"):
            from_mask(mask, "additive")


def test_additive_dtype():
    graph, _ = TABLE["causal"]
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert to_mask(graph, "additive", dtype).dtype == dtype
    with pytest.raises(OptionError, match="dtype must be floating point"):
        to_mask(graph, "additive", torch.bool)
    with pytest.raises(GraphError, match="at least 16 bits, got float8_e5m2"):
        to_mask(graph, "additive", torch.float8_e5m2)
    twice = from_edge_index([[0, 0], [0, 0]], num_nodes=1, duplicates="keep")
    assert to_mask(twice, "additive", torch.float64).item() == math.log(2)


def test_a_mask_too_large_is_refused():
    from graphattn.graphs import causal

    for kind, num_bytes in (("bool", 10**12), ("mha", 10**12), ("additive", 8 * 10**12)):
        with pytest.raises(GraphError, match=f"would take {num_bytes:,} bytes"):
            to_mask(causal(10**6), kind)


def test_another_kind_is_refused():
    for use in (lambda: from_mask(CAUSAL, "hidden"), lambda: to_mask(graphs.causal(5), "hidden")):
        with pytest.raises(GraphError, match=r'kind must be .*"additive".* got .hidden.'):
            use()
