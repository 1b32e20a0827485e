"""Colours of PCD files in every form that writers have, and what a header says beside the points."""

import numpy as np
import pytest
import torch

import graphattn as ga

COLORS = np.array([[255, 128, 7], [3, 250, 200], [0, 0, 90]])
NUMBERS = (COLORS << [16, 8, 0]).sum(1).astype("<u4")


def written(path, name, kind, cells, data="ascii", **changes):
    """A file of three points with a column; ``cells`` are its texts, or an array."""
    header = {"WIDTH": 3, "HEIGHT": 1, "VIEWPOINT": "0 0 0 1 0 0 0"} | changes
    lines = "".join(f"{word} {value}\n" for word, value in header.items())
    head = (
        f"VERSION .7\nFIELDS x y z {name}\nSIZE 4 4 4 4\nTYPE F F F {kind}\nCOUNT 1 1 1 1\n{lines}"
        f"POINTS 3\nDATA {data}\n"
    ).encode()
    if data == "ascii":
        body = "".join(f"{i} 0 0 {cell}\n" for i, cell in enumerate(cells)).encode()
    else:
        table = np.zeros(3, [("x", "<f4", 3), ("c", cells.dtype)])
        table["c"] = cells
        body = table.tobytes()
    path.write_bytes(head + body)
    return ga.load(path)


AS_FLOAT = [str(value) for value in NUMBERS.view("<f4")]
OPAQUE = NUMBERS | np.uint32(0xFF000000)
FORMS = {
    "bits of floats, text": ("rgb", "F", AS_FLOAT, "ascii", ""),
    "bits of floats": ("rgb", "F", NUMBERS.view("<f4"), "binary", ""),
    "bits of floats, opaque": ("rgb", "F", OPAQUE.view("<f4"), "binary", ""),
    "unsigned": ("rgb", "U", NUMBERS.tolist(), "ascii", ""),
    "signed, opaque": ("rgb", "I", OPAQUE.view("<i4").tolist(), "ascii", ""),
    "whole numbers": ("rgb", "F", NUMBERS.tolist(), "ascii", "whole numbers"),
    "whole floats": ("rgb", "F", [f"{n}.000000" for n in NUMBERS], "ascii", "whole numbers"),
    "whole floats, binary": ("rgb", "F", NUMBERS.astype("<f4"), "binary", "whole numbers"),
    "whole numbers, opaque": ("rgba", "F", OPAQUE.tolist(), "ascii", "whole numbers"),
}


@pytest.mark.parametrize("form", FORMS)
def test_colours_are_read_as_they_are_meant(form, tmp_path):
    name, kind, cells, data, note = FORMS[form]
    shape = written(tmp_path / "a.pcd", name, kind, cells, data)
    assert torch.equal((shape.color * 255).round().int(), torch.from_numpy(COLORS).int())
    assert [note in one for one in shape.notes] == [True] * bool(note)
    if name == "rgba":
        assert shape.alpha.tolist() == [1, 1, 1]


def test_a_colour_that_is_no_number_is_lost(tmp_path):
    shape = written(tmp_path / "a.pcd", "rgb", "F", ["nan", *AS_FLOAT[1:]])
    assert shape.color[0].tolist() == [0, 0, 0]
    assert torch.equal((shape.color[1:] * 255).round().int(), torch.from_numpy(COLORS[1:]).int())
    assert shape.notes == ("1 of rgb are the text nan, in which no colour is left: 0",)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"VIEWPOINT": "1 0 0 1 0 0 0"}, "VIEWPOINT 1 0 0 1 0 0 0 left out"),
        ({"VIEWPOINT": "0 0 0 0 0 0 1"}, "VIEWPOINT 0 0 0 0 0 0 1 left out"),
        ({"WIDTH": 1, "HEIGHT": 3}, "an image of 3 rows of 1 point"),
        ({"VIEWPOINT": "0.0 0 -0 1.0 0 0 0"}, ""),
    ],
)
def test_what_the_header_says_beside_the_points_is_noted(changes, note, tmp_path):
    shape = written(tmp_path / "a.pcd", "intensity", "F", [1, 2, 3], **changes)
    assert shape.pos.tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]
    assert [note in one for one in shape.notes] == [True] * bool(note)
    assert shape.intensity.tolist() == [1, 2, 3]
