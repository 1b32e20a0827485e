"""Files that other libraries read: the advice of the error, followed as it stands."""

import re

import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.shapes import Shape
from graphattn.shapes.files.foreign import FOREIGN
from graphattn.shapes.files.raw import READERS

POINTS = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
FACES = np.array([[0, 1, 2], [1, 3, 2]])


def advice(path):
    with pytest.raises(LoaderError) as raised:
        ga.load(path)
    return re.search(r"Try: (.*?)(, of the package \w+)?\.$", str(raised.value))[1]


def test_no_ending_is_read_and_refused():
    assert not set(FOREIGN) & set(READERS)


@pytest.mark.parametrize(
    ("ending", "kind"),
    [(".vtu", None), (".msh", "gmsh22"), (".inp", "abaqus"), (".mesh", None), (".nas", None)],
)
def test_the_call_of_meshio_gives_the_shape(ending, kind, tmp_path):
    meshio = pytest.importorskip("meshio")
    path = tmp_path / f"a{ending.upper() if ending == '.vtu' else ending}"
    mesh = meshio.Mesh(POINTS, [("triangle", FACES)])
    mesh.write(path, file_format=kind or meshio.extension_to_filetypes[ending][0])
    first, second = advice(path).split("; ")
    scope = {"meshio": meshio, "path": tmp_path / "a", "torch": torch, "Shape": Shape}
    scope["path"] = path.rename(tmp_path / f"b{ending}")
    exec(first, scope)
    shape = eval(second, scope)
    assert torch.equal(shape.pos.double(), torch.from_numpy(POINTS))
    assert torch.equal(shape.face.T, torch.from_numpy(FACES))


def test_the_call_of_ase_gives_a_file_that_is_read(tmp_path):
    ase_io = pytest.importorskip("ase.io")
    build = pytest.importorskip("ase.build")
    import ase

    atoms = build.bulk("NaCl", "rocksalt", a=5.6)
    for name in ("POSCAR", "a.vasp"):
        ase_io.write(tmp_path / name, atoms, format="vasp")
        call = advice(tmp_path / name).replace("'atoms.extxyz'", "out")
        exec(call, {"ase": ase, "path": tmp_path / name, "out": tmp_path / "atoms.extxyz"})
        shape = ga.load(tmp_path / "atoms.extxyz")
        assert sorted(shape.z.tolist()) == [11, 17]
        np.testing.assert_allclose(shape.cell, atoms.cell[:])


@pytest.mark.parametrize("name", ["lh.pial", "brain.surf.gii"])
def test_surfaces_of_brains_name_nibabel(name, tmp_path):
    assert "nibabel." in advice(tmp_path / name)


def test_other_endings_have_the_old_advice(tmp_path):
    assert advice(tmp_path / "a.doc") == "convert it; load reads these only"
