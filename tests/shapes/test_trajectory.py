"""Trajectories: what fits, what is refused, and files that others write and read."""

import re

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import LoaderError, ShapeError
from graphattn.shapes import (
    Trajectory,
    load_trajectories,
    load_trajectory,
    save_trajectory,
)

meshio = pytest.importorskip("meshio")
POS = torch.rand(6, 2, generator=torch.Generator().manual_seed(0))
CELLS = [
    ("triangle", torch.tensor([[0, 1, 2], [2, 3, 4]])),
    ("quad", torch.tensor([[1, 2, 4, 5]])),
]
U = torch.randn(4, 6, 2, generator=torch.Generator().manual_seed(1))
P = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))


def swirl(**changed):
    given = {
        "cells": CELLS,
        "fixed": {"u": torch.tensor([True, False, False, False, False, False])},
        "forcing": {"sun": P + 1},
        "kinds": torch.arange(6) // 3,
        "dt": 0.5,
    }
    return Trajectory(POS, {"u": U, "p": P}, **given | changed)


def test_a_trajectory_has_the_graph_of_its_mesh_and_parts_of_its_steps():
    whole = swirl()
    assert repr(whole) == (
        "Trajectory(4 steps of 6 nodes in 2 dimensions, u (2), p (1), 3 cells, dt 0.5)"
    )
    assert whole.graph().equals(ga.graphs.mesh_cells(CELLS))
    part = whole.steps(1, 3)
    assert torch.equal(part.fields["u"], U[1:3])
    assert part.time.tolist() == [0.5, 1.0]
    assert part.fixed["u"].sum() == 1
    assert not part.fixed["p"].any()
    moving = Trajectory(POS.repeat(4, 1, 1) + torch.arange(4.0)[:, None, None], {"p": P})
    assert torch.equal(moving.steps(2).positions(0), POS + 2)
    with pytest.raises(ShapeError, match="graph needs cells, got particles"):
        moving.graph()


NAN = U.clone()
NAN[2, 3] = torch.nan


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fields": {"u": NAN}}, r"a.npz: fields\['u'\] must be finite, got nan at step 2, node 3"),
        ({"fields": {"u": U[:, :5]}}, r"must have shape \(T, 6, C\).*got \(4, 5, 2\)"),
        ({"fields": {"u": U, "p": P[:3]}}, r"'p'\] must have shape \(4, 6, C\)"),
        ({"fields": {}}, "at least one"),
        ({"forcing": {"sun": P[:2]}}, r"forcing\['sun'\] must have shape \(4, 6, C\)"),
        ({"forcing": {"sun": P}, "constant": ["sun"]}, r"a.npz: forcing\['sun'\] must stay"),
        ({"forcing": {"sun": P[0, 0]}, "constant": ["sun"]}, r"forcing\['sun'\] must have shape"),
        (
            {"forcing": {"sun": P}, "constant": ["snu"]},
            r"a.npz: constant names \['snu'\], which forcing lacks: it has \['sun'\]",
        ),
        ({"time": torch.tensor([0.0, 2, 1, 3])}, "got 2 at step 1 and 1 at step 2"),
        ({"time": torch.arange(3)}, r"time must have shape \(4,\)"),
        (
            {"cells": [("triangle", [[0, 1, 9]])]},
            r"a.npz: cells\[0\] \(triangle\) must be in \[0, 6\), vertices",
        ),
        (
            {"cells": [("triangle", [[0.5, 1, 2]])]},
            r"a.npz: cells\[0\] \(triangle\) must be integers",
        ),
        ({"fixed": {"w": torch.ones(6).bool()}}, r"fixed names \['w'\]"),
        ({"fixed": torch.ones(6)}, r"fixed must be bool \(6,\)"),
        ({"kinds": torch.arange(5)}, r"kinds must have shape \(6,\)"),
        (
            {"pos": POS.repeat(3, 1, 1)},
            r"a.npz: pos must have shape \(4, ...\), got a Tensor \(3, 6, 2\)",
        ),
        ({"pos": POS / 0}, "pos must be finite"),
    ],
)
def test_what_does_not_fit_is_refused_by_step_and_field(changed, message):
    given = {"pos": POS, "fields": {"u": U}, "name": "a.npz"}
    with pytest.raises(ShapeError, match=message):
        Trajectory(**given | changed)


@pytest.mark.parametrize("ending", ["npz", "xdmf", "pvd"])
def test_files_are_read_back(ending, tmp_path):
    path = tmp_path / f"swirl.{ending}"
    save_trajectory(swirl(), path)
    back = load_trajectory(path)
    assert [kind for kind, _ in back.cells] == ["triangle", "quad"]
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(back.cells, CELLS, strict=True))
    assert back.time.tolist() == [0, 0.5, 1, 1.5]
    torch.testing.assert_close(back.pos, POS, check_dtype=False)
    torch.testing.assert_close(back.fields["u"], U, check_dtype=False)
    torch.testing.assert_close(back.fields["p"], P[..., None], check_dtype=False)
    if ending == "npz":
        with pytest.raises(LoaderError, match=r"got a trajectory. Try: .*load_trajectory\(path\)"):
            ga.load(path)
        assert torch.equal(back.fixed["u"], swirl().fixed["u"])
        assert torch.equal(back.forcing["sun"], swirl().forcing["sun"])
        assert torch.equal(back.kinds, swirl().kinds)


