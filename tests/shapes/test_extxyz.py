"""Atoms in cells: extended XYZ and CIF, with ASE as the oracle."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.shapes import AddEdges, RandomDrop, RandomRotation, Shape, load_frames, save_frames

DOUBLE = torch.float64


def frame(atoms=5, seed=0, **more):
    draw = torch.Generator().manual_seed(seed)
    return Shape(
        pos=torch.randn(atoms, 3, generator=draw, dtype=DOUBLE),
        z=torch.randint(1, 119, (atoms,), generator=draw),
        forces=torch.randn(atoms, 3, generator=draw, dtype=DOUBLE),
        tag=torch.randint(-9, 9, (atoms,), generator=draw),
        fixed=torch.rand(atoms, generator=draw) < 0.5,
        cell=3 * torch.eye(3, dtype=DOUBLE) + torch.rand(3, 3, generator=draw, dtype=DOUBLE),
        pbc=torch.tensor([True, False, True]),
        energy=torch.randn(1, generator=draw, dtype=DOUBLE),
        stress=torch.randn(3, 3, generator=draw, dtype=DOUBLE),
        moments=torch.randn(2, 4, generator=draw, dtype=DOUBLE),
        **more,
    )


def same(one, other):
    assert sorted(one.keys()) == sorted(other.keys())
    for name in one.keys():  # noqa: SIM118
        assert one[name].dtype == other[name].dtype, name
        assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("atoms", [1, 2, 3, 5])
@pytest.mark.parametrize("ending", ["extxyz", "npz"])
def test_a_frame_comes_back_bit_for_bit(tmp_path, atoms, ending):
    shape = frame(atoms)
    path = tmp_path / f"atoms.{ending}"
    ga.save(shape, path)
    same(ga.load(path), shape)


def test_frames_come_back_in_order(tmp_path):
    frames = [frame(atoms, atoms) for atoms in (3, 1, 7)]
    save_frames(frames, tmp_path / "all.extxyz")
    for one, other in zip(load_frames(tmp_path / "all.extxyz"), frames, strict=True):
        same(one, other)
    with pytest.raises(LoaderError, match=r"expected one frame, got 3. Try: .*load_frames"):
        ga.load(tmp_path / "all.extxyz")


def test_ase_reads_what_is_written(tmp_path):
    ase_io = pytest.importorskip("ase.io")
    shape = frame(7)
    del shape.moments
    shape.stress = shape.stress + shape.stress.T  # ASE keeps six numbers of it
    ga.save(shape, tmp_path / "atoms.extxyz")
    atoms = ase_io.read(tmp_path / "atoms.extxyz")
    assert np.array_equal(atoms.positions, shape.pos)
    assert np.array_equal(atoms.numbers, shape.z)
    assert np.array_equal(atoms.cell, shape.cell)
    assert np.array_equal(atoms.pbc, shape.pbc)
    assert np.array_equal(atoms.get_forces(apply_constraint=False), shape.forces)
    assert atoms.get_potential_energy() == float(shape.energy)
    assert np.array_equal(atoms.get_stress(voigt=False), shape.stress)
    assert np.array_equal(atoms.arrays["tag"], shape.tag)


def test_what_ase_writes_is_read(tmp_path):
    ase_io = pytest.importorskip("ase.io")
    build = pytest.importorskip("ase.build")
    for number, name in enumerate(("atoms.extxyz", "atoms.xyz")):
        atoms = build.bulk("Si", cubic=True)
        atoms.rattle(0.1, seed=number)
        atoms.set_pbc([True, False, True])
        atoms.info.update(config_type="bulk", weight=2.5, matrix=np.arange(6.0).reshape(2, 3))
        atoms.arrays["velocities"] = np.arange(24.0).reshape(8, 3)
        ase_io.write(tmp_path / name, atoms, format="extxyz")
        back = ase_io.read(tmp_path / name, format="extxyz")
        shape = ga.load(tmp_path / name)
        assert np.array_equal(shape.pos, back.positions)
        assert shape.z.tolist() == [14] * 8
        assert np.array_equal(shape.cell, atoms.cell)
        assert np.array_equal(shape.pbc, atoms.pbc)
        assert np.array_equal(shape.velocities, back.arrays["velocities"])
        assert np.array_equal(shape.matrix, atoms.info["matrix"])
        assert shape.weight.tolist() == [2.5]
        assert shape.notes == ("left out, as texts: config_type",)
    molecule = build.molecule("H2O")
    ase_io.write(tmp_path / "plain.xyz", molecule, format="xyz")
    assert ga.load(tmp_path / "plain.xyz").z.tolist() == [8, 1, 1]


def test_cif_is_read_by_ase(tmp_path):
    ase_io = pytest.importorskip("ase.io")
    build = pytest.importorskip("ase.build")
    atoms = build.bulk("NaCl", "rocksalt", a=5.6, cubic=True)
    ase_io.write(tmp_path / "salt.cif", atoms)
    shape = ga.load(tmp_path / "salt.cif")
    assert sorted(shape.z.tolist()) == [11] * 4 + [17] * 4
    np.testing.assert_allclose(shape.cell, atoms.cell[:], atol=1e-9)
    assert shape.pbc.all()
    assert ga.graphs.radius(shape.pos, 3.0, cell=shape.cell).in_degree.tolist() == [6] * 8
    (tmp_path / "no.cif").write_text("data_x\nloop_\n")
    with pytest.raises(LoaderError, match="expected a CIF file"):
        ga.load(tmp_path / "no.cif")


def test_points_as_text_are_no_atoms(tmp_path):
    (tmp_path / "cloud.xyz").write_text("2\n0 0 1\n0 1 2\n")
    assert ga.load(tmp_path / "cloud.xyz").pos.shape == (2, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected"),
        ("two\n\nH 0 0 0\n", "line 1: expected a number of atoms > 0, got two"),
        ("2\n\nH 0 0 0\n", "line 1: expected 2 lines of atoms after the comment, got 1"),
        ('1\nLattice="1 0 0 0 1 0 0 0"\nH 0 0 0\n', "line 2: expected Lattice of 9 numbers"),
        ('1\nLattice="1 0 0 0 1 0 0 0 1" pbc="T T"\nH 0 0 0\n', "pbc of three T or F, got T T"),
        ('1\npbc="T T T"\nH 0 0 0\n', "expected Lattice beside periodic axes, got none"),
        ("1\nProperties=species:S\nH 0 0 0\n", "Properties as name:type:columns"),
        ("1\nProperties=species:S:1:pos:Q:3\nH 0 0 0\n", "type R, I, L or S of pos, got Q"),
        ("1\n\nH 0 0\n", "line 3: expected 4 columns, got 3"),
        ("1\n\nQq 0 0 0\n", "line 3: expected the symbol of an element, got Qq"),
        ("2\n\nH 0 0 0\nH 0 0 zero\n", "line 4: expected a number of pos, got zero"),
        ("1\n\nH 0 0 nan\n", "finite"),
        ("1\nProperties=species:S:1:pos:R:3:n:I:1\nH 0 0 0 1.5\n", "a number of n, got 1.5"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, words):
    path = tmp_path / "wrong.extxyz"
    path.write_text(text)
    with pytest.raises(LoaderError, match=words):
        ga.load(path)


def test_a_batch_has_a_cell_for_each_shape_and_edges_with_offsets(tmp_path):
    recipe = ga.graphs.radius(..., r=2.9)
    frames = [AddEdges(recipe)(frame(atoms, atoms)) for atoms in (3, 1, 7)]
    batch = Batch.from_data_list(frames)
    assert batch.cell.shape == (3, 3, 3)
    assert batch.pbc.shape == (3, 3)
    graph = ga.from_pyg(batch)
    assert graph.equals(recipe(batch.pos, batch.batch, cell=batch.cell, pbc=batch.pbc))
    late = AddEdges(recipe)(Batch.from_data_list([frame(atoms, atoms) for atoms in (3, 1, 7)]))
    assert torch.equal(late.offsets, batch.offsets)
    alone = ga.from_pyg(batch, per_example=True)
    assert torch.equal(alone.union().offsets, graph.offsets)
    of_data = Batch.from_data_list([Data(**one.to_dict()) for one in frames])
    assert of_data.cell.shape == (9, 3)  # PyG's own Data
    assert ga.from_pyg(of_data).equals(graph)
    assert ga.from_pyg(ga.convert.to_pyg(graph)).equals(graph)


def test_changes_of_shapes_carry_the_cell():
    shape = frame(3)
    graph = ga.graphs.radius(shape.pos, 2.9, cell=shape.cell, pbc=shape.pbc)
    turned = RandomRotation()(shape.clone())
    assert not torch.allclose(turned.cell, shape.cell)
    again = ga.graphs.radius(turned.pos, 2.9, cell=turned.cell, pbc=turned.pbc)
    assert torch.equal(again.offsets, graph.offsets)
    dropped = RandomDrop(0.9)(shape.clone())
    assert len(dropped.pos) < 3
    assert dropped.cell.shape == (3, 3)
    assert dropped.pbc.shape == (3,)


def test_a_format_without_cells_says_so(tmp_path):
    with pytest.raises(LoaderError, match="got cell of the shape itself"):
        ga.save(frame(4), tmp_path / "atoms.ply")


def test_training_refuses_shapes_that_repeat(tmp_path):
    for kind in ("a", "b"):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for number in range(4):
            ga.save(frame(40, number), tmp_path / "data" / kind / f"{number}.npz")
    with pytest.raises(LoaderError, match="expected a shape that does not repeat, got pbc"):
        ga.training.train(tmp_path / "data", out=tmp_path / "run", epochs=1)
