"""Convolutions of cells as one product: the sum over offsets, with its derivatives, in Triton too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import graphattn as ga
from graphattn.graphs.points.hierarchy import CellNeighbours
from graphattn.kernels.cells.operator import cell_outer, cell_products
from graphattn.nn.points.cell_conv import CellConv

TESTS = Path(__file__).parents[2]


def cells(number=67, kernel=0, side=5, seed=0):
    """The neighbours of distinct cells; ``kernel`` 0 is 3 along an axis, 1 is 5."""
    draw = torch.Generator().manual_seed(seed)
    place = torch.randperm(side**3, generator=draw)[:number]
    grid = torch.stack((place // side**2, place // side % side, place % side), 1)
    shape = ga.graphs.serialized_hierarchy(grid.double(), cells=grid, levels=1)
    return shape.levels[0].near[kernel]


def edges_of(near):
    table, back, ptr = near.tables
    return table, back, near.source, near.target, ptr


@pytest.mark.parametrize("kernel", [0, 1])
def test_one_product_is_the_sum_over_offsets(kernel):
    near = cells(kernel=kernel)
    conv = CellConv(7, 11, (3, 5)[kernel], bias=False).double()
    x = torch.randn(2, 67, 7, dtype=torch.float64)
    found = cell_products(x, conv.weight, *edges_of(near))
    torch.testing.assert_close(found, conv(x, near), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_derivatives_of_both_operators_are_the_two_again():
    near = cells(5, side=3)
    x, y = (torch.randn(2, 5, C, dtype=torch.float64, requires_grad=True) for C in (3, 2))
    weight = torch.randn(27, 2, 3, dtype=torch.float64, requires_grad=True)
    edges = edges_of(near)
    for function, inputs in (
        (lambda x, weight: cell_products(x, weight, *edges), (x, weight)),
        (lambda y, x: cell_outer(y, x, *edges), (y, x)),
    ):
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.slow
def test_operators_keep_the_rules_of_torch():
    near = cells(13, side=3)
    edges = edges_of(near)
    x, y = (torch.randn(2, 13, C, dtype=torch.float64, requires_grad=True) for C in (3, 2))
    weight = torch.randn(27, 2, 3, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(cell_products, (x, weight, *edges))
    torch.library.opcheck(cell_outer, (y, x, *edges))


def test_tables_go_along_to_a_device_and_refuse_two_neighbours_at_an_offset():
    near = cells()
    assert "tables" not in near.to(torch.device("cpu")).__dict__
    assert torch.equal(near.tables.ptr.diff(), torch.tensor(near.counts))
    there = near.to(torch.device("cpu")).__dict__["tables"]
    assert all(map(torch.equal, there, near.tables))
    twice = CellNeighbours(near.graph, near.offset.clamp(min=4), near.num_offsets)
    assert twice.tables is None


@pytest.mark.slow
def test_kernels_in_the_interpreter_are_equal_to_1e_12():
    """Forward and gradients, over blocks of targets, of channels and of edges, with a batch."""
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, __file__]
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=TESTS.parent)
    assert done.returncode == 0, done.stderr
    for name, (error, size) in json.loads(done.stdout).items():
        assert size > 0.1, name
        assert error <= 1e-12 * size, (name, error, size)


@pytest.mark.slow
def test_kernels_compile_within_bounds_and_without_atomics():
    offline = pytest.importorskip("offline")
    from graphattn.graphs.points.sampling import triton as farthest_triton
    from graphattn.kernels.cells import gpu as cells_triton

    edges = edges_of(cells())

    def launches():
        for dtype in (torch.float32, torch.bfloat16):
            x, y = (torch.zeros(1, 67, C, dtype=dtype) for C in (36, 128))
            weight = torch.zeros(27, 128, 36, dtype=dtype)
            cells_triton.cell_products(x, weight, *edges)
            cells_triton.cell_outer(y, x, *edges)
        farthest_triton.choose(torch.zeros(67, 3), [67], [5], torch.zeros(1, dtype=torch.int64))

    for architecture in offline.ARCHITECTURES:
        rows = offline.compiled(architecture, launches)
        assert {row["kernel"] for row in rows} == {"products", "outer", "_choose"}
        for row in rows:
            assert row["atomics"] == 0, row
            assert row["stack"] <= 16, row
            assert row["registers"] <= 168, row
            assert row["shared"] <= 65536, row  # of 99 KB and more


def interpreted():
    """The largest error of each result of the kernels, and the largest entry."""
    sys.path.insert(0, str(TESTS / "kernels"))
    from interpreted import as_index

    from graphattn.kernels.cells import gpu as cells_triton

    as_index()
    cells_triton.EDGES_PER_SHARE = 1
    cells_triton.ROWS = 16
    told = {}
    for name, kernel, number, widths, batch in (
        ("3 along an axis", 0, 37, (5, 19), 2),
        ("5 along an axis", 1, 29, (3, 17), 1),
        ("channels in blocks", 0, 23, (67, 71), 1),
    ):
        near = cells(number, kernel, side=4)
        edges = edges_of(near)
        draw = torch.Generator().manual_seed(3)
        rows = (torch.randn(batch, number, C, generator=draw).double() for C in widths)
        x, y = rows
        weight = torch.randn(near.num_offsets, *widths[::-1], generator=draw).double()
        for what, inputs in (("products", (x, weight)), ("outer", (y, x))):
            wanted = getattr(torch.ops.graphattn, f"cell_{what}")(*inputs, *edges)
            found = getattr(cells_triton, f"cell_{what}")(*inputs, *edges)
            error = float((found - wanted).abs().max())
            told[f"{what}, {name}"] = error, float(wanted.abs().max())
    print(json.dumps(told))


if __name__ == "__main__":
    interpreted()
