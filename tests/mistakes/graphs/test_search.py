"""Mistakes planted in masks of many expressions are named; wrong masks that no mistake makes are
not.
"""

import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.graphs.catalogue import inputs


def apart(n):
    """t - s of all pairs."""
    return torch.arange(n)[:, None] - torch.arange(n)


def blocks(mask, side):
    """A mask between blocks as one between tokens."""
    return mask.repeat_interleave(side, 0).repeat_interleave(side, 1)


def on_grid(height, width, near):
    """A mask of a row-major grid, from the places of targets and sources."""
    node = torch.arange(height * width)
    y, x = node // width, node % width
    return near(y[:, None], x[:, None], y, x)


D, D48 = apart(40), apart(48)
HUB = torch.zeros(48, dtype=torch.bool).index_fill(0, torch.tensor([0, 20]), True)
DOCUMENT = torch.tensor([9, 14, 7, 18]).repeat_interleave(torch.tensor([9, 14, 7, 18]))
POINTS = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
NEAR = torch.cdist(POINTS, POINTS).fill_diagonal_(9).argsort(1)
IN_WINDOW, FIRST = (D48 >= 0) & (D48 < 9), (D48 >= 0) & (torch.arange(48) < 4)
STREAMING = graphs.sliding_window(48, 9, causal=True) | graphs.sinks(48, 4)
LONGFORMER = graphs.sliding_window(48, 9, causal=False) | graphs.global_tokens(48, (0, 20))
SWIN = graphs.window_partition((6, 10), (3, 5), shift=(1, 2))
NATTEN = graphs.grid_neighbourhood((7, 11), (3, 5), causal=False)
PACKED = graphs.sliding_window(48, 9, causal=True) & graphs.documents(
    lengths=(9, 14, 7, 18), causal=False
)
STRIDED = graphs.sparse_strided(48, 7)
LAYOUT = graphs.sliding_window(12, 3, causal=False) | graphs.global_tokens(12, (0,))
BLOCKS = graphs.block_sparse(LAYOUT, 4)
CACHE = graphs.sliding_window(6, (5, 0), num_sources=20)
RANDOM = graphs.random_neighbours(40, 4, 3) | graphs.sliding_window(40, 5, causal=True)
MESH = graphs.mesh_vertices(inputs.sphere_faces, hops=2)
KNN = graphs.knn(POINTS, 5)
ENCODER_DECODER = graphs.composite(
    [[graphs.full(10), None], [graphs.cross(14, 10), graphs.causal(14)]]
)
DILATED = graphs.sliding_window(48, 5, causal=True, dilation=3)
LOCAL = graphs.block_local(48, 8, look_back=1, causal=True)
LISTED = ga.from_mask((D48 >= 0) & (D48 < 9))
CUT = graphs.grid_neighbourhood((7, 11), (3, 5), causal=False, clamp=False)
CUBE = graphs.grid_neighbourhood((4, 3, 5), (3, 3, 3), causal=False)
CAUSAL, BLOCK_CAUSAL = graphs.causal(48), graphs.block_causal(48, 6)
DOCUMENTS, IDS = (
    graphs.documents(lengths=(9, 14, 7, 18), causal=False),
    graphs.documents(DOCUMENT, causal=False),
)


def nearest(k, first=0):
    return torch.zeros(60, 60, dtype=torch.bool).scatter(1, NEAR[:, first : first + k], True)


