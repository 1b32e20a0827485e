"""Traps of grids: signs, padding, shifts, borders and class tokens, each against a plain torch
construction.
"""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import graphattn
from graphattn import graphs

H, D = 2, 5
attention = partial(graphattn.attention, backend="dense")


@pytest.mark.parametrize(("size", "cell", "halo"), [((6, 9), 3, 1), ((4, 8), 4, 3), ((5, 7), 1, 2)])
def test_pad_nodes_as_keys_halo(size, cell, halo):
    nodes, wide = math.prod(size), cell + 2 * halo
    query, key, value = torch.randn(3, *size, H, D, dtype=torch.float64)
    padded = [F.pad(part, (0, 0, 0, 0, halo, halo, halo, halo)) for part in (key, value)]
    # (blocks, H, D, window)
    near = [part.unfold(0, wide, cell).unfold(1, wide, cell).flatten(-2) for part in padded]
    blocks = (
        query.unflatten(1, (-1, cell))
        .unflatten(0, (-1, cell))
        .permute(0, 2, 1, 3, 4, 5)
        .flatten(2, 3)
    )
    # zeros outside the image: a score of 0
    score = torch.einsum("xynhd,xyhdw->xynhw", blocks, near[0]) * D**-0.5
    out = torch.einsum("xynhw,xyhdw->xynhd", score.softmax(-1), near[1])
    out = out.unflatten(2, (cell, cell)).permute(0, 2, 1, 3, 4, 5).reshape(nodes, H, D)
    graph = graphs.halo(size, cell, halo, read_padding=True)
    found = attention(query.flatten(0, 1), *(part.flatten(0, 1) for part in padded), graph)
    torch.testing.assert_close(found, out, rtol=0, atol=1e-12)
    cut = attention(
        *(part.flatten(0, 1) for part in (query, key, value)), graphs.halo(size, cell, halo)
    )
    assert (cut - out).abs().max() > 0.01


def test_shift_is_zero_per_axis_where_the_cell_covers_the_padded_axis():
    for read_padding in (False, True):
        options = {"pad": True, "read_padding": read_padding}
        graph = graphs.window_partition((6, 14), (7, 7), (3, 3), **options)
        assert graph.equals(graphs.window_partition((6, 14), (7, 7), (0, 3), **options))
        assert "shift=(0, 3)" in graph.name
        shifted = graphs.window_partition((8, 14), (7, 7), (3, 3), **options)
        assert not shifted.equals(graphs.window_partition((8, 14), (7, 7), (0, 3), **options))
