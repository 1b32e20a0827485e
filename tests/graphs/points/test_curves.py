"""Morton's and Hilbert's curves against bit strings, a published table and geometry; sorting for
locality.
"""

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn import graphs
from graphattn.graphs.points.curve_keys import curve_key


def all_cells(axes, bits):
    return torch.cartesian_prod(*[torch.arange(2**bits)] * axes).view(-1, axes)


@pytest.mark.parametrize(("axes", "bits"), [(1, 7), (2, 3), (3, 2), (3, 21), (5, 2)])
def test_z_interleaves_bits_with_the_first_axis_highest(axes, bits):
    torch.manual_seed(3)
    cells = torch.randint(0, 2**bits, (37, axes))
    text = [[format(x, f"0{bits}b") for x in row] for row in cells.tolist()]
    wanted = [int("".join("".join(level) for level in zip(*row, strict=True)), 2) for row in text]
    assert curve_key(cells, "z", bits).tolist() == wanted
    flipped = [
        int("".join("".join(level[::-1]) for level in zip(*row, strict=True)), 2) for row in text
    ]
    assert axes == 1 or flipped != wanted  # the control: x lowest is another order


def test_transposed_curves_exchange_the_first_two_axes():
    cells = torch.tensor([[5, 3, 6], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert (
        curve_key(cells, "z-trans", 3).tolist() == curve_key(cells[:, [1, 0, 2]], "z", 3).tolist()
    )
    assert (
        curve_key(cells, "hilbert-trans", 3).tolist()
        == curve_key(cells[:, [1, 0, 2]], "hilbert", 3).tolist()
    )


@pytest.mark.parametrize(
    ("axes", "bits"), [(1, 5), (2, 1), (2, 4), (2, 5), (3, 1), (3, 3), (4, 2), (5, 1)]
)
def test_hilbert_visits_every_cell_once_and_never_jumps(axes, bits):
    cells = all_cells(axes, bits)

    def steps(curve):
        key = curve_key(cells, curve, bits)
        assert torch.equal(key.sort().values, torch.arange(len(cells)))
        return (cells[key.argsort()].diff(dim=0)).abs().sum(1)

    assert bool((steps("hilbert") == 1).all())
    assert bool((steps("hilbert-trans") == 1).all())
    assert (int(steps("z").max()) == 1) == (axes == 1)  # the control: z jumps


@pytest.mark.parametrize(
    ("axes", "bits", "cells", "wanted"),
    [
        (
            3,
            5,
            [[0, 0, 0], [31, 0, 0], [3, 17, 22], [31, 31, 31], [8, 9, 10]],
            [0, 32767, 8690, 23405, 2591],
        ),
        (3, 16, [[65535, 1, 2], [12345, 54321, 777]], [281474976710624, 131844176086295]),
        (4, 3, [[1, 2, 3, 4], [7, 0, 7, 0]], [448, 3106]),
        (2, 10, [[1023, 512], [3, 999]], [786431, 349210]),
    ],
)
def test_hilbert_is_that_of_the_package_hilbertcurve(axes, bits, cells, wanted):
    """Numbers printed by hilbertcurve 2.0.5; numpy-hilbert-curve 1.0.1, which PTv3's code follows,
    gave the same.
    """
    assert curve_key(torch.tensor(cells), "hilbert", bits).tolist() == wanted


@pytest.mark.parametrize("curve", ["z", "z-trans", "hilbert", "hilbert-trans"])
@pytest.mark.parametrize("n", [0, 1, 2, 43])
def test_order_of_points_cut_into_cells(curve, n):
    torch.manual_seed(5)
    pos = torch.rand(n, 3) - 0.5
    cell = 0.3
    low = pos.double().amin(0) if n else torch.zeros(3)
    cells = ((pos.double() - low) / cell).floor().long()
    key = curve_key(cells, curve, 4)
    wanted = sorted(range(n), key=lambda i: (int(key[i]), i))  # ties by index
    found = ga.shapes.curve_order(pos, curve, cell=cell, bits=4)
    assert found.tolist() == wanted
    assert found.dtype == torch.int64
    assert ga.shapes.curve_order(cells, curve, bits=4).tolist() == wanted
    assert ga.shapes.curve_order(cells.numpy().astype(np.int16), curve, bits=4).tolist() == wanted
    assert ga.shapes.curve_order(pos.numpy(), curve, cell=cell, bits=4).tolist() == wanted


@pytest.mark.parametrize("curve", ["z", "hilbert"])
def test_clouds_of_a_batch_are_sorted_each_by_itself(curve):
    torch.manual_seed(7)
    pos = torch.rand(53, 2)
    batch = torch.tensor([0] * 17 + [3] * 5 + [4] * 31)
    pos[17:22] *= 1000
    for own in ({}, {"cell": 0.01}):
        alone = [
            ga.shapes.curve_order(pos[batch == i], curve, **own) + s
            for i, s in ((0, 0), (3, 17), (4, 22))
        ]
        assert torch.equal(ga.shapes.curve_order(pos, curve, batch=batch, **own), torch.cat(alone))
    assert ga.shapes.curve_order(torch.full((7, 2), 0.3), curve).tolist() == list(range(7))


def test_the_whole_cube_is_used_by_default():
    """The finest cells settle all orders, whatever the units and wherever the cloud is."""
    line = torch.tensor([0.0, 3.0, 1.0, 2.0, 1e-9]).double()
    for scale, shift in ((1.0, 0.0), (1e-30, 0.0), (1e100, 0.0), (1.0, 1e3)):
        assert ga.shapes.curve_order((line * scale + shift)[:, None]).tolist()[-3:] == [2, 3, 1]
    assert ga.shapes.curve_order(line[:, None] * 1e-30).tolist() == [0, 4, 2, 3, 1]


def test_sorted_points_give_the_relabelled_graph():
    torch.manual_seed(9)
    pos = torch.rand(97, 3)
    order = ga.shapes.curve_order(pos, "hilbert")
    before, after = graphs.knn(pos, 5), graphs.knn(pos[order], 5)
    assert after.equals(before.relabel(torch.argsort(order)))
    assert not after.equals(before.relabel(order))  # the control

    def reach(graph):
        return float((graph.source - graph.target).abs().double().mean())

    assert reach(after) < reach(before) / 2