def cells(height, width, dy, dx):
    return on_grid(
        6,
        10,
        lambda a, b, y, x: (
            ((a - dy) // height == (y - dy) // height) & ((b - dx) // width == (x - dx) // width)
        ),
    )


def seen(dy, dx):
    """Windows that are cut at the border."""
    return on_grid(7, 11, lambda a, b, y, x: ((a - y).abs() <= dy) & ((b - x).abs() <= dx))


def encoder_decoder(change):
    mask = ENCODER_DECODER.mask()
    change(mask)
    return mask


def numbered_down(mask, height, width):
    node = torch.arange(height * width)
    place = node % height * width + node // height
    return mask[place][:, place]


def torus(height, width, dy, dx):
    """Windows that go on at the other end."""

    def near(a, b, y, x):
        rows, columns = (a - y).abs(), (b - x).abs()
        return (torch.minimum(rows, height - rows) <= dy) & (
            torch.minimum(columns, width - columns) <= dx
        )

    return on_grid(height, width, near)


def flat(height, width, dy, dx, plane=0):
    """Offsets of a window added to the number of a node; of three axes, ``height`` counts the rows
    of all planes.
    """
    steps = [y * width + x for y in range(-dy, dy + 1) for x in range(-dx, dx + 1)]
    steps = [step + z * plane * width for step in steps for z in ((-1, 0, 1) if plane else (0,))]
    return torch.isin(apart(height * width), torch.tensor(steps))


def cells_around(height, width, dy, dx):
    """Shifted cells that go on at the other end of a grid of 6 x 10."""
    return on_grid(
        6,
        10,
        lambda a, b, y, x: (
            ((a - dy) % 6 // height == (y - dy) % 6 // height)
            & ((b - dx) % 10 // width == (x - dx) % 10 // width)
        ),
    )


def labelled(*lengths):
    """Packed documents, each of which reads itself."""
    label = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    return label[:, None] == label


HALF_GLOBAL = D48.abs().le(4) | HUB
PLANTED = [
    (STREAMING, "window=10 where 9", ((D48 >= 0) & (D48 <= 9)) | FIRST),
    (STREAMING, "one source too many in the past", ((D48 >= 0) & (D48 <= 9)) | FIRST),
    (STREAMING, "window=8 where 9", ((D48 >= 0) & (D48 < 8)) | FIRST),
    (STREAMING, "k=5 where 4", IN_WINDOW | ((D48 >= 0) & (torch.arange(48) < 5))),
    (STREAMING, "sinks(48, 4) left out", IN_WINDOW),
    (STREAMING, "sliding_window(48, 9, causal=True) left out", FIRST),
    (STREAMING, "& where | was meant", IN_WINDOW & FIRST),
    (STREAMING, "self-loops missing", (IN_WINDOW | FIRST) & (D48 > 0)),
    (
        STREAMING,
        "window=10 where 9 was meant, in sliding_window(48, 9, causal=True); and",
        (D48 >= 0) & ((D48 < 10) | (torch.arange(48) < 5)),
    ),
    (STREAMING, "inverted mask", ~(IN_WINDOW | FIRST)),
    (STREAMING, "window=10 where 9", ~(((D48 >= 0) & (D48 < 10)) | FIRST)),
    (STREAMING, "k=5 where 4", (IN_WINDOW | ((D48 >= 0) & (torch.arange(48) < 5))).T),
    (LONGFORMER, "window=11 where 9", (D48.abs() <= 5) | HUB | HUB[:, None]),
    (LONGFORMER, "counted on each side", (D48.abs() <= 9) | HUB | HUB[:, None]),
    (LONGFORMER, "causal=True where False", ((D48 >= 0) & (D48 < 9)) | HUB | HUB[:, None]),
    (LONGFORMER, "do not read all", HALF_GLOBAL),
    (LONGFORMER, "not read by all", HALF_GLOBAL.T),
    (
        LONGFORMER,
        "tokens=(1, 21) where (0, 20)",
        (D48.abs() <= 4) | HUB.roll(1) | HUB.roll(1)[:, None],
    ),
    (
        LONGFORMER,
        "tokens=(0,) where (0, 20)",
        (D48.abs() <= 4) | (torch.arange(48) == 0) | (torch.arange(48) == 0)[:, None],
    ),
    (SWIN, "shift=(0, 0) where (1, 2)", cells(3, 5, 0, 0)),
    (SWIN, "shift=(2, 1) where (1, 2)", cells(3, 5, 2, 1)),
    (SWIN, "shift=(2, 3) where (1, 2)", cells(3, 5, 2, 3)),
    (SWIN, "grid numbered down the columns", numbered_down(cells(3, 5, 1, 2), 6, 10)),
    (NATTEN, "clamp=False where True", seen(1, 2)),
    (
        NATTEN,
        "kernel=(5, 3) where (3, 5)",
        graphs.grid_neighbourhood((7, 11), (5, 3), causal=False).mask(),
    ),
    (
        NATTEN,
        "kernel=(3, 6) where (3, 5)",
        graphs.grid_neighbourhood((7, 11), (3, 6), causal=False).mask(),
    ),
    (
        NATTEN,
        "size=(11, 7) where (7, 11)",
        graphs.grid_neighbourhood((11, 7), (3, 5), causal=False).mask(),
    ),
    (PACKED, "left out of", IN_WINDOW),
    (PACKED, "window=10 where 9", (D48 >= 0) & (D48 < 10) & (DOCUMENT[:, None] == DOCUMENT)),
    (
        PACKED,
        "lengths=(10, 13, 7, 18) where",
        IN_WINDOW & graphs.documents(lengths=(10, 13, 7, 18), causal=False).mask(),
    ),
    (PACKED, "| where & was meant", IN_WINDOW | (DOCUMENT[:, None] == DOCUMENT)),
    (STRIDED, "stride=8 where 7", (D48 >= 0) & ((D48 < 8) | (D48 % 8 == 0))),
    (STRIDED, "left out, in sparse_strided(48, 7)", (D48 >= 0) & (D48 < 7)),
    (BLOCKS, "global_tokens(12, (0,)) left out", blocks(apart(12).abs() <= 1, 4)),
    (
        BLOCKS,
        "window=5 where 3",
        blocks(
            (apart(12).abs() <= 2) | (torch.arange(12) == 0) | (torch.arange(12) == 0)[:, None], 4
        ),
    ),
    (CACHE, "window=(6, 0) where (5, 0)", torch.ones(6, 20).tril(14).triu(8).bool()),
    (CACHE, "align='start' where 'end'", torch.ones(6, 20).tril(0).triu(-5).bool()),
    (CACHE, "one source too many", torch.ones(6, 20).tril(15).triu(9).bool()),
    (RANDOM, "seed=4 where 3", graphs.random_neighbours(40, 4, 4).mask() | ((D >= 0) & (D < 5))),
    (RANDOM, "window=6 where 5", graphs.random_neighbours(40, 4, 3).mask() | ((D >= 0) & (D < 6))),
    (RANDOM, "rows swapped", graphs.random_neighbours(40, 4, 3).mask().T | ((D >= 0) & (D < 5))),
    (MESH, "hops=1 where 2", graphs.mesh_vertices(inputs.sphere_faces).mask()),
    (MESH, "self-loops added", MESH.mask() | torch.eye(MESH.num_nodes, dtype=torch.bool)),
    (KNN, "k=4 where 5", nearest(4)),
    (KNN, "rows swapped", nearest(5).T),
    (KNN, "self_loops=True", nearest(4) | torch.eye(60, dtype=torch.bool)),
    (
        ENCODER_DECODER,
        "cross(14, 10) left out",
        encoder_decoder(lambda mask: mask[10:, :10].zero_()),
    ),
    (ENCODER_DECODER, "inverted mask", encoder_decoder(lambda mask: mask[10:, 10:].logical_not_())),
    (
        ENCODER_DECODER,
        "self-loops missing",
        encoder_decoder(lambda mask: mask[10:, 10:].fill_diagonal_(False)),
    ),
    (DILATED, "dilation=4 where 3", (D48 >= 0) & (D48 <= 16) & (D48 % 4 == 0)),
    (DILATED, "window=6 where 5", (D48 >= 0) & (D48 <= 15) & (D48 % 3 == 0)),
    (DILATED, "taken for each other", (D48 >= 0) & (D48 <= 10) & (D48 % 5 == 0)),
    (
        LOCAL,
        "look_back=2 where 1",
        (D48 >= 0) & (torch.arange(48)[:, None] // 8 - torch.arange(48) // 8 <= 2),
    ),
    (
        LOCAL,
        "causal=False where True",
        ((b := torch.arange(48) // 8)[:, None] - b >= 0) & (b[:, None] - b <= 1),
    ),
    (LISTED, "window=10 where 9", (D48 >= 0) & (D48 < 10)),
    (LISTED, "self-loops missing", (D48 > 0) & (D48 < 9)),
    (NATTEN, "a torus", torus(7, 11, 1, 2)),
    (CUT, "a torus", torus(7, 11, 1, 2)),
    (NATTEN, "at fixed distances of the flattened grid", flat(7, 11, 1, 2)),
    (CUT, "at fixed distances of the flattened grid", flat(7, 11, 1, 2)),
    (CUT, "a window of 15 along the flattened grid", apart(77).abs() <= 7),
    (NATTEN, "a window of 5 along the flattened grid", apart(77).abs() <= 2),
    (CUBE, "at fixed distances of the flattened grid", flat(12, 5, 1, 1, 3)),
    (SWIN, "a cyclic shift without its mask", cells_around(3, 5, 1, 2)),
    (
        CAUSAL,
        "all of its block of 6 tokens",
        torch.arange(48) // 6 * 6 <= torch.arange(48)[:, None],
    ),
    (
        CAUSAL,
        "all of its block of 32 tokens",
        torch.arange(48) // 32 * 32 <= torch.arange(48)[:, None],
    ),
    (BLOCK_CAUSAL, "nothing ahead of the target is read: causal", D48 >= 0),
    (BLOCK_CAUSAL, "block=8 where 6", torch.arange(48) // 8 <= torch.arange(48)[:, None] // 8),
    (DOCUMENTS, "lengths=(23, 7, 18) where", labelled(23, 7, 18)),
    (DOCUMENTS, "lengths=(9, 15, 7, 17) where", labelled(9, 15, 7, 17)),
    (DOCUMENTS, "lengths=(9, 13, 7, 19) where", labelled(9, 13, 7, 19)),
    (PACKED, "lengths=(9, 14, 25) where", IN_WINDOW & labelled(9, 14, 25)),
    (IDS, "ids 14 and 7 taken for one", labelled(9, 21, 18)),
    (STRIDED, "sliding_window(48, 7, causal=True) left out", (D48 >= 0) & (D48 % 7 == 0)),
    (STREAMING, "an empty mask: no edge is there", D48 > 99),
    (ENCODER_DECODER, "an empty mask: no edge is there", torch.zeros(24, 24, dtype=torch.bool)),
]


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", PLANTED, ids=lambda case: f"{case[0].name[:24]}: {case[1]}")
def test_a_planted_mistake_is_named(case):
    expect, words, mask = case
    found = ga.audit(mask, expect)
    assert any(words in name for name in found.diagnosis), found


EXPECTED = list({id(expect): expect for expect, _, _ in PLANTED}.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expect", "flips"), [(expect, (3, 40)[i % 2]) for i, expect in enumerate(EXPECTED)], ids=repr
)
def test_entries_that_differ_by_chance_are_no_mistake(expect, flips):
    mask = expect.mask()
    place = torch.randperm(mask.numel(), generator=torch.Generator().manual_seed(flips))[:flips]
    mask.view(-1)[place] ^= True
    assert ga.audit(mask, expect).diagnosis == ()
    assert ga.audit(expect.mask(), expect).ok


def test_two_remote_mistakes_explain_nothing():
    """An entry of six tokens: two far-fetched changes of parts would give it."""
    expect = graphs.causal(6) @ graphs.sliding_window(6, 2, causal=True)
    mask = expect.mask()
    mask[0, 0] = False
    assert ga.audit(mask, expect).diagnosis == ()
