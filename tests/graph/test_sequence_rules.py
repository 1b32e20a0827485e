"""Rules of blocks, distances, columns and ranks answer every question as their boolean matrix would."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from brute_force import edge_sets, table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphattn.graph import edge_set
from graphattn.graph.algebra import compose
from graphattn.graph.edge_set import EdgeSet
from graphattn.graph.rules_blocks import Composite, Lifted
from graphattn.graph.rules_random import Bernoulli
from graphattn.graph.rules_sequence import Comb, Distances, Fixed, Ranked

SIDES = st.integers(0, 11)


@st.composite
def lifted(draw):
    T, S, block = draw(SIDES), draw(SIDES), draw(st.integers(1, 4))
    base, mask = draw(edge_sets(-(-T // block), -(-S // block), 1))
    return Lifted(base, block, T, S), table(T, S, lambda t, s: mask[t // block, s // block])


@st.composite
def distances(draw):
    T, S, chosen = draw(SIDES), draw(SIDES), draw(st.sets(st.integers(-13, 13)))
    return Distances(T, S, tuple(sorted(chosen))), table(T, S, lambda t, s: t - s in chosen)


@st.composite
def combs(draw):
    T, S, period = draw(SIDES), draw(SIDES), draw(st.integers(1, 5))
    lo = draw(st.integers(0, period))
    hi = draw(st.integers(lo, period))
    return Comb(T, S, period, lo, hi), table(T, S, lambda t, s: lo <= s % period < hi)


@st.composite
def rankings(draw):
    ranks = st.lists(st.sampled_from([-(2**63), -1, 0, 1, 2, 5, 2**63 - 1]), max_size=11)
    target, source, strict = draw(ranks), draw(ranks), draw(st.booleans())
    source = sorted(source) if draw(st.booleans()) else source
    edges = Ranked(torch.tensor(target, dtype=torch.int64), torch.tensor(source, dtype=torch.int64), strict)
    rows = table(len(target), len(source), lambda t, s: source[s] < target[t] if strict else source[s] <= target[t])
    return edges, rows


@st.composite
def composites(draw):
    targets, sources = (draw(st.lists(st.integers(0, 4), max_size=3)) for _ in range(2))
    cells, rows = [], [np.zeros((0, sum(sources)), dtype=bool)]
    for T in targets:
        found = [draw(st.one_of(st.none(), edge_sets(T, S, 0))) for S in sources]
        cells.append([None if case is None else case[0] for case in found])
        masks = [
            np.zeros((T, S), dtype=bool) if case is None else case[1] for case, S in zip(found, sources, strict=True)
        ]
        rows.append(np.concatenate([np.zeros((T, 0), dtype=bool), *masks], 1))
    return Composite(cells, targets, sources), np.concatenate(rows)


def check_everything(edges, mask):
    T, S = mask.shape
    expected = torch.from_numpy(np.ascontiguousarray(mask))
    assert (edges.num_targets, edges.num_sources) == (T, S)
    t, s = torch.arange(T)[:, None], torch.arange(S)[None, :]
    assert torch.equal(edges.contains(t, s), expected)
    assert torch.equal(torch.stack(edges.pairs(), 1), expected.nonzero())
    assert edges.count() == int(mask.sum())
    assert torch.equal(edges.degrees(), expected.sum(1))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(lifted(), distances(), combs(), rankings(), composites()))
def test_rules_are_their_matrix(case):
    edges, mask = case
    check_everything(edges, mask)
    check_everything(edges.flip(), mask.T)
    check_everything(edges.flip().flip(), mask)
    with patch.object(edge_set, "ROWS_BUDGET", 7):  # walked a few rows at a time
        assert edges.degrees().tolist() == mask.sum(1).tolist()


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 4), SIDES, SIDES, SIDES, st.data())
def test_two_layers_of_blocks_are_blocks_of_two_layers(block, T, M, S, data):
    blocks = [-(-n // block) for n in (T, M, S)]
    (a, x), (b, y) = data.draw(edge_sets(blocks[0], blocks[1], 0)), data.draw(edge_sets(blocks[1], blocks[2], 0))
    found = compose(Lifted(a, block, T, M), Lifted(b, block, M, S))
    reach = x.astype(int) @ y.astype(int) > 0
    assert torch.equal(
        torch.stack(found.pairs(), 1), torch.tensor(table(T, S, lambda t, s: reach[t // block, s // block])).nonzero()
    )


@pytest.mark.parametrize("probability", [0.0, 0.03, 0.5, 1.0])
def test_hashed_pairs_are_independent_coins(probability):
    T, S = 503, 701
    rule = Bernoulli(T, S, probability, seed=3)
    mask = rule.contains(torch.arange(T)[:, None], torch.arange(S)[None, :]).numpy()
    check_everything(rule, mask)

    def agrees(bits, probability):  # within five standard deviations
        return abs(bits.mean() - probability) <= 5 * (probability * (1 - probability) / bits.size) ** 0.5

    assert agrees(mask, probability)
    for pairs in (
        mask[1:] & mask[:-1],
        mask[:, 1:] & mask[:, :-1],
        mask[1:, :-1] & mask[:-1, 1:],
        mask[::2] & mask[1::2][:1],
    ):
        assert agrees(pairs, probability**2)  # neighbours do not know of each other
    other = Bernoulli(T, S, probability, seed=4).contains(torch.arange(T)[:, None], torch.arange(S)[None, :]).numpy()
    assert agrees(mask & other, probability**2)
    assert abs(mask.sum(0).var() - T * probability * (1 - probability)) <= 0.3 * T * probability * (1 - probability)


def test_large_rules_store_nothing():
    """Counted in closed form, and asked at their far corner; a listed edge would need 16 bytes."""
    N, last = 10**12 + 1, torch.tensor([10**12])
    assert Distances(N, N, (0, 1, 2**39)).count() == 3 * N - 1 - 2**39
    assert Comb(N, N, 1000, 990, 1000).count() == N * 10**10
    from graphattn.graph.rules import Band

    blocks = Lifted(Band(10**9 + 1, 10**9 + 1, 0, 0), 1000, 10**12 + 1000, 10**12 + 1000)
    assert blocks.count() == 1000 * (10**12 + 1000)
    assert bool(blocks.contains(last, last + 999))
    assert not bool(blocks.contains(last, last - 1))


@pytest.mark.parametrize("block", [1, 2, 3, 5, 11, 13])
@pytest.mark.parametrize("size", [0, 1, 10, 11, 12])
def test_fixed_counts_without_a_walk(size, block):
    for summary in (1, min(2, block), block):
        mask = table(size, size, lambda t, s: s <= t and (s // block == t // block or s % block >= block - summary))  # noqa: B023
        edges = Fixed(size, block, summary)
        with patch.object(Fixed, "runs", side_effect=AssertionError("walked")):
            assert edges.count() == mask.sum()
            assert edges.degrees().tolist() == mask.sum(1).tolist()
        assert edges.flip().degrees().tolist() == mask.sum(0).tolist()


@pytest.mark.parametrize("size", [0, 1, 2, 7, 12])
def test_fixed_counts_what_a_walk_counts(size):
    for block in range(1, 6):
        for summary in range(1, block + 1):
            edges = Fixed(size, block, summary)
            assert edges.count() == EdgeSet.count(edges)
            assert torch.equal(edges.degrees(), EdgeSet.degrees(edges))