def test_nodes_that_move_are_a_series_of_meshes(tmp_path):
    moving = Trajectory(torch.rand(3, 5, 3), {"v": torch.randn(3, 5, 3)}, time=[0, 1, 4])
    save_trajectory(moving, tmp_path / "m.pvd")
    back = load_trajectory(tmp_path / "m.pvd")
    assert torch.equal(back.pos, moving.pos)
    assert back.time.tolist() == [0, 1, 4]
    assert back.cells == []
    with pytest.raises(LoaderError, match=r"nodes that move. Try: a .pvd"):
        save_trajectory(moving, tmp_path / "m.xdmf")


def test_arrays_as_meshgraphnets_have_them(tmp_path):
    arrays = {
        "mesh_pos": np.tile(POS.numpy(), (4, 1, 1)),
        "cells": np.tile(CELLS[0][1].numpy(), (4, 1, 1)),
        "node_type": np.tile(np.arange(6)[:, None], (4, 1, 1)),
        "velocity": U.numpy(),
        "pressure": P[..., None].numpy(),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    read = load_trajectory(tmp_path / "a.npz")
    assert read.pos.shape == (6, 2)
    assert read.kinds.tolist() == list(range(6))
    assert set(read.fields) == {"velocity", "pressure"}
    arrays["cells"][2] = 0
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(LoaderError, match="cells that stays over time"):
        load_trajectory(tmp_path / "a.npz")


def test_steps_of_vtu_and_what_changes_between_them(tmp_path):
    def write(name, cells, data, **more):
        mesh = meshio.Mesh(np.pad(POS.numpy(), ((0, 0), (0, 1))), cells, point_data=data, **more)
        mesh.write(tmp_path / name)
        return tmp_path / name

    cells = [("triangle", CELLS[0][1].numpy())]
    a = write("a.vtu", cells, {"p": P[0].numpy()}, cell_data={"k": [np.ones(2)]})
    b = write("b.vtu", cells, {"p": P[1].numpy()})
    with pytest.warns(UserWarning, match="fields of cells are left out: k"):
        both = load_trajectory([a, b])
    assert both.pos.shape == (6, 2)
    torch.testing.assert_close(both.fields["p"][..., 0], P[:2], check_dtype=False)
    other = write("c.vtu", [("triangle", CELLS[0][1].numpy()[:1])], {"p": P[1].numpy()})
    with pytest.raises(LoaderError, match=r"c.vtu: expected the cells of .*a.vtu"):
        load_trajectory([a, other])
    named = write("d.vtu", cells, {"q": P[1].numpy()})
    with pytest.raises(LoaderError, match=r"d.vtu: expected the fields \['p'\]"):
        load_trajectory([b, named])
    (tmp_path / "e.vtu").write_text("no mesh")
    with pytest.raises(LoaderError, match=r"e.vtu: expected a mesh that meshio reads"):
        load_trajectory([b, tmp_path / "e.vtu"])


def test_a_folder_in_natural_order(tmp_path):
    for number in (10, 9):
        save_trajectory(swirl(dt=float(number)), tmp_path / f"run{number}.npz")
    assert [float(each.time[1]) for each in load_trajectories(tmp_path)] == [9, 10]
    save_trajectory(Trajectory(POS, {"other": P}), tmp_path / "run11.npz")
    with pytest.raises(LoaderError, match=r"run11.npz: expected the fields of run9.npz"):
        load_trajectories(tmp_path)


def test_the_docstring_lists_what_is_read():
    table = load_trajectory.__doc__
    for ending in ("npz", "xdmf", "pvd", "vtu"):
        assert re.search(rf"``.{ending}``", table)


def test_weights_are_those_of_cells_and_latitudes():
    pos = torch.tensor([[0.0, 0], [2, 0], [2, 1], [0, 1]])
    cells = [("triangle", torch.tensor([[0, 1, 2], [0, 2, 3]]))]
    square = Trajectory(pos, {"u": torch.zeros(2, 4)}, cells=cells)
    assert square.weights("area").tolist() == pytest.approx([4 / 3, 2 / 3, 4 / 3, 2 / 3])
    globe = ga.graphs.on_sphere(torch.tensor([0.0, 60, 90]), torch.zeros(3))
    ball = Trajectory(globe, {"u": torch.zeros(2, 3)})
    assert ball.weights("latitude").tolist() == pytest.approx([2, 1, 0], abs=1e-4)
