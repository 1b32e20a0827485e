"""Patches along curves against the papers' padding and reshaping; the rule of intervals against its
mask.
"""

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.graph import AttentionGraph
from graphattn.graph.forms import stretch_of_order

BATCHES = [
    [0],
    [1],
    [2],
    [7],
    [12],
    [13],
    [29],
    [13, 5, 12],
    [17, 1],
    [23, 19],
    [6, 6, 6],
    [5, 31, 12, 11],
]


def scattered(lengths):
    torch.manual_seed(31)
    batch = torch.repeat_interleave(torch.tensor(lengths))
    return torch.rand(len(batch), 3), batch


def ranks(pos, curve, lengths):
    """The rank of each point in its cloud, from the order alone."""
    batch = torch.repeat_interleave(torch.tensor(lengths))
    order = ga.shapes.curve_order(pos, curve, batch=batch)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    return (rank - (torch.tensor(lengths).cumsum(0) - torch.tensor(lengths))[batch]).tolist()


def padded(lengths, patch):
    """The padding of Pointcept's SerializedAttention, cloud by cloud: which serial places stand in
    which patch.

    A cloud of more than a patch is filled up to whole patches; the empty places at the end are
    taken by what stands one patch earlier.
    """
    patches, start = [], 0
    for n in lengths:
        places = list(range(start, start + n))
        if n > patch and n % patch:
            size = -(-n // patch) * patch
            places += [None] * (size - n)
            for i in range(size - patch + n % patch, size):
                places[i] = places[i - patch]
        patches += [places[i : i + patch] for i in range(0, len(places), patch)]
        start += n
    return patches


@pytest.mark.sample(4)
@pytest.mark.parametrize("lengths", BATCHES, ids=str)
@pytest.mark.parametrize("patch", [1, 4, 6])
def test_trap_tail_padding_of_ptv3(lengths, patch):
    """The last patch borrows keys: no target reads fewer than K sources, and none reads a source
    twice.
    """
    pos, batch = scattered(lengths)
    order = ga.shapes.curve_order(pos, batch=batch)
    size = min(patch, min(lengths)) or 1  # without FlashAttention
    for shrink, K in (("batch", size), ("cloud", patch)):
        graph = graphs.curve_patches(pos, patch, batch=batch, shrink=shrink)
        wanted, seen = torch.zeros(len(pos), len(pos), dtype=torch.bool), set()
        for places in padded(lengths, K):
            assert len(set(places)) == len(places)
            own = [i for i in places if i not in seen]  # copies are computed and thrown away
            seen.update(own)
            wanted[order[own][:, None], order[places][None, :]] = True
        assert torch.equal(graph.mask(), wanted)
        assert not graph.has_repeated_edges
        n = torch.tensor(lengths)[batch]
        assert torch.equal(graph.in_degree, n.clamp(max=K))
    # the control: a tail that stays short is another graph
    if any(n > size and n % size for n in lengths):
        assert not graphs.curve_patches(pos, size, batch=batch).equals(
            graphs.documents(
                torch.tensor([r // size for r in ranks(pos, "z", lengths)]) + 1000 * batch,
                causal=False,
            )
        )


@pytest.mark.parametrize("lengths", BATCHES, ids=str)
@pytest.mark.parametrize(("window", "dilation"), [(4, 1), (3, 2), (2, 5), (50, 1)])
def test_octformer_windows_are_its_reshapes(lengths, window, dilation):
    pos, batch = scattered(lengths)
    order = ga.shapes.curve_order(pos, batch=batch)
    whole = window * dilation
    tail = -len(order) % whole
    place = torch.cat((torch.arange(len(order)), torch.full((tail,), -1)))
    cloud = torch.cat((batch[order], torch.full((tail,), -1)))
    groups = [
        x.view(-1, window, dilation).transpose(1, 2).reshape(-1, window) for x in (place, cloud)
    ]
    wanted = torch.zeros(len(order), len(order), dtype=torch.bool)
    for places, clouds in zip(*groups, strict=True):
        for number in set(clouds.tolist()) - {-1}:
            own = order[places[clouds == number]]
            wanted[own[:, None], own] = True
    graph = graphs.octree_windows(pos, window, dilation=dilation, batch=batch)
    assert torch.equal(graph.mask(), wanted)
    assert graph.num_edges == int(wanted.sum())


def test_octformer_windows_run_over_the_border_of_clouds():
    pos, batch = scattered([5, 7])
    together = graphs.octree_windows(pos, 4, batch=batch)
    apart = graphs.octree_windows(pos[:5], 4), graphs.octree_windows(pos[5:], 4)
    assert together.in_degree.sort().values.tolist() == [1] + [3] * 3 + [4] * 8
    assert apart[1].in_degree.sort().values.tolist() == [3] * 3 + [4] * 4


ORDER = torch.randperm(13, generator=torch.Generator().manual_seed(37))
STRETCHES = {
    "sorted": ([0, 0, 3, 5, 5, 9, 13], [2, 3, 5, 8, 9, 13, 13], torch.arange(13)),
    "permuted": ([0, 0, 3, 5, 5, 9, 13], [2, 3, 5, 8, 9, 13, 13], ORDER),
    "shuffled": ([5, 13, 0, 9, 3, 0, 5], [8, 13, 3, 13, 5, 2, 9], ORDER),
    "nested": ([0, 1, 2], [13, 5, 3], ORDER),
    "no sources": ([0, 0, 0], [0, 0, 0], torch.arange(0)),
    "no targets": ([], [], ORDER),
}


@pytest.mark.parametrize("name", STRETCHES)
def test_stretches_of_an_order_know_their_edges_both_ways(name):
    lo, hi, order = STRETCHES[name]
    edges = stretch_of_order(
        torch.tensor(lo, dtype=torch.int64), torch.tensor(hi, dtype=torch.int64), order
    )
    wanted = torch.zeros(len(lo), len(order), dtype=torch.bool)
    for t, (first, last) in enumerate(zip(lo, hi, strict=True)):
        wanted[t, order[first:last]] = True
    for rule, mask in ((edges, wanted), (edges.flip(), wanted.T), (edges.flip().flip(), wanted)):
        graph = AttentionGraph(rule)
        assert torch.equal(graph.mask(), mask)
        assert torch.equal(graph.in_degree, mask.sum(1))
        assert torch.equal(torch.stack((graph.target, graph.source), 1), torch.nonzero(mask))


@pytest.mark.slow
def test_a_million_points_in_patches_are_a_rule():
    """10**9 edges: none is listed."""
    n = 1_000_003
    graph = graphs.curve_patches(torch.arange(n).flip(0)[:, None], 1024, bits=20)
    assert graph.num_edges == n * 1024
    assert bool((graph.in_degree == 1024).all())
    target = torch.tensor([n - 1] * 3 + [0] * 3)
    read = graph.contains(target, torch.tensor([n - 1, n - 1024, n - 1025, 0, 1023, 1024]))
    # the first index is the last on the curve: the tail
    assert read.tolist() == [True, True, False, True, True, False]
    sorted_points = graphs.curve_patches(torch.arange(n)[:, None], 1024, bits=20)
    assert sorted_points.edges.runs_per_row == 1
