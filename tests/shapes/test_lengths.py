"""Units of length: atoms in other units than angstrom, and what the header of LAS says."""

import itertools
import warnings

import laspy
import numpy as np
import pytest
import torch
from laspy.vlrs.known import GeoKeyDirectoryVlr, WktCoordinateSystemVlr

import graphattn as ga
from graphattn.shapes import Shape, ShapeFolder, load_frames, save_frames

SPACING = 2.35  # silicon, angstrom


def crystal(scale=1.0, sides=(2, 3, 2), noise=0.03, seed=0):
    """A simple cubic crystal with thermal noise, in units of ``scale`` angstrom."""
    draw = torch.Generator().manual_seed(seed)
    places = torch.tensor(list(itertools.product(*map(range, sides))), dtype=torch.float64)
    pos = SPACING * (places + noise * torch.randn(places.shape, generator=draw).double())
    cell = SPACING * torch.diag(torch.tensor(sides, dtype=torch.float64))
    z = torch.full((len(pos),), 14)
    return Shape(pos=pos * scale, z=z, cell=cell * scale, pbc=torch.tensor([True, True, True]))


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = call()
    return value, [str(each.message) for each in caught]


@pytest.mark.parametrize("ending", ["extxyz", "xyz"])
@pytest.mark.parametrize(("scale", "unit"), [(0.1, "nanometres"), (100.0, "picometres")])
def test_atoms_in_other_units_than_angstrom_are_warned_of(tmp_path, scale, unit, ending):
    save_frames([crystal(scale)], tmp_path / "atoms.extxyz")
    path = (tmp_path / "atoms.extxyz").rename(tmp_path / f"atoms.{ending}")
    shape, lines = warned(lambda: ga.load(path))
    assert len(lines) == 1
    assert lines[0].startswith(f"{path}: atoms of frame 0 lie ")
    assert f"are they in {unit}? Extended XYZ has angstrom" in lines[0]
    assert shape.notes[-1] in lines[0]


def test_many_frames_in_nanometres_are_one_line(tmp_path):
    frames = [crystal(0.1, seed=seed) for seed in range(5)] + [crystal(seed=5)]
    save_frames(frames, tmp_path / "all.extxyz")
    found, lines = warned(lambda: load_frames(tmp_path / "all.extxyz"))
    assert len(lines) == 1
    assert lines[0].endswith("(6 of 6 frames)")  # the odd one is unlike the others
    assert all(shape.notes for shape in found)


def test_atoms_in_angstrom_are_not(tmp_path):
    hydrogen = torch.tensor([[0.0, 0, 0], [0, 0, 0.74], [5, 0, 0], [5, 0, 0.74]])
    frames = [crystal(seed=seed) for seed in range(5)]
    frames += [crystal(1.2), crystal(sides=(1, 1, 4)), Shape(pos=hydrogen, z=torch.ones(4).long())]
    frames += [Shape(pos=hydrogen[:2] * 0.3, z=torch.ones(2).long())]  # a collision
    save_frames(frames, tmp_path / "all.extxyz")
    found, lines = warned(lambda: load_frames(tmp_path / "all.extxyz"))
    assert lines == []
    assert [shape.notes for shape in found] == [()] * len(frames)


def test_a_frame_in_bohr_beside_the_same_atoms_in_angstrom_is_named(tmp_path):
    frames = [crystal(seed=seed) for seed in range(4)] + [crystal(1.8897, seed=4)]
    save_frames(frames, tmp_path / "all.extxyz")
    found, lines = warned(lambda: load_frames(tmp_path / "all.extxyz"))
    assert len(lines) == 1
    assert "atoms of frame 4 lie " in lines[0]
    assert "are they in bohr? Or in angstrom?" in lines[0]
    assert [bool(shape.notes) for shape in found] == [False] * 4 + [True]


