"""Traps of grids: signs, padding, shifts, borders and class tokens, each against a plain torch construction."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import graphattn
from graphattn import from_edge_index, graphs

H, D = 2, 5
attention = partial(graphattn.attention, backend="dense")


def swins_index(window):
    """Liu et al.'s own lines, for any number of axes: int64 (nodes of a window, nodes of a window)."""
    place = torch.stack(torch.meshgrid(*map(torch.arange, window), indexing="ij")).flatten(1)
    relative = (place[:, :, None] - place[:, None, :]).permute(1, 2, 0).contiguous()
    for axis, side in enumerate(window):
        relative[:, :, axis] += side - 1
        relative[:, :, axis] *= math.prod(2 * other - 1 for other in window[axis + 1 :])
    return relative.sum(-1)


@pytest.mark.parametrize("window", [(4, 4), (3, 5), (2, 3, 4), (7,)])
def test_swin_bias_index_is_target_minus_source(window):
    graph = graphs.window_partition(window, window)
    index = graphs.relative_position_index(graph, window, window)
    wanted = swins_index(window)
    assert index.dtype == torch.int64
    assert torch.equal(index.view_as(wanted), wanted)
    assert not torch.equal(index.view_as(wanted), wanted.T)  # T5's sign
    assert torch.equal(math.prod(2 * side - 1 for side in window) - 1 - index.view_as(wanted), wanted.T)


def test_swin_bias_index_is_the_same_in_every_cell():
    graph = graphs.window_partition((6, 10), (3, 5))
    index = graphs.relative_position_index(graph, (6, 10), (3, 5))
    table = torch.full((60, 60), -1)
    table[graph.target, graph.source] = index
    nodes = torch.arange(60).view(2, 3, 2, 5).permute(0, 2, 1, 3).reshape(4, 15)
    for cell in nodes:
        assert torch.equal(table[cell[:, None], cell], swins_index((3, 5)))
    backwards = from_edge_index(graph.edge_index.flip(1), num_nodes=60)
    assert torch.equal(graphs.relative_position_index(backwards, (6, 10), (3, 5)), index.flip(0))


@pytest.mark.parametrize(("size", "cell", "halo"), [((6, 9), 3, 1), ((4, 8), 4, 3), ((5, 7), 1, 2)])
def test_pad_nodes_as_keys_halo(size, cell, halo):
    nodes, wide = math.prod(size), cell + 2 * halo
    query, key, value = torch.randn(3, *size, H, D, dtype=torch.float64)
    padded = [F.pad(part, (0, 0, 0, 0, halo, halo, halo, halo)) for part in (key, value)]
    near = [part.unfold(0, wide, cell).unfold(1, wide, cell).flatten(-2) for part in padded]  # (blocks, H, D, window)
    blocks = query.unflatten(1, (-1, cell)).unflatten(0, (-1, cell)).permute(0, 2, 1, 3, 4, 5).flatten(2, 3)
    score = torch.einsum("xynhd,xyhdw->xynhw", blocks, near[0]) * D**-0.5  # zeros outside the image: a score of 0
    out = torch.einsum("xynhw,xyhdw->xynhd", score.softmax(-1), near[1])
    out = out.unflatten(2, (cell, cell)).permute(0, 2, 1, 3, 4, 5).reshape(nodes, H, D)
    graph = graphs.halo(size, cell, halo, read_padding=True)
    found = attention(query.flatten(0, 1), *(part.flatten(0, 1) for part in padded), graph)
    torch.testing.assert_close(found, out, rtol=0, atol=1e-12)
    cut = attention(*(part.flatten(0, 1) for part in (query, key, value)), graphs.halo(size, cell, halo))
    assert (cut - out).abs().max() > 0.01


def test_shift_is_zero_per_axis_where_the_cell_covers_the_padded_axis():
    for read_padding in (False, True):
        options = {"pad": True, "read_padding": read_padding}
        graph = graphs.window_partition((6, 14), (7, 7), (3, 3), **options)
        assert graph.equals(graphs.window_partition((6, 14), (7, 7), (0, 3), **options))
        assert "shift=(0, 3)" in graph.name
        shifted = graphs.window_partition((8, 14), (7, 7), (3, 3), **options)
        assert not shifted.equals(graphs.window_partition((8, 14), (7, 7), (0, 3), **options))
