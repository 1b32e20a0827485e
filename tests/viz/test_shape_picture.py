"""Shapes as they are seen: what is hidden is hidden, colours are the values', predictions stand
beside their truth.
"""

import io

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphattn.errors import OptionError, ShapeError
from graphattn.viz import plot_shape, png
from graphattn.viz.colours import LABELS, MISSING, RISING, SIGNED, colouring, error_of, rgb_of
from graphattn.viz.creases import lit
from graphattn.viz.raster import balls, triangles

CUBE = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], dtype=float)
SIDES = [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4],
         [1, 5, 7], [1, 7, 3]]  # fmt: skip


def cube(**properties) -> Data:
    return Data(pos=torch.tensor(CUBE).float(), face=torch.tensor(SIDES).T, **properties)


def pixels(figure, panel: int = 0) -> np.ndarray:
    """The colours (P, 3) of the shape in a panel."""
    (image,) = figure.axes[panel].images
    rgba = np.asarray(image.get_array()) / 255
    return rgba[rgba[..., 3] > 0][:, :3]


def corner_normals(at, faces, *smooth) -> np.ndarray:
    shade = lit(at, faces, *smooth)
    np.testing.assert_array_equal(shade.node[shade.corner], faces)
    return shade.normal[shade.corner]


def test_the_nearest_triangle_covers_a_pixel_and_shared_sides_have_no_gap():
    flat = np.array([[0, 0, 0], [7, 0, 0], [7, 5, 0], [0, 5, 0]], dtype=float)
    both = np.stack((flat[[0, 1, 2]], flat[[0, 2, 3]]))
    roof = both[:1] + np.array([0, 0, 1.0])
    covered = triangles(np.concatenate((both, roof)), (5, 7))
    assert len(covered.item) == 35
    assert set(covered.item.tolist()) == {1, 2}
    at = (np.concatenate((both, roof))[covered.item] * covered.inside[:, :, None]).sum(1)
    np.testing.assert_allclose(at[:, :2], np.stack((covered.column, covered.row), 1) + 0.5)
    # what is outside the picture is left out
    assert len(triangles(both + np.array([3, 2, 0]), (5, 7)).item) == 4 * 3


def test_a_ball_hides_what_is_behind_it_and_a_small_one_has_a_pixel():
    centres = np.array([[5.0, 5, 0], [5, 5, 20], [9.5, 1.5, 0]])
    covered = balls(centres, np.array([4.0, 2.0, 0.1]), (11, 11))
    assert covered.item[(covered.row == 5) & (covered.column == 5)] == 1
    assert covered.item[(covered.row == 1) & (covered.column == 9)] == 2
    assert (covered.item == 0).sum() + (covered.item == 1).sum() == pytest.approx(
        np.pi * 16, rel=0.1
    )


def test_normals_are_smooth_on_a_sphere_and_not_over_the_sides_of_a_cube():
    from graphattn.graphs.catalogue.inputs import sphere, sphere_faces

    at, faces = sphere.numpy(), sphere_faces.numpy()
    out = np.cross(at[faces[:, 1]] - at[faces[:, 0]], at[faces[:, 2]] - at[faces[:, 0]])
    wound = np.where(((out * at[faces[:, 0]]).sum(1) > 0)[:, None], faces, faces[:, ::-1])
    cosine = (corner_normals(at, wound) * at[wound]).sum(2)
    assert cosine.min() > 0.9
    unwound = (corner_normals(at, faces) * at[faces]).sum(2)
    assert max(unwound.min(), (-unwound).min()) > 0.9  # all to one side, whatever their winding
    np.testing.assert_allclose(np.abs(corner_normals(CUBE, np.array(SIDES))).max(2), 1)
    np.testing.assert_allclose(
        np.abs(corner_normals(CUBE, np.array(SIDES), 180.0)), 1 / np.sqrt(3), atol=1e-9
    )


