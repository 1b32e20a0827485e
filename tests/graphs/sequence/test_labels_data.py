"""Graphs from numbers that tokens carry, from hashes and from scores, against their rules pair by
pair.
"""

import itertools

import pytest
import torch
from written_rules import assert_is, assert_mask

from graphattn import from_mask, graphs

generator = torch.Generator().manual_seed(11)


SEGMENTS = (
    [],
    [-1],
    [0],
    [-1, 0, 0, 0, -1, -1, 1, 1],
    [0, 0, -1, 1, 1, 0, -5, -5, 2],
    [-1] * 7,
    [3] * 5,
)


@pytest.mark.parametrize("segments", SEGMENTS, ids=str)
def test_bidirectional_segments(segments):
    n = len(segments)
    graph = graphs.bidirectional_segments(torch.tensor(segments, dtype=torch.int64))
    assert_is(graph, n, n, lambda t, s: s <= t or segments[t] == segments[s] >= 0)


def test_gemma_3_images_as_transformers_draws_them():
    masking = pytest.importorskip("transformers.masking_utils")
    segments = torch.tensor([-1, -1, 0, 0, 0, -1, 1, 1, -1])
    function = masking.or_masks(
        masking.causal_mask_function, masking.blockwise_overlay(segments[None])
    )
    token = torch.arange(9)
    drawn = from_mask(function(0, 0, token[:, None], token))
    assert graphs.bidirectional_segments(segments).equals(drawn)
    assert not graphs.causal(9).equals(drawn)


def test_windows_and_chunks_as_transformers_draws_them():
    masking = pytest.importorskip("transformers.masking_utils")
    n, t, s = 13, torch.arange(13)[:, None], torch.arange(13)
    window = masking.sliding_window_causal_mask_function(4)(0, 0, t, s)
    assert graphs.sliding_window(n, 4, causal=True).equals(from_mask(window))
    assert not graphs.sliding_window(n, 5, causal=True).equals(from_mask(window))
    ids = torch.tensor([0, 0, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3])
    packed = masking.and_masks(
        masking.causal_mask_function, masking.packed_sequence_mask_function(ids[None])
    )
    assert graphs.documents(ids, causal=True).equals(from_mask(packed(0, 0, t, s)))


@pytest.mark.parametrize(
    "ranks", [[], [4], [2, 0, 3, 1], [0, 0, 1, 1, 1, 2], [1, 5, 1, -3, 5, 0, 0], [7] * 5], ids=str
)
@pytest.mark.parametrize("strict", [False, True])
def test_ranked(ranks, strict):
    n, mine = len(ranks), torch.tensor(ranks, dtype=torch.int64)
    graph = graphs.causal_by_rank(mine, strict=strict)
    assert_is(
        graph, n, n, lambda t, s: ranks[s] < ranks[t] or (not strict and ranks[s] == ranks[t])
    )
    times = [-3, 0, 1, 1, 4]
    other = graphs.causal_by_rank(mine, torch.tensor(times), strict=strict)
    assert_is(
        other, n, 5, lambda t, s: times[s] < ranks[t] or (not strict and times[s] == ranks[t])
    )


def test_xlnets_streams_are_a_relabelled_decoder():
    order = torch.randperm(11, generator=generator)  # order[k] is the token at place k
    content = graphs.causal(11).relabel(order)
    assert graphs.causal_by_rank(torch.argsort(order)).equals(content)
    assert graphs.causal_by_rank(torch.argsort(order), strict=True).equals(
        content.without_self_loops()
    )
    assert not graphs.causal_by_rank(order).equals(content)  # a place is no token


@pytest.mark.parametrize(
    ("targets", "sources"),
    [
        ([], []),
        ([0], []),
        ([], [2, 2]),
        ([0, 1, 1, 2, 2, 7], [1, 1, 2, 9, 2]),
        ([3, 1, 3], [1, 3, 1, 3]),
    ],
)
def test_cross_documents(targets, sources):
    graph = graphs.cross_documents(
        *(torch.tensor(x, dtype=torch.int64) for x in (targets, sources))
    )
    assert_is(graph, len(targets), len(sources), lambda t, s: targets[t] == sources[s])


