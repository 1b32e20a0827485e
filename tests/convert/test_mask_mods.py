"""Mask functions as people write them for FlexAttention, judged by torch's own ``create_mask``."""

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from graphattn import graphs
from graphattn.convert import from_block_mask, from_mask_mod, from_rule, to_block_mask, to_mask_mod
from graphattn.errors import GraphError
from graphattn.graph import AttentionGraph, PerHead

T, S = 23, 19
DRAW = torch.Generator().manual_seed(0)
INTERVALS = torch.randint(25, (S, 2), generator=DRAW).sort(1).values
NEIGHBOURS = torch.randint(S, (T, 3), generator=DRAW)
NEAREST = NEIGHBOURS[:, :1]
STARTS = torch.tensor([0, 5, 6, 14])
DOCUMENT = torch.bucketize(torch.arange(25), STARTS, right=True)
BITS = torch.rand(T, S, generator=DRAW) < 0.3
OFFSETS = torch.tensor([0, 4])
GLOBAL = torch.tensor([3, 11])


def causal(b, h, q, kv):
    return q >= kv


def natten(b, h, q, kv):
    """A 5 x 5 grid, with windows of 3 x 3 that stay inside."""
    y, x = (q // 5).clamp(1, 3), (q % 5).clamp(1, 3)
    return ((y - kv // 5).abs() <= 1) & ((x - kv % 5).abs() <= 1)


def shifted(mask_mod, by):
    return lambda b, h, q, kv: mask_mod(b, h, q + by, kv)


WHOLE = {  # functions of whole index tensors
    "causal": causal,
    "window": lambda b, h, q, kv: (q - kv <= 3) & (q >= kv),
    "prefix": flex.or_masks(causal, lambda b, h, q, kv: kv < 4),
    "documents": flex.and_masks(causal, lambda b, h, q, kv: DOCUMENT[q] == DOCUMENT[kv]),
    "shifted": shifted(causal, -3),
    "natten": natten,
    "dilated": lambda b, h, q, kv: ((q - kv) % 3 == 0) & (kv <= q),
    "look-up": lambda b, h, q, kv: BITS[q, kv],
    "noop": flex.noop_mask,
    "xor": lambda b, h, q, kv: (q ^ kv) & 4 == 0,
    "where": lambda b, h, q, kv: torch.where(q < 7, kv < 7, kv == q),
}
ALONE = {  # functions that expect two numbers
    "intervals": lambda b, h, q, kv: (INTERVALS[kv][0] <= q) & (q <= INTERVALS[kv][1]),
    "neighbours": lambda b, h, q, kv: (NEIGHBOURS[q] == kv).any(),
    "the nearest": lambda b, h, q, kv: (NEAREST[q] == kv).any(),
    "counted": lambda b, h, q, kv: (q >= STARTS).sum() == (kv >= STARTS).sum(),
    "stacked": lambda b, h, q, kv: torch.stack((q, kv)).max() < 9,
    "among": lambda b, h, q, kv: (
        (kv == GLOBAL).any() | (torch.cat((q[None], kv[None])).diff() == 1).all()
    ),
    "unpacked": lambda b, h, q, kv: OFFSETS[0] + q >= OFFSETS[1] + kv,
    "distance": lambda b, h, q, kv: (INTERVALS[q % S] - INTERVALS[kv]).abs().sum() < 9,
}
MODS = WHOLE | ALONE


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", MODS)
def test_every_rule_that_flex_attention_takes_is_taken(name):
    expected = flex.create_mask(MODS[name], None, None, T, S, device="cpu")[0, 0]
    assert expected.any()
    graph = from_mask_mod(MODS[name], T, S)
    assert graph.is_rule
    assert torch.equal(graph.mask(), expected)
    assert graph.num_edges == int(expected.sum())
    assert torch.equal(graph.materialise().mask(), expected)
    assert torch.equal(
        flex.create_mask(to_mask_mod(graph), 2, 3, T, S, device="cpu"),
        expected.expand(2, 3, -1, -1),
    )
    under = graph & graphs.cross(T, S)
    assert torch.equal(
        flex.create_mask(to_mask_mod(under), None, None, T, S, device="cpu")[0, 0], expected
    )
    block_mask = flex.create_block_mask(MODS[name], None, None, T, S, device="cpu", BLOCK_SIZE=8)
    assert from_block_mask(block_mask).equals(graph)


def test_a_rule_of_two_numbers_may_be_asked_inside_of_vmap_and_inference():
    graph = from_mask_mod(ALONE["neighbours"], T, S)
    with torch.inference_mode():
        count = graph.num_edges
    counted = torch.vmap(lambda x: x + from_mask_mod(ALONE["neighbours"], T, S).num_edges)(
        torch.zeros(3)
    )
    assert counted.tolist() == [count] * 3
    assert graph.contains(torch.arange(T), torch.zeros(0, 1, dtype=torch.int64)).shape == (0, T)


def test_an_answer_about_all_pairs_at_once_is_not_taken_for_an_answer_about_each():
    """Nothing that is tried is an edge, so a reduction over everything says "no" as well."""
    graph = from_mask_mod(lambda b, h, q, kv: (NEAREST[q % T] + 1000 == kv).any(), 3000)
    t = torch.arange(50)
    assert graph.contains(t, NEAREST[t % T, 0] + 1000).all()


def test_the_error_says_what_each_way_of_calling_it_gave():
    with pytest.raises(
        GraphError, match=r"the rule failed.* For each pair alone, .*index 20 is out of bounds"
    ):
        from_mask_mod(lambda b, h, q, kv: INTERVALS[q][0] <= kv, T, S)
    with pytest.raises(GraphError, match=r"does work for .* as two 0-d tensors.*from_mask_mod"):
        from_rule(lambda t, s: (NEIGHBOURS[t] == s).any(), T, S)
    with pytest.raises(
        GraphError, match=r"It fails for the pair \(t=22, s=0\) alone, too: index 22"
    ):
        from_rule(lambda t, s: INTERVALS[t][0] <= s, T, S)


BY_HEAD = {
    "windows": lambda b, h, q, kv: (q - kv).abs() <= h,
    "alternating": lambda b, h, q, kv: torch.where(h % 2 == 0, q >= kv, q <= kv),
    "looked up": lambda b, h, q, kv: (
        (NEIGHBOURS[q][h % 3] == kv) | (torch.tensor([0, 1, 4, 9])[h] == kv)
    ),
    "number": lambda b, h, q, kv: (NEIGHBOURS[q] == kv + h).any(),
}


@pytest.mark.parametrize("name", BY_HEAD)
def test_heads_with_edges_of_their_own_are_a_graph_per_head(name):
    expected = flex.create_mask(BY_HEAD[name], None, 4, T, S, device="cpu")[0]
    heads = from_mask_mod(BY_HEAD[name], T, S, H=4)
    assert isinstance(heads, PerHead)
    for h in range(4):
        assert torch.equal(heads.graphs[h].mask(), expected[h])
    assert len(set(heads.graphs)) == (2 if name == "alternating" else 4)
    assert torch.equal(
        flex.create_mask(to_mask_mod(heads), 2, 4, T, S, device="cpu"),
        expected.expand(2, -1, -1, -1),
    )
    with pytest.raises(IndexError):  # a head that no graph was made for
        to_mask_mod(heads)(torch.tensor(0), torch.tensor(4), torch.tensor(3), torch.tensor(3))
    shared = to_mask_mod(PerHead(heads.graphs[2:]), H=4)
    assert torch.equal(
        flex.create_mask(shared, None, 4, T, S, device="cpu")[0], expected[[2, 2, 3, 3]]
    )
    with pytest.raises(GraphError, match=r"must not depend on h, .* Pass H="):
        from_mask_mod(BY_HEAD[name], T, S)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", BY_HEAD)
def test_block_masks_of_several_heads_are_a_graph_per_head(name):
    expected = flex.create_mask(BY_HEAD[name], None, 4, T, S, device="cpu")[0]
    for own, side in ((4, 8), (4, 128), (1, 128)):
        block_mask = flex.create_block_mask(
            BY_HEAD[name], None, own, T, S, device="cpu", BLOCK_SIZE=side
        )
        heads = from_block_mask(block_mask, H=4 if own == 1 else None)
        assert all(torch.equal(heads.graphs[h].mask(), expected[h]) for h in range(4))
        assert [graph.name for graph in heads.graphs][:2] == ["block_mask[h=0]", "block_mask[h=1]"]
    with pytest.raises(GraphError, match=r"block_mask.mask_mod must not depend on h, .* Pass H="):
        from_block_mask(block_mask)
    with pytest.raises(GraphError, match="H must be 4, as in block_mask, got 2"):
        from_block_mask(to_block_mask(heads), H=2)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_a_mask_mod_of_a_graph_per_head_depends_on_the_head():
    windows = PerHead(
        (
            graphs.sliding_window(19, 3, causal=True),
            graphs.causal(19),
            graphs.sliding_window(19, 3, causal=True),
        )
    )
    listed = PerHead(tuple(graph.materialise() for graph in windows.graphs))
    expected = torch.stack([graph.mask() for graph in windows.graphs]).repeat_interleave(2, 0)
    for heads in (windows, listed, PerHead((windows.graphs[0],) * 3)):
        wanted = (
            expected if heads.graphs[1] is not heads.graphs[0] else expected[:1].expand(6, -1, -1)
        )
        assert torch.equal(
            flex.create_mask(to_mask_mod(heads, H=6), None, 6, 19, 19, device="cpu")[0], wanted
        )
        assert torch.equal(
            flex.create_mask(to_mask_mod(heads), None, 3, 19, 19, device="cpu")[0], wanted[::2]
        )
        ours = to_block_mask(heads, 4, H=6)
        theirs = flex.create_block_mask(
            to_mask_mod(heads, H=6), None, 6, 19, 19, device="cpu", BLOCK_SIZE=4
        )
        assert ours.shape == theirs.shape == (1, 6, 19, 19)
        assert torch.equal(ours.to_dense(), theirs.to_dense())
        for convert in (to_mask_mod, to_block_mask):
            with pytest.raises(
                GraphError, match="PerHead of 3 graphs needs a multiple of 3 heads, got 4"
            ):
                convert(heads, H=4)
    q, k, v = torch.randn(3, 1, 6, 19, 8, generator=DRAW).unbind(0)
    out = flex.flex_attention(q, k, v, block_mask=to_block_mask(windows, 4, H=6))
    assert torch.allclose(
        out, torch.nn.functional.scaled_dot_product_attention(q, k, v, expected), atol=1e-5
    )
    for mask_mod in (lambda b, h, q, kv: q >= kv - h, lambda b, h, q, kv: q >= kv - 2 * h):
        # of different functions
        for first in (from_mask_mod(causal, 7), graphs.causal(7), from_rule(torch.ge, 7)):
            mixed = PerHead((first, *from_mask_mod(mask_mod, 7, H=2).graphs[1:]))
            inside = flex.create_mask(to_mask_mod(mixed), None, 2, 7, 7, device="cpu")[0]
            assert torch.equal(inside, torch.stack([graph.mask() for graph in mixed.graphs]))


TABLE = BITS[None, None]


@pytest.mark.parametrize(
    "mask_mod",
    [
        lambda b, h, q, kv: TABLE[b, h, q, kv],
        lambda b, h, q, kv: TABLE[b][h][q][kv],
        lambda b, h, q, kv: TABLE[b].expand(3, -1, -1)[h, q, kv],
        lambda b, h, q, kv: TABLE[0].expand(9, -1, -1)[b, q, kv] | (NEIGHBOURS[q] == kv + 99).any(),
    ],
    ids=range(4),
)
def test_a_table_of_one_batch_and_one_head_says_that_there_is_one(mask_mod):
    """As ``create_block_mask`` without B and H, which asks for b = h = 0 alone."""
    assert torch.equal(from_mask_mod(mask_mod, T, S).mask(), BITS)
    block_mask = flex.create_block_mask(mask_mod, None, None, T, S, device="cpu", BLOCK_SIZE=8)
    assert torch.equal(from_block_mask(block_mask).mask(), BITS)
    with pytest.raises(
        GraphError, match=r"fails for b = [19]: index [19] is out of bounds.* B=1 for a single one"
    ):
        from_mask_mod(mask_mod, T, S, B=10)


def test_every_batch_that_a_table_has_is_tried_before_it_ends():
    """The last of 5 batches, and of 14 heads, lie between those that are tried."""
    last, late = torch.full((5,), T), torch.full((14,), T)
    last[4] = late[13] = 7
    with pytest.raises(GraphError, match="differs between b = 0 and b = 4"):
        from_mask_mod(lambda b, h, q, kv: kv < last[b], T)
    with pytest.raises(GraphError, match="differs between h = 0 and h = 13"):
        from_mask_mod(lambda b, h, q, kv: kv < late[h], T)
    assert from_mask_mod(lambda b, h, q, kv: kv < late[:13][h], T).num_edges == T * T


def test_heads_with_the_same_edges_are_one_graph():
    graph = from_mask_mod(causal, T, S, B=2, H=4)
    assert isinstance(graph, AttentionGraph)
    assert graph.name == "causal"
    assert from_mask_mod(lambda b, h, q, kv: q >= kv + h * 0, 7, H=1).equals(graphs.causal(7))


def test_batches_are_compared_pair_by_pair():
    lengths = torch.tensor([5, 7, 5])
    assert from_mask_mod(lambda b, h, q, kv: kv < lengths[b], 11, B=1).num_edges == 55
    with pytest.raises(
        GraphError, match=r"\(q_idx=0, kv_idx=5\) differs between b = 0 and b = 1.* Pass B="
    ):
        from_mask_mod(lambda b, h, q, kv: kv < lengths[b], 11)
    first, second, third = from_mask_mod(lambda b, h, q, kv: kv < lengths[b], 11, B=3).graphs
    assert (first.num_edges, second.num_edges) == (55, 77)
    assert third is first
    one_pair = lambda b, h, q, kv: (q >= kv) & ((q != 101) | (kv != 57) | (b == 0))  # noqa: E731
    # some pairs are tried, this is not one of them
    assert from_mask_mod(one_pair, 200).num_edges == 20100
    graphs = from_mask_mod(one_pair, 200, B=2).graphs
    assert [graph.num_edges for graph in graphs] == [20100, 20099]
    of_all, of_heads = from_mask_mod(
        lambda b, h, q, kv: one_pair(b * h, h, q, kv), 200, B=2, H=2
    ).graphs
    assert isinstance(of_all, AttentionGraph)
    assert [graph.num_edges for graph in of_heads.graphs] == [20100, 20099]
    with pytest.raises(
        GraphError,
        match=r"B=2 and H=1 are 2 masks of 20,000,000,000 pairs, .* or leave B out to try some",
    ):
        from_mask_mod(causal, 10**5, B=2)
    # too many pairs to see that they are equal
    assert len(set(from_mask_mod(causal, 10**9, H=3).graphs)) == 3


@pytest.mark.parametrize(
    ("nodes", "sizes", "words"),
    [
        (4, {"B": 2**40}, "B=1099511627776 and H=1 are .* at most 256 heads, 4,096 masks"),
        (4, {"B": 10**5, "H": 2}, "B=100000 and H=2 are 200,000 masks"),
        (4, {"B": 4096, "H": 2}, "B=4096 and H=2 are 8,192 masks"),
        (4, {"H": 2**40}, "convert the mask of each head, with H=1"),
        (4, {"H": 257}, "B=1 and H=257 are 257 masks"),
        (10**4, {"B": 8}, "of 800,000,000 pairs, .* 268,435,456 pairs of several batches"),
        (10**3, {"B": 30, "H": 10}, "B=30 and H=10 are 300 masks of 300,000,000 pairs"),
    ],
)
def test_too_many_batches_or_heads_are_refused_before_any_is_asked(nodes, sizes, words):
    def never(b, h, q, kv):
        raise AssertionError

    with pytest.raises(GraphError, match=words):
        from_mask_mod(never, nodes, **sizes)


def test_heads_are_compared_until_it_takes_too_long(monkeypatch):
    """Each of 7 differs from each other in a pair that is not tried."""
    compared, equals = [], AttentionGraph.equals
    monkeypatch.setattr("graphattn.convert._of_pair._COMPARED", 7 * 200**2)
    monkeypatch.setattr(
        AttentionGraph, "equals", lambda a, b: compared.append(a.name) or equals(a, b)
    )
    heads = from_mask_mod(lambda b, h, q, kv: (q >= kv) & ((q != 101) | (kv != 57 + h)), 200, H=7)
    assert len(set(heads.graphs)) == 7
    assert len(compared) == 7
    compared.clear()
    assert len(from_mask_mod(lambda b, h, q, kv: q >= kv + (h == 7), 200, H=8).graphs) == 8
    assert not compared


def by_both(b, h, q, kv):
    return (q - kv <= h // 2) & (q >= kv) & ((b < 2) | (kv > 3))


@pytest.mark.sample(4)
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    ("graph", "head"),
    [
        (from_mask_mod(by_both, 8, B=1, H=1), 0),
        (from_mask_mod(by_both, 8, B=2, H=2), 0),  # whose masks agree
        (from_mask_mod(by_both, 8, B=1, H=5).graphs[0], 0),
        (from_mask_mod(by_both, 8, B=2, H=5).graphs[4], 4),
    ],
)
def test_a_graph_of_one_batch_and_head_gives_a_mask_mod_of_those_for_any(graph, head):
    expected = flex.create_mask(by_both, 1, 5, 8, 8, device="cpu")[0, head]
    assert torch.equal(graph.mask(), expected)
    assert torch.equal(
        flex.create_mask(to_mask_mod(graph), 4, 7, 8, 8, device="cpu"),
        expected.expand(4, 7, -1, -1),
    )
    q, k, v = torch.randn(3, 4, 7, 8, 8, generator=DRAW).unbind(0)
    for block_mask in (
        to_block_mask(graph, (4, 4)),
        to_block_mask(from_block_mask(to_block_mask(graph, 4)), 4),
    ):
        out = flex.flex_attention(q, k, v, block_mask=block_mask)
        assert torch.allclose(
            out, torch.nn.functional.scaled_dot_product_attention(q, k, v, expected), atol=1e-5
        )
    assert not to_mask_mod(graph)(0, torch.tensor(9), torch.tensor(7), torch.tensor(1))


def test_one_pair_of_one_head_is_enough_to_be_another_graph():
    heads = from_mask_mod(
        lambda b, h, q, kv: (q >= kv) & ((q != 101) | (kv != 57) | (h != 1)), 200, H=3
    )
    assert [graph.num_edges for graph in heads.graphs] == [20100, 20099, 20100]
    assert heads.graphs[0] is heads.graphs[2]


@pytest.mark.parametrize("bad", [0, -1, 2.0, "2", torch.ones(2)])
def test_batches_and_heads_are_whole_numbers(bad):
    for word in ("B", "H"):
        with pytest.raises(GraphError, match=f"^{word} must be "):
            from_mask_mod(causal, T, **{word: bad})


def test_a_slice_of_a_block_mask_has_no_mask_mod():
    block_mask = flex.create_block_mask(causal, 2, 3, 9, 9, device="cpu")
    for part in (block_mask[0], block_mask[:, 1], block_mask[0, 1]):
        with pytest.raises(
            GraphError,
            match=r"must have a mask_mod, which a slice, .* loses; convert the whole one",
        ):
            from_block_mask(part)


def test_block_masks_of_several_batches_look_up_no_other_batch():
    lengths = torch.tensor([7, 7])
    block_mask = flex.create_block_mask(
        lambda b, h, q, kv: kv < lengths[b], 2, None, 9, 9, device="cpu"
    )
    assert from_block_mask(block_mask).num_edges == 63