def test_a_plane_beside_a_fillet_stays_a_plane_however_thin_its_triangles_are():
    """A long strip of needles, then an arc of 12 facets to a wall; corners apart, as in an STL
    file.
    """
    turn = np.linspace(0, np.pi / 2, 13)
    profile = np.concatenate(
        ([[-50.0, 0]], np.stack((np.sin(turn), 1 - np.cos(turn)), 1), [[1, 40]])
    )
    across = np.array([0.0, 20.0])
    at = np.stack(
        [np.repeat(profile[:, 0], 2), np.tile(across, len(profile)), np.repeat(profile[:, 1], 2)], 1
    )
    first = 2 * np.arange(len(profile) - 1)
    faces = np.concatenate(
        (np.stack((first, first + 2, first + 1), 1), np.stack((first + 1, first + 2, first + 3), 1))
    )
    normals = corner_normals(at, faces)
    flat = (at[faces][..., 2] == 0).all(1)
    np.testing.assert_allclose(np.abs(normals[flat][..., 2]), 1, atol=1e-5)
    assert 0.1 < np.abs(normals[~flat][..., 2]).min(1).max() < 1  # the arc is round
    # cos of the angle, on a unit circle
    arc = np.abs(normals[:, :, 2]) - np.abs(1 - at[faces][:, :, 2])
    assert np.abs(arc[(at[faces][..., 2] <= 1).all(1)]).max() < 0.01
    soup = corner_normals(at[faces].reshape(-1, 3), np.arange(3 * len(faces)).reshape(-1, 3))
    np.testing.assert_allclose(np.abs(soup), np.abs(normals), atol=1e-9)
    # the control: facets
    np.testing.assert_allclose(corner_normals(at, faces, 0.0).std(1), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("values", "first", "last"),
    [
        (np.array([1.0, 2, 5]), RISING[0], RISING[-1]),
        (np.array([-5.0, 0, 5]), SIGNED[0], SIGNED[-1]),
        (np.array([0, 1, 5]), LABELS[0], LABELS[5]),
        (np.array([-1, 1, 5]), MISSING, LABELS[5]),
        (np.array([True, True, False]), LABELS[1], LABELS[0]),
        (np.array([np.nan, 1, 2]), MISSING, RISING[-1]),
        (np.array([[0, 51, 102]] * 3, dtype=np.uint8), "#003366", "#003366"),
        (np.array([[0, 0.2, 0.4, 1.0]] * 3), "#003366", "#003366"),
    ],
)
def test_values_have_their_colours(values, first, last):
    rgb = colouring(values, "y").rgb
    np.testing.assert_allclose(rgb[[0, -1]], [rgb_of(first), rgb_of(last)], atol=1e-12)


def test_errors_are_where_labels_differ_and_how_much_amounts_do():
    error = error_of(np.array([0, 1, -1, 2]), np.array([0, 2, 2, 2]))
    assert (error.rgb == rgb_of(dict(error.labels)["wrong"])).all(1).tolist() == [
        False,
        True,
        False,
        False,
    ]
    assert error.remarks == ("Wrong: 33.3%.",)
    for guess in ([0.5, 2.25], [0.5, 1.5]):  # too much and too little, or too little everywhere
        assert error_of(np.array([1.0, 2]), np.array(guess)).scale[:2] == (-0.5, 0.5)


@pytest.mark.slow
def test_truth_prediction_and_error_are_side_by_side():
    truth, guess = torch.arange(8) % 3, torch.arange(8) % 3
    guess[2] = 0
    figure = plot_shape(cube(y=truth), prediction=guess, names=["leg", "seat", "back"])
    assert [ax.get_title() for ax in figure.axes] == ["y", "prediction", "error"]
    words = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in figure.axes[1:]]
    assert words == [["leg", "seat", "back"], ["right", "wrong"]]
    assert "Wrong: 12.5%." in figure.get_supxlabel()
    amounts = plot_shape(cube(y=truth.double()), prediction=guess + 0.5)
    # one scale for both, one for the error
    assert [ax.get_ylim() for ax in amounts.axes[3:]] == [
        (0.0, 2.5),
        (-1.5, 1.5),
    ]


def test_a_colour_is_the_files_a_property_or_of_faces():
    red = torch.tensor([[1.0, 0, 0]]).expand(8, 3)
    assert pixels(plot_shape(cube(color=red)))[:, 1:].max() < 0.2
    blue_faces = torch.tensor([[0.0, 0, 1]]).expand(12, 3)
    shown = plot_shape(cube(color=red, y=torch.zeros(1)), blue_faces, title="blue", camera=(10, 20))
    assert pixels(shown)[:, 0].max() < 0.2
    assert shown.get_suptitle() == "blue"
    scanned = plot_shape(cube(height=torch.arange(8.0)), "height")
    assert scanned.axes[0].get_title() == "height"
    assert png(plot_shape(CUBE[:, :2])).startswith(b"\x89PNG")