def reformer(buckets, chunk, back, causal, same_bucket, wrap, alone):
    """Sort, chunk, look back: the loop that the paper describes, token by token."""
    n = len(buckets)
    order = sorted(range(n), key=lambda t: (buckets[t], t))
    chunks = [order[i : i + chunk] for i in range(0, n, chunk)]
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i, members in enumerate(chunks):
        met = [s for d in range(back + 1) if wrap or i >= d for s in chunks[i - d]]
        for t in members:
            read = [
                s
                for s in met
                if (buckets[s] == buckets[t] or not same_bucket) and (s <= t or not causal)
            ]
            others = [s for s in read if s != t]
            mask[t, others if alone and others else read] = True
    return mask


@pytest.mark.parametrize(
    ("n", "chunk", "back"),
    [(0, 3, 1), (1, 1, 0), (13, 3, 1), (13, 3, 4), (12, 4, 1), (17, 2, 3), (11, 19, 0)],
)
def test_lsh_buckets(n, chunk, back):
    buckets = torch.randint(-1, 3, (n,), generator=generator)
    every = list(itertools.product((False, True), repeat=4))
    for causal, same_bucket, wrap, alone in every if n == 13 else every[n % 3 :: 3]:
        graph = graphs.lsh_buckets(
            buckets,
            chunk,
            look_back=back,
            causal=causal,
            same_bucket=same_bucket,
            wrap=wrap,
            self_loops="alone" if alone else "always",
        )
        assert_mask(
            graph,
            reformer(buckets.tolist(), chunk, back, causal, same_bucket, wrap, alone),
            is_rule=False,
        )
        assert bool((graph.in_degree > 0).all())  # who reads nothing else reads itself


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_top_k(dtype):
    scores = torch.randint(-3, 3, (13, 7), generator=generator).to(dtype)  # many ties
    for k in (0, 1, 3, 7):
        wanted = [
            sorted(range(7), key=lambda s, t=t: (-float(scores[t, s]), s))[:k] for t in range(13)
        ]
        graph = graphs.top_k(scores, k)
        assert graph.source.tolist() == [s for row in wanted for s in row]
        assert graph.target.tolist() == [t for t, row in enumerate(wanted) for _ in row]
    if k == 7:
        assert graph.equals(graphs.cross(13, 7))


def test_moba_is_the_own_block_and_one_less_of_the_best_before():
    """MoBA's code: a score of infinity for the own block, the k best, cut at the diagonal."""
    n, block, k = 37, 6, 3
    scores = torch.randn(n, -(-n // block), generator=generator)
    own = graphs.block_local(n, block, causal=True)
    rest = graphs.top_k(scores, k - 1, blocks=block, within=graphs.causal(n) - own)
    best = []
    for t in range(n):
        gate = scores[t].clone()
        gate[t // block] = torch.inf
        gate[t // block + 1 :] = -torch.inf
        best.append(set(gate.topk(k).indices.tolist()))
    mask = torch.tensor([[s <= t and s // block in best[t] for s in range(n)] for t in range(n)])
    assert_mask(rest | own, mask)


def test_top_k_never_chooses_minus_infinity():
    scores = torch.randn(7, 7, generator=generator).masked_fill(
        ~graphs.causal(7).mask(), -torch.inf
    )
    graph = graphs.top_k(scores, 3)
    assert graph.in_degree.tolist() == [1, 2, 3, 3, 3, 3, 3]
    assert (graph - graphs.causal(7)).num_edges == 0
    # x-transformers, no ties
    assert torch.equal(graph.mask()[2:], (scores >= scores.topk(3).values[:, -1:])[2:])
    assert graphs.top_k(scores.requires_grad_(), 3).equals(graph)
    assert (
        graphs.top_k(torch.empty(0, 5), 2).num_edges
        == graphs.top_k(torch.empty(5, 0), 0).num_edges
        == 0
    )
