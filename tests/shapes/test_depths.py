"""Colours, intensity and near infrared of LAS in as many bits as their values and those of the
folder say.
"""

import laspy
import numpy as np
import pytest
import torch

import graphattn as ga
from graphattn.errors import LoaderError
from graphattn.shapes import ShapeFolder


def las(path, seed, rows=501, **columns):
    """A file of some points, of which every third is ground; ``columns`` are the largest values."""
    draw = np.random.default_rng(seed)
    header = laspy.LasHeader(point_format=8, version="1.4")
    header.scales = [0.01] * 3
    file = laspy.LasData(header)
    file.xyz = draw.random((rows, 3)) * 10
    file.classification = np.where(np.arange(rows) % 3, 5, 2).astype("u1")
    for name, top in columns.items():
        for own in ("red", "green", "blue") if name == "color" else (name,):
            values = draw.integers(top // 4, top, rows, endpoint=True)
            values[:2] = 0, top
            file[own] = values.astype("u2")
    path.parent.mkdir(exist_ok=True)
    file.write(path)
    return path


@pytest.mark.parametrize("top", [199, 255, 256, 65535])
def test_colours_without_a_value_above_255_are_of_8_bits(top, tmp_path):
    shape = ga.load(las(tmp_path / "a.las", 3, color=top))
    assert float(shape.color.max()) == pytest.approx(top / (255 if top < 256 else 65535))
    assert ("of 8 bits" in str(shape.notes)) == (top < 256)
    black = ga.load(las(tmp_path / "b.las", 3))
    assert not black.color.any()
    assert black.notes == ()


def test_a_dark_colour_is_not_written_where_it_would_read_as_8_bits(tmp_path):
    dark = ga.shapes.Shape(pos=torch.rand(7, 3), color=torch.full((7, 3), 100 / 65535))
    with pytest.raises(LoaderError, match="100 of 65535, which reads as 8 bits"):
        ga.save(dark, tmp_path / "a.las")
    dark.color[2] = 1.0
    ga.save(dark, tmp_path / "a.las")
    assert torch.equal(ga.load(tmp_path / "a.las").color, dark.color)


def test_files_of_a_folder_are_scaled_to_the_same_bits_and_it_says_so(tmp_path):
    for number, tops in enumerate(
        [(255, 255, 4095), (65535, 65535, 4095), (250, 251, 4000), (60001, 64001, 255)]
    ):
        las(
            tmp_path / f"{number}.las",
            number,
            **dict(zip(("color", "nir", "intensity"), tops, strict=True)),
        )
    folder = ShapeFolder(tmp_path)
    assert folder.notes == (
        "color of LAS: 8 bits in 2 files, 16 bits in 2 files; from 0 to 1",
        "intensity of LAS: 8 bits in 1 file, 12 bits in 3 files; all as of 12 bits",
        "nir of LAS: 8 bits in 2 files, 16 bits in 2 files; all as of 16 bits",
    )
    for name, top in (("color", 1), ("nir", 65535), ("intensity", 4095)):
        bright = [float(shape[name].double().max()) for shape in folder]
        assert min(bright) > 0.9 * top
        assert max(bright) <= top
        assert {shape[name].dtype for shape in folder} == {torch.float32}


def test_a_dark_tile_keeps_the_bits_of_its_folder(tmp_path):
    """Its largest values would fit into 8 bits, of which they fill less than half."""
    for number in range(3):
        las(tmp_path / f"{number}.las", number, intensity=3500 + number)
    las(tmp_path / "dark.las", 7, intensity=61)
    folder = ShapeFolder(tmp_path)
    assert folder.notes == ("intensity of LAS: 12 bits in 4 files",)
    assert [int(shape.intensity.max()) for shape in folder] == [3500, 3501, 3502, 61]
    assert folder[0].intensity.dtype == torch.int64


def test_a_mirror_in_one_tile_does_not_change_the_bits_of_the_others(tmp_path):
    for number in range(3):
        las(tmp_path / f"{number}.las", number, intensity=2500)
    path = las(tmp_path / "mirror.las", 7, intensity=2500)
    file = laspy.read(path)
    file.intensity[5] = 65535
    file.write(path)
    assert ShapeFolder(tmp_path).notes == ("intensity of LAS: 16 bits in 4 files",)


def test_a_model_reads_other_files_as_of_the_bits_that_it_was_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr("graphattn.training.fit.save_report", lambda *args: None)
    for number in range(6):
        las(tmp_path / "wide" / f"{number}.las", number, color=65000, intensity=65000)
        las(tmp_path / "narrow" / f"{number}.las", number, color=253, intensity=253)
    small = {
        "model": "perceptron",
        "epochs": 1,
        "control": False,
        "features": ("position", "intensity", "color"),
    }
    words = []
    ga.training.train(
        tmp_path / "wide",
        tmp_path / "run",
        tell=lambda progress: words.append(progress.words),
        **small,
    )
    assert any("intensity of LAS: 16 bits in 6 files" in line for line in words)
    run = ga.training.Run.load(tmp_path / "run")
    assert run.depths["intensity"].bits == 16
    folder = run.read_folder(tmp_path / "narrow")
    assert float(folder[0].intensity.max()) == pytest.approx(253 * 257)
    with pytest.warns(UserWarning, match=r"0\.las: intensity is taken as of 8 bits"):
        lines = ga.training.predict(
            tmp_path / "run", [tmp_path / "narrow" / "0.las"], tmp_path / "out"
        )
    assert lines[0]["unlike"] == ""