def test_near_points_are_larger():
    line = torch.tensor([[0.0, 0, 0], [0, -3, 0]])
    figure = plot_shape(line, torch.tensor([0, 1]), camera=(0, -60))
    rgb = pixels(figure)
    far, near = ((np.abs(rgb[:, [0]] < rgb[:, [2]])[:, 0] == blue).sum() for blue in (True, False))
    assert near > 1.5 * far


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: plot_shape(Data(x=torch.zeros(3, 2))), "without pos"),
        (lambda: plot_shape(cube(), "weight"), 'does not have; it has '),
        (lambda: plot_shape(CUBE, "y"), "it has positions alone"),
        (lambda: plot_shape(cube(), torch.zeros(9)), r"color must hold .* \(8,\) or \(12,\)"),
        (lambda: plot_shape(cube(y=torch.zeros(8)), prediction=torch.zeros(12)), "prediction must have the shape of the truth"),
        (lambda: plot_shape(CUBE * np.nan), "finite"),
    ],
)  # fmt: skip
def test_refusals(given, words):
    with pytest.raises(ShapeError, match=words):
        given()


def test_a_cloud_fills_its_frame_and_its_dots_are_as_large_as_it_is_sparse():
    generator = torch.Generator().manual_seed(0)
    flat = torch.rand(3000, 3, generator=generator) * torch.tensor([40.0, 25, 0.5])
    for pos in (flat, torch.cat((flat, torch.tensor([[900.0, 900, 0]])))):
        figure = plot_shape(pos)
        image = np.asarray(figure.axes[0].images[0].get_array())[..., 3] > 0
        for axis in (0, 1):
            drawn = np.flatnonzero(image.any(axis))
            assert np.ptp(drawn) > 0.9 * image.shape[1 - axis]
    assert "1 of 3,001 points are outside the picture." in figure.get_supxlabel()
    covered = [
        (np.asarray(plot_shape(flat[:many]).axes[0].images[0].get_array())[..., 3] > 0).mean()
        for many in (300, 3000)
    ]
    assert 0.15 < min(covered) < max(covered) < 1.6 * min(covered)


@pytest.mark.slow
def test_an_edge_is_a_crease_by_its_angle():
    smooth, usual, flat = (
        pixels(plot_shape(cube(), smooth=smooth)) for smooth in (True, 40, False)
    )
    # sides that are seen
    assert len(np.unique(usual.round(2), axis=0)) == len(np.unique(flat.round(2), axis=0)) == 3
    assert len(np.unique(smooth.round(2), axis=0)) > 20
    for wrong in (-1, 181, "yes"):
        with pytest.raises(OptionError, match="smooth"):
            plot_shape(cube(), smooth=wrong)


def test_the_title_has_the_name_of_the_file(tmp_path):
    import graphattn as ga

    ga.save(cube(), tmp_path / "crate.ply")
    assert (
        plot_shape(ga.load(tmp_path / "crate.ply")).get_suptitle()
        == "crate.ply: 8 points, 12 faces"
    )


@pytest.mark.parametrize(("copies", "lines"), [(1, 12), (5, 0)])
def test_the_lines_of_a_curve_are_drawn_and_a_graph_of_many_edges_is_not(copies, lines):
    angle = torch.arange(6) * torch.pi / 3
    ends = torch.stack((torch.arange(6), (torch.arange(6) + 1) % 6))
    curve = Data(
        pos=torch.stack((angle.cos(), angle.sin()), 1),
        edge_index=torch.cat((ends, ends.flip(0)), 1).repeat(1, copies),
    )
    (ax,) = plot_shape(curve).axes
    assert sum(len(c.get_segments()) for c in ax.collections if c.get_gid() == "edges") == lines


def test_weights_on_a_mesh_are_its_colours():
    import graphattn as ga
    from graphattn.graphs.catalogue.inputs import sphere, sphere_faces

    graph = ga.graphs.cross(len(sphere), len(sphere))
    heavy, seen = int(sphere[:, 2].argmax()), []
    for weight in (0.4, 0.004):  # relative to the largest: the same picture
        values = torch.full((graph.num_edges,), 1e-6)
        values[graph.source == heavy] = weight
        figure = ga.plot(graph, sphere, faces=sphere_faces, values=values, target=heavy)
        drawn = {each.get_gid(): each for each in figure.axes[0].get_children()}
        shades = np.asarray(drawn["surface"].get_array())[..., :3].astype(int)
        assert (shades[..., 0] - shades[..., 2]).max() > 60  # red
        assert f"edges of {heavy}" not in drawn
        assert "up to the largest drawn" in figure.axes[1].get_ylabel()
        seen.append(shades)
    np.testing.assert_allclose(seen[0], seen[1], atol=2)


