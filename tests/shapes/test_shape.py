"""A shape holds tensors of any names."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.data.storage import GlobalStorage

import graphattn as ga
from graphattn.errors import LoaderError, ShapeError
from graphattn.shapes import RandomRotation

REFUSED = {"batch", "edge_index", "face", "num_nodes", "ptr"}
WORDS = {"pos", "x", "y", "color", "normal"}  # that stand for something
NAMES = {
    *dir(Data),
    *dir(GlobalStorage),
    "_heat",
    "_mapping",
    "_parent",
    "notes",
    "columns",
    "self",
    "file",
    "nan",
    "é",
}
KEPT = sorted(NAMES - REFUSED - WORDS)


@pytest.mark.parametrize("ending", [".csv", ".ply", ".npz"])
def test_a_column_keeps_its_name_whatever_it_is(ending, tmp_path):
    for first in range(0, len(KEPT), 60):  # arrays of a .npz
        names = KEPT[first : first + 60]
        table = torch.arange(4.0 * len(names)).view(len(names), 4) + 0.5
        shape = ga.shapes.Shape(dict(zip(names, table, strict=True)), pos=torch.rand(4, 3))
        ga.save(shape, tmp_path / f"s{ending}")
        read = ga.load(tmp_path / f"s{ending}")
        batch = Batch.from_data_list([read, read.clone()])
        again = batch.to_data_list()[1]
        for name, values in zip(names, table, strict=True):
            assert torch.equal(read[name], values), name
            assert torch.equal(batch[name], torch.cat((values, values))), name
            assert torch.equal(again[name], values), name


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_name_that_pyg_reads_otherwise_is_refused_by_name(name, tmp_path):
    path = tmp_path / "s.csv"
    path.write_text(f"x,y,z,{name}\n0,0,0,1\n1,0,0,2\n", encoding="utf-8")
    with pytest.raises(LoaderError, match=f"got {name}. Try: rename"):
        ga.load(path)
    np.savez(tmp_path / "s.npz", pos=np.zeros((2, 3)), **{name: np.ones(3)})
    with pytest.raises(LoaderError, match=name):
        ga.load(tmp_path / "s.npz")


def test_one_name_for_two_tensors_is_refused(tmp_path):
    head = "ply\nformat ascii 1.0\nelement vertex 1\n" + "".join(
        f"property float {n}\n" for n in "xyz"
    )
    body = "property float edge_a\nelement edge 1\nproperty float a\nend_header\n0 0 0 5\n6\n"
    (tmp_path / "s.ply").write_text(head + body, encoding="utf-8")
    with pytest.raises(LoaderError, match="got edge_a"):
        ga.load(tmp_path / "s.ply")


def test_a_column_called_pos_or_normal_is_no_position_and_no_direction(tmp_path):
    (tmp_path / "s.csv").write_text("x,y,z,pos\n0,0,0,1\n1,0,0,2\n", encoding="utf-8")
    with pytest.raises(LoaderError, match=r"got pos of shape \(2,\)"):
        ga.load(tmp_path / "s.csv")
    (tmp_path / "s.csv").write_text("x,y,z,normal\n0,0,0,0.5\n1,0,0,2\n", encoding="utf-8")
    with pytest.raises(
        ShapeError,
        match=r"RandomRotation\(\): normal must have shape \(2, 3\), got a Tensor \(2,\)",
    ):
        RandomRotation()(ga.load(tmp_path / "s.csv"))
