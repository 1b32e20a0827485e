"""Latitudes and longitudes: the unit sphere, and edges by compass."""

import math

import pytest
import torch

import graphattn as ga
from graphattn.errors import GraphError, ShapeError
from graphattn.graphs import cross, knn, on_sphere
from graphattn.graphs.points.sphere import degrees


def haversine(lat, lon):
    half = (torch.deg2rad(lat[1] - lat[0]) / 2).sin() ** 2
    across = torch.deg2rad(lat).cos().prod(0) * (torch.deg2rad(lon[1] - lon[0]) / 2).sin() ** 2
    return 2 * (half + across).sqrt().asin()


def test_great_circles_are_those_of_the_haversine_formula():
    generator = torch.Generator().manual_seed(0)
    lat = torch.rand(2, 30, generator=generator).double() * 180 - 90
    lon = torch.rand(2, 30, generator=generator).double() * 360
    pos = on_sphere(lat, lon).view(2, 30, 3)
    graph = cross(30, 30)
    compass = ga.nn.edge_geometry(graph, pos[0], pos[1], features=("compass",))
    circle = compass.view(30, 30, 4).diagonal()[3]
    torch.testing.assert_close(circle, haversine(lat, lon), atol=1e-12, rtol=0)


def test_east_north_and_up_of_places_that_one_knows():
    target = on_sphere(torch.tensor([0.0, 60.0]), torch.tensor([90.0, 0.0]))
    source = on_sphere(torch.tensor([0.0, 61.0]), torch.tensor([91.0, 0.0]))
    compass = ga.nn.edge_geometry(cross(2, 2), source, target, features=("compass",)).view(2, 2, 4)
    step = math.radians(1)
    down = math.cos(step) - 1
    wanted = [[math.sin(step), 0.0, down, step], [0.0, math.sin(step), down, step]]
    torch.testing.assert_close(
        compass.diagonal().T, torch.tensor(wanted, dtype=torch.float64), atol=1e-7, rtol=0
    )


def test_the_compass_turns_with_the_globe_about_its_axis_alone():
    lat, lon = torch.tensor([10.0, 50.0, -30.0, 90.0]), torch.tensor([0.0, 40.0, 200.0, 0.0])
    graph = knn(on_sphere(lat, lon), 2)

    def compass(pos):
        return ga.nn.edge_geometry(graph, pos, features=("compass",))

    away_from_pole = graph.target != 3
    turned = compass(on_sphere(lat, lon + 33))
    torch.testing.assert_close(turned[away_from_pole], compass(on_sphere(lat, lon))[away_from_pole])
    tilted = compass(on_sphere(lat, lon)[:, [2, 0, 1]])
    assert not torch.allclose(tilted, compass(on_sphere(lat, lon)))
    pos = on_sphere(lat, lon).requires_grad_()
    compass(pos).sum().backward()
    assert bool(torch.isfinite(pos.grad).all())


def test_degrees_are_asked_about_and_other_planes_are_not():
    lat, lon = torch.meshgrid(
        torch.linspace(-88, 88, 12), torch.arange(0, 360, 15.0), indexing="ij"
    )
    with pytest.warns(UserWarning, match="on_sphere"):
        knn(torch.stack((lat.flatten(), lon.flatten()), 1), 4)
    knn(torch.rand(100, 2) * 90, 4)  # warnings are errors in this suite


def test_bad_degrees():
    with pytest.raises(GraphError, match="is it lon"):
        on_sphere(torch.tensor([120.0]), torch.tensor([0.0]))
    with pytest.raises(GraphError, match="meshgrid"):
        on_sphere(torch.zeros(3), torch.zeros(4))
    with pytest.raises(ShapeError, match="3 axes"):
        ga.nn.edge_geometry(cross(2, 2), torch.rand(2, 2), features=("compass",))


@pytest.mark.parametrize("radius", [6371.0, 3.0**0.5])
def test_points_of_another_sphere_have_no_degrees(radius):
    """Among them the corners of a cube."""
    pos = on_sphere(torch.tensor([30.0, -30.0]), torch.tensor([45.0, 60.0]))
    assert degrees(pos) is not None
    assert degrees(radius * pos) is None