def test_a_png_holds_the_picture():
    from PIL import Image

    image = np.asarray(Image.open(io.BytesIO(png(plot_shape(cube(), title=""))))).reshape(-1, 4)
    assert 0.1 < (image[:, :3] < 250).all(1).mean() < 0.6


def test_a_cloud_without_its_points_is_drawn_where_its_edges_put_it_and_says_so():
    import graphattn as ga

    pos = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
    said = ga.plot(ga.graphs.knn(pos, k=5)).get_supxlabel().replace("\n", " ")
    assert "Places are computed from the edges; if nodes have real ones, pass pos=." in said
    assert "curve through the points" not in said


def test_a_close_up_of_values_counts_the_points_that_it_leaves_out():
    import graphattn as ga

    pos = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    graph = ga.graphs.knn(pos, k=5)
    figure = ga.plot(graph, pos, values=torch.rand(graph.num_edges), target=3)
    said = figure.get_supxlabel().replace("\n", " ")
    left_out = int(said.split("A close-up: ")[1].split(" of 200 points")[0])
    assert 100 < left_out < 195
    assert "computed from the edges" not in said


def test_masks_of_clouds_are_in_curve_order_and_say_so():
    import graphattn as ga

    pos = torch.rand(199, 3, generator=torch.Generator().manual_seed(0))
    graph = ga.graphs.knn(pos, k=5)
    for queries in (None, pos[:97].flip(0)):
        graph = ga.graphs.knn(pos, k=5, queries=queries)
        figure = ga.plot(graph, pos, queries=queries, highlight=13)
        assert "in the order of a Hilbert curve" in figure.get_supxlabel().replace("\n", " ")
        assert figure.axes[0].get_xlabel() == "source: rank on the curve"
        assert figure.axes[0].get_ylabel() == "target: rank on the curve"
        mask = np.asarray(figure.axes[0].images[0].get_array()) > 0
        target, source = mask.nonzero()
        assert len(target) == graph.num_edges
        far = graph.target / graph.num_targets - graph.source / graph.num_sources
        assert (
            np.abs(target / mask.shape[0] - source / mask.shape[1]).mean() < 0.6 * far.abs().mean()
        )
        (row,) = [line.get_ydata()[0] for line in figure.axes[0].lines if line.get_gid() == "row"]
        order = ga.shapes.curve_order(pos, "hilbert")
        if queries is None:
            assert order[row] == 13
    assert (
        "Hilbert"
        not in ga.plot(ga.from_edge_index([[0, 1], [1, 2]], 3, 3), pos[:3]).get_supxlabel()
    )


def test_a_stray_vertex_of_no_face_does_not_change_the_frame():
    pos = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    face = torch.tensor([[0, 1, 2], [0, 1, 3]]).T
    far = torch.cat((pos, torch.full((1, 3), 1e4)))
    limits = []
    for points in (pos, far):
        ax = plot_shape(Data(pos=points, face=face)).axes[0]
        limits.append((*ax.get_xlim(), *ax.get_ylim()))
    assert limits[0] == pytest.approx(limits[1])


def test_a_page_gets_each_panel_of_a_figure_as_a_picture_of_its_own():
    from PIL import Image

    from graphattn.viz.style import panels

    pos = torch.rand(50, 3, generator=torch.Generator().manual_seed(0))
    shape = Data(pos=pos, label=torch.arange(50) % 2)
    figure = plot_shape(shape, "label", prediction=shape.label.roll(1), title="", caption=False)
    pictures = [Image.open(io.BytesIO(raw)) for raw, _ in panels(figure, 50)]
    assert len(pictures) == 3
    assert pictures[0].width < pictures[1].width  # beside the second are names of labels
    for picture, (_, width) in zip(pictures, panels(figure, 50), strict=True):
        ink = picture.convert("L").point(lambda grey: 255 * (grey < 200)).getbbox()
        assert ink[0] > 0 < ink[1]
        assert ink[2] < picture.width
        assert abs(width - 96 * picture.width / 50) <= 1
