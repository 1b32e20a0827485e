"""Swin V2 with the weights of transformers'; Swin on videos beside a dense twin written out with
rolls and masks.
"""

import math

import pytest
import torch
from hf_table import theirs
from text_models import shaken

import graphattn as ga
from graphattn.errors import OptionError
from graphattn.models import Swin, from_transformers
from graphattn.models.images.swin_stage import window_graphs


def images(*size):
    return torch.randn(2, 3, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def close(mine, theirs, tolerance=1e-12):
    torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


def test_dropouts_and_paths():
    model = theirs(
        "Swinv2",
        "Model",
        attention_probs_dropout_prob=0.25,
        hidden_dropout_prob=0.125,
        drop_path_rate=0.3,
    ).train()
    mine = from_transformers(model)
    blocks = [block for stage in mine.stages for block in stage.layers]
    assert [block.branch[1].p for block in blocks] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert {
        (b.attention.dropout, b.end_norm["attention"][0].p, b.end_norm["feed_forward"][0].p)
        for b in blocks
    } == {(0.25, 0.25, 0.125)}
    assert not torch.equal(mine(images(24, 36)), mine(images(24, 36)))
    ours = Swin(4, (2,), (2,), 3, 2, version=2, dropout=0.5).train()
    assert not any(
        isinstance(module.bias, torch.Tensor)
        for module in (ours.stages[0].layers[0].attention.k_proj,)
    )
    assert not torch.equal(ours(images(12, 12).float()), ours(images(12, 12).float()))


def dense_attention(block, bias, x, grid, sides, shift):
    """Attention of one block of Swin on a grid of any axes, as in the papers' code: padded, rolled,
    masked by -inf.
    """
    layer, axes = block.attention, len(grid)
    whole = [-(-n // side) * side for n, side in zip(grid, sides, strict=True)]
    x = x.unflatten(-2, grid)
    pads = [side for n, w in reversed(list(zip(grid, whole, strict=True))) for side in (0, w - n)]
    x = torch.nn.functional.pad(x, [0, 0, *pads])
    region = torch.zeros(whole, dtype=torch.long)
    for axis, (n, side, moved) in enumerate(zip(whole, sides, shift, strict=True)):
        place = torch.arange(n)
        part = (
            (place >= n - side).long() + (place >= n - moved).long()
            if moved
            else torch.zeros_like(place)
        )
        region = region * 3 + part.view([-1 if i == axis else 1 for i in range(axes)])
    x = torch.roll(x, [-moved for moved in shift], list(range(1, axes + 1)))

    def cells(y, batch):  # (batch, *whole, C) to (batch, cells, nodes of a cell, C)
        y = y.reshape(
            batch,
            *(k for n, side in zip(whole, sides, strict=True) for k in (n // side, side)),
            y.shape[-1],
        )
        order = [0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1]
        return y.permute(order).flatten(axes + 1, 2 * axes).flatten(1, axes)

    def heads(proj, y):
        return proj(y).unflatten(-1, (layer.num_heads, -1)).transpose(-2, -3)

    mine = cells(x, len(x))
    number = cells(region.unsqueeze(0).unsqueeze(-1), 1)[0, :, :, 0]
    within = torch.stack(torch.meshgrid(*map(torch.arange, sides), indexing="ij"), -1).flatten(
        0, -2
    )
    away, row = within.unsqueeze(1) - within.unsqueeze(0), 0
    for axis, side in enumerate(bias.window):
        row = row * (2 * side - 1) + away[..., axis] + side - 1
    score = (
        heads(layer.q_proj, mine)
        @ heads(layer.k_proj, mine).transpose(-1, -2)
        * layer.head_dim**-0.5
    )
    score = score + bias.table.weight[row].permute(2, 0, 1)
    score = score.masked_fill((number.unsqueeze(1) != number.unsqueeze(2)).unsqueeze(1), -math.inf)
    found = layer.out_proj(
        (score.softmax(-1) @ heads(layer.v_proj, mine)).transpose(-2, -3).flatten(-2)
    )
    found = found.unflatten(2, tuple(sides)).unflatten(
        1, [n // side for n, side in zip(whole, sides, strict=True)]
    )
    found = found.permute(
        [0, *(i for a in range(1, axes + 1) for i in (a, a + axes)), 2 * axes + 1]
    )
    found = torch.roll(found.reshape(len(x), *whole, -1), shift, list(range(1, axes + 1)))
    return found[(slice(None), *(slice(n) for n in grid))].flatten(1, -2)


def dense_video(model, video):
    """Video Swin written out; a merged node is (time, row, column) from rows 0, 1, 0, 1 and columns
    0, 0, 1, 1.
    """
    frames, wide = model.patches.patch, video.shape[2:]
    pads = [side for n, p in reversed(list(zip(wide, frames, strict=True))) for side in (0, -n % p)]
    x = model.patches.projection(torch.nn.functional.pad(video, pads))
    grid, x = tuple(x.shape[2:]), model.patch_norm(x.flatten(2).transpose(1, 2))
    for stage in model.stages:
        sides = [min(n, side) for n, side in zip(grid, stage.window, strict=True)]
        for number, (block, bias) in enumerate(zip(stage.layers, stage.biases, strict=True)):
            shift = [
                side // 2 * (number % 2) * (n > side) for n, side in zip(grid, sides, strict=True)
            ]
            x = x + dense_attention(block, bias, block.attention_norm(x), grid, sides, shift)
            x = x + block.feed_forward(block.feed_forward_norm(x))
        if stage.merge is not None:
            time, height, width = grid
            y = torch.nn.functional.pad(x.unflatten(1, grid), [0, 0, 0, width % 2, 0, height % 2])
            four = [y[:, :, row::2, column::2] for row, column in ((0, 0), (1, 0), (0, 1), (1, 1))]
            grid = time, -(-height // 2), -(-width // 2)
            x = stage.merge.reduction(stage.merge.norm(torch.cat(four, -1).flatten(1, 3)))
    return model.norm(x)


@pytest.mark.parametrize(
    ("size", "window"),
    [((4, 12, 16), (2, 3, 4)), ((5, 7, 10), (2, 3, 3)), ((3, 8, 6), (4, 2, 5))],
    ids=str,
)
def test_videos_are_those_of_a_dense_twin(size, window):
    torch.manual_seed(0)
    mine = shaken(Swin(4, (2, 2), (2, 2), window, (1, 2, 2), hidden_ratio=2.0))
    video, found = images(*size), []
    for result in (mine(video), dense_video(mine, video)):
        given = torch.autograd.grad(result.square().sum(), list(mine.parameters()))
        found.append((result, torch.cat([g.flatten() for g in given])))
    assert (found[0][1] != 0).double().mean() > 0.5
    close(*(each[0] for each in found))
    torch.testing.assert_close(*(each[1] for each in found), rtol=1e-9, atol=1e-9)


def test_a_removed_edge_between_frames_changes_its_target():
    torch.manual_seed(0)
    mine = shaken(Swin(4, (2,), (2,), (2, 2, 2), (1, 2, 2)))
    video, (plain, shifted) = images(4, 8, 8), window_graphs((4, 4, 4), (2, 2, 2))
    assert shifted.name == "window_partition((4, 4, 4), (2, 2, 2), shift=(1, 1, 1))"
    assert mine.graphs((4, 8, 8))[1].name == shifted.name
    # (2, 1, 1) is one frame after (1, 1, 1)
    less = shifted - ga.from_edge_index([[37], [21]], num_nodes=64)
    assert less.num_edges == shifted.num_edges - 1
    change = (mine(video, [[plain, less]]) - mine(video)).abs().amax((0, 2)) > 1e-9
    assert torch.nonzero(change).flatten().tolist() == [21]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Swin(4, (1,), (1,), version=3), "version must be 1 or 2, got 3"),
        (
            lambda: Swin(4, (1,), (1,), pretrained_window=(3,)),
            "must have 1 numbers, for version 2 only",
        ),
        (
            lambda: Swin(4, (1,), (1,), window=(2, 2), patch=(1, 2, 2)),
            "one for each of the 3 axes of patch",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(OptionError, match=message):
        make()
