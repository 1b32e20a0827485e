"""Windows, factorised patterns and blocks against their written rules, pair by pair, and other
libraries' words.
"""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import and_masks, create_mask
from written_rules import assert_is, assert_mask

from graphattn import from_mask, graphs

SIZES = (0, 1, 2, 5, 13, 17)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("left", "right"), [(0, 0), (4, 0), (0, 3), (2, 5), (19, 19)])
def test_asymmetric_window(n, left, right):
    assert_is(graphs.sliding_window(n, (left, right)), n, n, lambda t, s: -right <= t - s <= left)
    end = graphs.sliding_window(n, (left, right), num_sources=7)
    assert_is(end, n, 7, lambda t, s: -right <= t + 7 - n - s <= left)
    start = graphs.sliding_window(n, (left, right), num_sources=7, align="start")
    assert_is(start, n, 7, lambda t, s: -right <= t - s <= left)


def test_a_cache_reads_what_the_whole_sequence_would():
    whole = graphs.sliding_window(23, (4, 0))
    assert graphs.sliding_window(3, (4, 0), num_sources=23).equals(
        whole.subgraph(targets=[20, 21, 22])
    )


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("k", [0, 1, 4, 19])
def test_sinks(n, k):
    assert_is(graphs.sinks(n, k), n, n, lambda t, s: s <= t and s < k)
    assert graphs.sinks(..., k)(n).equals(graphs.sinks(n, k))
    rest = graphs.sliding_window(n, 3, causal=True) | graphs.sinks(n, k)
    assert_is(rest, n, n, lambda t, s: s <= t and (s < k or t - s < 3))


def test_a_window_and_sinks_are_streaming_llms_cache():
    """Its cache keeps ``start`` and ``recent`` tokens, and a token reads itself beside them."""
    n, start, recent = 23, 3, 5
    cache, rows = [], []
    for t in range(n):
        rows.append({*cache, t})
        cache.append(t)
        if len(cache) > start + recent:
            cache = cache[:start] + cache[-recent:]
    graph = graphs.sliding_window(n, recent + 1, causal=True) | graphs.sinks(n, start)
    assert_is(graph, n, n, lambda t, s: s in rows[t])


@pytest.mark.parametrize("n", [*SIZES, 16, 32, 33])
def test_logsparse(n):
    """Li 2019: t - s in {0} and {1, 2, 4, ..., 2^floor(log2 t)}."""
    wanted = {t: {0, *(2**k for k in range(int(math.log2(t)) + 1))} if t else {0} for t in range(n)}
    graph = graphs.logsparse(n)
    assert_is(graph, n, n, lambda t, s: t - s in wanted[t])
    if n > 1:
        assert graph.materialise().k_hop(math.ceil(math.log2(n))).equals(graphs.causal(n))
        assert n < 4 or not graph.equals(graphs.causal(n))


def log_sparse_row(t, window, restart):
    """What token ``t`` reads by the loop of Li et al.'s code, stretch by stretch."""
    read = set()
    while t >= 0:
        read |= set(range(max(0, t - window + 1), t + 1))
        powers = (t - window + 1 - 2**k for k in range(restart))
        read |= {s for s in powers if s >= max(0, t - restart)}
        t -= restart
    return read


@pytest.mark.parametrize(("n", "window", "restart"), [(37, 3, 7), (29, 4, 11), (23, 5, 29)])
def test_logsparse_has_the_local_and_restart_attention_of_its_code(n, window, restart):
    rows = [log_sparse_row(t, window, restart) for t in range(n)]
    graph = graphs.logsparse(n, window, restart=restart)
    assert_is(graph, n, n, lambda t, s: s in rows[t])
    local = graphs.logsparse(n, window)
    assert local.equals(graph) == (restart >= n)
    # powers begin where the window ends, and not at the token
    assert not local.equals(graphs.logsparse(n) | graphs.sliding_window(n, window, causal=True))
    assert (local.in_degree[-1] == window + math.floor(math.log2(n - window)) + 1).all()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("stride", [1, 2, 3, 5, 19])