PROJECTED = (
    'PROJCS["a zone",GEOGCS["NAD83",DATUM["d",SPHEROID["s",6378137,298.2]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925]],PROJECTION["Transverse_Mercator"],PARAMETER["scale_factor",1],'
    'UNIT["{across}",0.3],AXIS["X",EAST],AXIS["Y",NORTH]]'
)
VERTICAL = 'VERT_CS["NAVD88",VERT_DATUM["d",2005],UNIT["{height}",1],AXIS["Up",UP]]'
CRS = (
    'PROJCRS["a zone",BASEGEOGCRS["NAD83",DATUM["d",ELLIPSOID["e",6378137,298.2,LENGTHUNIT["metre",'
    '1]]],PRIMEM["Greenwich",0,ANGLEUNIT["degree",0.017]]],CONVERSION["c",METHOD["Lambert"]],'
    'CS[Cartesian,2],AXIS["easting",east],AXIS["northing",north],LENGTHUNIT["{across}",0.3]]'
)
DEGREES = (
    'GEOGCS["WGS 84",DATUM["d",SPHEROID["s",6378137,298.2]],PRIMEM["Greenwich",0],UNIT["degree",1]]'
)
FEET = ("US survey foot", "US survey feet")


def las(path, wkt="", keys=None, version="1.4"):
    header = laspy.LasHeader(point_format=6 if version == "1.4" else 1, version=version)
    if wkt:
        header.vlrs.append(WktCoordinateSystemVlr(wkt))
    if keys:
        record = GeoKeyDirectoryVlr()
        entries = [(1, 1, 0, len(keys)), *((key, 0, 1, value) for key, value in keys.items())]
        record.parse_record_data(np.array(entries, np.uint16).tobytes())
        header.vlrs.append(record)
    file = laspy.LasData(header)
    file.xyz = np.random.default_rng(0).random((11, 3)) * 40
    file.write(path)
    return path


def compound(across, height):
    parts = PROJECTED.format(across=across), VERTICAL.format(height=height)
    return f'COMPD_CS["both",{",".join(parts)}]'


@pytest.mark.parametrize(
    ("header", "unit", "note", "warning"),
    [
        ({"wkt": PROJECTED.format(across="metre")}, "metres", "", ""),
        ({"wkt": compound("metre", "metre")}, "metres", "", ""),
        ({"wkt": PROJECTED.format(across=FEET[0])}, FEET[1], f"lengths are in {FEET[1]}", ""),
        ({"wkt": CRS.format(across=FEET[0])}, FEET[1], f"lengths are in {FEET[1]}", ""),
        ({"wkt": compound(FEET[0], FEET[0])}, FEET[1], f"lengths are in {FEET[1]}", ""),
        ({"wkt": compound("metre", "foot")}, "metres", "", "x and y are in metres and z in feet"),
        ({"wkt": DEGREES}, "degrees", "", "x and y are in degrees, as the header says, and z"),
        ({"keys": {1024: 1, 3072: 2992, 3076: 9002}}, "feet", "lengths are in feet", ""),
        ({"keys": {1024: 1, 3076: 9001, 4099: 9003}}, "metres", "", "z in US survey feet"),
        ({"keys": {1024: 2, 2048: 4326}}, "degrees", "", "x and y are in degrees"),
        ({"keys": {1024: 1, 3072: 26910}}, "", "", ""),
        ({}, "", "", ""),
    ],
)
def test_the_units_that_las_says_are_read(tmp_path, header, unit, note, warning):
    version = "1.2" if "keys" in header else "1.4"
    path = las(tmp_path / "tile.las", version=version, **header)
    shape, lines = warned(lambda: ga.load(path))
    assert shape.unit == unit
    assert len(lines) == bool(warning)
    assert all(f"{path}: " in line and warning in line for line in lines)
    assert note in "; ".join(shape.notes)
    assert bool(shape.notes) == bool(note or warning)


def test_a_folder_of_feet_beside_metres_says_so(tmp_path):
    for number, unit in enumerate(("metre", FEET[0], "metre")):
        las(tmp_path / f"{number}.las", PROJECTED.format(across=unit))
    folder = ShapeFolder(tmp_path, label="classification", task="regress")
    (line,) = [note for note in folder.notes if "lengths" in note]
    assert line == f"lengths differ, as the headers say: 2.las in metres, 1.las in {FEET[1]}"
