"""What a model reads of a shape: the same of a turned one, and a word for every shape that cannot
be read.
"""

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

import graphattn as ga
from graphattn.errors import LoaderError, OptionError
from graphattn.graphs import Hierarchy
from graphattn.shapes import RandomRotation, Shape, ShapeFolder
from graphattn.training.models.named import MODELS, build
from graphattn.training.reading.data import OneShape, Prepared
from graphattn.training.reading.inputs import ShapeInputs
from graphattn.training.reading.placing import sampled
from graphattn.training.reading.ranges import load_ranges, save_ranges, unlike
from graphattn.training.reading.simulations import Simulation

CLOUD = Data(pos=torch.rand(50, 3, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("readout", "many"),
    [("shape", 2), ("node", 2), pytest.param("shape", 100, marks=pytest.mark.slow)],
)
def test_the_default_model_does_not_see_rotations(readout, many):
    preset = MODELS["unet"]
    inputs = preset.of_shape if readout == "shape" else preset.of_nodes
    torch.manual_seed(0)
    model = build("unet", {}, 8, 3, readout).eval()
    answers = []
    for turn in (torch.eye(3), *(RandomRotation().matrix().float() for _ in range(many))):
        data = inputs(Data(pos=CLOUD.pos @ turn.T + 5), "cloud")
        answers.append(model(data.x, Hierarchy.join([data.levels])).detach())
    assert max(float((answer - answers[0]).abs().max()) for answer in answers) < 1e-4
    assert float(answers[0].std(-1).min()) > 0


def test_turned_inputs_are_those_of_a_turned_shape():
    inputs = ShapeInputs(
        ("color", "position", "normals"), "pca", ratio=(0.5,), graph=("knn(..., 5)",) * 2
    )
    matrix, color = RandomRotation().matrix(), torch.rand(50, 4)
    turned = inputs.turned(inputs(Data(pos=CLOUD.pos, color=color), ""), matrix)
    anew = inputs(Data(pos=CLOUD.pos @ matrix.float().T, color=color), "")
    signs = (turned.x[:, 7:] * anew.x[:, 7:]).sum(1, keepdim=True).sign()  # PCA gives normals none
    torch.testing.assert_close(
        turned.x, torch.cat((anew.x[:, :7], signs * anew.x[:, 7:]), 1), atol=1e-5, rtol=0
    )
    for one, two in zip(turned.levels.levels, anew.levels.levels, strict=True):
        torch.testing.assert_close(one.pos, two.pos, atol=1e-5, rtol=0)
        assert one.graph.equals(two.graph)


def test_points_are_drawn_on_faces_and_the_same_each_time():
    pos = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    square = Data(pos=pos, face=torch.tensor([[0, 0], [1, 2], [2, 3]]), color=pos.flip(1))
    few = sampled(square, 100).pos
    assert few.shape == (100, 3)
    assert float(few[:, 2].abs().max()) == 0
    assert float(few.mean(0)[:2].sub(0.5).abs().max()) < 0.15
    assert torch.equal(few, sampled(square, 100).pos)
    torch.testing.assert_close(sampled(square, 100).color, few.flip(1))  # corners' colours, mixed
    # faces without area
    assert len(sampled(Data(pos=torch.ones(4, 3), face=square.face), 3).pos) == 3
    assert len(sampled(CLOUD, 20).pos) == 20
    assert len(sampled(CLOUD, 70).pos) == 50


@pytest.mark.parametrize(
    ("pos", "words"),
    [
        (torch.zeros(0, 3), "expected points, got none"),
        (torch.zeros(1, 3), "got one point"),
        (torch.ones(7, 3), "got 7 points at one place"),
        (torch.full((7, 3), torch.nan), "got NaN"),
        (torch.rand(7, 4), r"pos must have shape \(N, 3\) or \(N, 2\), got \(7, 4\)"),
        (torch.rand(3, 3), "k=4 needs at least 5 points, got 3"),
    ],
)
def test_a_shape_that_cannot_be_read_is_named(pos, words):
    with pytest.raises(LoaderError, match=f"scan.ply: .*{words}"):
        ShapeInputs(("position",), graph=("knn(..., 4)",))(Data(pos=pos), "scan.ply")


def test_small_clouds_are_read_by_every_default():
    for preset in MODELS.values():
        for inputs in (preset.of_shape, preset.of_nodes):
            if inputs.normals != "faces":
                lines = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
                made = inputs(Data(pos=CLOUD.pos[:3], edge_index=lines), "small")
                assert torch.isfinite(made.x).all()


def test_features_and_graphs_that_are_none_are_refused():
    with pytest.raises(
        LoaderError, match=r"scan.ply: expected the property heat of each point, got none; .*: none"
    ):
        ShapeInputs(("heat",))(CLOUD, "scan.ply")
    # CloudCompare's name of a property of LAS
    scan = Data(pos=CLOUD.pos, scalar_Intensity=torch.rand(50))
    assert torch.equal(ShapeInputs(("intensity",))(scan, "").x[:, 0], scan.scalar_Intensity)
    with pytest.raises(
        LoaderError, match=r"expected the property heat .* its properties: scalar_Intensity"
    ):
        ShapeInputs(("heat",))(scan, "scan.ply")
    for color, words in (
        (None, "the property color"),
        (torch.rand(50), r"got \(N, 1\)"),
        (torch.nan, "finite color"),
    ):
        color = torch.full((50, 3), color) if color is torch.nan else color
        with pytest.raises(LoaderError, match=f"scan.ply: expected .*{words}"):
            ShapeInputs(("position",), signals=("color",))(
                Data(pos=CLOUD.pos, color=color), "scan.ply"
            )
    with pytest.raises(LoaderError, match=r"scan.ply: expected the property normal of each point"):
        ShapeInputs(("position",), normals="normal")(CLOUD, "scan.ply")
    with pytest.raises(LoaderError, match="needs normals"):
        ShapeInputs(("outward",))(CLOUD, "scan.ply")
    with pytest.raises(OptionError, match="open in its positions"):
        _ = ShapeInputs(("position",), graph=("causal(5)",)).recipe


def test_points_drawn_on_a_mesh_have_the_normals_of_its_faces():
    corners, faces = (
        torch.cat((torch.eye(3), -torch.eye(3))),
        torch.tensor([[0, 1, 2], [3, 5, 4], [0, 4, 5]]),
    )
    made = ShapeInputs(("position", "normals"), "faces", sample=50)(
        Data(pos=corners, face=faces.T), ""
    )
    pos, normal = made.x.split(3, 1)
    torch.testing.assert_close(normal.norm(dim=1), torch.ones(50))
    (across,) = normal.abs().unique(dim=0).sum(1).unique()
    assert across == pytest.approx(3**0.5)  # of an octahedron's faces
    same = (normal[:, None] - normal).norm(dim=-1) < 1e-6
    height = (pos * normal).sum(1)
    assert (
        (height[:, None] - height)[same].abs().max()
        < 1e-5
        < (height[:, None] - height)[~same].abs().max()
    )
    with pytest.raises(LoaderError, match="a mesh with faces"):
        ShapeInputs(("position",), "faces", sample=50)(Data(pos=corners), "")


def test_atoms_are_read_by_their_element_and_by_how_many_there_are_of_each():
    water = Data(pos=CLOUD.pos[:3], z=torch.tensor([8, 1, 1]))
    x = ShapeInputs(("species", "composition"))(water, "water").x
    assert x.shape == (3, 238)
    assert torch.equal(x[:, :119].argmax(1), water.z)
    assert x[:, :119].sum() == 3
    assert x[:, 119:].unique(dim=0).nonzero().tolist() == [[0, 1], [0, 8]]
    assert x[0, 119 + 1] == 2
    drawn = ShapeInputs(("composition",), sample=2)(water, "water").x
    assert torch.equal(drawn, x[:2, 119:])  # of the molecule
    with pytest.raises(
        LoaderError, match=r"water: expected atomic numbers z from 0 to 118, got 1 to 119"
    ):
        ShapeInputs(("species",))(Data(pos=CLOUD.pos[:3], z=torch.tensor([119, 1, 1])), "water")


def test_elements_that_training_had_not_are_said(tmp_path):
    for name, numbers in {"a": [8, 1, 1], "b": [6, 8, 8], "c": [14, 8, 8]}.items():
        atoms = Shape(pos=CLOUD.pos[:3], z=torch.tensor(numbers), energy=torch.tensor([1.0]))
        ga.save(atoms, tmp_path / f"{name}.extxyz")
    shapes = ShapeFolder(tmp_path, task="regress", label="energy")
    train = Prepared(shapes, [0, 1], ShapeInputs(("species",)))
    save_ranges(tmp_path, train)
    ranges = load_ranges(tmp_path)
    assert unlike(ranges, train, 0) == ""
    silica = Prepared(shapes, [2], train.inputs)
    assert "atoms of Si (none in training)" in unlike(ranges, silica, 0)
    without = Prepared(OneShape(Shape(pos=CLOUD.pos[:3]), "d.xyz"), [0], train.inputs)
    with pytest.raises(LoaderError, match=r"d.xyz: expected the property species"):
        unlike(ranges, without, 0)


def test_ranges_of_long_trajectories_are_of_all_nodes(tmp_path):
    u = torch.arange(10.0).expand(10_000, 10)  # 10 times the rows that quantiles are made of
    flow = ga.shapes.Trajectory(CLOUD.pos[:10], {"u": u})
    simulation = Simulation(window=ga.models.Window.of([flow]))
    save_ranges(
        tmp_path, Prepared(OneShape(flow, "a"), [0], ShapeInputs(("u",), simulation=simulation))
    )
    assert load_ranges(tmp_path)["u"] == (0, 9, 9, 9)


@pytest.mark.parametrize(
    "inputs",
    [
        ShapeInputs(("degree",), graph=("full(...)",)),
        ShapeInputs(("distance",), graph=("mesh_vertices(..., hops=2)",)),
    ],
)
def test_points_without_the_lines_that_are_read_are_refused(inputs):
    pos = torch.rand(9, 3)
    with pytest.raises(LoaderError, match=r"a.csv: expected faces, or lines .* a column order"):
        inputs(Shape(pos=pos), "a.csv")
    ends = torch.stack((torch.arange(8), torch.arange(1, 9)))
    curve = Shape(pos=pos, edge_index=torch.cat((ends, ends.flip(0)), 1))
    assert inputs(curve, "a.csv").x.shape == (9, 1)
    with pytest.raises(LoaderError, match=r"Try: sample=0 .*lose their lines"):
        replace(inputs, sample=5)(curve, "a.csv")


@pytest.mark.parametrize("both", [False, True])
def test_a_degree_counts_lines_of_either_direction(both):
    edges = torch.tensor([[0, 1, 1], [1, 2, 3]])
    if both:
        edges = torch.cat((edges, edges.flip(0)), 1)
    tree = Shape(pos=CLOUD.pos[:5], edge_index=edges)
    assert ShapeInputs(("degree",))(tree, "a.npz").x[:, 0].tolist() == [1, 3, 1, 1, 0]


def test_the_size_of_a_shape_is_a_feature_where_its_units_are_lost():
    """Of a classification, whose positions are in radii of each shape."""
    pos = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    inputs = ShapeInputs(("log_radius", "distance"))
    small, large = (inputs(Data(pos=scale * pos), "a").x for scale in (1.0, 3.0))
    torch.testing.assert_close(large[:, 0] - small[:, 0], torch.full((20,), 3.0).log())
    torch.testing.assert_close(large[:, 1], small[:, 1])