def test_strided_and_its_heads(n, stride):
    graph = graphs.sparse_strided(n, stride)
    assert_is(graph, n, n, lambda t, s: s <= t and (t - s < stride or (t - s) % stride == 0))
    # the paper
    assert_is(
        graph, n, n, lambda t, s: max(0, t - stride) <= s <= t or (s <= t and (t - s) % stride == 0)
    )
    heads = (
        graphs.sliding_window(n, stride, causal=True),
        graphs.sliding_window(n, n // stride + 1, causal=True, dilation=stride),
    )
    assert graph.equals(heads[0] | heads[1])


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("stride", "summary"), [(1, 1), (3, 1), (3, 2), (5, 5), (19, 4)])
def test_fixed(n, stride, summary):
    graph = graphs.sparse_fixed(n, stride, summary)
    wanted = [
        [s for s in range(t + 1) if s // stride == t // stride or s % stride >= stride - summary]
        for t in range(n)
    ]
    assert_is(graph, n, n, lambda t, s: s in wanted[t])


def test_fixed_between_blocks_is_that_of_sparse_transformers_code():
    """There a layout of blocks, cut at the diagonal; here of 3 tokens, 4 in a stretch."""
    n, block, stretch = 36, 3, 4
    graph = graphs.block_sparse(graphs.sparse_fixed(n // block, stretch), block) & graphs.causal(n)

    def reads(t, s):
        query, key = t // block, s // block
        if s > t:
            return False
        return query // stretch == key // stretch or key % stretch == stretch - 1

    assert_is(graph, n, n, reads)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("block", [1, 3, 4, 19])
def test_block_local(n, block):
    for back, ahead in ((0, 0), (1, 0), (2, 1), (0, 1), (7, 7)):
        graph = graphs.block_local(n, block, look_back=back, look_ahead=ahead, causal=False)
        assert_is(
            graph,
            n,
            n,
            lambda t, s, back=back, ahead=ahead: -ahead <= t // block - s // block <= back,
        )
    for back in (0, 1, 3):
        graph = graphs.block_local(n, block, look_back=back, causal=True)
        assert_is(
            graph, n, n, lambda t, s, back=back: 0 <= t // block - s // block <= back and s <= t
        )
    assert_is(graphs.block_causal(n, block), n, n, lambda t, s: s // block <= t // block)


@pytest.mark.parametrize(
    ("n", "block", "back", "ahead"), [(13, 3, 1, 0), (12, 3, 1, 1), (17, 2, 3, 2), (5, 5, 0, 0)]
)
def test_block_local_wraps(n, block, back, ahead):
    """Reformer's ``_look_adjacent``: chunks are rolled, so the first one meets the last."""
    blocks = -(-n // block)
    chunks = torch.arange(n).split(block)
    met = {
        i: torch.cat([chunks[(i - d) % blocks] for d in range(-ahead, back + 1)]).tolist()
        for i in range(blocks)
    }
    graph = graphs.block_local(n, block, look_back=back, look_ahead=ahead, causal=False, wrap=True)
    assert_is(graph, n, n, lambda t, s: s in met[t // block])
    if back and not ahead:  # once later tokens are masked, nothing of the wrap is left
        causal = graphs.block_local(n, block, look_back=back, causal=True, wrap=True)
        assert causal.equals(graphs.block_local(n, block, look_back=back, causal=True))
        assert not graph.equals(graphs.block_local(n, block, look_back=back, causal=False))


def chunked(chunk):
    return and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q // chunk == k // chunk)


def bd3lm(n, block):
    """The mask of BD3-LM's training, section 3.1 and its published code: noisy tokens come
    first.
    """

    def mask(b, h, q, k):
        noisy_q, noisy_k = q < n, k < n
        block_q, block_k = (q % n) // block, (k % n) // block
        diagonal = (block_q == block_k) & (noisy_q == noisy_k)
        earlier = (block_q > block_k) & noisy_q & ~noisy_k
        return diagonal | earlier | ((block_q >= block_k) & ~noisy_q & ~noisy_k)

    return mask


def test_flex_attentions_masks():
    for n, block in ((13, 4), (12, 3), (7, 7), (5, 19)):
        made = create_mask(chunked(block), None, None, n, n, device="cpu")[0, 0]
        assert graphs.block_local(n, block, causal=True).equals(from_mask(made))
        made = create_mask(bd3lm(n, block), None, None, 2 * n, 2 * n, device="cpu")[0, 0]
        assert graphs.block_diffusion(n, block).equals(from_mask(made))


@pytest.mark.parametrize("n", [13, 12])
def test_block_sparse_is_a_kronecker_product(n):
    layout = graphs.random_neighbours(-(-n // 3), 2, 5) | graphs.self_loops(-(-n // 3))
    wanted = torch.kron(layout.mask().int(), torch.ones(3, 3, dtype=torch.int32)).bool()[:n, :n]
    graph = graphs.block_sparse(layout, 3, num_nodes=n)
    assert_mask(graph, wanted)
    assert graph.reverse().equals(graphs.block_sparse(layout.reverse(), 3, num_nodes=n))


def test_composite_is_a_matrix_of_masks():
    parts = [
        [graphs.causal(3, 5), None, graphs.cross(3, 2)],
        [None, graphs.causal(4), graphs.erdos_renyi(4, 0.5, num_sources=2)],
    ]
    rows = [
        torch.cat([parts[0][0].mask(), torch.zeros(3, 4, dtype=torch.bool), parts[0][2].mask()], 1),
        torch.cat([torch.zeros(4, 5, dtype=torch.bool), parts[1][1].mask(), parts[1][2].mask()], 1),
    ]
    assert_mask(graphs.composite(parts), torch.cat(rows))
    listed = graphs.composite([[parts[1][2], None], [None, parts[1][2]]])
    assert not listed.is_rule
    assert torch.equal(
        listed.mask(), torch.block_diag(parts[1][2].mask(), parts[1][2].mask()).bool()
    )
    assert graphs.composite([]).num_edges == 0


def test_ranked_blocks_are_block_causal():
    assert graphs.causal_by_rank(torch.arange(17) // 5).equals(graphs.block_causal(17, 5))
    assert not graphs.causal_by_rank(torch.arange(17) // 4).equals(graphs.block_causal(17, 5))
