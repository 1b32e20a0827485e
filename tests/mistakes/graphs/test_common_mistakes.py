"""Common mistakes, made by plain indexing, are named in the first place; chance is named
nothing.
"""

import pytest
import torch
from torch.nn.functional import pad

import graphattn as ga
from graphattn import graphs


def cases(n, w):
    """(What was meant, the mask, words of the first explanation) at one size and one window."""
    q, k = torch.arange(n)[:, None], torch.arange(n)[None, :]
    past, half = q >= k, w // 2
    causal, window = graphs.causal(n), graphs.sliding_window(n, w, causal=True)
    banded = past & (q - k < w)
    yield window, past, "the window is not applied: every earlier token is read, in sliding_window("
    yield window, q - k < w, "the future is not masked"
    yield window, (q - k).abs() < w, "as far ahead as back"
    yield window, past & (q // w == k // w), f"chunks of {w} tokens in place of a window"
    yield window, past & (q - k < w + 5), f"window={w + 5} where {w} was meant"
    for graph in (causal, window, window | graphs.sinks(n, 3), graphs.prefix(n, w)):
        mask = graph.mask()
        yield graph, mask.roll(1, 1), "mask rolled by one source: mask.roll(1, 1)"
        yield graph, mask.roll(-1, 1), "mask rolled by one source: mask.roll(-1, 1)"
        yield graph, mask.roll(1, 0), "mask rolled by one target: mask.roll(1, 0)"
        yield (
            graph,
            pad(mask, (1, 0))[:, :-1],
            "mask shifted by one source: F.pad(mask, (1, 0))[:, :-1]",
        )
    yield (
        window,
        pad(banded, (0, 1))[:, 1:],
        "mask shifted by one source: F.pad(mask, (0, 1))[:, 1:]",
    )
    yield causal, torch.ones(n, n).tril(1).bool(), "one source too many in the future"
    yield causal, (q > k) | ((q == 0) & (k == 0)), "self-loops missing, but for target 0"
    both = graphs.sliding_window(n, w, causal=False)
    yield both, q - k <= half, "one side of the window is open"
    yield both, q // w == k // w, f"chunks of {w} tokens"
    streaming, sink = window | graphs.sinks(n, 3), k < 3
    yield streaming, past, "the window is not applied"
    yield streaming, banded | sink, "earlier tokens read the sinks, too"
    yield streaming, (q - k < w) | sink, "the future is not masked"
    yield streaming, past & ((q // w == k // w) | sink), "chunks of"
    yield streaming, banded, f"sinks({n}, 3) left out"
    block = graphs.block_causal(n, w)
    yield block, q // w > k // w, "a strict block: > in place of >="
    yield block, (q // w > k // w) | (q == k), "a strict block and the token itself"
    yield block, past, "causal between tokens"
    yield block, q // w == k // w, "the own block alone"
    yield graphs.block_local(n, w, causal=True), past, "the blocks are not applied"
    yield (
        graphs.block_local(n, w, causal=True),
        banded,
        f"a window of {w} tokens in place of blocks",
    )
    prefix = graphs.prefix(n, w)
    yield prefix, past, "the prefix is not applied"
    yield prefix, past | (q < w), "the prefix is tested on the query"
    yield prefix, (k < w) | (q >= w), "the suffix is bidirectional"
    yield (
        prefix & graphs.documents(lengths=(n - 6, 6), causal=False),
        (past | (q < w)) & ((q < n - 6) == (k < n - 6)),
        "on the query",
    )
    yield from of_documents(n, w, past, banded)
    yield from of_tokens(n, w, q, k)
    yield from of_trees(n, past)
    yield from of_padding(n, past)
    yield from of_diffusion(n)


def of_documents(n, w, past, banded):
    ids = torch.tensor([4, 1, 7, 2]).repeat_interleave(
        torch.tensor([n // 4, n // 3, n - n // 4 - n // 3 - 3, 3])
    )
    late, early, far = ids.clone(), ids.clone(), ids.clone()
    b = n // 4
    late[b], early[b - 1], far[b : b + 3] = 4, 1, 4

    def same(x):
        return x[:, None] == x

    packed = graphs.documents(ids, causal=False)
    for graph, among in (
        (packed, torch.ones_like(past)),
        (graphs.documents(ids, causal=True), past),
        (packed & graphs.causal(n), past),
        (packed & graphs.sliding_window(n, w, causal=True), banded),
    ):
        yield graph, same(late) & among, f"moved from token {b} to {b + 1}"
        yield graph, same(early) & among, f"moved from token {b} to {b - 1}"
        yield graph, same(far) & among, f"moved from token {b} to {b + 3}"
    yield (
        packed & graphs.sliding_window(n, w, causal=True),
        same(ids) & past,
        "the window is not applied",
    )
    yield graphs.documents(ids, causal=True), past, "ids ignored"
    yield packed, ~same(ids), "inverted"
    yield (
        packed & graphs.sliding_window(n, w, causal=True),
        same(ids) & (ids > 1) & banded,
        "as if its id said padding",
    )
    yield packed, ids[:, None] >= ids, "documents compared by >="
    cut = ids.clone()
    cut[2:b] = 9
    yield graphs.documents(ids, causal=True), same(cut) & past, "document 4 cut in two at token 2"
    ends = torch.tensor([3, 5, n - 8])
    lengths, place = (
        graphs.documents(lengths=tuple(ends.tolist()), causal=False),
        torch.repeat_interleave(ends),
    )
    yield lengths, same(place) & (place < 2), "the last document reads nothing"
    yield (
        lengths,
        same(torch.bucketize(torch.arange(n), ends, right=True)),
        "lengths of documents taken for boundaries",
    )
    numbers = torch.arange(3).repeat_interleave(ends)
    yield (
        graphs.documents(numbers, causal=True),
        (numbers[:, None] * numbers > 0) & past,
        "ids multiplied",
    )
    segment = torch.full((n,), -1)
    segment[3:8], segment[12:17] = 0, 1
    images, own = graphs.bidirectional_segments(segment), same(segment)
    yield images, past, "the segments are not applied"
    yield images, past | own, "tokens of no segment read each other"
    yield images, past | ((segment >= 0)[:, None] & (segment >= 0)), "all segments taken for one"
    yield images, own & (segment >= 0), "the segments alone"


def of_tokens(n, w, q, k):
    graph = graphs.sliding_window(n, w, causal=False) | graphs.global_tokens(n, (0, 7))
    near = (q - k).abs() <= w // 2

    def with_tokens(*tokens):
        chosen = torch.isin(torch.arange(n), torch.tensor(tokens))
        return near | chosen | chosen[:, None]

    yield graph, with_tokens(0, 15), "tokens=(0, 15) where (0, 7) was meant"
    yield graph, with_tokens(n - 1, 7), f"tokens=(7, {n - 1}) where (0, 7) was meant"
    yield graph, with_tokens(0, 7, 12), "tokens=(0, 7, 12) where (0, 7) was meant"
    yield graph, near | (k == 0) | (k == 7), "global tokens are read by all, but do not read all"
    yield graph, near | (q == 0) | (q == 7), "global tokens read all, but are not read by all"


def of_trees(n, past):
    parent = (torch.arange(n) - 1) // 2
    parent[0] = -1
    graph, loops = graphs.ancestors(parent), torch.eye(n, dtype=torch.bool)

    def ancestors(parent):
        above = torch.zeros(n, n, dtype=torch.bool)
        for node in range(1, n):
            above[node] = above[parent[node]]
            above[node, parent[node]] = True
        return above

    above, other = ancestors(parent), parent.clone()
    other[9], depth = 2, above.sum(1)
    yield graph, ancestors(other) | loops, "node 9 has parent 2, not 4"
    yield graphs.tree(parent), graphs.tree(other).mask(), "node 9 has parent 2, not 4"
    yield graph, depth[:, None] == depth, "nodes of the same level are read"
    yield graph, (above & (depth[:, None] - depth != 1)) | loops, "a level too high"
    yield graph, (above | loops) & (depth[:, None] - depth <= 2), "two levels of ancestors"
    siblings = (parent[:, None] == parent) & (parent >= 0)
    yield graph, siblings | loops, "siblings in place of ancestors"
    yield graph, above | siblings | loops, "siblings beside ancestors"
    yield graphs.ancestors(parent, window=3), above | loops, "the window left out"
    yield graph, past, "the tree is not applied"
    yield graph, (parent[:, None] == torch.arange(n)) | loops, "the parent alone is read"


def of_padding(n, past):
    real = torch.arange(n) >= 5  # padded on the left
    both = real[:, None] & real
    for graph, among in ((graphs.causal(n), past), (graphs.full(n), torch.ones_like(past))):
        meant = graph & ga.from_mask(both)
        if graph.num_edges == n * n:  # earlier tokens of a padded one are padding, too
            yield meant, among & real, "padding is masked for sources (keys) alone"
        yield meant, among & real[:, None], "padding is masked for targets (queries) alone"
        yield meant, among, "left out"
        yield (
            meant,
            (among & both) | ~real[:, None],
            "targets without a source, such as padding, read everything",
        )
        yield (
            meant,
            (among & both) | (~real[:, None] & ~real & torch.eye(n, dtype=torch.bool)),
            "read themselves",
        )
        yield meant, among & both.flip(0, 1), "padding on the other side"
        shorter, longer = torch.arange(n) >= 4, torch.arange(n) >= 6
        yield meant, among & shorter[:, None] & shorter, "padding is one token too short"
        yield meant, among & longer[:, None] & longer, "padding is one token too long"
        # padded on the right, and known by its mask alone
        read = ga.from_mask(among & both.flip(0, 1))
        yield (
            read,
            among,
            f"padding left out: sources {n - 5} to {n - 1} are padding that the mask lets through",
        )
        yield (
            ga.from_mask(among & real.flip(0)),
            among,
            f"sources {n - 5} to {n - 1} are padding that the mask lets",
        )
    pairs = graphs.cross_documents(torch.where(real, 0, 1), torch.where(real, 0, 2))
    yield (
        pairs & graphs.causal(n),
        (real[:, None] == real) & past,
        "such as padding, read one another",
    )


def of_diffusion(n):
    graph, token = graphs.block_diffusion(n, 4), torch.arange(2 * n)
    noisy, block = token < n, token % n // 4
    q, k, own = block[:, None], block[None, :], noisy[:, None] & noisy
    context, clean = noisy[:, None] & ~noisy, ~noisy[:, None] & ~noisy
    right = (own & (q == k)) | (clean & (q >= k))
    yield (
        graph,
        right | (context & (q >= k)),
        "a leak: noisy tokens read the clean copy of their own block",
    )
    yield (
        graph,
        right | (context & (q > k)) | (own & (q >= k)),
        "noisy tokens read the earlier noisy blocks",
    )
    yield graph, right | (context & (q > k)) | own, "noisy tokens read all noisy blocks"
    yield graph, right, "noisy tokens do not read the clean blocks"
    strict = (own & (q == k)) | (context & (q > k)) | (clean & (q > k))
    yield graph, strict, "clean tokens do not read their own block"


#: Each mistake at one of two sizes, in turn.
TABLE = [pair[i % 2] for i, pair in enumerate(zip(cases(24, 5), cases(37, 9), strict=True))]


@pytest.mark.sample(12)
@pytest.mark.parametrize(
    "number", range(len(TABLE)), ids=lambda i: f"{TABLE[i][0].name[:30]}: {TABLE[i][2][:30]}"
)
def test_a_common_mistake_is_named_first(number):
    expect, mask, words = TABLE[number]
    found = ga.audit(mask, expect)
    assert words in next(iter(found.diagnosis), ""), found
    assert not any(
        name in str(found) for name in ("Rectangle", "Band(", "Cells(", "Partition(", "Predicate")
    )
    if "padding left out" in words:
        assert len(found.diagnosis) == 1
        assert "cross_documents" not in str(found)


MEANT = list({graph.name.replace("37", "24"): graph for graph, _, _ in TABLE}.values())


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "expect",
    [
        graph if i % 3 == 0 else pytest.param(graph, marks=pytest.mark.slow)
        for i, graph in enumerate(MEANT)
    ],
    ids=lambda graph: graph.name[:40],
)
def test_the_mask_itself_and_a_mask_by_chance_are_no_mistake(expect):
    assert ga.audit(expect.mask(), expect).ok
    chance = torch.rand(expect.mask().shape, generator=torch.Generator().manual_seed(0)) < 0.4
    assert ga.audit(chance, expect).diagnosis == ()
    one = expect.mask()
    one[11, 4] ^= True
    assert ga.audit(one, expect).diagnosis == ()
