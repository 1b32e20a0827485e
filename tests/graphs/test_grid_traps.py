"""Traps of grids: signs, padding, shifts, borders and class tokens, each against a plain torch construction."""

import itertools
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


def plain_swin(x, weight, bias, table, cell, shift):
    """Swin's attention with its own padding, roll, windows, mask and roll back; x (height, width, C)."""
    size = x.shape[:2]
    padded = [-(-n // m) * m for n, m in zip(size, cell, strict=True)]
    shift = [0 if m >= n else d for n, m, d in zip(padded, cell, shift, strict=True)]
    x = F.pad(x, (0, 0, 0, padded[1] - size[1], 0, padded[0] - size[0]))
    regions = torch.zeros(padded)
    parts = [
        (slice(0, -m), slice(-m, -d), slice(-d, None)) if d else (slice(None),)
        for m, d in zip(cell, shift, strict=True)
    ]
    for number, (rows, columns) in enumerate(itertools.product(*parts)):
        regions[rows, columns] = number
    x = x.roll([-d for d in shift], (0, 1))

    def windows(grid):
        tall, wide = padded[0] // cell[0], padded[1] // cell[1]
        return grid.view(tall, cell[0], wide, cell[1], -1).permute(0, 2, 1, 3, 4).flatten(0, 1).flatten(1, 2)

    query, key, value = F.linear(windows(x), weight, bias).unflatten(-1, (3, H, D)).permute(2, 0, 3, 1, 4)
    score = query @ key.mT * D**-0.5 + table[swins_index(cell)].permute(2, 0, 1)
    region = windows(regions)
    score = score.masked_fill((region != region.mT)[:, None], -torch.inf)
    out = (score.softmax(-1) @ value).transpose(1, 2).flatten(2)
    tall, wide = padded[0] // cell[0], padded[1] // cell[1]
    out = out.view(tall, wide, *cell, -1).permute(0, 2, 1, 3, 4).reshape(*padded, -1).roll(shift, (0, 1))
    return out[: size[0], : size[1]].reshape(-1, H, D)


@pytest.mark.parametrize(
    ("size", "cell", "shift"), [((10, 7), (4, 4), (2, 2)), ((12, 7), (7, 7), (3, 3)), ((9, 13), (3, 5), (1, 2))]
)
def test_pad_nodes_as_keys_swin(size, cell, shift):
    x = torch.randn(*size, 3, dtype=torch.float64)
    weight, bias = torch.randn(3 * H * D, 3).double(), torch.randn(3 * H * D).double()
    table = torch.randn(math.prod(2 * m - 1 for m in cell), H).double()
    padded = tuple(-(-n // m) * m for n, m in zip(size, cell, strict=True))
    around = F.pad(x, (0, 0, 0, padded[1] - size[1], 0, padded[0] - size[0]))
    query = F.linear(x, weight, bias).flatten(0, 1).unflatten(-1, (3, H, D))[:, 0]
    key, value = F.linear(around, weight, bias).flatten(0, 1).unflatten(-1, (3, H, D)).unbind(1)[1:]
    graph = graphs.window_partition(size, cell, shift, read_padding=True)
    index = graphs.relative_position_index(graph, size, cell, source_size=padded)
    wanted = plain_swin(x, weight, bias, table, cell, shift)
    found = attention(query, key, value, graph, score_bias=table[index])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    masked = graphs.window_partition(size, cell, shift, pad=True)
    rows = torch.arange(math.prod(padded)).view(padded)[: size[0], : size[1]].flatten()
    index = graphs.relative_position_index(masked, size, cell)
    assert (attention(query, key[rows], value[rows], masked, score_bias=table[index]) - wanted).abs().max() > 0.01


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
