"""Faces and edges of meshes as tokens: what is read of them, what their labels are, what is
written.
"""

import json

import pytest
import torch
from shape_folders import QUICK, measured_meshes

import graphattn as ga
from graphattn.errors import LoaderError, OptionError
from graphattn.shapes import RandomRotation, Shape, ShapeFolder, mesh_edge_ends
from graphattn.training.chosen import check_labels
from graphattn.training.reading.elements import at_vertices, count_of, elements_of
from graphattn.training.reading.inputs import ShapeInputs

FACES = torch.tensor(
    [[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]]
)
CORNERS = torch.cat((torch.eye(3), -torch.eye(3)))[[0, 3, 1, 4, 2, 5]]
SMALL = {
    **QUICK,
    "model_options": {"embed_dim": 8, "num_heads": 2, "num_layers": 1},
    "control": ("perceptron", "random"),
}


def mesh(number, **tensors):
    """An octahedron, stretched."""
    return Shape(pos=CORNERS * torch.tensor([1, 1, 1 + 0.2 * number]), face=FACES.T, **tensors)


def upper(folder):
    """Six meshes whose upper faces are of class 1."""
    folder.mkdir()
    for number in range(6):
        ga.save(mesh(number, face_label=torch.tensor([1] * 4 + [0] * 4)), folder / f"{number}.ply")
    return folder


@pytest.mark.parametrize(("elements", "width"), [("faces", 4), ("edges", 5)])
def test_what_is_read_is_of_the_elements_and_does_not_turn(elements, width):
    inputs = ShapeInputs(
        ("element", "distance"), "faces", graph=(f"mesh_{elements}(...)",), elements=elements
    )
    shape = mesh(2)
    made, shape.pos = inputs(shape, ""), shape.pos @ RandomRotation().matrix().float().T
    assert made.x.shape == (count_of(shape, elements), width + 1)
    assert made.levels.levels[0].graph.equals(getattr(ga.graphs, f"mesh_{elements}")(FACES))
    torch.testing.assert_close(made.x, inputs(shape, "").x, atol=1e-5, rtol=0)
    with pytest.raises(LoaderError, match=r"scan.ply: expected a mesh with faces"):
        inputs(Shape(pos=shape.pos), "scan.ply")


def test_elements_are_those_that_have_labels(tmp_path):
    for name, labels in (("", 6), ("faces", 8), ("edges", 12)):
        folder = tmp_path / f"{labels}"
        folder.mkdir()
        for number in range(2):
            ga.save(mesh(number, y=torch.arange(labels) % 2), folder / f"{number}.npz")
        assert elements_of(None, ShapeFolder(folder)) == name
    assert ShapeFolder(upper(tmp_path / "ply")).task == "segment"


def test_vertices_have_what_most_of_their_edges_have():
    ends, shape = mesh_edge_ends(FACES), mesh(0)
    kind = (ends == 4).any(1).long()
    assert at_vertices(shape, kind).tolist() == [0, 0, 0, 0, 1, 0]
    assert at_vertices(shape, kind.float()).tolist() == [0.25, 0.25, 0.25, 0.25, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("elements", ["faces", "edges"])
def test_elements_are_learned_measured_and_written(elements, tmp_path, no_page):
    folder = upper(tmp_path / "shapes")
    if elements == "edges":
        folder = tmp_path / "numbers"
        folder.mkdir()
        for number in range(6):
            shape = mesh(number)
            shape.y = shape.pos[mesh_edge_ends(FACES)].mean(1).norm(dim=1)
            ga.save(shape, folder / f"{number}.npz")
    result = ga.training.train(folder, tmp_path / "run", **SMALL)
    assert (
        json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["inputs"]["elements"]
        == elements
    )
    assert ga.training.evaluate(tmp_path / "run").to_dict() == result.to_dict()
    (told,) = ga.training.predict(tmp_path / "run", [next(folder.iterdir())], tmp_path / "out")
    made = ga.load(told["ply"])
    assert (
        len(made[f"{elements[:-1]}_prediction"])
        == told[elements]
        == {"faces": 8, "edges": 12}[elements]
    )
    assert torch.equal(made.face, FACES.T)


def test_what_elements_cannot_be_is_refused(parts, tmp_path):
    folder = upper(tmp_path / "shapes")
    for root, how, words in (
        (parts, {"elements": "faces"}, "needs meshes with faces"),
        (folder, {"elements": "corners"}, 'elements must be "vertices"'),
        (folder, {"model": "pct"}, "for model='mesh'"),
        (folder, {"augment": ("drop",)}, "leave faces and edges"),
        (folder, {"sample": 100}, "a token is no point"),
    ):
        with pytest.raises(OptionError, match=words):
            ga.training.train(root, tmp_path / "run", **how)
    with pytest.raises(LoaderError, match="a label for each edge, got 8 for 12 edges"):
        ga.training.train(folder, tmp_path / "run", elements="edges")


def test_labels_of_another_kind_are_not_measured(parts, tmp_path, no_page):
    numbers, one = measured_meshes(tmp_path / "numbers"), tmp_path / "one"
    ga.training.train(numbers, tmp_path / "run", **{**SMALL, "model": "mesh", "control": False})
    one.mkdir()
    ga.save(mesh(1, y=torch.rand(1)), one / "0.npz")
    with pytest.raises(
        LoaderError, match=r"0.npz: expected a label for each point, got 1 for 6 points"
    ):
        ga.training.evaluate(tmp_path / "run", one)
    with pytest.raises(LoaderError, match=r"0.ply: expected a mesh with faces"):
        check_labels(ShapeFolder(parts), "node", "faces")
