"""Many small clouds in cells: the edges of all at once are those of each on its own."""

import pytest
import torch

import graphattn as ga
from graphattn.graphs.points import neighbours
from graphattn.graphs.points.search import small_cells


def crystals(seed, axes, sizes, at_corners=False):
    draw = torch.Generator().manual_seed(seed)
    number = len(sizes)
    cell = 3 * torch.eye(axes, dtype=torch.float64)
    cell = cell + 0.7 * torch.randn(number, axes, axes, generator=draw, dtype=torch.float64)
    pos = 4 * torch.randn(sum(sizes), axes, generator=draw, dtype=torch.float64)
    if at_corners:
        cell = 3 * torch.eye(axes, dtype=torch.float64).repeat(number, 1, 1)
        pos = 0.75 * pos.round()
    batch = torch.arange(number).repeat_interleave(torch.tensor(sizes))
    return pos, batch, cell


@pytest.mark.sample(4)
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("reach", [1.3, 2.25, 5.1])
@pytest.mark.parametrize("pbc", [True, (True, False)])
@pytest.mark.parametrize("at_corners", [False, True])
def test_edges_are_those_of_each_cloud(loops, reach, pbc, at_corners, monkeypatch):
    axes = 3
    if pbc is True:
        flags = True
    else:
        flags = (*pbc, True)
    pos, batch, cell = crystals(3, axes, [5, 1, 7, 2], at_corners)
    options = {"batch": batch, "pbc": flags, "self_loops": loops}
    for cells in (cell, cell[0]):
        found = ga.graphs.radius(pos, reach, cell=cells, **options)
        with monkeypatch.context() as patch:
            patch.setattr(neighbours, "together", lambda *args, **options: None)
            wanted = ga.graphs.radius(pos, reach, cell=cells, **options)
        assert torch.equal(found.edge_index, wanted.edge_index)
        assert torch.equal(found.offsets, wanted.offsets)
        assert found.equals(wanted)
        assert found.num_edges > 0


def test_chunks_change_nothing(monkeypatch):
    pos, batch, cell = crystals(5, 2, [4, 6, 3])
    whole = ga.graphs.radius(pos, 4.0, batch=batch, cell=cell)
    monkeypatch.setattr(small_cells, "_AT_ONCE", 50)
    assert whole.equals(ga.graphs.radius(pos, 4.0, batch=batch, cell=cell))


def test_a_missing_cloud_of_a_batch_keeps_the_cells_of_the_others():
    pos, batch, cell = crystals(7, 3, [4, 5])
    batch = torch.where(batch == 1, 2, 0)
    cells = torch.stack((cell[0], torch.eye(3, dtype=torch.float64), cell[1]))
    found = ga.graphs.radius(pos, 3.1, batch=batch, cell=cells)
    alone = ga.graphs.radius(pos[4:], 3.1, cell=cell[1])
    of_last = found.target >= 4
    assert torch.equal(found.offsets[of_last], alone.offsets)
    assert found.images.cell_of_edge[of_last].tolist() == [2] * alone.num_edges


def test_a_singular_cell_of_a_batch_is_refused_by_its_vectors():
    pos, batch, cell = crystals(9, 3, [4, 5])
    cell[1, 2] = cell[1, 0] + cell[1, 1]
    with pytest.raises(ga.GraphError, match="got a singular one"):
        ga.graphs.radius(pos, 2.0, batch=batch, cell=cell)


def test_many_small_crystals_take_no_loop(monkeypatch):
    def crowds(*args):
        raise AssertionError("searched one by one")

    monkeypatch.setattr(neighbours, "crowds", crowds)
    pos, batch, cell = crystals(11, 3, [8] * 50)
    assert ga.graphs.radius(pos, 4.0, batch=batch, cell=cell).num_edges > 50 * 8
