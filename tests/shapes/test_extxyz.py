"""Atoms in cells: extended XYZ and CIF, with ASE as the oracle."""

import warnings

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

import graphattn as ga
from graphattn.errors import GraphError, LoaderError
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
    (tmp_path / "no.cif").write_text("data_x\nloop_\n", encoding="utf-8")
    with pytest.raises(LoaderError, match="expected a CIF file"):
        ga.load(tmp_path / "no.cif")


CIF = """data_a
_cell_length_a 4
_cell_length_b 4
_cell_length_c 4
_cell_angle_alpha 90
_cell_angle_beta 90
_cell_angle_gamma 90
_symmetry_space_group_name_H-M 'P 1'
loop_
_atom_site_label
_atom_site_type_symbol
_atom_site_fract_x
_atom_site_fract_y
_atom_site_fract_z
_atom_site_occupancy
"""


def cif(path, rows, head=CIF):
    """The shape of a CIF file, and its warnings."""
    pytest.importorskip("ase")
    path.write_text(head + rows, encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        shape = ga.load(path)
    return shape, [str(one.message) for one in caught if one.category is UserWarning]


def test_sites_that_are_occupied_in_part_are_said(tmp_path):
    path = tmp_path / "a.cif"
    rows = "La1 La 0 0 0 .6\nSr1 Sr 0 0 0 .4\nH1 H .1 0 0 .25\nO1 O .5 .5 .5 1.0\n"
    shape, (line,) = cif(path, rows)
    assert shape.z.tolist() == [57, 1, 8]
    assert shape.occupancy.tolist() == [0.6, 0.25, 1]
    assert line.endswith(shape.notes[0])
    assert "2 of 3 sites are occupied in part: occupancy" in line
    assert "1 hold several elements (La 0.6, Sr 0.4), of which z is one" in line
    for share in ("1", "1.0(2)", "?", "."):
        shape, lines = cif(path, f"La1 La 0 0 0 {share}\nO1 O .5 .5 .5 1\n")
        assert "occupancy" not in shape
        assert lines == []


def test_what_a_cif_has_beside_its_first_structure_is_said(tmp_path):
    path = tmp_path / "a.cif"
    deuterium = "D1 D 0 0 0 1\nO1 O .5 .5 .5 1\n"
    shape, lines = cif(path, f"{deuterium}{CIF.replace('data_a', 'data_b')}O1 O 0 0 0 1\n")
    assert shape.z.tolist() == [1, 8]
    assert shape.masses[0] > 2
    assert lines[0].endswith("the file has several structures, of which the first is read")
    shape, _ = cif(path, deuterium, CIF.replace("occupancy", "U_iso_or_equiv"))
    assert shape.notes == ("left out, of sites: u_iso_or_equiv",)
    with pytest.raises(LoaderError, match="none with places of atoms"):
        cif(path, "data_1ABC\nloop_\n_atom_site.id\n_atom_site.Cartn_x\n1 2.0\n", "")


@pytest.mark.parametrize("comment", ["", "made by a program = 3", "water 1.5"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_atomic_numbers_stand_for_symbols(comment, end, tmp_path):
    path = tmp_path / "water.xyz"
    path.write_text(
        f"3\n{comment}\n8 0.0 0.0 .12\n1 0 .76 -.48\n1 0 -.76 -.48{end}", encoding="utf-8"
    )
    shape = ga.load(path)
    assert shape.z.tolist() == [8, 1, 1]
    assert shape.pos.tolist() == [[0, 0, 0.12], [0, 0.76, -0.48], [0, -0.76, -0.48]]
    assert "the first column is read as atomic numbers" in shape.notes
    path.write_text(
        2 * f"3\n{comment}\n8 0.0 0.0 .12\n1 0 .76 -.48\n1 0 -.76 -.48\n", encoding="utf-8"
    )
    assert [frame.z.tolist() for frame in load_frames(path)] == [[8, 1, 1]] * 2


@pytest.mark.parametrize(
    ("text", "pos", "x"),
    [
        ("2\n0 0 1\n0 1 2\n", [[0, 0, 1], [0, 1, 2]], None),
        ("2\n8 0 1.5 7\n1 1 2.5 7\n", [[8, 0, 1.5], [1, 1, 2.5]], [[7], [7]]),  # no comment
        ("2\n\n8.0 0 1 7\n1 1 2 7\n", [[8, 0, 1], [1, 1, 2]], [[7], [7]]),  # no whole numbers
        ("2\n\n8 0 1 7\n1 1 2 7\n", [[8, 0, 1], [1, 1, 2]], [[7], [7]]),  # nothing else
        ("2\n\n8 0 1.5 7\n0 1 2 7\n", [[8, 0, 1.5], [0, 1, 2]], [[7], [7]]),  # no element 0
    ],
)
def test_points_as_text_are_no_atoms(text, pos, x, tmp_path):
    (tmp_path / "cloud.xyz").write_text(text, encoding="utf-8")
    shape = ga.load(tmp_path / "cloud.xyz")
    assert shape.pos.tolist() == pos
    assert "z" not in shape
    if x is not None:
        assert shape.x.tolist() == x
        assert shape.notes == ("columns 4 and on have no names: x",)


def test_columns_behind_the_places_of_atoms(tmp_path):
    path = tmp_path / "charges.xyz"
    path.write_text("2\n\nO 0 0 0 -.8 1\nH 0 0 1 .4 2\n", encoding="utf-8")
    shape = ga.load(path)
    assert shape.x.tolist() == [[-0.8, 1], [0.4, 2]]
    assert shape.notes == ("columns 5 and on have no names: x",)
    for rows in ("O 0 0 0 a\nH 0 0 1 b\n", "O 0 0 0 1\nH 0 0 1\n"):
        path.write_text(f"2\n\n{rows}", encoding="utf-8")
        shape = ga.load(path)
        assert sorted(shape.keys()) == ["pos", "z"]
        assert shape.notes == ("left out, as texts: columns behind the 4th",)


def test_a_plain_comment_is_no_property(tmp_path):
    path = tmp_path / "plain.xyz"
    path.write_text("1\ncreated by VMD\nH 0 0 0\n", encoding="utf-8")
    assert sorted(ga.load(path).keys()) == ["pos", "z"]
    assert ga.load(path).notes == ("left out, as texts: words of the comment",)
    path.write_text("1\n i =  3, time = 0.5, E = -17.1 of CP2K\nH 0 0 0\n", encoding="utf-8")
    shape = ga.load(path)
    assert (int(shape.i), float(shape.time), float(shape.E)) == (3, 0.5, -17.1)
    assert "CP2K" not in shape
    assert shape.notes == ("left out, as texts: words of the comment",)
    path.write_text(
        "1\nProperties=species:S:1:pos:R:3 relaxed energy=2\nH 0 0 0\n", encoding="utf-8"
    )
    assert ga.load(path).relaxed.tolist() == [True]  # a flag, as in ASE


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
    path.write_text(text, encoding="utf-8")
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


def molecule(cls=Shape, **more):
    return cls(pos=torch.tensor([[0.0, 0, 0], [0, 0, 2.2]]), **more)


def box(cls=Shape, side=10.0, **more):
    pos = torch.tensor([[0.2, 5, 5], [9.8, 5, 5], [5, 5, 5]]) * (side / 10)
    return cls(pos=pos, cell=side * torch.eye(3), **more)


@pytest.mark.parametrize("cls", [Shape, Data])
@pytest.mark.parametrize("side", [10.0, 2.0])
def test_molecules_and_crystals_are_batched_in_any_order(cls, side):
    recipe = AddEdges(ga.graphs.radius(..., r=3.0))
    frames = [
        molecule(cls, z=torch.tensor([29, 29])),
        box(cls, side, z=torch.tensor([29] * 3)),
        molecule(cls, z=torch.tensor([1, 1])),
    ]
    for order in ([0, 1, 2], [1, 0, 2], [0, 2, 1]):
        batch = Batch.from_data_list([recipe(frames[number].clone()) for number in order])
        graph = ga.from_pyg(batch)
        cells = torch.stack([frames[n].get("cell", torch.zeros(3, 3)) for n in order])
        pbc = torch.tensor([n == 1 for n in order])[:, None].expand(3, 3)
        exact = ga.graphs.radius(batch.pos, 3.0, batch=batch.batch, cell=cells, pbc=pbc)
        assert graph.equals(exact)
        length = ga.nn.edge_geometry(graph, batch.pos, features=("distance",))
        assert float(length.max()) <= 3


def test_molecules_alone_have_a_graph_without_images():
    recipe = AddEdges(ga.graphs.radius(..., r=3.0))
    batch = Batch.from_data_list([recipe(molecule(z=torch.tensor([1, 1]))) for _ in range(2)])
    graph = ga.from_pyg(batch)
    assert graph.offsets is None
    assert (graph | ga.graphs.global_tokens(4, [0])).num_edges > graph.num_edges
    joined = AddEdges(ga.graphs.radius(..., r=3.0) | ga.graphs.self_loops(...))
    assert "cell" not in joined(molecule(z=torch.tensor([1, 1])))
    assert "cell" not in AddEdges(ga.graphs.knn(..., k=1))(molecule())


@pytest.mark.parametrize("first", [0, 1])
def test_points_with_and_without_a_cell_are_refused_unless_they_say_so(first):
    frames = [molecule(), box()]
    recipe = AddEdges(ga.graphs.radius(..., r=3.0))
    recipe(frames[first])
    with pytest.raises(GraphError, match="shapes with a cell and others without"):
        recipe(frames[1 - first])
    recipe = AddEdges(ga.graphs.radius(..., r=3.0))
    nowhere = molecule(cell=torch.zeros(3, 3), pbc=torch.tensor([False] * 3))  # as it says
    batch = Batch.from_data_list([recipe(nowhere), recipe(box())])
    assert ga.from_pyg(batch).num_edges == 4
    del batch.cell
    with pytest.raises(GraphError, match="cell must be lattice vectors"):
        ga.from_pyg(batch)


def test_frames_of_a_file_all_have_a_cell_if_some_do(tmp_path):
    path = tmp_path / "mixed.xyz"
    path.write_text(
        "2\nenergy=1.5\nH 0 0 0\nH 0 0 .7\n"
        '1\nLattice="3 0 0 0 3 0 0 0 3" Properties=species:S:1:pos:R:3:forces:R:3\nO 0 0 0 1 2 3\n',
        encoding="utf-8",
    )
    one, other = load_frames(path)
    assert not one.cell.any()
    assert not one.pbc.any()
    assert other.pbc.all()
    assert one.notes == ("no forces, which other frames of the file have",)
    assert other.notes == ("no energy, which other frames of the file have",)
    alone = tmp_path / "alone.xyz"
    alone.write_text("2\n\nH 0 0 0\nH 0 0 .7\n", encoding="utf-8")
    assert "cell" not in load_frames(alone)[0]


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
