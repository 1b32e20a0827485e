"""Heads that are mixed up, or one of which is wrong, are named."""

import pytest
import torch

import graphattn as ga
from graphattn import GraphAttnError, graphs

N = 24
NEAR = graphs.sliding_window(N, 3, causal=False)
MEANT = ga.PerHead(
    (
        NEAR,
        graphs.sliding_window(N, 3, causal=True),
        graphs.sliding_window(N, 7, causal=True),
        graphs.sparse_strided(N, 5),
    )
)
MASKS = torch.stack([graph.mask() for graph in MEANT.graphs])  # (4, N, N)
CASES = {
    "heads 1 and 3 swapped": MASKS[[0, 3, 2, 1]],
    "heads in reverse order": MASKS[[3, 2, 1, 0]],
    "heads one place late: head h reads the graph of head h - 1": MASKS[[3, 0, 1, 2]],
    "heads one place early: head h reads the graph of head h + 1": MASKS[[1, 2, 3, 0]],
    "heads interleaved: head h reads graph h % 4, not h // 2": MASKS.repeat(2, 1, 1),
    "every head reads the graph of head 2": MASKS[[2, 2, 2, 2]],
    "every head reads what any head should": MASKS.any(0).expand(4, N, N),
    "head 0 reads the graph of head 2, head 2 reads the graph of head 3, head 3 reads the graph of head 0": MASKS[
        [2, 1, 3, 0]
    ],
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("words", CASES)
def test_heads_that_are_mixed_up_are_named(words):
    found = ga.audit(CASES[words], MEANT)
    assert not found
    assert found.diagnosis == (words,)
    assert words in str(found)


def test_the_wrong_one_of_several_heads_is_named_with_its_mistake():
    apart = torch.arange(N)[:, None] - torch.arange(N)
    masks = MASKS.repeat_interleave(2, 0)  # two heads a graph
    assert str(ga.audit(masks, MEANT)) == "ok: all 8 heads"
    masks[5] = (apart >= 0) & (apart <= 7)
    found = ga.audit(masks[None], MEANT)
    assert [head for head, report in enumerate(found.heads) if not report] == [5]
    assert found.diagnosis == ()
    assert str(found).startswith("1 of 8 heads is wrong\nhead 5\n")
    assert "window=8 where 7 was meant" in found.heads[5].diagnosis[0]
    assert found.to_dict()["ok"] is False


def test_masks_of_heads_of_every_kind_are_taken():
    window = torch.tensor([N, 3])
    pair = ga.PerHead((graphs.causal(N), graphs.sliding_window(N, 3, causal=True)))

    def mask_mod(b, h, q, k):
        return (q >= k) & (q - k < window[h])

    for masks in (
        mask_mod,
        pair,
        [graph.mask() for graph in pair.graphs],
        torch.stack([g.mask() for g in pair.graphs]).numpy(),
    ):
        assert ga.audit(masks, pair).ok
    assert ga.audit(ga.PerHead((pair.graphs[0],) * 2 + (pair.graphs[1],) * 2), pair).ok
    assert not ga.audit(lambda b, h, q, k: mask_mod(b, 1 - h, q, k), pair)
    of_one = ga.audit(MASKS[:3], NEAR)  # one graph for all heads
    assert [report.ok for report in of_one.heads] == [True, False, False]
    assert ga.audit(graphs.causal(N), pair).diagnosis == ("every head reads the graph of head 0",)
    with pytest.raises(
        GraphAttnError, match="3 masks of heads are no multiple of the 4 graphs in expect"
    ):
        ga.audit(MASKS[:3], MEANT)
    with pytest.raises(
        GraphAttnError, match="mask must have 24 targets and 24 sources, got AttentionGraph"
    ):
        ga.audit(MASKS[:, :5, :5], MEANT)


def test_heads_by_chance_are_no_mistake():
    chance = torch.rand(4, N, N, generator=torch.Generator().manual_seed(0)) < 0.4
    found = ga.audit(chance, MEANT)
    assert found.diagnosis == ()
    assert all(report.diagnosis == () for report in found.heads)
